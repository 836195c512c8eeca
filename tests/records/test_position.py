"""`asyncrec._records.position`: reading can resume at any record, in any kind of file."""

from __future__ import annotations

import gzip
import itertools
import random
from pathlib import Path

import pytest

import asyncrec
from asyncrec._framing.frames import encode_frames
from asyncrec._records.position import BEGINNING, Position
from asyncrec._records.reading.reader import open_reader_at
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

RECORDS = [bytes([number % 251]) * (number * 7 % 90) for number in range(400)]


async def positions_of(storage: asyncrec.storage.Storage, inflate_bytes: int = 1000) -> list[Position]:
    reader = await open_reader_at(
        storage, "file", BEGINNING, path="file", chunk_size=777, inflate_bytes=inflate_bytes, read_ahead=0
    )
    found = []
    while (batch := await reader.next_batch()) is not None:
        positions = batch.positions(0, len(batch.records))
        assert len(positions) == len(batch.records)
        assert positions == [batch.position(index) for index in range(len(positions))]
        assert batch.positions(1, len(positions)) == positions[1:]
        found += positions
        end = batch.position(len(batch.records))
    await reader.aclose()
    return [*found, end]


@pytest.mark.parametrize("kind", ["", "GZIP", "ZLIB", "GZIP in members"])
async def test_reading_resumes_at_every_record(kind: str, tmp_path: Path) -> None:
    compression: object = kind
    if kind == "GZIP in members":
        compression = asyncrec.CompressionOptions(type="GZIP", member_bytes=1000)
    async with asyncrec.open_storage(tmp_path) as storage:
        async with asyncrec.open_writer("file", compression=compression, storage=storage) as writer:  # type: ignore[arg-type]  # a valid type
            for record in RECORDS:
                await writer.write(record)
                await writer.flush()
        positions = await positions_of(storage)
        assert [position.record for position in positions] == list(range(401))
        if kind == "GZIP in members":
            assert len({position.offset for position in positions}) > 10
            assert max(position.skip for position in positions) < 40
        for number in [0, 1, 37, 199, 200, 398, 399, 400]:
            reader = await open_reader_at(storage, "file", positions[number], path="file", read_ahead=0)
            rest: list[bytes] = []
            while (batch := await reader.next_batch()) is not None:
                assert batch.positions(0, len(batch.records)) == positions[number + len(rest) :][: len(batch.records)]
                rest += batch.records
                await reader.park()
            await reader.aclose()
            assert rest == RECORDS[number:]


async def test_reading_resumes_at_every_record_of_arbitrary_members() -> None:
    """A member that begins within a record is not a valid position, because reading would start mid-record."""
    data = b"".join(map(bytes, encode_frames(RECORDS)))
    draw = random.Random(1)
    cuts = [0, *sorted(draw.sample(range(1, len(data)), 60)), len(data)]
    storage = MemoryStorage()
    pieces = [data[begin:end] for begin, end in itertools.pairwise(cuts)]
    await storage.put("file", b"".join(gzip.compress(piece, mtime=0) for piece in pieces))
    positions = await positions_of(storage, inflate_bytes=300)
    assert positions[0] == BEGINNING == (0, 0, 0)
    for number in range(0, 401, 9):
        reader = await open_reader_at(storage, "file", positions[number], path="file", read_ahead=0)
        rest: list[bytes] = []
        while (batch := await reader.next_batch()) is not None:
            rest += batch.records
        await reader.aclose()
        assert rest == RECORDS[number:]


async def test_parked_reader_resumes_without_open_file(tmp_path: Path) -> None:
    storage = MemoryStorage()
    await asyncrec.write_records("file", RECORDS, storage=storage)
    reader = await open_reader_at(storage, "file", BEGINNING, path="file", chunk_size=500, read_ahead=0)
    found = []
    while (batch := await reader.next_batch()) is not None:
        found += batch.records
        await reader.park()
    await reader.aclose()
    assert found == RECORDS
