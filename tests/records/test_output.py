"""`ObjectOutput`: frames go to one sink, the index and keys to others, and a flush promises only durable records."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence

import anyio
import pytest

from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.index import parse_index
from asyncrec._records.writing.object_output import KeysOutput, ObjectOutput
from asyncrec._records.writing.write_batch import KEY_BYTES, WriteBatch
from asyncrec.storage._base import Buffer, ByteSink
from asyncrec.storage._chunk_writer import ChunkWriter

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

NONE = bytes(KEY_BYTES)


class Sink(ByteSink):
    """A sink in memory; ``durable`` is whether flushed bytes survive, ``seconds`` how long each call takes."""

    chunk_size = 1000

    def __init__(self, name: str, log: list[str], *, durable: bool = True, seconds: float = 0) -> None:
        self.name, self.log, self.durable, self.seconds = name, log, durable, seconds
        self.data = b""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await anyio.sleep(self.seconds)
        self.log.append(f"send {self.name}")
        self.data += b"".join(map(bytes, buffers))

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.sleep(self.seconds)
        self.log.append(f"flush {self.name}")
        return sum(map(len, tail)) if self.durable else 0


class Place:
    """An output together with the sinks of its sidecars."""

    def __init__(
        self, *, compression: str | CompressionOptions = "", durable: str = "object keys", seconds: float = 0
    ) -> None:
        self.log: list[str] = []
        self.object = Sink("object", self.log, durable="object" in durable, seconds=seconds)
        self.index = Sink("index", self.log)
        self.keys = Sink("keys", self.log, durable="keys" in durable)
        self.asked: list[int] = []
        self.output = ObjectOutput(
            ChunkWriter(self.object),
            compression=parse_compression(compression),
            index=ChunkWriter(self.index),
            keys=KeysOutput(self._open_keys, 16),
        )

    async def _open_keys(self, before: int) -> ChunkWriter:
        self.asked.append(before)
        writer = ChunkWriter(self.keys)
        await writer.write([bytes(before)])
        return writer


def batch(*records: bytes, keys: list[bytes] | None = None) -> WriteBatch:
    made = WriteBatch(1, 0.0)
    made.records = list(records)
    made.keys = keys
    made.size = sum(map(len, records)) + FRAME_OVERHEAD * len(records)
    made.seal()
    return made


def framed(*records: bytes) -> bytes:
    return b"".join(map(bytes, encode_frames(list(records))))


async def test_output_writes_frames_with_index_and_keys() -> None:
    place = Place()
    await place.output.write([batch(b"a"), batch(b"bb", b"ccc", keys=[b"k" * KEY_BYTES, b"l" * KEY_BYTES])])
    await place.output.write([batch(b"dddd")])
    await place.output.finish()
    assert place.object.data == framed(b"a", b"bb", b"ccc", b"dddd")
    assert parse_index(place.index.data).offsets.tolist() == [0, 17, 35, 54]
    assert place.asked == [KEY_BYTES]
    assert place.keys.data == NONE + b"k" * KEY_BYTES + b"l" * KEY_BYTES + NONE
    assert (place.output.records, place.output.size) == (4, len(place.object.data))


async def test_keyless_output_opens_no_keys() -> None:
    place = Place()
    await place.output.write([batch(b"a"), batch(b"b")])
    assert await place.output.flush()
    await place.output.finish()
    assert (place.asked, place.keys.data, place.output.records) == ([], b"", 2)
    assert "flush keys" not in place.log


async def test_keys_reach_sink_before_their_records() -> None:
    """If a crash happens in between, no record exists without its key. This holds for writing and for flushing."""
    place = Place()
    count = 1 + 1000 // KEY_BYTES
    await place.output.write([batch(*[b"x" * 100] * count, keys=[b"k" * KEY_BYTES] * count)])
    assert place.log[0] == "send keys"
    assert "send object" in place.log
    place.log.clear()
    await place.output.flush()
    assert place.log == ["flush keys", "flush object"]


@pytest.mark.parametrize(
    ("durable", "expected"), [("object keys", True), ("object", False), ("keys", False), ("", False)]
)
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_flush_covers_records_with_data_and_keys(durable: str, expected: bool, compression: str) -> None:
    place = Place(compression=compression, durable=durable)
    await place.output.write([batch(b"a", keys=[b"k" * KEY_BYTES])])
    assert not place.output.flushed
    assert await place.output.flush() is expected
    assert place.output.flushed is expected


async def test_flushed_state_survives_later_non_durable_flush() -> None:
    place = Place()
    await place.output.write([batch(b"a")])
    assert await place.output.flush()
    place.object.durable = False
    await place.output.write([batch(b"b")])
    assert not await place.output.flush()
    assert place.output.flushed


async def test_compressed_flush_contains_every_record() -> None:
    place = Place(compression="GZIP")
    await place.output.write([batch(b"a" * 50)])
    await place.output.flush()
    held = b"".join(map(bytes, place.output._chunks.tail()))
    assert zlib.decompressobj(31).decompress(place.object.data + held) == framed(b"a" * 50)
    await place.output.finish()
    assert gzip.decompress(place.object.data) == framed(b"a" * 50)


async def test_member_index_locates_each_record_from_its_member() -> None:
    place = Place(compression=CompressionOptions(type="GZIP", member_bytes=100))
    records = [bytes([n]) * 60 for n in range(10)]
    for record in records:
        await place.output.write([batch(record)])
    await place.output.finish()
    index = parse_index(place.index.data)
    assert index.members is not None
    assert len(set(index.members.tolist())) > 2
    for record, offset, size, member in zip(records, index.offsets, index.sizes, index.members, strict=True):
        assert gzip.decompress(place.object.data[member:])[offset : offset + size] == framed(record)


async def test_zlib_index_counts_decompressed_bytes() -> None:
    place = Place(compression="ZLIB")
    await place.output.write([batch(b"a"), batch(b"bb")])
    await place.output.write([batch(b"ccc")])
    await place.output.finish()
    index = parse_index(place.index.data)
    assert (index.offsets.tolist(), index.members) == ([0, 17, 35], None)


async def test_sidecar_bytes_are_counted_until_sent() -> None:
    place = Place()
    await place.output.write([batch(b"a", keys=[b"k" * KEY_BYTES])])
    assert place.output.sidecar_bytes == len(b"0 17\n") + KEY_BYTES
    await place.output.finish()
    assert place.output.sidecar_bytes == 0
    assert place.index.data == b"0 17\n"


async def test_storage_time_is_counted() -> None:
    place = Place(seconds=3)
    for _ in range(2):
        await place.output.write([batch(bytes(1000))])
    assert place.output.seconds_storing == pytest.approx(6)
    assert place.output.seconds_compressing == 0
