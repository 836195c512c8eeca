"""`WindowsAhead` reads windows of records ahead of need, many parts at a time, and gives them out in order.

Read one window after the other, a store's link is idle each time the last parts of a window are on their way, and for
every record that its consumer works on meanwhile. So parts are taken across the borders of windows: as soon as one is
read the next begins, of the window behind if this one has no more. What bounds that is what is held: besides the window
that is being given out one more, read or on its way; while the consumer waits for one, that and the next. Only while it
waits for the first, nothing else is read.

A part that two windows share is read once.
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
    """Records that are read by one call.

    Attributes:
        numbers: theirs; int64, ascending.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.records: list[T] = []
        self.error: Exception | None = None
        self.done: anyio.Event | None = None  # made when its turn comes, in the loop


class Window(Generic[T]):
    """Records that are given out together.

    Args:
        wanted: their numbers in the order in which they are given; int64.
        parts: what holds them, and maybe more, each once.
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
        """The records, once all parts are there. They are not gathered first: each pass over so much memory shows."""
        parts = [part.records for part in self.parts]
        return map(getitem, map(parts.__getitem__, self._parts), self._places)


class WindowsAhead(Generic[T]):
    """Reads windows ahead, in tasks of ``scope``.

    Args:
        windows: gives them one after the other; each step blocks, and is made in a thread.
        read: gives the records with these numbers.
        tasks: how many parts are read at a time.
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
        self._planned: deque[Window[T]] = deque()  # those not given out
        self._parts: deque[Part[T]] = deque()  # those not begun
        self._planning = anyio.Lock()
        self._changed = anyio.Event()
        self._room = anyio.Event()
        self._working: list[anyio.CancelScope] = []
        self._awaited = self._given = False
        self._ended = False
        self._error: Exception | None = None

    async def next(self) -> Iterable[T] | None:
        """Return the next window's records; `None` at the end. An error is raised here, and by every later call."""
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
                assert part.done is not None, "planned"
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
        """Give up what is being read."""
        self._ended = True
        for scope in self._working:
            scope.cancel()

    async def _work(self, scope: anyio.CancelScope) -> None:
        with scope:
            while (part := await self._take()) is not None:
                assert part.done is not None, "planned"
                try:
                    part.records = await self._read(part.numbers)
                except Exception as error:
                    part.error = error
                    self._parts.clear()  # all of them are behind it
                    self._end()
                part.done.set()

    async def _take(self) -> Part[T] | None:
        """The next part to read; `None` at the end."""
        async with self._planning:
            while not (self._parts or self._ended):
                # While one is waited for nothing else is held, so that there is room for one more. The first of all
                # has the link for itself, or it would come as late as the second.
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
