"""A store with its own clock, and writers that commit segments without storing any shards, for manifest tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from asyncrec._shards.manifest.names import manifest_prefix, segment_key, segment_of
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.storage import MemoryStorage, ObjectInfo, Storage

__all__ = ["Store", "Writer", "entry"]


class Store(MemoryStorage):
    """A store with its own clock that records requests, and awaits `before` before each one."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.now = datetime.now(UTC)
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str, str], Any] | None = None
        self.made: dict[str, datetime] = {}

    async def _ask(self, what: str, key: str) -> None:
        self.asked.append((what, key))
        if self.before is not None:
            act, self.before = self.before, None
            self.before = await act(what, key) or act

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        await self._ask("get", key)
        return await super().get(key, max_bytes=max_bytes)

    async def put(self, key: str, data: Any, *, exclusive: bool = False) -> ObjectInfo:
        await self._ask("put", key)
        return await super().put(key, data, exclusive=exclusive)

    async def delete(self, key: str) -> None:
        await self._ask("delete", key)
        await super().delete(key)

    def open_source(self, key: str, **options: Any) -> Any:
        self.asked.append(("open", key))
        return super().open_source(key, **options)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._ask("list", prefix)
        async for info in super().list_objects(prefix, start_after=start_after):
            made = self.made.setdefault(info.key, self.now)
            yield ObjectInfo(info.key, info.size, info.etag, info.crc32c, made)

    async def keys(self, prefix: str = manifest_prefix("pages")) -> list[str]:
        return [info.key.removeprefix(prefix) async for info in super().list_objects(prefix)]

    async def give_up(self, writer: str) -> None:
        """Write a writer's tombstone after its last commit."""
        numbers = [found[1] for key in await self.keys() if (found := segment_of(key)) and found[0] == writer]
        key = segment_key("pages", writer, max(numbers, default=0) + 1)
        await self.commit(Segment(writer=writer, time=format_time(0), closed=True, abandoned=True), key)

    async def commit(self, segment: Segment, key: str) -> None:
        await self.put(key, segment.encode(), exclusive=True)


def entry(path: str, second: int) -> ShardEntry:
    return ShardEntry(
        path=path,
        records=second,
        bytes=500 + 16 * second,
        crc32c=second,
        end_crc32c=0,
        compression="",
        committed=format_time(second),
    )


class Writer:
    """A rolling writer that only commits segments; the shards they name do not exist."""

    def __init__(self, store: Storage, writer: str, begins: int = 1) -> None:
        self.entries: list[ShardEntry] = []
        self.time = begins
        self._store, self._writer = store, writer

    async def commit(self, count: int = 1) -> None:
        for _ in range(count):
            number = len(self.entries)
            added = entry(f"pages-{self._writer}-{number:06d}.tfrecord", self.time)
            segment = Segment(writer=self._writer, time=added.committed, add=(added,))
            await self._store.put(segment_key("pages", self._writer, number + 1), segment.encode(), exclusive=True)
            self.entries.append(added)
            self.time += 1

    async def close(self, **members: Any) -> None:
        segment = Segment(
            writer=self._writer, time=format_time(self.time), add=tuple(self.entries), closed=True, **members
        )
        key = segment_key("pages", self._writer, len(self.entries) + 1)
        await self._store.put(key, segment.encode(), exclusive=True)
