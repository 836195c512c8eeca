"""The hook through which storage backends come in, built in or installed: pluggy, project name ``asyncrec``.

A plugin is a module with one function, named by an entry point of the group ``asyncrec``::

    from asyncrec.storage.hookspecs import hookimpl

    @hookimpl
    def asyncrec_storage_factories():
        return [StorageFactory("s3", ("s3", "s3a"), open_s3)]

The module is imported when the first path is opened that needs a backend: heavy imports belong in the factory's
``open``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from asyncrec.storage.base import StorageFactory

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT = "asyncrec"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    """The backends of one plugin. Called once; imports nothing heavy."""
    raise NotImplementedError("a specification, never called")
