"""Records with a source and a position are accepted once and in order, and those of one position stay together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.storage._local.storage import LocalStorage

from .messages import progress_of, stored

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"source": "q"}, ValueError, "belong together"),
        ({"position": 1}, ValueError, "belong together"),
        ({"source": "q", "position": 1, "partition": 3}, ValueError, "partition"),
        ({"source": "q", "position": -1}, ValueError, "must be from 0 to"),
        ({"source": "q", "position": 1 << 63}, ValueError, "must be from 0 to"),
        ({"source": "q", "position": True}, TypeError, "must be an integer"),
        ({"source": "q", "position": 1.0}, TypeError, "must be an integer"),
        ({"source": b"q", "position": 1}, TypeError, "must be text"),
        ({"source": "", "position": 1}, ValueError, "1 to 512 bytes"),
        ({"source": "\u00e9" * 257, "position": 1}, ValueError, "1 to 512 bytes"),
        ({"source": "a\nb", "position": 1}, ValueError, "control characters"),
        ({"source": "\ud800", "position": 1}, ValueError, "1 to 512 bytes"),
    ],
)
async def test_invalid_position_is_rejected_before_writing(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        with pytest.raises(error, match=words):
            await writer.write(b"record", **given)
        with pytest.raises(error, match=words):
            await writer.write_many([b"record"], **given)
        assert (writer.last_ticket, writer.progress, writer.stats().records) == (0, {}, 0)
    assert await asyncrec.list_shards(tmp_path / "pages") == []


@pytest.mark.parametrize(
    "options", [{"num_shards": 2}, {"mode": "replace"}, {"on_error": "discard"}, {"partition_by": len}]
)
async def test_writers_without_commit_order_reject_sources(tmp_path: Path, options: dict[str, Any]) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", **options) as writer:
        with pytest.raises(ValueError, match="source= requires"):
            await writer.write(b"record", source="q", position=0)


async def test_repeated_position_is_skipped_and_counted_as_duplicate(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        tickets = [await writer.write(b"%d" % n, source="q", position=n) for n in (0, 3, 3, 1)]
        assert tickets == [1, 2, 2, 2]
        await writer.write(b"other", source="p", position=1)
        assert writer.progress == {"q": 3, "p": 1}
        assert (writer.stats().records, writer.stats().duplicates) == (3, 2)
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        assert await writer.write(b"3", source="q", position=3) == 0
        assert await writer.write(b"4", source="q", position=4) == 1
        assert writer.progress == {"q": 4}
    assert sorted(await stored(storage)) == [b"0", b"3", b"4", b"other"]
    assert await progress_of(storage) == {"q": (2, 4), "p": (1, 1)}


async def test_calls_of_one_source_are_processed_in_order(tmp_path: Path) -> None:
    """This holds even if the first record has to wait for room and the second one would fit."""
    storage = LocalStorage(tmp_path)
    options: dict[str, Any] = {"memory_limit": 200_000, "max_shard_records": 10}
    async with asyncrec.open_sharded_writer(
        "pages", storage=LocalStorage(tmp_path, chunk_size=1000), **options
    ) as writer:
        async with anyio.create_task_group() as group:
            for n in range(60):
                size = 150_000 if n % 3 == 0 else 10

                async def write(n: int = n, size: int = size) -> None:
                    await writer.write(b"%d " % n + bytes(size), source="q", position=n)

                group.start_soon(write)
                await anyio.lowlevel.checkpoint()
    assert sorted(int(record.split()[0]) for record in await stored(storage)) == list(range(60))
    assert await progress_of(storage) == {"q": (1, 59)}


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_records_of_one_position_share_a_shard(tmp_path: Path, compression: str) -> None:
    storage = LocalStorage(tmp_path)
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_bytes=100_000, open_shards=2, compression=compression
    ) as writer:
        for position in range(4):
            for source, count in (("q", 1500 * position), ("p", 100)):
                records = [f"{source} {position} {n} ".encode() * 100 for n in range(count)]
                await writer.write_many(records, source=source, position=position)
    where: dict[tuple[bytes, bytes], list[str]] = {}
    for shard in await asyncrec.list_shards("pages", storage=storage):
        for record in await asyncrec.read_records(shard, storage=storage):
            name, number, *_ = record.split()
            where.setdefault((name, number), []).append(shard)
    assert all(len(set(shards)) == 1 for shards in where.values())
    assert sorted(map(len, where.values())) == [100, 100, 100, 100, 1500, 3000, 4500]
    assert await progress_of(storage) == {"q": (1, 3), "p": (1, 3)}


async def test_position_without_records_is_stored_after_earlier_positions(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1) as writer:
        await writer.write(b"0", source="q", position=0)
        await writer.advance("q", 5)
        await writer.advance("p", 2)
        assert writer.progress == {"q": 5, "p": 2}
        await writer.commit()
        await writer.write(b"6", source="q", position=6)
        await writer.commit()
        said = await progress_of(storage)
        assert said == {"q": (1, 6), "p": (1, 2)}
        await writer.advance("p", 3)
    assert await progress_of(storage) == {"q": (1, 6), "p": (1, 3)}


async def test_repeated_key_advances_position_without_record(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        for n, key in enumerate("aba"):
            await writer.write(b"%d" % n, key=key, source="q", position=n)
        assert (writer.has("b"), writer.progress) == (True, {"q": 2})
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert [await dataset.get_by_key(key) for key in "ab"] == [b"0", b"1"]
    assert await progress_of(storage) == {"q": (1, 2)}


async def test_cancelled_call_does_not_advance_position(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, chunk_size=1000)
    async with asyncrec.open_sharded_writer("pages", storage=storage, memory_limit=200_000) as writer:
        await writer.write(bytes(150_000), source="q", position=0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await writer.write_many([bytes(90_000), bytes(90_000)], source="q", position=1)
        assert writer.progress == {"q": 0}
        await writer.write(b"1", source="q", position=1)
    assert sorted(map(len, await stored(storage))) == [1, 150_000]
    assert await progress_of(storage) == {"q": (1, 1)}
