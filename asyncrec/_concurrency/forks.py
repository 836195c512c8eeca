"""`on_fork` disables objects in a forked child, because their tasks and threads exist only in the parent.

In the child, such an object would hang, or write into the parent's files and connections. An object that registers
itself with `on_fork` has its method ``forked`` called in each child. The method makes every later call raise an error,
so the object does not have to check for a fork each time it handles a record.
"""

from __future__ import annotations

import os
import types
import weakref
from functools import cache
from typing import Any, Protocol


class Forkable(Protocol):
    """An object whose `forked` method is called in a forked child."""

    def forked(self) -> None:
        """Discard all resources that belong to the parent. Called in the child, and must neither write nor wait."""


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def on_fork(owner: Forkable) -> None:
    """Call ``owner.forked()`` in every forked child, as long as ``owner`` is alive."""
    _alive.add(owner)


def forked_error(what: str) -> RuntimeError:
    """Return the error for an object that was opened in the parent and is used in the child."""
    return RuntimeError(f"{what} was opened before a fork, in process {os.getppid()}; open it again in this process")


class OfOneProcess:
    """Base class of objects that several threads may use. In a forked child, every use of them raises RuntimeError.

    Calls do not have to compare process ids, or acquire a lock that a thread of the parent may have held. Instead, the
    child replaces the object's class with a class of the same name that has no attributes. A method therefore fails at
    its first use of ``self``, even if it was looked up before the fork, as in ``Process(target=writer.write)``.
    """

    def __init__(self) -> None:
        on_fork(self)

    def forked(self) -> None:
        """Make every later use of the object raise an error."""
        _alive.discard(self)  # if this child forks too, its children inherit the replaced class
        refuse_use(self)


def refuse_use(owner: Any) -> None:
    """Make every later use of an object in this forked child raise a RuntimeError, by replacing its class."""
    owner.__class__ = _refusing(type(owner))  # type: ignore[arg-type]  # a class is hashable


@cache
def _refusing(kind: type) -> type:
    """Return the class that replaces ``kind`` in the child."""

    def refuse(self: object, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)  # attributes that Python itself looks up on any object
        raise forked_error(f"this {kind.__name__}")

    namespace = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__getattribute__": refuse, "__slots__": ()}
    return types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(namespace))


def _tell_all() -> None:
    for owner in list(_alive):
        owner.forked()


os.register_at_fork(after_in_child=_tell_all)
