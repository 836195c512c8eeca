"""Flushes to a store while responses are late, other processes end the writer, memory is full, or data is damaged."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import IntegrityError, ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage import Buffer, ByteSink, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

from . import mortal
from .flushing import RECORDS, flush_entries, recovered, stored, write

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

Act = Callable[[], Awaitable[Any]]


class Meeting(FlakyStorage):
    """A process's connection to a store, with a callback before and after each request.

    ``meet(what, key, done)`` is called with ``done=False`` before each request (``put``, ``list``, ``delete`` and so
    on) and with ``done=True`` after it. If it returns a function, that function is awaited.
    """

    def __init__(self, storage: Storage, meet: Callable[[str, str, bool], Act | None]) -> None:
        super().__init__(storage)
        self._meet = meet

    async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
        if (act := self._meet(operation, key, False)) is not None:
            await act()
        result = await call()
        if (act := self._meet(operation, key, True)) is not None:
            await act()
        return result

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        put = partial(self._storage.put, key, data, exclusive=exclusive)
        return await self.perform("put", key, put)  # type: ignore[no-any-return]


async def on_another_machine(storage: Storage) -> None:
    """Change the writer's mark so that it seems to run on a machine about which this machine knows nothing."""
    key = "_manifest/pages/w-000000.jsonl"
    await storage.put(key, (await storage.get(key)).replace(b'"life":"', b'"life":"0'))


