"""A writer that releases sources, or loses them to another writer, continues with its remaining sources."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from .messages import stored
from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

SMALL: dict[str, Any] = {"open_shards": 2, "max_shard_records": 5}


async def write(writer: asyncrec.ShardedWriter, source: str, *positions: int) -> None:
    for position in positions:
        await writer.write(f"{source} {position}".encode(), source=source, position=position)


def messages(**last: int) -> Counter[bytes]:
    """Return the records of each source up to the given last position, each counted once."""
    return Counter(f"{source} {position}".encode() for source, end in last.items() for position in range(end + 1))


async def progress(storage: Storage) -> dict[str, int]:
    try:
        return dict((await asyncrec.read_manifest("pages", storage=storage)).progress)
    except ObjectNotFoundError:
        return {}


@pytest.mark.parametrize("where", ["disk", "store"])
async def test_released_source_continues_in_another_writer(tmp_path: Path, where: str) -> None:
    storage: Storage = LocalStorage(tmp_path) if where == "disk" else MemoryStorage()
    async with (
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="a") as first,
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="b") as second,
    ):
        await write(first, "p", 0, 1)
        await write(first, "q", 0)
        await first.release("p", "never seen")
        assert first.progress == {"q": 0}
        assert await progress(storage) == {"p": 1, "q": 0}
        await write(second, "p", 1, 2)
        assert second.progress == {"p": 2}
        await write(first, "q", 1)
        assert await first.commit() == "committed"
        assert first.writer_id == "a"
        await second.release("p")
        await write(first, "p", 2, 3)  # the first writer takes it back
    assert await stored(storage) == messages(p=3, q=1)
    assert (await tools.verify("pages", storage=storage)).ok


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("open_shards", [1, 3])
async def test_writer_continues_without_lost_source(compression: Any, open_shards: int) -> None:
    storage = MemoryStorage()
    options: dict[str, Any] = {"compression": compression, "open_shards": open_shards}
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as first:
        for position in range(10):
            await write(first, "p", position)
            await write(first, "q", position)
        await first.flush()
        for position in range(10, 20):
            await write(first, "p", position)
            await write(first, "q", position)
            await first.write(b"of no source %d" % position)
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "p", *range(5, 15))
            assert second.stats().duplicates == 5
        with pytest.raises(ConflictError, match="has taken the source 'p'") as raised:
            await first.flush()
        assert raised.value.sources == ("p",)
        for call in (first.commit, first.flush):
            with pytest.raises(ConflictError, match="has taken the source 'p'"):
                await call()
        with pytest.raises(ConflictError, match="has taken the source 'p'"):
            await first.wait(first.last_ticket, "spooled")
        with pytest.raises(ConflictError, match="has taken the source 'p'"):
            await write(first, "p", 20)
        await write(first, "q", 20)
        assert first.progress == {"q": 20}
        await first.release("p")
        await first.wait(first.last_ticket, "spooled")
        assert await first.commit() == "committed"
        with pytest.raises(ConflictError, match=r"call take\(\)"):
            await write(first, "p", 15)
        assert await first.take("p") == 14
        await write(first, "p", *range(10, 16))
        assert first.progress == {"p": 15, "q": 20}
    assert await stored(storage) == messages(p=15, q=20) + Counter(b"of no source %d" % n for n in range(10, 20))
    assert await progress(storage) == {"p": 15, "q": 20}
    assert (await tools.verify("pages", storage=storage)).ok


async def test_exit_error_reports_dropped_records() -> None:
    storage = MemoryStorage()
    with pytest.raises(ConflictError, match="has taken the source 'p'") as raised:
        async with asyncrec.open_sharded_writer("pages", storage=storage) as first:
            await write(first, "p", 0)
            await first.flush()
            await write(first, "p", 1)
            await write(first, "q", 0)
            async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
                await write(second, "p", 1)
    assert raised.value.sources == ("p",)
    assert await stored(storage) == messages(p=1, q=0)


async def test_release_raises_for_lost_source() -> None:
    """Otherwise, the caller would believe that its records are stored. It can still release the remaining sources."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as first:
        await write(first, "p", 0)
        await write(first, "q", 0)
        await first.flush()
        await write(first, "p", 1)
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "p", 1)
        with pytest.raises(ConflictError, match="has taken the source 'p'") as raised:
            await first.release("p", "q")
        assert raised.value.sources == ("p",)
        assert first.progress == {}
        await first.release("p", "q")
        assert await first.commit() == "committed"
    assert await stored(storage) == messages(p=1, q=0)


async def test_lost_source_without_pending_records_raises_no_error() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as first:
        await write(first, "p", 0)
        await first.flush()
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "p", 0, 1)
        await write(first, "q", 0)
    assert await stored(storage) == messages(p=1, q=0)


@pytest.mark.parametrize("where", ["disk", "store"])
async def test_source_is_acquired_before_its_first_record(tmp_path: Path, where: str) -> None:
    storage: Storage = LocalStorage(tmp_path) if where == "disk" else MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as first:
        assert await first.take("p") is None
        assert first.progress == {}
        await write(first, "p", 0, 1)
        assert await first.take("p") == 1
        await first.release("p")
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            assert await second.take("p") == 1
            assert second.progress == {"p": 1}
            await write(second, "p", 1, 2)
            assert second.stats().duplicates == 1
        assert await first.take("p") == 2
    assert await stored(storage) == messages(p=2)
    assert await progress(storage) == {"p": 2}


