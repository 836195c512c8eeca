"""`explained` converts an error to an exit code and to lines that describe the problem and its remedy.

The exit code depends only on the type of the error; see the class tree in `asyncrec.errors`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from traceback import walk_tb

from asyncrec.errors import AsyncRecError, DatasetError, ExampleError, FormatError, IntegrityError, RecordKeyError

FINE, DAMAGE, USAGE, STORAGE, FAULT, NO_KEY = range(6)

# The parameters named in the library's messages, and the command line options that set them.
_OPTIONS = (
    {"source_format": "--from", "target_format": "--to", "min_age": "--older-than"}
    | {"manifest_only": "--manifest"}
    | {
        name: "--" + name.replace("_", "-").replace("options", "option")
        for name in [
            "class_feature",
            "compression",
            "drop_duplicates",
            "dry_run",
            "group_by",
            "jobs",
            "key_feature",
            "max_shard_bytes",
            "max_shard_records",
            "num_shards",
            "parallelism",
            "ratios",
            "storage_options",
            "target_storage_options",
            "temporary_folder",
        ]
    }
)
# A name without an underscore may also be an English word, so it is replaced only before "=".
_PARAMETER = re.compile(r"(?<![\w-])(\w{1,40})\b(=?)(?=(\S?))")


def explained(error: BaseException) -> tuple[int, list[str]]:
    """Return the exit code of an error, and the lines to print, which are the error's message and notes."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = [_in_options(line) for line in (_message(error), *getattr(error, "__notes__", ()))]
    if isinstance(error, FormatError | ExampleError | DatasetError | IntegrityError):
        return DAMAGE, lines
    if isinstance(error, OSError):  # such as a StorageError
        return STORAGE, lines
    if isinstance(error, RecordKeyError):
        return NO_KEY, lines
    if isinstance(error, AsyncRecError):  # an ArgumentError, a PluginError
        return USAGE, lines
    if isinstance(error, ImportError):
        return USAGE, [*lines, "this command needs a library that is not installed"]
    return FAULT, [
        f"{type(error).__name__}: {error}",
        f"this is a bug in {_whose(error)}; please report it, with the output of --debug",
    ]


def _whose(error: BaseException) -> str:
    """Return where the bug behind an unexpected error may be: in asyncrec, in a plugin, or in either one."""
    from importlib.metadata import entry_points

    plugins = {}
    with suppress(Exception):  # the metadata of a distribution may be unreadable
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
    return f"asyncrec, or in {plugin}, which called it" if plugin and innermost == "asyncrec" else innermost


def _message(error: BaseException) -> str:
    return (error.in_shell if isinstance(error, AsyncRecError) else str(error)) or type(error).__name__


def _in_options(message: str) -> str:
    """Return the message with the names of parameters replaced by those of command line options."""

    def option(match: re.Match[str]) -> str:
        name, assigned, follows = match.groups()
        known = _OPTIONS.get(name) if assigned or "_" in name else None
        return match[0] if known is None else known + " " * bool(assigned and follows)

    return _PARAMETER.sub(option, message)
