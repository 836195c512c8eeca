"""The plugin interface for stores, commands, and formats of `convert` that are not in the core.

A plugin is a module, named by an entry point of the group ``asyncrec``, with one or more of the functions below::

    from asyncrec.plugins import Command, hookimpl

    @hookimpl
    def asyncrec_commands():
        return [Command("sizes", "how large the records are", "asyncrec_sizes.command:command")]

    asyncrec_storage_factories    StorageFactory (of `asyncrec.storage`): opens URLs of some schemes
    asyncrec_commands             Command: a command of ``asyncrec``
    asyncrec_formats              Format: a kind of file that `asyncrec.tools.convert` reads or writes

The module is imported if a path, a command or a format is not built in, and for ``asyncrec --help``, so it must not
import slow packages. The target of a Command is imported when the command is called, and the functions of a Format
import their own dependencies. Importing this package and a plugin's module takes a few milliseconds.

    _hookspecs  the three hooks
    _manager    finds and imports the installed plugins; an error in one plugin is reported but does not affect others
    _kinds      the types that the hooks return
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.plugins._hookspecs import hookimpl as hookimpl
    from asyncrec.plugins._kinds import BadMember as BadMember
    from asyncrec.plugins._kinds import Command as Command
    from asyncrec.plugins._kinds import Converted as Converted
    from asyncrec.plugins._kinds import Encoder as Encoder
    from asyncrec.plugins._kinds import Format as Format
    from asyncrec.plugins._kinds import SourceFile as SourceFile

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.plugins._hookspecs": "hookimpl",
        "asyncrec.plugins._kinds": "BadMember Command Converted Encoder Format SourceFile",
    },
)
