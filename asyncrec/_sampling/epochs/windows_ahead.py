"""`WindowsAhead` reads windows of records before they are needed, many parts at a time, and returns them in order.

If windows were read one after another, the connection to a store would be idle while the last parts of a window arrive,
and while the consumer processes the window's records. Therefore, as soon as one part has been read, the next part is
requested, even if it belongs to the next window.

The number of windows in memory is limited. While the consumer processes a window, one more window is in memory or being
read. While the consumer waits for a window, that window and the next one are read. Only the first window is read alone.

A part that two windows share is read only once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from operator import getitem
from typing import Generic, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import TaskScope, in_thread

T = TypeVar("T")
Numbers = NDArray[np.int64]


class Part(Generic[T]):
    """Records that are read in one call.

    Attributes:
        numbers: the numbers of the records; int64, ascending.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.records: list[T] = []
        self.error: Exception | None = None
        self.done: anyio.Event | None = None  # created on the event loop when the part is planned


class Window(Generic[T]):
    """Records that are returned together.

    Args:
        wanted: the numbers of the records, in the order in which they are returned; int64.
        parts: the parts that contain these records, and possibly other records. No two parts share a record.
    """

    def __init__(self, wanted: Numbers, parts: list[Part[T]]) -> None:
        self.parts = parts
        numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
        order = np.argsort(numbers, kind="stable")
        places = order[np.searchsorted(numbers, wanted, sorter=order)]
        ends = np.cumsum([len(part.numbers) for part in parts], dtype=np.int64)
        part = np.searchsorted(ends, places, side="right")
        self._parts: list[int] = part.tolist()
        self._places: list[int] = (places - np.append(0, ends)[part]).tolist()

    def records(self) -> Iterable[T]:
        """Return the records. All parts must have been read.

        The records are not copied into a list first, because another pass over that much memory takes noticeable time.
        """
        parts = [part.records for part in self.parts]
        return map(getitem, map(parts.__getitem__, self._parts), self._places)


class WindowsAhead(Generic[T]):
    """A reader that fetches windows before they are needed, in tasks started in ``scope``.

    Args:
        windows: yields the windows in order. Each step blocks, so it runs in a thread.
        read: returns the records with the given numbers.
        tasks: the number of parts to read concurrently.
    """

    def __init__(
        self,
        scope: TaskScope,
        windows: Iterator[Window[T]],
        read: Callable[[Numbers], Awaitable[list[T]]],
        *,
        tasks: int,
    ) -> None:
        self._scope = scope
        self._windows = windows
        self._read = read
        self._tasks = tasks
        self._planned: deque[Window[T]] = deque()  # windows not yet returned
        self._parts: deque[Part[T]] = deque()  # parts not yet begun
        self._planning = anyio.Lock()
        self._changed = anyio.Event()
        self._room = anyio.Event()
        self._working: list[anyio.CancelScope] = []
        self._awaited = self._given = False
        self._ended = False
        self._error: Exception | None = None

    async def next(self) -> Iterable[T] | None:
        """Return the next window's records, or `None` at the end. Every call after an error raises the error again."""
        if not self._working:
            for _ in range(self._tasks):
                self._working.append(anyio.CancelScope())
                self._scope.start_soon(self._work, self._working[-1])
        self._awaited = True
        self._room.set()
        try:
            while not (self._planned or self._ended):
                self._changed = anyio.Event()
                await self._changed.wait()
            if not self._planned:
                if self._error is not None:
                    raise self._error
                return None
            for part in self._planned[0].parts:
                assert part.done is not None, "the part is planned"
                await part.done.wait()
                if part.error is not None:
                    raise part.error
        finally:
            self._awaited = False
        window = self._planned.popleft()
        self._given = True
        self._room.set()
        return window.records()

    def cancel(self) -> None:
        """Cancel the reads in progress."""
        self._ended = True
        for scope in self._working:
            scope.cancel()

    async def _work(self, scope: anyio.CancelScope) -> None:
        with scope:
            while (part := await self._take()) is not None:
                assert part.done is not None, "the part is planned"
                try:
                    part.records = await self._read(part.numbers)
                except Exception as error:
                    part.error = error
                    self._parts.clear()  # these parts all come after the failed part
                    self._end()
                part.done.set()

    async def _take(self) -> Part[T] | None:
        """Wait until there is a part to read, and return the part, or `None` at the end."""
        async with self._planning:
            while not (self._parts or self._ended):
                # A consumer that waits for a window is not processing another one, so there is room for one more. The
                # first window is read alone, because otherwise it would arrive as late as the second.
                while len(self._planned) > (self._awaited and self._given):
                    self._room = anyio.Event()
                    await self._room.wait()
                await self._plan()
            return self._parts.popleft() if self._parts else None

    async def _plan(self) -> None:
        try:
            window = await in_thread(next, self._windows, None)
        except Exception as error:
            self._error = error
            window = None
        if window is None:
            self._end()
            return
        for part in window.parts:
            if part.done is None:
                part.done = anyio.Event()
                self._parts.append(part)
        self._planned.append(window)
        self._changed.set()

    def _end(self) -> None:
        self._ended = True
        self._changed.set()
