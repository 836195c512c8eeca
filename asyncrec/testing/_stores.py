"""`LaxStorage`: an in-memory storage that breaks the contract in the same ways as some real stores.

Ceph 16 honours the condition of a put, but ignores the condition of a multipart completion. Some S3-compatible servers
ignore both. A gateway that crashes loses the response to a request that took effect. S3 listings could be stale until
2020. Code that uses `Storage` is correct only if it also works on all of these::

    store = LaxStorage()                                  # like Ceph: only a body shorter than a chunk is exclusive
    store = LaxStorage(honours="nothing")                 # the last writer wins, exclusive or not
    store = LaxStorage(lost=lambda key: "claim" in key)   # these are published, but the writer gets an error
    store = LaxStorage(late=30.0, stale=5.0)              # answers arrive after 30 s; listings are 5 s old

Delays use anyio's clock, so under `virtual_backend` no real time passes. A `FlakyStorage` around a `LaxStorage` adds
faults to chosen operations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import anyio
import anyio.lowlevel

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._sink_state import SinkState
from asyncrec.storage._url import check_key, join


class LaxStorage(Storage):
    """An in-memory storage that breaks the contract. Writers of the same objects share one instance.

    Args:
        memory: the storage that holds the objects; by default, a new one. Its ``chunk_size`` is used by the sinks.
        honours: which exclusive publications are rejected if the object already exists. ``"puts"`` rejects bodies
            shorter than a chunk, which take one request. A longer body is checked only when its first chunk is full,
            and replaces an object created later. With ``"nothing"``, even a short body is checked only on opening.
            ``"all"`` rejects every such publication.
        late: the seconds between the effect of a publication or deletion and its response. A cancellation in between
            does not undo the effect.
        lost: a function that returns whether the response to the publication of a key is lost. The object is then
            published, but `TransientStorageError` is raised, as by a backend that does not know the outcome.
        stale: the age of listings, in seconds. `head` and reads are never stale, as in all known stores.
        short: whether sources return half of the requested bytes, as a server with small packets may.
    """

    def __init__(
        self,
        memory: MemoryStorage | None = None,
        *,
        honours: Literal["all", "puts", "nothing"] = "puts",
        late: float = 0.0,
        lost: Callable[[str], bool] = lambda key: False,
        stale: float = 0.0,
        short: bool = False,
    ) -> None:
        self.memory = MemoryStorage() if memory is None else memory
        self.root = self.memory.root
        self._honours = honours
        self._late = late
        self._lost = lost
        self._stale = stale
        self._short = short
        # For each key, the object before each recent change, with the time of the change, oldest first.
        self._before: dict[str, list[tuple[float, ObjectInfo | None]]] = {}

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _LaxSink(self, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        opening = self.memory.open_source(key, start=start, end=end, info=info)
        return _short(opening) if self._short else opening

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        shown = {info.key: info async for info in self.memory.list_objects(prefix, start_after=start_after)}
        then = anyio.current_time() - self._stale
        for key, changes in list(self._before.items()):
            changes[:] = (change for change in changes if change[0] > then)
            if not changes:
                del self._before[key]
            elif key.startswith(prefix) and key.encode() > start_after.encode():
                if changes[0][1] is None:
                    shown.pop(key, None)
                else:
                    shown[key] = changes[0][1]
        for key in sorted(shown, key=str.encode):
            yield shown[key]

    async def head(self, key: str) -> ObjectInfo:
        return await self.memory.head(key)

    async def delete(self, key: str) -> None:
        before = await self.look(key)
        await self.memory.delete(key)
        self._changed(key, before)
        await self._answer()

    # For the sinks -----------------------------------------------------------------------------------------------

    async def look(self, key: str) -> ObjectInfo | None:
        try:
            return await self.memory.head(key)
        except ObjectNotFoundError:
            return None

    async def refuse_existing(self, key: str) -> None:
        if await self.look(key) is not None:
            raise ObjectExistsError(
                f"{join(self.root, key)}: the object already exists, but was to be created exclusively"
            )

    async def publish(self, sink: _LaxSink, key: str, data: bytes, *, exclusive: bool) -> None:
        """Publish the object and set the sink's ``published``. Raise TransientStorageError if the response is lost."""
        whole = self.memory.chunk_size > len(data)
        honoured = exclusive and (self._honours == "all" or (self._honours == "puts" and whole))
        before = await self.look(key)
        sink.published = await self.memory.put(key, data, exclusive=honoured)
        self._changed(key, before)
        if self._lost(key):
            sink.published = None
        await self._answer()
        if sink.published is None:
            raise TransientStorageError(
                f"{join(self.root, key)}: the response was lost on purpose; the object may exist"
            )

    @property
    def looks_on_opening(self) -> bool:
        return self._honours != "puts"

    def _changed(self, key: str, before: ObjectInfo | None) -> None:
        if self._stale:
            self._before.setdefault(key, []).append((anyio.current_time(), before))

    async def _answer(self) -> None:
        if self._late:
            await anyio.sleep(self._late)


@asynccontextmanager
async def _short(opening: AbstractAsyncContextManager[ByteSource]) -> AsyncIterator[ByteSource]:
    async with opening as source:
        yield _ShortSource(source)


class _ShortSource(ByteSource):
    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.info = source.info

    async def receive(self, max_bytes: int) -> bytes:
        return await self._source.receive((max_bytes + 1) // 2)


class _LaxSink(ByteSink):
    def __init__(self, storage: LaxStorage, key: str, *, exclusive: bool) -> None:
        self.chunk_size = storage.memory.chunk_size
        self._storage = storage
        self._key = key
        self._exclusive = exclusive
        self._data = bytearray()
        self._state = SinkState(join(storage.root, key))

    async def __aenter__(self) -> _LaxSink:
        with self._state.entering():
            await anyio.lowlevel.checkpoint()
            if self._exclusive and self._storage.looks_on_opening:
                await self._storage.refuse_existing(self._key)
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working():
            await anyio.lowlevel.checkpoint()
            first = not self._data
            for buffer in buffers:
                self._data += buffer
            if self._exclusive and first and len(self._data) == self.chunk_size:
                await self._storage.refuse_existing(self._key)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        with self._state.working():
            await anyio.lowlevel.checkpoint()
        return 0

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        data, self._data = bytes(self._data), bytearray()
        if self._state.leave(exc):
            await anyio.lowlevel.checkpoint()
            await self._storage.publish(self, self._key, data, exclusive=self._exclusive)
