"""`StorageConformance`: the cases every `Storage` passes, built in or not. For pytest; both event loops.

In a plugin's tests::

    class TestMyStorage(StorageConformance):
        def open_storage(self): ...             # a context manager giving an open, empty Storage

        # Round the storage under test, straight to what holds the objects: a bug must not hide itself.
        async def raw_put(self, storage, key, data): ...
        async def raw_get(self, storage, key): ...          # None where nothing is
        async def raw_list(self, storage): ...              # the keys of all visible objects, in any order
        async def raw_unfinished(self, storage): ...        # whatever was begun and not ended: partial files, uploads

and an ``anyio_backend`` fixture naming the loops the plugin claims. Hooks may use what fixtures have put on ``self``.
Give the storage the smallest chunk it allows: the cases write a few chunks each.

A case that the store cannot pass is replaced by one that shows what it does instead, with the reason::

    @replaces_case("the store has no conditional write")
    async def test_exclusive_creation(self): ...

Two things are declared instead: `exclusive_parts`, and `losing_an_answer`, which a plugin that has a test server of its
own fills in.

An override without `replaces_case`, or one of a case that does not exist, is a `TypeError` when the class is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest

from asyncrec.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import ByteSink, ByteSource, Storage
from asyncrec.testing import _checks as checks
from asyncrec.testing._kit import Kit, replaces_case
from asyncrec.tools._races import race

__all__ = ["StorageConformance", "replaces_case"]

ODD_KEYS = (
    "a b", " leading and trailing ", "caf\u00e9", "\u65e5\u672c/\u8a9e", "\U0001f600", "100%", "%41", "a%2Fb", "a+b",
    "q?x=1&y=2", "a#b", "[x]*?", "'quoted' \"twice\"", "a:b", "~tilde", "...", "a..b", "x/..y", "<tag>&amp;", "a\\b",
    "k=v/date=2026-01-02", "deep/" * 20 + "key", "n" * 180,
)  # fmt: skip
REFUSED_KEYS = ("", "/a", "//a", "..", "../a", "a/../../b")


class StorageConformance(Kit):
    """Derive from it, fill in `open_storage` and the ``raw_`` hooks; see the module's docstring."""

    pytestmark = pytest.mark.anyio

    exclusive_parts: bool = True
    """Whether of two exclusive writers of objects longer than a chunk one wins. `False`, with a comment why, is for a
    store that ignores the condition when it puts parts together, as Ceph 16 does. Short objects know no exception."""

    # Hooks -------------------------------------------------------------------------------------------------------

    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        """A new, empty storage, open while the context is."""
        raise NotImplementedError

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        """Make an object without using ``storage``'s methods."""
        raise NotImplementedError

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        """What a visible object holds; `None` where there is none."""
        raise NotImplementedError

    async def raw_list(self, storage: Storage) -> Collection[str]:
        """The keys of all visible objects."""
        raise NotImplementedError

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        """Names of whatever was begun and neither published nor taken away. Always empty, where nothing can dangle."""
        raise NotImplementedError

    def losing_an_answer(self, storage: Storage) -> AbstractContextManager[object] | None:
        """While it is entered, the answer to one request that publishes an object is lost, after its effect.

        `None`: the tests of this store cannot do that.
        """
        return None

    async def raw_put_many(self, storage: Storage, keys: Collection[str]) -> None:
        """Make an object of one byte for each key. Override it where there is a faster way than one by one."""
        for key in keys:
            await self.raw_put(storage, key, b"x")

    # Writing -----------------------------------------------------------------------------------------------------

    async def test_sizes(self) -> None:
        """Objects of no byte, one, and lengths at, below and above the chunk's come out as they went in."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_sizes(open_sink, read=partial(self.raw_get, storage))

    async def test_buffers_reused(self) -> None:
        """The caller's buffers may be overwritten once `send` has returned."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_buffers_reused(open_sink, read=partial(self.raw_get, storage))

    async def test_abort_on_error(self) -> None:
        """An exception in the body leaves nothing visible, nothing dangling, and an older object untouched."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_abort(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-abort-over"}

    async def test_abort_on_cancellation(self) -> None:
        """Cancelled at any await of opening, sending and exiting, a sink leaves the whole object or nothing."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_cancellation(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-cancel"}

    async def test_send_given_up(self) -> None:
        """A send that was cancelled leaves the object to be abandoned, though the body goes on as if nothing were."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_send_given_up(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )

    async def test_concurrent_sinks(self) -> None:
        """Sinks open at the same time do not mix."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_concurrent_sinks(open_sink, read=partial(self.raw_get, storage))

    async def test_flush(self) -> None:
        """`flush` publishes nothing and loses nothing."""
        async with self._sinks() as (storage, open_sink):
            await checks.check_flush(
                open_sink,
                read=partial(self.raw_get, storage),
                unfinished=partial(self.raw_unfinished, storage),
                flush_level=storage.flush_level,
            )

    async def test_sink_used_after_exit(self) -> None:
        """A sink whose context has exited is closed."""
        async with self._sinks() as (_, open_sink):
            await checks.check_closed_sink(open_sink)

    async def test_overwrite(self) -> None:
        """Without ``exclusive`` an object is replaced, at once and whole, by a longer one and by a shorter one."""
        async with self.open_storage() as storage:
            etags = set()
            for data in (b"first, of some length", b"short", b"third, the longest of all of them", b""):
                info = await storage.put("k/over", data)
                checks.check_info(info, "k/over", data)
                assert await self.raw_get(storage, "k/over") == data
                etags.add(info.etag)
            assert len(etags) == 4, "two different contents had one etag"

    async def test_exclusive_creation(self) -> None:
        """With ``exclusive`` a new object is made, one that is there is kept, and the error says so."""
        async with self.open_storage() as storage:
            await storage.put("x/one", b"mine", exclusive=True)
            with pytest.raises(ObjectExistsError, match="x/one"):
                await storage.put("x/one", b"yours", exclusive=True)
            async with storage.open_sink("x/chunk") as probe:
                chunk = probe.chunk_size
            with pytest.raises(ObjectExistsError):
                await storage.put("x/one", checks.content(chunk + 1), exclusive=True)
            assert await self.raw_get(storage, "x/one") == b"mine"
            assert not await self.raw_unfinished(storage)
            await storage.put("x/big", checks.content(chunk + 1), exclusive=True)
            assert await self.raw_get(storage, "x/big") == checks.content(chunk + 1)
            with suppress(ZeroDivisionError):
                async with storage.open_sink("x/aborted", exclusive=True) as sink:
                    await checks.send_all(sink, b"never")
                    raise ZeroDivisionError
            await storage.put("x/aborted", b"free again", exclusive=True)
            assert await self.raw_get(storage, "x/aborted") == b"free again"

    async def test_exclusive_race(self) -> None:
        """Of two writers that both find nothing there exactly one wins; the other gets `ObjectExistsError`.

        A claim, a segment of a manifest and every other short object that decides between writers relies on it.
        """
        async with self.open_storage() as storage:
            await self._race(storage, [b"one", b"two!"])

    async def test_exclusive_race_of_several_parts(self) -> None:
        """The same for objects longer than a chunk; where `exclusive_parts` is `False` the last one may win, too.

        Without it two writers of one shard are both told that it is theirs, and one of them has lost it.
        """
        async with self.open_storage() as storage:
            size = await self._chunk(storage) + 1
            await self._race(storage, [checks.content(size, seed) for seed in (1, 2)], all_kept=self.exclusive_parts)

    async def test_exclusive_creation_over_several_parts(self) -> None:
        """An object of several parts that is there is kept, whether a short one or as long a one is to be created.

        Stores publish the two by different requests, of which one may be right and the other wrong.
        """
        async with self.open_storage() as storage:
            size = await self._chunk(storage) + 1
            older = checks.content(size, seed=1)
            await storage.put("x/old", older)
            for data in (b"", b"short", checks.content(size, seed=2)):
                with pytest.raises(ObjectExistsError, match="x/old"):
                    await storage.put("x/old", data, exclusive=True)
                assert await self.raw_get(storage, "x/old") == older, f"replaced by one of {len(data)} bytes"
            assert not await self.raw_unfinished(storage)

    async def test_lost_answer(self) -> None:
        """The object is published and the answer is lost: it is there once, whole, and its writer is told that it is.

        Taken for a failure, the loss makes a writer send the same records again; and an exclusive one takes its own
        object for another's. Of stores whose tests cannot lose an answer, `losing_an_answer` says so, and this nothing.
        """
        async with self.open_storage() as storage:
            size = await self._chunk(storage) + 1
            for n, data in enumerate((b"", b"short", checks.content(size))):
                for exclusive in (False, True):
                    key = f"lost/{n}-{exclusive}"
                    losing = self.losing_an_answer(storage)
                    if losing is None:
                        return
                    with losing:
                        info = await storage.put(key, data, exclusive=exclusive)
                    checks.check_info(info, key, data)
                    assert await self.raw_get(storage, key) == data
                    assert (await storage.head(key)).etag == info.etag
            assert not await self.raw_unfinished(storage)

    # Keys --------------------------------------------------------------------------------------------------------

    async def test_odd_keys(self) -> None:
        """Keys of any characters name just themselves: written, read, listed and deleted."""
        async with self.open_storage() as storage:
            for n, key in enumerate(ODD_KEYS):
                data = b"%d of them" % n
                checks.check_info(await storage.put(key, data), key, data)
                assert await self.raw_get(storage, key) == data, f"{key!r} was written elsewhere"
            assert set(await self.raw_list(storage)) == set(ODD_KEYS)
            assert await self._keys(storage) == _sorted(ODD_KEYS)
            for n, key in enumerate(ODD_KEYS):
                data = b"%d of them" % n
                assert await storage.get(key) == data, f"{key!r} read from elsewhere"
                checks.check_info(await storage.head(key), key, data)
                assert await self._keys(storage, key) == _sorted(k for k in ODD_KEYS if k.startswith(key))
            for key in ODD_KEYS:
                await storage.delete(key)
                assert await self.raw_get(storage, key) is None, f"{key!r} is still there after its deletion"
            assert not await self.raw_list(storage)

    async def test_key_that_is_also_a_folder(self) -> None:
        """One key may be another's folder: they are two objects, whichever was first."""
        async with self.open_storage() as storage:
            for keys in (["n/1/x", "n/1", "n"], ["m", "m/1", "m/1/x"]):
                for key in keys:
                    await storage.put(key, key.encode())
                for key in keys:
                    assert await self.raw_get(storage, key) == await storage.get(key) == key.encode()
            assert await self._keys(storage) == ["m", "m/1", "m/1/x", "n", "n/1", "n/1/x"]
            await storage.delete("n/1")
            assert await self._keys(storage, "n") == ["n", "n/1/x"]
            assert await self._keys(storage, "m/1", start_after="m/1") == ["m/1/x"]

    async def test_refused_keys(self) -> None:
        """A key that is empty, absolute or leads out of the root is a `ValueError`, whatever is done with it."""
        async with self.open_storage() as storage:
            for key in REFUSED_KEYS:
                for operation in (storage.get, storage.head, storage.delete, partial(storage.put, data=b"x")):
                    with pytest.raises(ValueError):  # noqa: PT011  # its wording is the store's own
                        await operation(key)
            assert not await self.raw_list(storage)

    # Listing -----------------------------------------------------------------------------------------------------

    async def test_listing_order(self) -> None:
        """Keys come ascending by their UTF-8 bytes, across folders, whatever was written first."""
        keys = [
            "c/2", "c/10", "c/1", "c-1", "c.d", "c0", "cc/1", "C/1", "b/z/z", "b/z-1", "b/z/a", "b/z.d",
            "\uff5e", "\U0001f600", "z", "\u00e9", "e", "e\u0301", "_x/1", ".x",
        ]  # fmt: skip
        async with self.open_storage() as storage:
            assert await self._keys(storage) == []
            await self.raw_put_many(storage, keys)
            assert await self._keys(storage) == _sorted(keys)
            for prefix in ("c", "c/", "cc/", "c/1", "b", "b/", "b/z", "b/z/", "\u00e9", "", "nothing", "c/nothing/"):
                expected = _sorted(key for key in keys if key.startswith(prefix))
                assert await self._keys(storage, prefix) == expected, f"listing {prefix!r}"

    async def test_listing_start_after(self) -> None:
        """``start_after`` leaves out keys up to and with itself, whether it is there or not, within any prefix."""
        keys = ["a/1", "a/2/x", "a/3", "ab", "b/1", "b-1", "\uff5e"]
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, keys)
            marks = [*keys, "", "a", "a/", "a/2/", "a/25", "a/2/y", "a0", "b", "b/", "zz", "\U0001f600"]
            for after in marks:
                for prefix in ("", "a", "a/", "a/2", "b/", "nothing"):
                    expected = [
                        key for key in _sorted(keys) if key.startswith(prefix) and key.encode() > after.encode()
                    ]
                    got = await self._keys(storage, prefix, start_after=after)
                    assert got == expected, f"listing {prefix!r} after {after!r}"

    async def test_listing_pages(self) -> None:
        """More keys than a page holds (1,000 on S3 and GCS) are all listed, once each, and can be left early."""
        keys = [f"p/{n:05}" for n in range(1_005)]
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, [*keys, "q"])
            assert await self._keys(storage, "p/") == keys
            assert await self._keys(storage, "p/", start_after="p/00001") == keys[2:]
            listing = storage.list_objects("p/")
            first = await anext(aiter(listing))
            assert first.key == keys[0]
            if hasattr(listing, "aclose"):
                await listing.aclose()

    async def test_listing_sees_no_unpublished_object(self) -> None:
        """While a sink is open, and after it failed, its object is not listed, and has no head."""
        async with self.open_storage() as storage:
            with suppress(ZeroDivisionError):
                async with storage.open_sink("u/1") as sink:
                    await checks.send_all(sink, checks.content(sink.chunk_size + 1))
                    assert await self._keys(storage) == []
                    with pytest.raises(ObjectNotFoundError):
                        await storage.head("u/1")
                    raise ZeroDivisionError
            assert await self._keys(storage) == []

    async def test_listing_stays_inside(self) -> None:
        """A prefix that leads out of the root finds nothing, or is refused."""
        async with self.open_storage() as storage:
            await storage.put("inside", b"x")
            for prefix in ("../", "..", "/", "a/../../"):
                try:
                    found = await self._keys(storage, prefix)
                except ValueError:
                    continue
                assert found == [], f"listing {prefix!r} found {found}"

    # Reading -----------------------------------------------------------------------------------------------------

    async def test_ranges(self) -> None:
        """Ranges give their bytes: inside, to the end, past it, empty."""
        async with self._source() as (open_source, expected):
            await checks.check_ranges(open_source, expected)

    async def test_receive_cancelled(self) -> None:
        """A cancelled `receive` loses no byte."""
        async with self._source() as (open_source, expected):
            await checks.check_receive_cancelled(open_source, expected)

    async def test_source_used_after_exit(self) -> None:
        """A source can be left early; then it is closed."""
        async with self._source() as (open_source, _):
            await checks.check_closed_source(open_source)

    async def test_short_reads(self) -> None:
        """A source may give fewer bytes than asked for, and never none before the end: each byte comes once.

        What takes a short answer for the end, or counts what it asked for and not what came, loses records.
        """
        async with self._source() as (open_source, expected):
            await checks.check_short_reads(open_source, expected)

    async def test_empty_object_written(self) -> None:
        """An object of no bytes is made like any other: by `put` and by a sink that is sent nothing, exclusively too.

        Stores that leave out what is zero describe it in other words, and may publish it by another request.
        """
        async with self.open_storage() as storage:
            for key, exclusive in (("e/1", False), ("e/2", True)):
                checks.check_info(await storage.put(key, b"", exclusive=exclusive), key, b"")
            async with storage.open_sink("e/3", exclusive=True) as sink:
                await sink.flush([])
            assert sink.published is not None
            checks.check_info(sink.published, "e/3", b"")
            with pytest.raises(ObjectExistsError):
                await storage.put("e/3", b"", exclusive=True)
            listed = [info async for info in storage.list_objects("e/")]
            assert [info.key for info in listed] == ["e/1", "e/2", "e/3"]
            for info in listed:
                checks.check_info(info, info.key, b"")
                checks.check_info(await storage.head(info.key), info.key, b"")
                assert await storage.get(info.key) == await self.raw_get(storage, info.key) == b""
            await storage.put("e/1", b"longer")
            await storage.put("e/1", b"")
            assert await storage.get("e/1", max_bytes=0) == b""
            assert not await self.raw_unfinished(storage)

    async def test_empty_object(self) -> None:
        """An object of no bytes is there: found, listed, and read as nothing, from any start."""
        async with self.open_storage() as storage:
            await self.raw_put(storage, "empty", b"")
            checks.check_info(await storage.head("empty"), "empty", b"")
            assert await storage.get("empty") == b""
            assert await self._keys(storage) == ["empty"]
            for start, end in ((0, None), (0, 10), (5, None), (5, 10)):
                async with storage.open_source("empty", start=start, end=end) as source:
                    assert source.info.size == 0
                    assert await checks.receive_all(source) == b""

    async def test_missing_object(self) -> None:
        """What is not there is an `ObjectNotFoundError` that names the key, on every way of reading."""
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
            with pytest.raises(ObjectNotFoundError):  # a folder is no object
                await storage.head("there")

    async def test_changed_object(self) -> None:
        """Under a pinned etag another version is an `ObjectChangedError`; a source already open never mixes two."""
        old, new = checks.content(3 << 20, seed=1), checks.content(3 << 20, seed=2)
        async with self.open_storage() as storage:
            before = await storage.put("v", old)
            async with storage.open_source("v") as source, storage.open_source("v", etag=before.etag) as pinned:
                heads = [await each.receive(1_000) for each in (source, pinned)]
                after = await storage.put("v", new)
                assert await self.raw_get(storage, "v") == new
                assert after.etag != before.etag, "the etag stayed the same over other content of the same length"
                for each, head in zip((source, pinned), heads, strict=True):
                    with suppress(ObjectChangedError):
                        assert head + await checks.receive_all(each) == old, "a source mixed two versions"
            for start in (0, 1_000, 3 << 20):
                with pytest.raises(ObjectChangedError):
                    async with storage.open_source("v", start=start, etag=before.etag) as source:
                        await checks.receive_all(source)
            async with storage.open_source("v", start=5, etag=after.etag) as source:
                assert await checks.receive_all(source) == new[5:]
            await storage.delete("v")
            with pytest.raises((ObjectChangedError, ObjectNotFoundError)):
                async with storage.open_source("v", etag=after.etag) as source:
                    await checks.receive_all(source)

    async def test_many_sources(self) -> None:
        """Any number of sources may be open and idle at once, on one object or many."""
        async with self.open_storage() as storage:
            data = checks.content(5_000)
            await self.raw_put(storage, "s", data)
            parts: dict[int, bytes] = {}
            all_begun = anyio.Event()

            async def read(n: int) -> None:
                async with storage.open_source("s", start=n * 50, end=n * 50 + 50) as source:
                    parts[n] = await source.receive(10)
                    if len(parts) == 100:
                        all_begun.set()
                    await all_begun.wait()
                    parts[n] += await checks.receive_all(source)

            async with anyio.create_task_group() as group:
                for n in range(100):
                    group.start_soon(read, n)
            assert b"".join(parts[n] for n in range(100)) == data

    # One answer everywhere -----------------------------------------------------------------------------------------

    async def test_one_info(self) -> None:
        """`head`, the listing, an open source and `published` say the same of one object, etag and all."""
        async with self.open_storage() as storage:
            for key, size in (("i/0", 0), ("i/1", 70_000)):
                data = checks.content(size)
                published = await storage.put(key, data)
                head = await storage.head(key)
                (listed,) = [info async for info in storage.list_objects(key)]
                async with storage.open_source(key) as source:
                    opened = source.info
                for info in (published, head, listed, opened):
                    checks.check_info(info, key, data)
                    assert info.etag == head.etag, f"{key} has two etags: {info.etag!r} and {head.etag!r}"

    async def test_delete(self) -> None:
        """A deleted object is gone; deleting it once more is no error; its neighbours stay."""
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, ["d/1", "d/11"])
            for _ in range(2):
                await storage.delete("d/1")
                assert await self.raw_get(storage, "d/1") is None
            await storage.delete("d/never")
            await storage.delete("nor/this")
            await storage.delete("d")  # a folder is no object
            assert await self.raw_get(storage, "d/11") == b"x"
            with pytest.raises(ObjectNotFoundError):
                await storage.head("d/1")
            await storage.put("d/1", b"again", exclusive=True)
            assert await self.raw_get(storage, "d/1") == b"again"

    async def test_get_and_put(self) -> None:
        """`put` and `get` move whole objects; `get` refuses one larger than ``max_bytes``."""
        async with self.open_storage() as storage:
            data = checks.content(100_000)
            checks.check_info(await storage.put("g", memoryview(data)), "g", data)
            assert await self.raw_get(storage, "g") == data
            assert await storage.get("g") == data
            assert await storage.get("g", max_bytes=100_000) == data
            with pytest.raises(ValueError, match="99,999"):
                await storage.get("g", max_bytes=99_999)

    async def test_root(self) -> None:
        """The storage says where it is, and what its `flush` reaches."""
        async with self.open_storage() as storage:
            assert storage.root
            assert storage.flush_level in ("buffered", "spooled")
            assert storage.read_ahead >= 0

    # Helpers -----------------------------------------------------------------------------------------------------

    async def _race(self, storage: Storage, bodies: Sequence[bytes], *, all_kept: bool = True) -> None:
        won = await race(storage, "x/race", bodies)
        assert won, "of two exclusive writers of one key neither won"
        assert len(won) == 1 or not all_kept, "two exclusive writers of one key were both told that they won"
        assert await self.raw_get(storage, "x/race") in [bodies[n] for n in won], "what is there is not the winner's"
        assert not await self.raw_unfinished(storage)

    @staticmethod
    async def _chunk(storage: Storage) -> int:
        async with storage.open_sink("chunk") as sink:
            chunk = sink.chunk_size
        await storage.delete("chunk")
        return chunk

    @asynccontextmanager
    async def _sinks(self) -> AsyncIterator[tuple[Storage, Callable[[str], AbstractAsyncContextManager[ByteSink]]]]:
        async with self.open_storage() as storage:
            yield storage, storage.open_sink

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[tuple[Callable[..., AbstractAsyncContextManager[ByteSource]], bytes]]:
        expected = checks.content((1 << 20) + 12_345)
        async with self.open_storage() as storage:
            await self.raw_put(storage, "r/s", expected)
            yield partial(storage.open_source, "r/s"), expected

    @staticmethod
    async def _keys(storage: Storage, prefix: str = "", *, start_after: str = "") -> list[str]:
        return [info.key async for info in storage.list_objects(prefix, start_after=start_after)]


def _sorted(keys: Any) -> list[str]:
    return sorted(keys, key=str.encode)
