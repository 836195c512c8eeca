"""What an error means to whoever called the command: an exit code, and lines that say what happened and what to do."""

from __future__ import annotations

import contextlib
import linecache

from asyncrec.errors import (
    AsyncRecError,
    DatasetError,
    ExampleError,
    FormatError,
    IntegrityError,
    PluginError,
    StorageError,
)

__all__ = ["DAMAGE", "FAULT", "FINE", "STORAGE", "USAGE", "UsageError", "explained"]

FINE, DAMAGE, USAGE, STORAGE, FAULT = range(5)


class UsageError(Exception):
    """What was asked for cannot be: options that contradict each other, a library that is not installed."""


def explained(error: BaseException) -> tuple[int, list[str]]:
    """The exit code and the lines for an error. The notes it carries follow its message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = [_message(error), *getattr(error, "__notes__", ())]
    if isinstance(error, FormatError | ExampleError | DatasetError | IntegrityError):
        return DAMAGE, lines
    if isinstance(error, StorageError | OSError):
        return STORAGE, lines
    if isinstance(error, UsageError | PluginError | AsyncRecError):
        return USAGE, lines
    if isinstance(error, ImportError):
        return USAGE, [*lines, "a library that is not installed is needed for this"]
    if isinstance(error, ValueError | TypeError | LookupError) and _was_raised(error):
        # The library's way of refusing an argument: of a storage option, a compression, a ratio.
        return USAGE, lines
    return FAULT, [f"{type(error).__name__}: {error}", "this is a fault of asyncrec: please report it, with --debug"]


def _was_raised(error: BaseException) -> bool:
    """Whether a ``raise`` statement made the error: what an expression met with is no answer to an argument."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return True
    file = at.tb_frame.f_code.co_filename
    line = linecache.getline(file, at.tb_lineno).strip()
    # A backend that lists its options as parameters is called with others: in the standard library's context managers.
    return not line or line.startswith("raise") or file == contextlib.__file__


def _message(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text or type(error).__name__
