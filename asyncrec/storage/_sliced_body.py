"""`SlicedBody`: the body of a request, handed to an HTTP client slice by slice."""

from __future__ import annotations

from collections.abc import Callable

import anyio.lowlevel

from asyncrec.storage._base import Buffer

# Bytes handed to the socket at a time: each slice may be copied, and 256 KiB take 0.05 ms.
_SLICE = 256 * 1024


class SlicedBody:
    """A body for one attempt, to be iterated over once: every client takes such a one, beside its length.

    Given as `bytes`, a client writes all of them in one go, on the loop. A class, not a generator: one that is left in
    the middle needs no finalising.

    Args:
        data: it must not change until the request has ended.
        moved: called before each slice, which is a sign of life.
    """

    def __init__(self, data: Buffer, moved: Callable[[], object] = lambda: None) -> None:
        self._view = memoryview(data).cast("B")
        self.moved = moved
        self._begun = False

    def __aiter__(self) -> SlicedBody:
        if self._begun:
            # Clients repeat a request whose connection broke, older ones even with what was left of the body.
            raise ConnectionResetError("the body was sent in part")
        return self

    async def __anext__(self) -> memoryview:
        if not self._view:
            raise StopAsyncIteration
        self._begun = True
        # A fast socket takes one slice after the other without the loop having had its turn.
        await anyio.lowlevel.checkpoint()
        self.moved()
        piece, self._view = self._view[:_SLICE], self._view[_SLICE:]
        return piece
