"""`on_fork` tells objects in a child that they are of no use there: their tasks and threads stayed with the parent.

Used there it would hang, or write into the parent's files and connections. Whoever holds such things registers itself
with `on_fork`, and its method ``forked`` is called in each child, so that every later call can say so; nothing is
checked per record.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forkable", "forked_error", "on_fork"]


class Forkable(Protocol):
    """An object that is told when it finds itself in a child."""

    def forked(self) -> None:
        """In a child: leave what is the parent's to it. Nothing may be written, and nothing waited for."""


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def on_fork(owner: Forkable) -> None:
    """Call ``owner.forked()`` in every child, for as long as it lives."""
    _alive.add(owner)


def forked_error(what: str) -> RuntimeError:
    """Make the error of a child that uses what its parent opened."""
    return RuntimeError(f"{what} was opened before a fork, in process {os.getppid()}: open it anew in this one")


def _tell_all() -> None:
    for owner in list(_alive):
        owner.forked()


os.register_at_fork(after_in_child=_tell_all)
