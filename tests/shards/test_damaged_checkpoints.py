"""A checkpoint may be anybody's: what does not fit together is told, and no shard is missing without a word."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest
from crc32c import crc32c

import asyncrec
from asyncrec import tools
from asyncrec.errors import ManifestError
from asyncrec.storage import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

HEADER = struct.Struct("<5I")  # kind, rows, raw, stored, checksum


async def compacted() -> tuple[MemoryStorage, str]:
    """A data set of three shards, and the key of its checkpoint."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1, metadata={"a": 1}) as writer:
        await writer.write_many([b"1", b"2", b"3"])
    report = await tools.compact("pages", storage=storage)
    assert report.checkpoint is not None
    return storage, report.checkpoint.removeprefix("memory://").lstrip("/")


def blocks(content: bytes) -> Iterator[tuple[int, int]]:
    """Where each block begins and ends, behind the line of JSON."""
    at = content.index(b"\n") + 1
    while at < len(content):
        end = at + HEADER.size + HEADER.unpack_from(content, at)[3]
        yield at, end
        at = end


def changed(block: bytes) -> Iterator[bytes]:
    """A block with each of its bytes changed in turn, and the checksum of that."""
    kind, rows, raw, stored, _ = HEADER.unpack_from(block)
    content = block[HEADER.size :]
    content = zlib.decompress(content) if stored < raw else content
    for at in range(len(content)):
        other = content[:at] + bytes([content[at] ^ 0x7F]) + content[at + 1 :]
        header = kind, rows, len(other), len(other)
        yield HEADER.pack(*header, crc32c(other, crc32c(HEADER.pack(*header, 0)))) + other


async def test_a_checkpoint_without_one_block_hides_nothing() -> None:
    storage, key = await compacted()
    content = await storage.get(key)
    whole = await asyncrec.read_manifest("pages", storage=storage)
    refused = 0
    for begin, end in blocks(content):
        await storage.put(key, content[:begin] + content[end:])
        try:
            found = await asyncrec.read_manifest("pages", storage=storage)
        except ManifestError:
            refused += 1
        else:
            assert (found.id, found.records, list(found.shards)) == (whole.id, whole.records, list(whole.shards))
    assert refused >= 3


async def test_a_checkpoint_with_any_number_reads_or_is_refused() -> None:
    storage, key = await compacted()
    content = await storage.get(key)
    refused = 0
    for begin, end in blocks(content):
        for block in changed(content[begin:end]):
            await storage.put(key, content[:begin] + block + content[end:])
            try:
                await asyncrec.read_manifest("pages", storage=storage)
            except ManifestError:
                refused += 1
    assert refused >= 10
