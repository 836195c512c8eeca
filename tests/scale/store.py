"""A store in memory that asks of its clients what S3 does: requests, each with its time, and a limit to how many.

It makes the requests that `asyncrec_s3` makes for the same calls (`requests`), and counts them. Beyond the limit of a
second it answers 503, as S3 does before it has split a prefix, and each request is tried again by the rules of every
backend (`asyncrec.storage.retrying`). Of one prefix: what a new bucket begins with.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count

import anyio

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, Storage, retrying

from .requests import PAGE, Requests, is_write

__all__ = ["WINDOW", "BucketOfOnePrefix"]

EPOCH = 1_790_000_000
WINDOW = 8 << 20


class BucketOfOnePrefix(Storage):
    """A bucket, on the clock of the loop.

    Attributes:
        requests: that were answered, by kind.
        refused: those that were answered 503, by kind.
        busiest: the most of a second that were answered: of writes, and of reads.
    """

    root = "s3://crawl"
    read_ahead = 2 * WINDOW
    flush_level = "buffered"

    def __init__(
        self,
        *,
        part_bytes: int = WINDOW,
        seconds: Callable[[str], float] | None = None,
        writes_a_second: float = 3500,
        reads_a_second: float = 5500,
    ) -> None:
        self.requests = Requests()
        self.refused = Requests()
        self.busiest = {"writes": 0, "reads": 0}
        self.part_bytes = part_bytes
        self._seconds = seconds
        self._most = {"writes": writes_a_second, "reads": reads_a_second}
        self._second = 0
        self._in_second: Counter[str] = Counter()
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._keys: list[str] = []
        self._versions = count(1)

    async def ask(self, kind: str, key: str, *, at: float = 0.0) -> None:
        """Make one request, not before a time, as often as it takes.

        Raises:
            TransientStorageError: the store has no room for it for too long.
        """
        try:
            await self._once(kind, key, at)
        except TransientStorageError:
            await retrying(partial(self._once, kind, key), what=f"{kind} {key}")

    async def _once(self, kind: str, key: str, at: float = 0.0) -> None:
        if self._seconds is None:
            await anyio.lowlevel.checkpoint()
        else:  # one timer for both: a day has millions
            await anyio.sleep(max(0.0, at - anyio.current_time()) + self._seconds(kind))
        now = int(anyio.current_time())
        if now != self._second:
            self._second = now
            self._in_second.clear()
        of = "writes" if is_write(kind) else "reads"
        if self._seconds is not None and self._in_second[of] >= self._most[of]:
            self.refused[kind] += 1
            raise TransientStorageError(f"{self.root}/{key}: {kind}: 503 SlowDown")
        self._in_second[of] += 1
        self.busiest[of] = max(self.busiest[of], self._in_second[of])
        self.requests[kind] += 1

    # -- the contract -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        sink = _Sink(self, key, exclusive=exclusive)
        yield sink
        sink.published = await sink.publish()

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        if len(data) >= self.part_bytes:
            return await super().put(key, data, exclusive=exclusive)
        await self.ask("PutObject", key)
        return self.add(key, bytes(data), exclusive=exclusive)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AsyncIterator[ByteSource]:
        await self.ask("HeadObject", key)
        yield _Source(self, key, *self.find(key), start, end)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        after = start_after
        while True:
            await self.ask("ListObjectsV2", prefix)
            at = max(bisect_right(self._keys, after), bisect_right(self._keys, prefix) - (prefix in self._objects))
            page = [key for key in self._keys[at : at + PAGE + 1] if key.startswith(prefix)]
            for key in page[:PAGE]:
                if key in self._objects:
                    yield self._objects[key][1]
            if len(page) <= PAGE:
                return
            after = page[PAGE - 1]

    async def head(self, key: str) -> ObjectInfo:
        await self.ask("HeadObject", key)
        return self.find(key)[1]

    async def delete(self, key: str) -> None:
        await self.ask("DeleteObject", key)
        if self._objects.pop(key, None) is not None:
            self._keys.pop(bisect_right(self._keys, key) - 1)

    # -- what is in it ------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """The bytes of each object."""
        return {key: info.size for key, (_, info) in self._objects.items()}

    def find(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self._objects:
            raise ObjectNotFoundError(f"{self.root}/{key}: there is no such object")
        return self._objects[key]

    def add(self, key: str, data: bytes, *, exclusive: bool) -> ObjectInfo:
        if key not in self._objects:
            insort(self._keys, key)
        elif exclusive:
            raise ObjectExistsError(f"{self.root}/{key}: it is there already, and was to be created")
        made = datetime.fromtimestamp(EPOCH + anyio.current_time(), UTC)
        info = ObjectInfo(key=key, size=len(data), etag=f"v{next(self._versions)}", crc32c=None, modified=made)
        self._objects[key] = data, info
        return info


class _Sink(ByteSink):
    def __init__(self, store: BucketOfOnePrefix, key: str, *, exclusive: bool) -> None:
        self.chunk_size = store.part_bytes
        self._store, self._key, self._exclusive = store, key, exclusive
        self._data = bytearray()
        self._begun = False

    async def send(self, buffers: Sequence[Buffer]) -> None:
        size = len(self._data)
        for buffer in buffers:
            self._data += buffer
        if not self._begun and len(self._data) - size < self.chunk_size:
            return  # a short one, which goes up at the end
        if not self._begun:
            self._begun = True
            if self._exclusive:
                await self._store.ask("HeadObject", self._key)
            await self._store.ask("CreateMultipartUpload", self._key)
        await self._store.ask("UploadPart", self._key)

    async def publish(self) -> ObjectInfo:
        if not self._begun:
            return await self._store.put(self._key, bytes(self._data), exclusive=self._exclusive)
        await self._store.ask("CompleteMultipartUpload", self._key)
        await self._store.ask("HeadObject", self._key)
        return self._store.add(self._key, bytes(self._data), exclusive=self._exclusive)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        return 0


class _Source(ByteSource):
    def __init__(
        self, store: BucketOfOnePrefix, key: str, data: bytes, info: ObjectInfo, start: int, end: int | None
    ) -> None:
        self.info = info
        self._store, self._key, self._data, self._position = store, key, data, start
        self._end = info.size if end is None else min(end, info.size)

    async def receive(self, max_bytes: int) -> bytes:
        size = min(max_bytes, WINDOW, self._end - self._position)
        if size <= 0:
            return b""
        await self._store.ask("GetObject", self._key)
        block = self._data[self._position : self._position + size]
        self._position += len(block)
        return block
