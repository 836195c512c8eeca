"""Cases for sources, which must return each byte of a range exactly once, all from the same version of the object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

import anyio
import pytest

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError
from asyncrec.storage._base import ByteSource
from asyncrec.testing import _source_checks as source_checks
from asyncrec.testing._checks import content, receive_all
from asyncrec.testing._storage.hooks import StorageHooks


class ReadingCases(StorageHooks):
    """The cases for sources."""

    async def test_ranges(self) -> None:
        """A range returns exactly its bytes, whether it is empty or ends before, at or past the end of the object."""
        async with self._source() as (open_source, expected):
            await source_checks.check_ranges(open_source, expected)

    async def test_receive_cancelled(self) -> None:
        """A cancelled `receive` loses no bytes."""
        async with self._source() as (open_source, expected):
            await source_checks.check_receive_cancelled(open_source, expected)

    async def test_source_used_after_exit(self) -> None:
        """A source's context may exit before all bytes are read. The source cannot be used outside its context."""
        async with self._source() as (open_source, _):
            await source_checks.check_closed_source(open_source)

    async def test_short_reads(self) -> None:
        """A source may return fewer bytes than requested, but ``b""`` only at the end. Each byte is returned once.

        A backend that mistakes a short response for the end, or counts requested rather than received bytes, loses
        records.
        """
        async with self._source() as (open_source, expected):
            await source_checks.check_short_reads(open_source, expected)

    async def test_missing_object(self) -> None:
        """Every way of reading a missing object raises an `ObjectNotFoundError` that names the key."""
        async with self.open_storage() as storage:
            await storage.put("there/x", b"x")
            for key in ("missing", "there/y", "there/x/y", "not/there"):
                with pytest.raises(ObjectNotFoundError, match=key):
                    await storage.head(key)
                with pytest.raises(ObjectNotFoundError, match=key):
                    async with storage.open_source(key) as source:
                        await source.receive(1)
                with pytest.raises(FileNotFoundError):
                    await storage.get(key)
            with pytest.raises(ObjectNotFoundError):  # a folder is not an object
                await storage.head("there")

    async def test_changed_object(self) -> None:
        """Opening a replaced version by its etag raises `ObjectChangedError`. An open source never mixes versions."""
        old, new = content(3 << 20, seed=1), content(3 << 20, seed=2)
        async with self.open_storage() as storage:
            before = await storage.put("v", old)
            async with storage.open_source("v") as source, storage.open_source("v", info=before) as pinned:
                heads = [await each.receive(1_000) for each in (source, pinned)]
                after = await storage.put("v", new)
                assert await self.raw_get(storage, "v") == new
                assert after.etag != before.etag, (
                    "the etag did not change although the content did (with the same length)"
                )
                for each, head in zip((source, pinned), heads, strict=True):
                    with suppress(ObjectChangedError):
                        assert head + await receive_all(each) == old, (
                            "a source returned data from two versions of the object"
                        )
            for start in (0, 1_000, (3 << 20) - 1):
                with pytest.raises(ObjectChangedError):
                    async with storage.open_source("v", start=start, info=before) as source:
                        await receive_all(source)
            async with storage.open_source("v", start=5, info=after) as source:
                assert await receive_all(source) == new[5:]
            await storage.delete("v")
            with pytest.raises((ObjectChangedError, ObjectNotFoundError)):
                async with storage.open_source("v", info=after) as source:
                    await receive_all(source)

    async def test_known_version(self) -> None:
        """The info from `head`, a listing, `put` or a source opens exactly that version of the object, for any range.

        A backend need not request the info again. If it does, the info must be the same.
        """
        data = content(70_000)
        async with self.open_storage() as storage:
            for key, stored in (("k/0", b""), ("k/1", data)):
                known = [await storage.put(key, stored), await storage.head(key)]
                known += [info async for info in storage.list_objects(key)]
                async with storage.open_source(key) as source:
                    known.append(source.info)
                for info in known:
                    for start, end in ((0, None), (5, 1_000), (60_000, 80_000), (70_000, None)):
                        async with storage.open_source(key, start=start, end=end, info=info) as source:
                            assert (source.info.key, source.info.size) == (key, len(stored))
                            assert source.info.etag == info.etag, "the source of a known version has a different etag"
                            assert await receive_all(source) == stored[start:end]
                            assert source.info.etag == info.etag, "the source of a known version has a different etag"

    async def test_many_sources(self) -> None:
        """Any number of sources may be open and idle at the same time."""
        async with self.open_storage() as storage:
            data = content(5_000)
            await self.raw_put(storage, "s", data)
            parts: dict[int, bytes] = {}
            all_begun = anyio.Event()

            async def read(n: int) -> None:
                async with storage.open_source("s", start=n * 50, end=n * 50 + 50) as source:
                    parts[n] = await source.receive(10)
                    if len(parts) == 100:
                        all_begun.set()
                    await all_begun.wait()
                    parts[n] += await receive_all(source)

            async with anyio.create_task_group() as group:
                for n in range(100):
                    group.start_soon(read, n)
            assert b"".join(parts[n] for n in range(100)) == data

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[tuple[Callable[..., AbstractAsyncContextManager[ByteSource]], bytes]]:
        expected = content((1 << 20) + 12_345)
        async with self.open_storage() as storage:
            await self.raw_put(storage, "r/s", expected)
            yield partial(storage.open_source, "r/s"), expected
