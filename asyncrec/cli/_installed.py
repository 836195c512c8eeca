"""`Installed` finds commands: the built-in ones (`COMMANDS`) and those of plugins.

The built-in command NAME is the function ``command`` in the module ``asyncrec.cli._NAME`` (with ``_`` for ``-``), which
is imported when the command is called. A new built-in command needs a module and a line in `SECTIONS`, which determines
its position and description in ``asyncrec --help``.

A built-in command is found without loading plugins, and no plugin can use its name. If a known command is not
installed, `Installed.missing` returns a message that names the package to install.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrec.plugins._kinds import Command

if TYPE_CHECKING:
    from asyncrec.plugins._manager import Plugins

SECTIONS: dict[str, dict[str, str]] = {
    "Inspect": {
        "info": "summarize a file, folder or data set",
        "ls": "list the data sets and files in a folder, or the shards of a data set",
        "head": "show the first records, decoded",
        "tail": "show the last records and, with -f, new ones as they are committed",
        "cat": "print records, decoded or as JSON, hex, text or raw bytes",
        "sample": "show random records, or write them to a new data set",
        "count": "count records, optionally by the values of a feature",
        "watch": "show the progress of a crawl: speed, writers, records not yet safe",
        "schema": "show the features of records, from the stored or an inferred schema",
        "diff": "compare the records of two data sets",
    },
    "Check and repair": {
        "verify": "check every checksum and find orphans",
        "repair": "write the intact records of a damaged file to a new file",
        "recover": "commit the records that a crashed writer left behind",
        "forget-source": "forget the stored position of a source, to start it over",
        "index": "create indexes for random access, tfrecord or DALI",
        "uploads": "list or remove unfinished uploads",
        "doctor": "test whether a store meets the requirements of asyncrec",
    },
    "Create and transform": {
        "compact": "join small shards and merge the manifest, to open the data set faster",
        "copy": "copy files and data sets between stores, verifying checksums",
        "reshard": "rewrite a data set with different shards, compression or order",
        "delete": "permanently delete records by key or condition",
        "filter": "write the records that match conditions to a new data set",
        "merge": "concatenate several data sets into a new one",
        "dedupe": "write a new data set without duplicate records",
        "convert": "convert JSON lines, CSV and, with asyncrec-formats, Parquet and WARC",
        "from-csv": "create train, eval and test data sets from a CSV file",
        "from-folder": "create train, eval and test data sets from folders of files",
    },
}

COMMANDS: dict[str, Command] = {
    name: Command(name, words, f"asyncrec.cli._{name.replace('-', '_')}:command", section)
    for section, commands in SECTIONS.items()
    for name, words in commands.items()
}


# The distributions that provide known plugin commands.
_PACKAGES = {"report": "asyncrec-report"}
# No command deletes a whole data set. This page of the documentation shows how to delete one.
_DELETE = "docs/how-to/rotate-by-day.md for a data set; delete, for records"
# Names of commands in other tools, and the asyncrec commands that serve the same purpose.
_GUESSED = {
    "browse": "head, or report",
    "cp": "copy",
    "export": "convert",
    "get": "cat --key, or cat --record",
    "grep": "filter --where",
    "import": "convert, or from-csv",
    "list": "ls",
    "rm": _DELETE,
    "search": "filter --where",
    "show": "head, or cat",
    "stats": "info, count --by, or report",
    "validate": "verify",
}

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class Installed:
    """The commands that this process can run. Plugins are loaded once, when their commands are first needed."""

    def __init__(self, plugins: Plugins | None = None) -> None:
        self._plugins = plugins
        self._of_plugins: dict[str, Command] | None = None

    def find(self, name: str) -> Command | None:
        """Return the command with this name, or `None` if it does not exist."""
        return COMMANDS.get(name) or self.all().get(name)

    def all(self) -> dict[str, Command]:
        """Return all commands by name, the built-in commands first."""
        if self._of_plugins is None:
            self._of_plugins = self._load()
        return COMMANDS | self._of_plugins

    def broken(self) -> list[str]:
        """Return a line for each plugin that cannot be used."""
        broken = self._plugins.broken if self._plugins is not None else {}
        return [
            f"the plugin {name!r} cannot be used: {type(error).__name__}: {error}" for name, error in broken.items()
        ]

    def missing(self, name: str) -> str | None:
        """Return a message with a remedy for a command that does not exist, or `None` if no remedy is known."""
        if name in _GUESSED:
            return f"there is no command {name!r}; see {_GUESSED[name]}"
        package = _PACKAGES.get(name)
        if package is None:
            return None
        message = f"the command {name!r} is not installed: pip install {package}"
        if self._plugins is not None and self._plugins.disabled:
            from asyncrec.plugins._manager import DISABLE

            message += f". {DISABLE} leaves out: {', '.join(self._plugins.disabled)}"
        return message

    def _load(self) -> dict[str, Command]:
        if self._plugins is None:
            from asyncrec.plugins._manager import PLUGINS

            self._plugins = PLUGINS
        self._plugins.load()
        found: dict[str, Command] = {}
        for plugin, command in sorted(self._plugins.gather("asyncrec_commands", _checked), key=lambda each: each[0]):
            if command.name in found:
                self._plugins.note(plugin, _refused(plugin, f"another plugin already has the command {command.name!r}"))
            else:
                found[command.name] = command
        return found


INSTALLED = Installed()


def function_of(command: Command) -> Callable[..., int]:
    """Import and return the function of a command.

    Raises:
        ImportError, AttributeError: the target of the command does not exist.
    """
    module, _, name = command.target.partition(":")
    function: Callable[..., int] = getattr(import_module(module), name)
    return function


def _checked(plugin: str, command: Any) -> Command:
    """Return a plugin's command if it is valid.

    Raises:
        PluginError: the command is not valid.
    """
    if not isinstance(command, Command):
        raise _refused(plugin, f"{command!r} is not a Command")
    for text in (command.name, command.words, command.target, command.section):
        if not isinstance(text, str) or not text or not text.isprintable():
            raise _refused(
                plugin, f"the command {command!r}: name, words, target and section must each be a single line of text"
            )
    if not _NAME.fullmatch(command.name):
        raise _refused(
            plugin, f"the name {command.name!r}: write lower-case letters and digits, with '-' between words"
        )
    if not _TARGET.fullmatch(command.target):
        raise _refused(plugin, f"the target {command.target!r}: write module:function")
    if command.name in COMMANDS:
        raise _refused(plugin, f"the command {command.name!r} is built in; choose another name")
    return command


def _refused(plugin: str, why: str) -> Exception:
    from asyncrec.errors import PluginError

    return PluginError(f"the plugin {plugin!r}: {why}")
