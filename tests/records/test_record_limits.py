"""By default, no writer accepts a record that readers would reject by default; options can raise the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import blocking
from asyncrec.errors import ArgumentValueError

pytestmark = pytest.mark.anyio

# Below and above the size from which records are framed in a worker thread.
LIMITS = [0, 5, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("limit", LIMITS)
async def test_record_above_limit_is_rejected_without_effect(tmp_path: Path, limit: int, compression: Any) -> None:
    most, more = bytes(limit), bytes(limit + 1)
    options: dict[str, Any] = {"max_record_bytes": limit, "compression": compression}
    async with asyncrec.open_writer(tmp_path / "a.tfrecord", **options) as writer:
        for refused in (more, bytearray(more), memoryview(more)):
            with pytest.raises(ArgumentValueError, match="max_record_bytes"):
                await writer.write(refused)
        await writer.write(most)
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            await writer.write_many([most, more, most])
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            await writer.write_many([bytearray(most), bytearray(more)])
    assert await asyncrec.read_records(tmp_path / "a.tfrecord") == [most] * 3
    async with asyncrec.open_sharded_writer(tmp_path / "b", on_duplicate="skip", **options) as shards:
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            await shards.write(more, key="k")
        assert shards.last_ticket == 0
        assert not shards.has("k")
        assert await shards.write(most, key="k") == 1
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            await shards.write_many([most, more])
        assert shards.last_ticket == 2
    assert (await asyncrec.read_manifest(tmp_path / "b")).records == 2


@pytest.mark.parametrize("limit", LIMITS)
def test_blocking_writers_reject_oversized_record_at_once(tmp_path: Path, limit: int) -> None:
    most, more = bytes(limit), bytes(limit + 1)
    with blocking.open_writer(tmp_path / "a.tfrecord", max_record_bytes=limit) as writer:
        writer.write(most)
        for write in (writer.write, lambda record: writer.write_many([record])):
            with pytest.raises(ArgumentValueError, match="max_record_bytes"):
                write(more)
    assert blocking.read_records(tmp_path / "a.tfrecord") == [most]
    with blocking.open_sharded_writer(tmp_path / "b", on_duplicate="skip", max_record_bytes=limit) as shards:
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            shards.write(more, key="k")
        with pytest.raises(ArgumentValueError, match="max_record_bytes"):
            shards.write_many([more])
        assert shards.last_ticket == 0
        assert not shards.has("k")
        shards.write(most)
    assert blocking.read_manifest(tmp_path / "b").records == 1


@pytest.mark.parametrize("size", ["1GiB", "0.25 GiB", 1 << 20])
async def test_record_limit_accepts_number_or_text(tmp_path: Path, size: Any) -> None:
    async with asyncrec.open_writer(tmp_path / "a.tfrecord", max_record_bytes=size) as writer:
        assert writer.max_record_bytes in (1 << 30, 1 << 28, 1 << 20)
    with pytest.raises(ArgumentValueError, match="at least 0"):
        async with asyncrec.open_writer(tmp_path / "a.tfrecord", max_record_bytes=-1):
            pass


async def test_dataset_writer_rejects_oversized_records(tmp_path: Path) -> None:
    def generate(split: str) -> Any:
        yield "a", {"n": b"x" * 100}

    writer = asyncrec.DatasetWriter(generate, None, tmp_path, "train", max_record_bytes=50, progress=False)
    with pytest.raises(ArgumentValueError, match="max_record_bytes"):
        await writer.create_records()
    assert not any("tfrecord" in found.name for found in tmp_path.rglob("*"))