async def test_source_acquired_without_records_can_be_released() -> None:
    storage = MemoryStorage()
    async with (
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="a") as first,
        asyncrec.open_sharded_writer("pages", storage=storage) as second,
    ):
        assert await first.take("p") is None
        await first.release("p")
        assert await second.take("p") is None
        await write(first, "q", 0)
        await first.flush()
        assert first.writer_id == "a", "it was not ended"
    assert await stored(storage) == messages(q=0)


async def test_lost_source_is_reacquired_only_after_release() -> None:
    storage = MemoryStorage()
    async with (
        asyncrec.open_sharded_writer("pages", storage=storage) as first,
        asyncrec.open_sharded_writer("pages", storage=storage) as second,
    ):
        await write(first, "p", 0, 1)
        assert await second.take("p") is None
        await write(second, "p", 0)
        await second.flush()
        with pytest.raises(ConflictError, match="has taken the source"):
            await first.flush()
        with pytest.raises(ConflictError, match="has taken the source"):
            await first.take("p")
        await first.release("p")
        assert await first.take("p") == 0, "the place to read on from"
        await write(first, "p", 1)
        with pytest.raises(ConflictError, match="has taken the source"):
            await second.release("p")
    assert await stored(storage) == messages(p=1)


@pytest.mark.parametrize("source", ["", "a\nb"])
async def test_take_rejects_invalid_source(source: str) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
        with pytest.raises(ValueError, match="1 to 512 bytes"):
            await writer.take(source)
        with pytest.raises(TypeError, match="must be text"):
            await writer.take(b"p")  # type: ignore[arg-type]


async def test_position_with_many_records_is_dropped_entirely() -> None:
    storage = MemoryStorage()
    records = [b"p 1 %d" % n * 200 for n in range(900)]
    async with asyncrec.open_sharded_writer("pages", storage=storage, memory_limit=64 << 20) as first:
        await write(first, "p", 0)
        await write(first, "q", 0)
        await first.write_many(records, source="p", position=1)
        await write(first, "q", 1)
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "p", 0)
        with pytest.raises(ConflictError, match="has taken the source"):
            await first.flush()
        await first.release("p")
        assert await first.take("p") == 0
        await first.write_many(records, source="p", position=1)
    assert await stored(storage) == messages(p=0, q=1) + Counter(records)


async def test_commit_stores_positions_without_records() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.advance("p", 3)
        await write(writer, "q", 0)
        await writer.advance("q", 5)
        await writer.commit()
        assert await progress(storage) == {"p": 3, "q": 5}
        await writer.advance("p", 7)
        await writer.commit()
        assert await progress(storage) == {"p": 7, "q": 5}
        await writer.advance("p", 8)
        await writer.release("p")
        assert await progress(storage) == {"p": 8, "q": 5}


async def test_older_source_turns_are_deleted() -> None:
    storage = MetStorage(MemoryStorage())

    async def turns() -> list[str]:
        return [key[-11:] async for info in storage.list_objects("_manifest/pages/_source-") for key in [info.key]]

    for position in range(4):
        async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
            await write(writer, "p", position)
    await write_once(storage, "q")
    assert await turns() == [f"{number:06d}.json"[-11:] for number in (1, 2, 3, 4, 1)]
    assert not (await tools.compact("pages", storage=storage, manifest_only=True)).deleted
    await storage.age(2)
    await write_once(storage, "r")
    report = await tools.compact("pages", storage=storage, manifest_only=True)
    assert sum("_source-" in key for key in report.deleted) == 3
    assert sorted(await turns()) == ["000001.json", "000001.json", "000004.json"]
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await write(writer, "p", 3, 4)
        assert writer.stats().duplicates == 1
    assert await stored(storage) == messages(p=4, q=0, r=0)


async def write_once(storage: Storage, source: str) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await write(writer, source, 0)


@pytest.mark.parametrize("done", [False, True])
async def test_unanswered_release_gives_up_source(done: bool) -> None:
    """The release may have taken effect, so the next owner ends no log. To write more, the writer takes the source
    again.
    """
    released = False

    async def lose(operation: str, key: str) -> None:
        if released and key.endswith("a-000002.jsonl"):
            raise TransientStorageError("no answer")

    storage = MetStorage(MemoryStorage(), **{"after" if done else "before": lose})
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="a") as first:
        await write(first, "p", 0)
        await first.commit()
        released = True
        with pytest.raises(StorageError):
            await first.release("p")
        assert first.progress == {}
        released = False
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "p", 0, 1)
            await second.commit()
            with suppress(ConflictError):
                await write(first, "p", 1, 2)
                await first.commit()
    found = await stored(storage)
    assert found in (messages(p=1), messages(p=2))


async def test_cancelled_release_keeps_source() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="a") as first:
        await write(first, "p", 0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await first.release("p")
        assert first.progress == {"p": 0}
        await write(first, "p", 1)
    assert await stored(storage) == messages(p=1)


async def test_dropped_record_is_stored_when_read_again() -> None:
    """The dropped record's key is forgotten too, so even a later record without a source can use it."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as first:
        for position in range(3):
            await first.write(b"p %d" % position, key=str(position), source="p", position=position)
            if position == 0:
                await first.flush()
        async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as second:
            assert await second.take("p") == 0
        with pytest.raises(ConflictError):
            await first.flush()
        assert [first.has(str(position)) for position in range(3)] == [True, False, False]
        await first.release("p")
        assert await first.take("p") == 0
        await first.write(b"p 1", key="1", source="p", position=1)
        await first.write(b"p 2", key="2")
        assert first.stats().duplicates == 0
    assert await stored(storage) == messages(p=2)
