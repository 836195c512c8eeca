"""`in_thread_unless`: what is little work is done where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from asyncrec._concurrency.tasks import in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread_unless(little: bool, func: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call ``func(*args)`` here where it is ``little`` work, with no checkpoint, and else as `in_thread` does.

    Up to half a millisecond is little: to wait for a thread takes a fifth of that on an idle machine, and milliseconds
    where other threads compute.
    """
    return func(*args) if little else await in_thread(func, *args)
