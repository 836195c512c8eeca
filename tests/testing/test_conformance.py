"""The kit passes a right storage and catches each of many broken ones."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import crc32c
import pytest

from asyncrec.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage.base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio


class Toy(Storage):
    """Right, in as few lines as show every promise; each mutant below breaks one. Waits once in every operation."""

    root = "toy://"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.unfinished: set[str] = set()
        self.versions = itertools.count()

    def check(self, key: str) -> None:
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"bad key {key!r}")

    def info(self, key: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(data), f"v{next(self.versions)}", crc32c.crc32c(data), datetime.now(UTC))

    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        if exclusive and key in self.objects:
            raise ObjectExistsError(f"{key} is there")
        self.objects[key] = data, self.info(key, data)
        return self.objects[key][1]

    def found(self, key: str, etag: str | None = None) -> tuple[bytes, ObjectInfo]:
        self.check(key)
        if key not in self.objects:
            raise ObjectNotFoundError(f"{key} is not there")
        if etag not in (None, self.objects[key][1].etag):
            raise ObjectChangedError(f"{key} is another")
        return self.objects[key]

    def make_sink(self) -> ToySink:
        return ToySink()

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        self.check(key)
        await anyio.lowlevel.checkpoint()
        sink = self.make_sink()
        self.unfinished.add(key)
        try:
            yield sink
            await anyio.lowlevel.checkpoint()
            sink.published = self.publish(key, sink.content(), exclusive)
        finally:
            sink.closed = True
            self.unfinished.discard(key)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AsyncIterator[ByteSource]:
        await anyio.lowlevel.checkpoint()
        data, info = self.found(key, etag)
        source = self.make_source(data[start:end], info)
        yield source
        source.closed = True

    def make_source(self, data: bytes, info: ObjectInfo) -> ToySource:
        return ToySource(data, info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > start_after.encode():
                await anyio.lowlevel.checkpoint()
                yield self.objects[key][1]

    async def head(self, key: str) -> ObjectInfo:
        await anyio.lowlevel.checkpoint()
        return self.found(key)[1]

    async def delete(self, key: str) -> None:
        self.check(key)
        await anyio.lowlevel.checkpoint()
        self.objects.pop(key, None)


class ToySink(ByteSink):
    chunk_size = 1_000

    def __init__(self) -> None:
        self.chunks: list[Buffer] = []
        self.closed = False

    def content(self) -> bytes:
        return b"".join(self.chunks)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        await anyio.lowlevel.checkpoint()
        self.chunks.append(b"".join(buffers))

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        return 0


class ToySource(ByteSource):
    def __init__(self, data: bytes, info: ObjectInfo) -> None:
        self.data, self.info = data, info
        self.position = 0
        self.closed = False

    async def receive(self, max_bytes: int) -> bytes:
        if self.closed:
            raise anyio.ClosedResourceError
        await anyio.lowlevel.checkpoint()
        block = self.data[self.position : self.position + max_bytes]
        self.position += len(block)
        return block


class TestToy(StorageConformance):
    toy: type[Toy] = Toy

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        yield self.toy()

    async def raw_put(self, storage: Any, key: str, data: bytes) -> None:
        storage.objects[key] = (
            data,
            ObjectInfo(key, len(data), f"v{next(storage.versions)}", crc32c.crc32c(data), datetime.now(UTC)),
        )

    async def raw_get(self, storage: Any, key: str) -> bytes | None:
        return storage.objects[key][0] if key in storage.objects else None

    async def raw_list(self, storage: Any) -> Collection[str]:
        return set(storage.objects)

    async def raw_unfinished(self, storage: Any) -> Collection[str]:
        return set(storage.unfinished)


CASES = sorted(name for name in dir(StorageConformance) if name.startswith("test_"))


async def failing_cases(broken: type[Toy]) -> set[str]:
    suite = type("Suite", (TestToy,), {"toy": broken, "__test__": False})()
    failed = set()
    for name in CASES:
        try:
            await getattr(suite, name)()
        except (Exception, pytest.fail.Exception):
            failed.add(name)
    return failed