async def test_concurrent_endings_of_writer_leave_one_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes are ending the log: the second one succeeds while the first one is still listing it."""
    storage = MemoryStorage()
    with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
        async with mortal.killed(storage, writer_id="w") as writer:
            await write(writer, RECORDS)
            await writer.flush()
    for place in range(6):  # after each listing of the first process
        copy = MemoryStorage()
        for info in [info async for info in storage.list_objects()]:
            await copy.put(info.key, await storage.get(info.key))
        seen = 0
        end = partial(asyncrec.recover, "pages", storage=copy, dead=["w"])

        def meet(what: str, key: str, done: bool, *, place: int = place, end: Act = end) -> Act | None:
            nonlocal seen
            if done and what == "list" and key.startswith(("_manifest/pages/w-", "_flush/pages/w-")):
                seen += 1
                return end if seen == place + 1 else None
            return None

        await asyncrec.recover("pages", storage=Meeting(copy, meet), dead=["w"])
        assert await stored(copy) == RECORDS
        await asyncrec.recover("pages", storage=copy)


@pytest.mark.slow(but=[f"({place}, {place + 3})" for place in range(11)])
@pytest.mark.parametrize("commits_at_once", [False, True])
@pytest.mark.parametrize("places", list(itertools.combinations(range(14), 2)), ids=str)
async def test_fence_follows_entries_deleted_during_its_creation(
    places: tuple[int, int], commits_at_once: bool
) -> None:
    """Between two requests of the process that ends it, the writer flushes, commits and deletes its entries."""
    storage = MemoryStorage()
    written: list[bytes] = []
    seen = 0

    async def write_more(writer: asyncrec.ShardedWriter, *, commit: bool) -> None:
        for _ in range(1 if commit else 2):  # the second entry contains the first one's records, too
            more = RECORDS[len(written) : len(written) + 5]
            written.extend(more)
            await write(writer, more)
            with anyio.move_on_after(10):  # otherwise this and the end of the log would wait for each other
                await writer.flush()
        if commit:
            await commit_in_time(writer)
        await anyio.sleep(1)  # its entries are deleted

    async def commit_in_time(writer: asyncrec.ShardedWriter) -> None:
        with anyio.move_on_after(10):
            await writer.commit()

    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
        await write_more(writer, commit=True)
        await on_another_machine(storage)

        def meet(what: str, key: str, done: bool) -> Act | None:
            nonlocal seen
            if what in ("list", "put") and key.startswith(("_flush/pages/w-", "_manifest/pages/w-")):
                seen += 1
                if seen - 1 == places[0]:
                    return partial(write_more, writer, commit=commits_at_once)
                return partial(commit_in_time, writer) if seen - 1 == places[1] else None
            return None

        await asyncrec.recover("pages", storage=Meeting(storage, meet), dead=["w"])
        for record in RECORDS[50:60]:
            await write(writer, [record])
            await writer.flush()
            written.append(record)
    assert await stored(storage) == sorted(written)


@pytest.mark.parametrize("place", range(6))
async def test_late_fence_is_not_relied_on(place: int) -> None:
    """A process that is ending the writer creates its fence late, under the number of a deleted entry."""
    storage = MemoryStorage()
    written: list[bytes] = []
    lists = 0
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:

        async def flush(count: int) -> None:
            more = RECORDS[len(written) : len(written) + count]
            written.extend(more)
            await write(writer, more)
            with anyio.move_on_after(10):  # otherwise this and the end of the log would wait for each other
                await writer.flush()
            await anyio.sleep(1)  # the entries that the new one supersedes are deleted

        await flush(1)
        await on_another_machine(storage)
        other = mortal.Process(storage, "_flush/pages/w-")
        with pytest.raises(StorageError):
            await asyncrec.recover("pages", storage=other.storage, dead=["w"])
        assert other.late is not None
        await flush(2)  # this entry gets the number that the fence was meant to have
        key, fence = other.late

        async def go_on() -> None:
            await flush(7)
            with suppress(ObjectExistsError):
                await storage.put(key, fence, exclusive=True)

        def meet(what: str, key: str, done: bool) -> Act | None:
            nonlocal lists
            if what == "list" and not done and key.startswith(("_flush/pages/w-", "_manifest/pages/w-")):
                lists += 1
                return go_on if lists == place + 1 else None
            ends = what == "put" and not done and key.endswith("w-000001.jsonl")
            return partial(flush, 10) if ends else None

        await asyncrec.recover("pages", storage=Meeting(storage, meet), dead=["w"])
        await flush(10)
    assert await stored(storage) == written


@pytest.mark.parametrize("is_idle", [False, True])
async def test_last_entry_is_kept_until_commit_states_its_number(is_idle: bool) -> None:
    """Otherwise a fence could take the same number again, and the writer could still flush."""
    storage = MemoryStorage()
    entry, commit = anyio.Event(), anyio.Event()

    def meet(what: str, key: str, done: bool) -> Act | None:
        slow = {"_flush/pages/w-000001.frames": entry, "_manifest/pages/w-000001.jsonl": commit}
        return slow[key].wait if done and what == "put" and key in slow else None

    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), writer_id="w") as writer:
        async with anyio.create_task_group() as group:
            await write(writer, RECORDS[:50])
            group.start_soon(writer.flush)
            await anyio.sleep(1)
            group.start_soon(writer.commit)  # the commit states that the flush log has no entry
            await anyio.sleep(1)
            entry.set()
            await anyio.sleep(1)
            commit.set()
        await anyio.sleep(1)
        assert await flush_entries(storage) == ["_flush/pages/w-000001.frames"]
        if is_idle:  # otherwise the writer would be presumed dead
            await anyio.sleep(100)
        else:
            await write(writer, RECORDS[50:])
            await writer.commit()
            await anyio.sleep(1)
        assert await flush_entries(storage) == []
        if is_idle:
            await write(writer, RECORDS[50:])
    assert await stored(storage) == RECORDS


async def test_flush_is_not_satisfied_by_commits_of_other_shards() -> None:
    """One of two shards is committed while the other's records are waiting for a flush entry."""
    storage = MemoryStorage()
    slow = anyio.Event()

    def meet(what: str, key: str, done: bool) -> Act | None:
        return slow.wait if done and what == "put" and key.startswith("_flush/") else None

    options: dict[str, Any] = {"open_shards": 2, "max_shard_records": 60, "partition_by": lambda record: record[:1]}
    first, second = b"a%05d", b"b%05d"
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
        await writer.write(second % 0)
        answers: list[str] = []

        async def flush() -> None:
            answers.append(await writer.flush())

        async with anyio.create_task_group() as group:
            group.start_soon(flush)  # its entry is being sent
            await anyio.sleep(1)
            for number in range(30):
                await writer.write(first % number)
            group.start_soon(flush)
            await anyio.sleep(1)
            for number in range(30, 61):  # one more than fits in a shard
                await writer.write(first % number)
            await anyio.sleep(1)
            assert answers == []
            assert len(await asyncrec.list_shards("pages", storage=storage)) == 1
            slow.set()
        assert answers == ["spooled", "spooled"]


