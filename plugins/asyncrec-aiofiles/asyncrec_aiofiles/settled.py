"""`settled`: await a call of aiofiles to its end, whatever is cancelled meanwhile.

aiofiles runs each call in a thread, and a thread cannot be cancelled: the `await` returns at once, while the write goes
on. Whoever then closes or unlinks the file pulls it from under that write, and whoever reuses the buffers spoils what
is being written.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TypeVar

from asyncrec.storage import sheltered

__all__ = ["settled"]

T = TypeVar("T")


async def settled(call: Awaitable[T]) -> T:
    """Give the result of ``call``, which is never cancelled. Its caller's cancellation comes at the next checkpoint.

    Where the call fails, it comes at once. What a caller wants cancelled before it begins has a checkpoint before it.
    """
    return await sheltered(call, limit=math.inf)
