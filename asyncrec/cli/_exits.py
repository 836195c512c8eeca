"""`explained` says what an error means to whoever called the command: an exit code, and lines with what happened and
what to do.

The type of the error decides, and nothing else: see the tree in `asyncrec.errors`.
"""

from __future__ import annotations

from asyncrec.cli._words import in_options
from asyncrec.errors import AsyncRecError, DatasetError, ExampleError, FormatError, IntegrityError

__all__ = ["DAMAGE", "FAULT", "FINE", "STORAGE", "USAGE", "explained"]

FINE, DAMAGE, USAGE, STORAGE, FAULT = range(5)


def explained(error: BaseException) -> tuple[int, list[str]]:
    """The exit code and the lines for an error. The notes it carries follow its message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = [in_options(line) for line in (_message(error), *getattr(error, "__notes__", ()))]
    if isinstance(error, FormatError | ExampleError | DatasetError | IntegrityError):
        return DAMAGE, lines
    if isinstance(error, OSError):  # StorageError is one
        return STORAGE, lines
    if isinstance(error, AsyncRecError):  # an ArgumentError, a PluginError
        return USAGE, lines
    if isinstance(error, ImportError):
        return USAGE, [*lines, "a library that is not installed is needed for this"]
    return FAULT, [f"{type(error).__name__}: {error}", "this is a fault of asyncrec: please report it, with --debug"]


def _message(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text or type(error).__name__