async def test_records_of_many_small_flushes_are_readable() -> None:
    """Storing one section for each flush would produce a line of several megabytes."""
    storage = MemoryStorage()
    name = "p" * 100
    records = [b"%06d" % number for number in range(1500)]
    async with mortal.killed(storage, name) as writer:
        for number, record in enumerate(records):
            ticket = await writer.write(record, key=record if number % 100 else None)
            await writer.wait(ticket, "spooled")
    sizes = [info.size async for info in storage.list_objects("_flush/")]
    assert sum(sizes) < 100 * len(records)
    assert (await asyncrec.recover(name, storage=storage)).records == len(records)


async def test_flushed_records_of_damaged_shard_are_recovered() -> None:
    class Damaging(Meeting):
        @asynccontextmanager
        async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
            async with super().open_sink(key, exclusive=exclusive) as sink:
                yield sink
            if key.endswith(".tfrecord") and sink.published is not None:
                sink.published = replace(sink.published, crc32c=1)

    storage = MemoryStorage()
    with pytest.raises(IntegrityError):
        async with asyncrec.open_sharded_writer("pages", storage=Damaging(storage, lambda *_: None)) as writer:
            await write(writer, RECORDS)
            assert await writer.flush() == "spooled"
    assert await recovered(storage) == RECORDS


async def test_record_near_memory_limit_does_not_wait_for_timer() -> None:
    storage = MemoryStorage(chunk_size=64 << 10)
    options: dict[str, Any] = {"flush_seconds": 10_000, "memory_limit": 2 << 20}
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        with anyio.fail_after(1000):
            for number in range(40):
                await writer.write(bytes([number]) * (number * 379_721 % (3 << 20)))


async def test_writer_frees_memory_after_outage() -> None:
    storage = MemoryStorage()
    down = True

    def meet(what: str, key: str, done: bool) -> Act | None:
        if down and key.startswith("_flush/"):
            raise TransientStorageError("down, as asked")
        return None

    options: dict[str, Any] = {"flush_seconds": 10_000, "memory_limit": 8 << 20}
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
        async with anyio.create_task_group() as group:

            async def write_much() -> None:
                for _ in range(30):
                    await writer.write(bytes(1_000_000))

            group.start_soon(write_much)
            await anyio.sleep(600)
            assert writer.stats().callers_waiting
            assert await writer.flush() == "buffered"
            down = False
            with anyio.fail_after(100):
                while writer.stats().records < 30:  # noqa: ASYNC110  # of a virtual clock
                    await anyio.sleep(1)


async def test_doubtful_entry_is_deleted_on_writer_exit() -> None:
    storage = MemoryStorage()
    lost = True

    async def lose() -> None:
        raise TransientStorageError("lost, as asked")

    def meet(what: str, key: str, done: bool) -> Act | None:
        if not (lost and key.startswith("_flush/")):
            return None
        if what != "put":
            raise TransientStorageError("lost, as asked")
        return lose if done else None

    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet)) as writer:
        await write(writer, RECORDS)
        assert await writer.flush() == "buffered"
        lost = False
    assert await flush_entries(storage) == []
    assert await stored(storage) == RECORDS


async def test_entry_recovered_by_another_machine_is_not_rewritten() -> None:
    """The store has accepted the entry, but another machine ends the writer before it checks for the entry."""
    storage = MemoryStorage()

    def meet(what: str, key: str, done: bool) -> Act | None:
        return taken_up if done and what == "put" and key == "_flush/pages/w-000001.frames" else None

    async def taken_up() -> None:
        await on_another_machine(storage)
        await asyncrec.recover("pages", storage=storage, dead=["w"])
        raise IntegrityError("the store acknowledged the object but does not have it; write it again")

    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), writer_id="w") as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
    assert await stored(storage) == RECORDS[:50]
