"""The hooks of a plugin, for the pluggy project ``asyncrec``. `asyncrec.plugins` shows how to write a plugin.

Each hook is called once, when a path, a command or a format that is not built in is used for the first time. A hook
must not import slow packages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from asyncrec.plugins._kinds import Command, Format

PROJECT = "asyncrec"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Decorator that marks a function of a plugin as its implementation of one of asyncrec's hooks."""


@hookspec
def asyncrec_storage_factories() -> Iterable[Any]:
    """Return the storage backends of one plugin, each as an `asyncrec.storage.StorageFactory` (not imported here)."""
    raise NotImplementedError("this function only specifies a hook and is never called")


@hookspec
def asyncrec_commands() -> Iterable[Command]:
    """Return the commands of one plugin."""
    raise NotImplementedError("this function only specifies a hook and is never called")


@hookspec
def asyncrec_formats() -> Iterable[Format]:
    """Return the formats of one plugin, for `asyncrec.tools.convert`."""
    raise NotImplementedError("this function only specifies a hook and is never called")
