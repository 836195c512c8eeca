"""Truncation of a compressed file is detected wherever it was cut, and a damaged file's intact members are all read."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import TruncatedError
from asyncrec.storage import ByteSource, MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

RECORDS = [b"record %d" % number for number in range(5)]


async def framed(records: list[bytes]) -> list[bytes]:
    """Return the frame of each record."""
    storage = MemoryStorage()
    frames = []
    for record in records:
        await asyncrec.write_records("one", [record], storage=storage)
        frames.append(await storage.get("one"))
    return frames


async def test_gzip_file_cut_between_records_is_truncated() -> None:
    """An interrupted copy can leave such a file, in which every record is complete."""
    compressor = zlib.compressobj(wbits=31)
    content = b""
    cuts = []
    for frame in await framed(RECORDS):
        content += compressor.compress(frame) + compressor.flush(zlib.Z_FULL_FLUSH)
        cuts.append(len(content))
    whole = content + compressor.flush()
    storage = MemoryStorage()
    await storage.put("a.tfrecord", whole)
    assert await asyncrec.read_records("a.tfrecord", storage=storage) == RECORDS
    for cut in [*cuts, len(whole) - 1]:
        await storage.put("a.tfrecord", whole[:cut])
        with pytest.raises(TruncatedError):
            await asyncrec.read_records("a.tfrecord", storage=storage)


class InBlocks(MemoryStorage):
    """A storage whose sources return at most ``size`` bytes at a time."""

    size = 1

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            receive = source.receive
            source.receive = lambda max_bytes: receive(min(max_bytes, self.size))  # type: ignore[method-assign]
            yield source


async def test_salvage_finds_members_that_begin_anywhere_in_blocks() -> None:
    """Block boundaries are within or next to the first bytes of the member after the damaged one."""
    one, two = await framed([random.Random(1).randbytes(6000), b"found"])
    member = bytearray(gzip.compress(one, mtime=0))
    member[50] ^= 0xFF
    storage = InBlocks()
    await storage.put("a.tfrecord", bytes(member) + gzip.compress(two, mtime=0))
    for storage.size in range(len(member) - 2, len(member) + 5):
        async with asyncrec.open_reader("a.tfrecord", storage=storage, on_corrupt="skip") as reader:
            assert [record async for record in reader] == [b"found"], storage.size


@pytest.mark.parametrize("lost", [1, 100, 4096, 9000])
async def test_append_continues_after_torn_last_record(tmp_path: Path, lost: int) -> None:
    """After a power cut, the file has its full length, but a page within its last record was never written."""
    path = tmp_path / "a.tfrecord"
    last = random.Random(2).randbytes(20_000)
    await asyncrec.write_records(path, [b"first", last])
    content = path.read_bytes()
    torn = len(content) - 10_000
    path.write_bytes(content[:torn] + bytes(lost) + content[torn + lost :])
    async with asyncrec.open_writer(path, mode="a") as writer:
        await writer.write(b"next")
    assert await asyncrec.read_records(path) == [b"first", b"next"]
