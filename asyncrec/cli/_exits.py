"""`explained` says what an error means to whoever called the command: an exit code, and lines with what happened and
what to do.

The type of the error decides, and nothing else: see the tree in `asyncrec.errors`.
"""

from __future__ import annotations

from contextlib import suppress
from traceback import walk_tb

from asyncrec.cli._words import in_options
from asyncrec.errors import AsyncRecError, DatasetError, ExampleError, FormatError, IntegrityError

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
    return FAULT, [
        f"{type(error).__name__}: {error}",
        f"this is a fault of {_whose(error)}: please report it, with --debug",
    ]


def _whose(error: BaseException) -> str:
    """Name who raised what nobody expected: asyncrec, or the plugin in whose code, or below it, that was."""
    from importlib.metadata import entry_points

    plugins = {}
    with suppress(Exception):  # the metadata of some distribution cannot be read
        for entry in entry_points(group="asyncrec"):
            if not entry.value.startswith("asyncrec."):
                named = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.name
                plugins[entry.module.partition(".")[0]] = f"the plugin {named}"
    plugin, innermost = "", "asyncrec"
    for frame, _ in walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        plugin = plugins.get(package, plugin)
        if package in plugins or package == "asyncrec":
            innermost = plugins.get(package, "asyncrec")
    return f"asyncrec, or of {plugin}, which called it" if plugin and innermost == "asyncrec" else innermost


def _message(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text or type(error).__name__
