"""Data sets with records longer than 256 MiB are read, checked and rewritten with no option: the manifest notes them.

The data here is compressed, and each test reads gigabytes of zeros, so these tests run on one event loop only; the
results would be the same on the other.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import blocking, tools
from asyncrec.errors import ArgumentValueError, RecordTooLargeError

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

DEFAULT = 256 << 20
EXPECTED = [6, DEFAULT + 1, 6]
MORE: dict[str, Any] = {"max_record_bytes": "1GiB"}


@pytest.mark.slow
async def test_record_longer_than_default_limit_is_rejected(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", compression="GZIP") as writer:
        with pytest.raises(ArgumentValueError, match="268,435,457 bytes"):
            await writer.write(bytes(DEFAULT + 1))
        await writer.write(bytes(DEFAULT))
    assert (await tools.verify(tmp_path / "pages")).ok
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert len(await dataset.get(0)) == DEFAULT


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a data set with a record longer than readers accept by default, compressed to keep it small."""
    path = tmp_path_factory.mktemp("large") / "pages"
    with blocking.open_sharded_writer(path, compression="GZIP", max_record_bytes="1GiB") as writer:
        writer.write(b"before")
        writer.write(bytes(DEFAULT + 1), key="large")
        writer.write(b"behind")
    return path


async def _lengths(path: Path) -> list[int]:
    async with asyncrec.open_dataset(path) as dataset:
        return [len(record) async for records in dataset.batches() for record in records]


@pytest.mark.slow
async def test_manifest_raises_record_limit_of_readers(large: Path) -> None:
    manifest = await asyncrec.read_manifest(large)
    assert [shard.max_record_bytes for shard in manifest.shards] == [DEFAULT + 1]
    assert (await tools.verify(large)).ok
    assert await _lengths(large) == EXPECTED
    async with asyncrec.open_split(large.parent, "pages") as split:
        assert [len(record) async for records in split.batches() for record in records] == EXPECTED
    async with tools.open_records(large) as stream:
        assert [len(found.data) async for records in stream for found in records] == EXPECTED


MAKERS: dict[str, Callable[..., Awaitable[Any]]] = {
    "reshard": lambda source, target: tools.reshard(source, target, compression=""),
    "reshard that skips": lambda source, target: tools.reshard(source, target, on_corrupt="skip"),
    "sample": lambda source, target: tools.sample(source, target, records=3),
    "copy": tools.copy,
}


@pytest.mark.slow(but=["copy"])
@pytest.mark.parametrize("maker", MAKERS)
async def test_tool_output_with_longer_records_is_readable(large: Path, tmp_path: Path, maker: str) -> None:
    await MAKERS[maker](large, tmp_path / "pages")
    assert await _lengths(tmp_path / "pages") == EXPECTED
    assert (await tools.verify(tmp_path / "pages")).ok


@pytest.mark.slow
async def test_copied_frames_keep_raised_record_limit(large: Path, tmp_path: Path) -> None:
    await tools.reshard(large, tmp_path / "plain", compression="")
    await tools.reshard(tmp_path / "plain", tmp_path / "again")
    shards = (await asyncrec.read_manifest(tmp_path / "again")).shards
    assert max(shard.max_record_bytes for shard in shards) == DEFAULT + 1
    assert (await tools.verify(tmp_path / "again")).ok


async def test_checkpoint_keeps_raised_record_limit(large: Path, tmp_path: Path) -> None:
    await tools.copy(large, tmp_path / "pages")
    await tools.compact(tmp_path / "pages", manifest_only=True)
    assert [shard.max_record_bytes for shard in (await asyncrec.read_manifest(tmp_path / "pages")).shards] == [
        DEFAULT + 1
    ]


DIES = """
import asyncio, os, sys, asyncrec
async def main():
    async with asyncrec.open_sharded_writer(
        sys.argv[1], compression="GZIP", max_record_bytes="1GiB", max_shard_records=3
    ) as writer:
        for _ in range(2):
            await writer.write(b"before")
            await writer.write(bytes(DEFAULT + 1))
            await writer.write(b"behind")
        print(await writer.flush(), flush=True)
        os._exit(0)
asyncio.run(main())
"""


@pytest.mark.slow
async def test_recovery_records_raised_record_limit(tmp_path: Path) -> None:
    program = DIES.replace("DEFAULT", str(DEFAULT))
    done = await anyio.run_process([sys.executable, "-c", program, str(tmp_path / "pages")])
    assert done.stdout == b"spooled\n"
    await asyncrec.recover(tmp_path / "pages")
    assert await _lengths(tmp_path / "pages") == 2 * EXPECTED
    assert (await tools.verify(tmp_path / "pages")).ok


@pytest.mark.slow
async def test_single_file_of_longer_records_needs_larger_limit(large: Path, tmp_path: Path) -> None:
    (shard,) = await asyncrec.list_shards(large)
    with pytest.raises(RecordTooLargeError, match="max_record_bytes"):
        await asyncrec.read_records(shard)
    (report,) = (await tools.verify(shard)).shards
    assert any("max_record_bytes" in problem.message for problem in report.problems)
    assert (await tools.verify(shard, **MORE)).ok
    with pytest.raises(ArgumentValueError, match="max_record_bytes"):  # the record is intact, so it must not be omitted
        await tools.repair(shard, tmp_path / "repaired.tfrecord")
    assert (await tools.repair(shard, tmp_path / "repaired.tfrecord", **MORE)).records == 3
    assert (await tools.verify(tmp_path / "repaired.tfrecord", **MORE)).ok
    await tools.reshard(shard, tmp_path / "pages", **MORE)
    assert await _lengths(tmp_path / "pages") == EXPECTED
    async with asyncrec.interleave([shard], **MORE) as stream:
        assert [len(record) async for record in stream] == EXPECTED


async def test_tool_refuses_to_write_unreadable_single_file(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "lone.tfrecord"
    with pytest.raises(ArgumentValueError, match="max_record_bytes"):
        await tools.sample(large, target, records=3)
    assert not target.exists()
    await tools.sample(large, target, records=3, **MORE)
    assert len(await asyncrec.read_records(target, **MORE)) == 3
