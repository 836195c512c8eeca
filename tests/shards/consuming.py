"""Minimal consumers of a source, which commit one position at a time without writing any shards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import segment_key, segment_of
from asyncrec._shards.manifest.segment import Segment, format_time, parse_segment
from asyncrec._shards.ownership.marks import put_mark
from asyncrec._shards.ownership.sources import TakenSource, take_source
from asyncrec.errors import ConflictError, ObjectExistsError
from asyncrec.storage import Buffer, ObjectInfo, Storage
from asyncrec.testing import FlakyStorage

SOURCE = "topic/3"


class Stepping(FlakyStorage):
    """A process's connection to a store that blocks before each request until the test lets it continue.

    Attributes:
        asked: the number of requests that the process has begun.
        left: the number of requests that the process may still begin.
    """

    def __init__(self, storage: Storage, left: float = math.inf) -> None:
        super().__init__(storage)
        self.asked = 0
        self.left = left
        self._changed = anyio.Event()
        self._stands = anyio.Event()
        self._has_ended = False

    async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
        while self.left <= 0:
            self._stands.set()
            await self._changed.wait()
        self.left -= 1
        self.asked += 1
        return await call()

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        put = partial(self._storage.put, key, data, exclusive=exclusive)
        return await self.perform("put", key, put)  # type: ignore[no-any-return]

    async def go(self, requests: float = math.inf) -> None:
        """Let the process begin more requests; return when it is blocked again or has ended."""
        if self._has_ended:
            return
        self.left, self._stands = requests, anyio.Event()
        self._changed.set()
        self._changed = anyio.Event()
        await self._stands.wait()

    def ends(self) -> None:
        """Let the process run without blocking from now on."""
        self.left, self._has_ended = math.inf, True
        self._stands.set()


class Consumer:
    """A writer that owns a source and commits one position at a time.

    Attributes:
        acknowledged: the positions that the consumer has reported as committed.
        taken: the consumer's turn of the source; `None` if it does not own the source or its log was ended.
    """

    def __init__(self, storage: Storage, writer: str) -> None:
        self.acknowledged: list[int] = []
        self.taken: TakenSource | None = None
        self.header = JobHeader(kind="rolling", name="pages", writer=writer, url="memory://pages", metadata={})
        self._storage = storage
        self._next = 0
        self._number = 0

    async def begin(self) -> Consumer:
        """Begin the consumer's log."""
        await put_mark(self._storage, self.header)
        return self

    async def take(self, **options: Any) -> bool:
        """Try to take the source; return whether the consumer now owns it."""
        self.taken = None
        try:
            self.taken = await take_source(self._storage, self.header, SOURCE, **options)
        except ConflictError:
            return False
        self._next = self.taken.position + 1
        return True

    async def commit(self, count: int = 1, *, release: bool = False) -> None:
        """Commit ``count`` positions one after the other, stopping if the source is lost."""
        for _ in range(count):
            if self.taken is None:
                return
            if await self._append({SOURCE: (self.taken.turn, self._next)}, self.taken.release if release else {}):
                self.acknowledged.append(self._next)
                self._next += 1
        if release:
            self.taken = None

    async def consume(self) -> None:
        """Take the source and commit three positions."""
        await self.take()
        await self.commit(3)

    async def _append(self, progress: dict[str, tuple[int, int]], releases: Any) -> bool:
        writer, self._number = self.header.writer, self._number + 1
        time = format_time(1.8e9 + self._number)
        segment = Segment(writer=writer, time=time, progress=progress, releases=releases)
        try:
            await create(self._storage, segment_key("pages", writer, self._number), segment.encode())
        except ObjectExistsError:
            self.taken = None
            return False
        return True


async def check(storage: Storage, *consumers: Consumer) -> int:
    """Check that each position is committed once, without gaps, and that no acknowledged position is missing.

    Returns the last position.
    """
    committed = []
    async for info in storage.list_objects("_manifest/pages/"):
        if segment_of(info.key.rpartition("/")[2]) is not None:
            segment = parse_segment(await storage.get(info.key), name=info.key)
            committed += [] if segment.closed else [position for _, position in segment.progress.values()]
    twice = [position for position, times in Counter(committed).items() if times > 1]
    assert twice == []
    assert sorted(committed) == list(range(len(committed)))
    assert {each for consumer in consumers for each in consumer.acknowledged} <= set(committed)
    last = len(committed) - 1
    history = await load_history(storage, "pages")
    assert history.progress.get(SOURCE, (0, -1))[1] == last
    return last
