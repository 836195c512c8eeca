"""A checkpoint may be anybody's: what does not fit together is told, and no shard is missing without a word."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ManifestError
from asyncrec.storage import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def compacted() -> tuple[MemoryStorage, str]:
    """A data set of three shards, and the key of its checkpoint."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1, metadata={"a": 1}) as writer:
        await writer.write_many([b"1", b"2", b"3"])
    report = await tools.compact("pages", storage=storage)
    assert report.checkpoint is not None
    return storage, report.checkpoint.removeprefix("memory://").lstrip("/")


def members(lines: list[bytes]) -> bytes:
    """Lines as a checkpoint has them, each in a member of gzip, stored."""
    return b"".join(gzip.compress(line, 0) for line in lines)


def changed(line: bytes) -> Iterator[bytes]:
    """A line with each of its bytes changed in turn: a digit to another, and a quote to no quote."""
    for at in range(len(line) - 1):
        yield line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


async def test_a_checkpoint_without_one_line_hides_nothing() -> None:
    storage, key = await compacted()
    lines = gzip.decompress(await storage.get(key)).splitlines(keepends=True)
    assert len(lines) > 5
    for number in range(len(lines)):
        await storage.put(key, members(lines[:number] + lines[number + 1 :]))
        with pytest.raises(ManifestError, match="checkpoint-000001"):
            await asyncrec.read_manifest("pages", storage=storage)


@pytest.mark.slow
async def test_a_checkpoint_with_any_byte_changed_reads_or_is_refused() -> None:
    storage, key = await compacted()
    lines = gzip.decompress(await storage.get(key)).splitlines(keepends=True)
    refused = 0
    for number, line in enumerate(lines):
        for other in changed(line):
            await storage.put(key, members([*lines[:number], other, *lines[number + 1 :]]))
            try:
                await asyncrec.read_manifest("pages", storage=storage)
            except ManifestError:
                refused += 1
    assert refused >= 500
