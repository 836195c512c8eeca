"""Cases for objects: the bytes that sinks store, the state after a sink is abandoned, and the results of methods."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError
from asyncrec.testing import _sink_checks as sink_checks
from asyncrec.testing._checks import check_info, content, receive_all
from asyncrec.testing._storage.hooks import StorageHooks, keys_of

_ABOUT_THE_SAME = timedelta(minutes=5)


class ObjectCases(StorageHooks):
    """The cases for complete objects. All methods must agree about them."""

    async def test_empty_object_written(self) -> None:
        """An empty object is created like any other, by `put` or a sink without sends, with or without ``exclusive``.

        Stores may omit a size of zero from their responses, and may publish an empty object with a different request.
        """
        async with self.open_storage() as storage:
            for key, exclusive in (("e/1", False), ("e/2", True)):
                check_info(await storage.put(key, b"", exclusive=exclusive), key, b"")
            async with storage.open_sink("e/3", exclusive=True) as sink:
                await sink.flush([])
            assert sink.published is not None
            check_info(sink.published, "e/3", b"")
            with pytest.raises(ObjectExistsError):
                await storage.put("e/3", b"", exclusive=True)
            listed = [info async for info in storage.list_objects("e/")]
            assert [info.key for info in listed] == ["e/1", "e/2", "e/3"]
            for info in listed:
                check_info(info, info.key, b"")
                check_info(await storage.head(info.key), info.key, b"")
                assert await storage.get(info.key) == await self.raw_get(storage, info.key) == b""
            await storage.put("e/1", b"longer")
            await storage.put("e/1", b"")
            assert await storage.get("e/1", max_bytes=0) == b""
            assert not await self.raw_unfinished(storage)

    async def test_empty_object(self) -> None:
        """An empty object is found, listed, and read as ``b""`` from any offset."""
        async with self.open_storage() as storage:
            await self.raw_put(storage, "empty", b"")
            check_info(await storage.head("empty"), "empty", b"")
            assert await storage.get("empty") == b""
            assert await keys_of(storage) == ["empty"]
            for start, end in ((0, None), (0, 10), (5, None), (5, 10)):
                async with storage.open_source("empty", start=start, end=end) as source:
                    assert source.info.size == 0
                    assert await receive_all(source) == b""

    async def test_consistent_info(self) -> None:
        """`head`, the listing, an open source and `published` return the same information, including the etag."""
        async with self.open_storage() as storage:
            for key, size in (("i/0", 0), ("i/1", 70_000)):
                data = content(size)
                published = await storage.put(key, data)
                head = await storage.head(key)
                (listed,) = [info async for info in storage.list_objects(key)]
                async with storage.open_source(key) as source:
                    opened = source.info
                for info in (published, head, listed, opened):
                    check_info(info, key, data)
                    assert info.etag == head.etag, f"{key} has two etags: {info.etag!r} and {head.etag!r}"
                    # Stores round the time, and may record the start or the end of an upload.
                    apart = abs(info.modified - head.modified)
                    assert apart < _ABOUT_THE_SAME, f"{key} has two times: {info.modified} and {head.modified}"

    async def test_delete(self) -> None:
        """A deleted object is gone, neighbouring objects remain, and deleting it again is not an error."""
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, ["d/1", "d/11"])
            for _ in range(2):
                await storage.delete("d/1")
                assert await self.raw_get(storage, "d/1") is None
            await storage.delete("d/never")
            await storage.delete("nor/this")
            await storage.delete("d")  # a folder is not an object
            assert await self.raw_get(storage, "d/11") == b"x"
            with pytest.raises(ObjectNotFoundError):
                await storage.head("d/1")
            await storage.put("d/1", b"again", exclusive=True)
            assert await self.raw_get(storage, "d/1") == b"again"

    async def test_get_and_put(self) -> None:
        """`put` and `get` write and read entire objects. `get` raises ValueError if one exceeds ``max_bytes``."""
        async with self.open_storage() as storage:
            data = content(100_000)
            check_info(await storage.put("g", memoryview(data)), "g", data)
            assert await self.raw_get(storage, "g") == data
            assert await storage.get("g") == data
            assert await storage.get("g", max_bytes=100_000) == data
            with pytest.raises(ValueError, match="99,999"):
                await storage.get("g", max_bytes=99_999)

    async def test_root(self) -> None:
        """The storage has a root, a valid flush level and a read-ahead of at least 0."""
        async with self.open_storage() as storage:
            assert storage.root
            assert storage.flush_level in ("buffered", "spooled")
            assert storage.read_ahead >= 0


class WritingCases(StorageHooks):
    """The cases for sinks."""

    async def test_sizes(self) -> None:
        """Objects with no bytes, one byte, and lengths below, at and above the chunk size are stored unchanged."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_sizes(open_sink, read=partial(self.raw_get, storage))

    async def test_buffers_reused(self) -> None:
        """The caller's buffers may be overwritten once `send` has returned."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_buffers_reused(open_sink, read=partial(self.raw_get, storage))

    async def test_abort_on_error(self) -> None:
        """An exception in the body leaves no object and no unfinished upload. An older object is unchanged."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_abort(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-abort-over"}

    async def test_abort_on_cancellation(self) -> None:
        """If opening, sending or exiting is cancelled at any await, the sink leaves the entire object or nothing."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_cancellation(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-cancel"}

    async def test_abandoned_send(self) -> None:
        """After a cancelled send, the object is not published, even if the body then exits normally."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_send_given_up(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )

    async def test_concurrent_sinks(self) -> None:
        """Sinks that are open at the same time do not mix their data."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_concurrent_sinks(open_sink, read=partial(self.raw_get, storage))

    async def test_flush(self) -> None:
        """`flush` neither publishes nor loses data."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_flush(
                open_sink,
                read=partial(self.raw_get, storage),
                unfinished=partial(self.raw_unfinished, storage),
                flush_level=storage.flush_level,
            )

    async def test_sink_used_after_exit(self) -> None:
        """A sink cannot be used before its context is entered or after it exits."""
        async with self._sinks() as (_, open_sink):
            await sink_checks.check_closed_sink(open_sink)

    async def test_overwrite(self) -> None:
        """Without ``exclusive``, a longer or shorter object replaces an existing object atomically."""
        async with self.open_storage() as storage:
            etags = set()
            for data in (b"first, of some length", b"short", b"third, the longest of all of them", b""):
                info = await storage.put("k/over", data)
                check_info(info, "k/over", data)
                assert await self.raw_get(storage, "k/over") == data
                etags.add(info.etag)
            assert len(etags) == 4, "objects with different contents have the same etag"
