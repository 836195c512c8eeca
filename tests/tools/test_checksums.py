"""A `ChecksummedStorage` computes a checksum of what is read through it, counting each byte once."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.testing._checks import content
from asyncrec.tools._read_through import ChecksummedStorage

pytestmark = pytest.mark.anyio

DATA = content(3_000_000)


async def test_checksum_covers_all_bytes_read_from_start(storage: Storage) -> None:
    await storage.put("x", DATA)
    passing = ChecksummedStorage(storage)
    assert (passing.info, passing.position) == (None, 0)
    read = b""
    async with passing.open_source("x") as source:
        assert passing.info == source.info == await storage.head("x") == await passing.head("x")
        for size in (10, 2_000_000, 1 << 24):
            while block := await source.receive(size):
                read += block
                assert (passing.position, passing.crc32c) == (len(read), crc32c(read))
                if size < 1 << 24:
                    break
    assert read == DATA


async def test_checksum_ignores_rereads_and_bytes_after_gap(storage: Storage) -> None:
    await storage.put("x", DATA[:1_000])
    passing = ChecksummedStorage(storage)

    async def read(start: int, end: int) -> int:
        async with passing.open_source("x", start=start, end=end) as source:
            while await source.receive(1 << 20):
                pass
        assert passing.crc32c == crc32c(DATA[: passing.position])
        return passing.position

    assert await read(0, 400) == 400
    assert await read(100, 300) == 400
    assert await read(100, 400) == 400
    assert await read(200, 600) == 600
    assert await read(601, 1_000) == 600
    assert await read(600, 1_000) == 1_000


async def test_checksummed_storage_rejects_writes(storage: Storage) -> None:
    passing = ChecksummedStorage(storage)
    with pytest.raises(StorageError, match="only used to compute a checksum"):
        await passing.put("x", b"data")
    with pytest.raises(StorageError, match="only used to compute a checksum"):
        await passing.delete("x")
