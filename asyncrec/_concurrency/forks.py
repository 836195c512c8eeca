"""`on_fork` makes objects refuse to work in a forked child: their tasks and threads stayed with the parent.

Used there, such an object would hang, or write into the parent's files and connections. It registers itself with
`on_fork`, and its method ``forked`` is called in each child, so that every later call can raise an error. Nothing is
checked per record.
"""

from __future__ import annotations

import os
import types
import weakref
from functools import cache
from typing import Any, Protocol


class Forkable(Protocol):
    """An object whose `forked` is called in a forked child."""

    def forked(self) -> None:
        """In a child: leave what is the parent's to the parent. Must neither write nor wait."""


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def on_fork(owner: Forkable) -> None:
    """Call ``owner.forked()`` in every child, for as long as it lives."""
    _alive.add(owner)


def forked_error(what: str) -> RuntimeError:
    """Make the error of a child that uses what its parent opened."""
    return RuntimeError(f"{what} was opened before a fork, in process {os.getppid()}; open it again in this process")


class OfOneProcess:
    """The base of an object that threads may use: in the child of a fork, every use of it raises RuntimeError.

    No call compares processes, least of all behind a lock that a thread of the parent may have held. In the child the
    object gets another class, of the same name, that has no attributes. So a method refuses at its first use of
    ``self``, even if it was looked up before the fork, as ``Process(target=writer.write)`` does.
    """

    def __init__(self) -> None:
        on_fork(self)

    def forked(self) -> None:
        """Refuse from now on; see `Forkable`."""
        _alive.discard(self)  # a child of this child inherits the refusal
        self.__class__ = _refusing(type(self))  # type: ignore[arg-type]  # a class is hashable


@cache
def _refusing(kind: type[OfOneProcess]) -> type[OfOneProcess]:
    """Return the class that an object of this kind has in the child."""

    def refuse(self: object, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)  # what Python itself asks of any object
        raise forked_error(f"this {kind.__name__}")

    namespace = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__getattribute__": refuse}
    return types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(namespace))


def _tell_all() -> None:
    for owner in list(_alive):
        owner.forked()


os.register_at_fork(after_in_child=_tell_all)
