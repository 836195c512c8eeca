"""`asyncrec.open_reader`: reading and checking the records of one object, with errors that name the location."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._framing.frames import FrameDecoder, encode_frames
from asyncrec._records.position import Position
from asyncrec._records.reading.decode_pipeline import Pipeline, ReadOptions
from asyncrec._records.reading.reader import open_reader_at
from asyncrec._records.record_size import LARGE_RECORD
from asyncrec.errors import (
    CorruptRecordError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    RecordTooLargeError,
    StorageError,
    TruncatedError,
)
from asyncrec.storage._base import ByteSource
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

RECORDS = [b"first", b"", b"x" * 300, b"y" * 70_000, b"last"]


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


async def read(path: Any, **options: Any) -> tuple[list[bytes], FormatError | None]:
    """Return the records that are read and the error, if any, that ends the reading."""
    found: list[bytes] = []
    try:
        async with asyncrec.open_reader(path, **options) as reader:
            async for record in reader:
                found.append(record)
    except FormatError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("name", ["records-none.tfrecord", "records-gzip.tfrecord", "records-zlib.tfrecord"])
async def test_tensorflow_files_are_read(vectors: Path, name: str) -> None:
    told = json.loads((vectors / "manifest.json").read_text())["files"][name]
    records = await asyncrec.read_records(vectors / name)
    assert [len(record) for record in records] == told["lengths"]
    assert [hashlib.sha256(record).hexdigest() for record in records] == told["sha256"]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("chunk_size", [1, 13, 4096, 1 << 20])
async def test_records_are_independent_of_chunk_size(compression: str, chunk_size: int) -> None:
    storage = MemoryStorage()
    records = RECORDS[:3] if chunk_size == 1 else RECORDS
    await asyncrec.write_records("x", records, compression=compression, storage=storage)
    for told in (compression, "auto"):
        assert await read("x", storage=storage, chunk_size=chunk_size, compression=told) == (records, None)


async def test_reader_mixes_single_records_and_batches(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "x", [b"%d" % i for i in range(5000)])
    async with asyncrec.open_reader(tmp_path / "x") as reader:
        assert [await anext(reader) for _ in range(3)] == [b"0", b"1", b"2"]
        batches = [records async for records in reader.batches()]
        assert all(batches)
        assert [r for records in batches for r in records] == [b"%d" % i for i in range(3, 5000)]
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
        assert reader.stats().records == 5000
        assert reader.stats().bytes == (tmp_path / "x").stat().st_size


async def test_abandoned_reader_is_closed_cleanly(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "x", [b"%d" % i for i in range(50_000)])
    before = len(os.listdir("/proc/self/fd"))
    async with asyncrec.open_reader(tmp_path / "x") as reader:
        async for _ in reader:
            break
    assert len(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(anyio.ClosedResourceError):
        async for _ in reader.batches():
            pass


async def test_limit_bounds_number_of_records_read(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "x", [b"%d" % i for i in range(100)])
    assert await asyncrec.read_records(tmp_path / "x", 3) == [b"0", b"1", b"2"]
    assert await asyncrec.read_records(tmp_path / "x", limit=0) == []
    assert len(await asyncrec.read_records(tmp_path / "x", limit=1000)) == 100
    with pytest.raises(ValueError, match="limit=-1"):
        await asyncrec.read_records(tmp_path / "x", limit=-1)


async def test_error_offsets_stay_absolute_with_start_offset() -> None:
    storage = MemoryStorage()
    data = bytearray(framed([b"one", b"two", b"three"]))
    data[-1] ^= 1
    await storage.put("x", bytes(data))
    found, error = await read("x", storage=storage, start_offset=19)
    assert found == [b"two"]
    assert error is not None
    assert error.offset == 38


class TestDamage:
    """Each kind of damage raises a typed error with path, offset and record, after returning all earlier records."""

    async def damaged(self, data: bytes, **options: Any) -> tuple[list[bytes], FormatError]:
        storage = MemoryStorage()
        await storage.put("shards/x", data)
        found, error = await read("shards/x", storage=storage, **options)
        assert error is not None
        assert error.path == "shards/x"
        assert "shards/x" in str(error)
        return found, error

    @pytest.mark.parametrize("cut", [1, 4, 11, 12, 13, 19])
    async def test_truncated_file_raises_truncated_error(self, cut: int) -> None:
        found, error = await self.damaged(framed(RECORDS)[:-cut])
        assert isinstance(error, TruncatedError)
        assert (found, error.record, error.offset) == (RECORDS[:-1], 4, len(framed(RECORDS[:-1])))

    @pytest.mark.parametrize(
        ("at", "part"), [(0, "length"), (7, "length"), (9, "length"), (12, "data"), (16, "data"), (18, "data")]
    )
    async def test_flipped_bit_error_names_damaged_part(self, at: int, part: str) -> None:
        data = bytearray(framed([b"abc", b"abc", b"z"]))
        data[19 + at] ^= 0x10
        found, error = await self.damaged(bytes(data), compression="")
        assert isinstance(error, CorruptRecordError)
        assert (found, error.record, error.offset, error.part) == ([b"abc"], 1, 19, part)

    async def test_stray_bytes_after_last_record_raise(self) -> None:
        found, error = await self.damaged(framed(RECORDS) + b"stray")
        assert isinstance(error, TruncatedError)
        assert found == RECORDS
        assert (error.record, error.offset) == (5, len(framed(RECORDS)))

    async def test_length_beyond_limit_raises_record_too_large(self) -> None:
        found, error = await self.damaged(framed(RECORDS), max_record_bytes=1000)
        assert isinstance(error, RecordTooLargeError)
        assert (found, error.record, error.length, error.limit) == (RECORDS[:3], 3, 70_000, 1000)

    @pytest.mark.parametrize("content", [b"PK\x03\x04 this is a zip file, or so", b"text\n" * 20, bytes(100), b"short"])
    async def test_non_tfrecord_file_raises_at_first_record(self, content: bytes) -> None:
        found, error = await self.damaged(content)
        assert found == []
        assert error.record == 0

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    async def test_damage_within_compressed_data_raises(self, pack: Any) -> None:
        packed = bytearray(pack(framed([os.urandom(1000) for _ in range(100)])))
        packed[len(packed) // 2] ^= 0x40
        found, error = await self.damaged(bytes(packed))
        assert len(found) < 100
        assert isinstance(error, CorruptRecordError)

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    async def test_short_compressed_stream_raises_truncated_error(self, pack: Any) -> None:
        packed = pack(framed([os.urandom(1000) for _ in range(100)]))
        _, error = await self.damaged(packed[: len(packed) // 2])
        assert isinstance(error, TruncatedError)

    async def test_gzip_damage_names_its_member(self) -> None:
        first, second = gzip.compress(framed([b"a"])), bytearray(gzip.compress(framed([b"b", b"c"])))
        second[-6] ^= 1
        _, error = await self.damaged(first + bytes(second))
        assert error.member_offset == len(first)

    async def test_every_record_before_damaged_member_is_returned(self) -> None:
        whole = b"".join(gzip.compress(framed([b"%d" % i] * 500)) for i in range(3))
        found, error = await self.damaged(whole + b"not a member")
        assert len(found) == 1500
        assert f"ends at byte {len(whole)}, but the data after it is not GZIP" in str(error)

    async def test_reader_ends_after_raising_error(self) -> None:
        storage = MemoryStorage()
        await storage.put("x", framed([b"a", b"b"])[:-1] + b"?")
        async with asyncrec.open_reader("x", storage=storage) as reader:
            with pytest.raises(CorruptRecordError):
                async for _ in reader:
                    pass
            with pytest.raises(StopAsyncIteration):
                await anext(reader)

    async def test_unverified_read_returns_flipped_payloads(self) -> None:
        data = bytearray(framed([b"abc", b"xyz"]))
        data[13] ^= 1
        storage = MemoryStorage()
        await storage.put("x", bytes(data))
        found, error = await read("x", storage=storage, verify=False)
        assert error is None
        assert found == [b"acc", b"xyz"]


async def test_reader_handles_missing_file_folder_and_empty_file(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"missing\.tfrecord"):
        await asyncrec.read_records(tmp_path / "missing.tfrecord")
    with pytest.raises(StorageError, match="folder"):
        (tmp_path / "folder").mkdir()
        await asyncrec.read_records(tmp_path / "folder")
    (tmp_path / "empty").touch()
    assert await asyncrec.read_records(tmp_path / "empty") == []


async def test_denied_read_raises_permission_error_naming_file(tmp_path: Path) -> None:
    class NotAllowed:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def open(self, path: str, *args: Any) -> int:
            raise PermissionError(13, "Permission denied", path)

    await asyncrec.write_records(tmp_path / "x", [b"1"])
    with pytest.raises(PermissionError, match="x"):
        await asyncrec.read_records("x", storage=LocalStorage(tmp_path, system=NotAllowed()))


@pytest.mark.parametrize("option", [{"chunk_size": 0}, {"start_offset": -1}, {"max_record_bytes": -1}])
async def test_invalid_options_are_rejected(option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        async with asyncrec.open_reader("x", storage=MemoryStorage(), **option):  # type: ignore[arg-type]  # mypy does not follow
            pass


class Remote(MemoryStorage):
    """A remote store whose connection flips a bit in some of the data."""

    read_ahead = 1 << 20

    def __init__(self, *, flips: int) -> None:
        super().__init__()
        self.flips = flips

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            receive = source.receive

            async def flipped(max_bytes: int) -> bytes:
                block = await receive(max_bytes)
                if self.flips and len(block) > 3000:
                    self.flips -= 1
                    return block[:3000] + bytes([block[3000] ^ 1]) + block[3001:]
                return block

            source.receive = flipped  # type: ignore[method-assign]  # a transmission error
            yield source


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_damage_in_transit_is_reread_and_logged(compression: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = Remote(flips=1)
    records = [os.urandom(1000) for _ in range(2000)]
    await asyncrec.write_records("x", records, storage=storage, compression=compression)
    with caplog.at_level(logging.WARNING, "asyncrec"):
        async with asyncrec.open_reader("x", storage=storage) as reader:
            found = [record async for record in reader]
            assert reader.stats().rereads == 1
            assert reader.stats().records == 2000
    assert found == records
    assert "damaged in transit" in caplog.text


async def test_damage_at_rest_is_reread_and_noted_in_error() -> None:
    storage = Remote(flips=0)
    data = bytearray(framed([bytes(1000)] * 20))
    data[5100] ^= 1
    await storage.put("x", bytes(data))
    found, error = await read("x", storage=storage)
    assert len(found) == 5
    assert error is not None
    assert (error.record, error.offset) == (5, 5 * 1016)
    assert any("stored object itself is damaged" in note for note in error.__notes__)


async def test_broken_connection_is_resumed_at_its_offset() -> None:
    store = MemoryStorage()
    records = [os.urandom(1000) for _ in range(2000)]
    await asyncrec.write_records("x", records, storage=store)
    flaky = FlakyStorage(store, {2: Fault("error"), 5: Fault("short"), 9: Fault("error", when="after")})
    async with asyncrec.open_reader("x", storage=flaky) as reader:
        assert [record async for record in reader] == records
        assert reader.stats().retries == 3


async def test_object_replaced_during_read_raises() -> None:
    store = MemoryStorage()
    await asyncrec.write_records("x", [b"old" * 1000] * 1000, storage=store)
    flaky = FlakyStorage(store, {3: Fault("error")})
    async with asyncrec.open_reader("x", storage=flaky) as reader:
        await anext(reader)
        await asyncrec.write_records("x", [b"new" * 1000] * 1000, storage=store)
        with pytest.raises(ObjectChangedError):
            async for record in reader:
                assert record == b"old" * 1000


def packed(*members: list[bytes]) -> bytes:
    return b"".join(gzip.compress(framed(records), mtime=0) for records in members)


class TestStartPositions:
    """Errors state the location within the file, wherever reading began and however often it was resumed."""

    async def error_of(self, data: bytes, position: Position, **options: Any) -> FormatError:
        storage = MemoryStorage()
        await storage.put("x", data)
        reader = await open_reader_at(storage, "x", position, path="x", **options)
        with pytest.raises(FormatError) as caught:
            while await reader.next_batch():
                pass
        await reader.aclose()
        return caught.value

    async def test_error_location_is_absolute_in_plain_file(self) -> None:
        data = bytearray(framed([b"one", b"two", b"three"]))
        data[38 + 12] ^= 1
        error = await self.error_of(bytes(data), Position(19, 0, 1))
        assert (error.record, error.offset, error.member_offset) == (2, 38, None)

    @pytest.mark.parametrize("skip", [0, 1])
    async def test_error_location_is_absolute_in_gzip_members(self, skip: int) -> None:
        """A member has its compressed offset. A frame has its decompressed offset from where reading began."""
        data = bytearray(packed([b"one"], [b"two", b"three"], [b"four", b"five"]))
        first, second = len(packed([b"one"])), len(packed([b"two", b"three"]))
        data[first + second + 20] ^= 0xFF
        error = await self.error_of(bytes(data), Position(first, skip, 1 + skip), compression="GZIP")
        assert error.member_offset == first + second
        assert error.record == 3
        assert error.offset == len(framed([b"two", b"three"]))

    async def test_damaged_record_within_gzip_error_names_member(self) -> None:
        inner = bytearray(framed([b"two", b"three"]))
        inner[19 + 12] ^= 1
        data = packed([b"one"]) + gzip.compress(bytes(inner))
        error = await self.error_of(data, Position(0, 0, 0), compression="GZIP")
        assert isinstance(error, CorruptRecordError)
        assert (error.record, error.offset, error.member_offset) == (2, 19 + 19, len(packed([b"one"])))

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    async def test_cut_frame_in_whole_stream_raises_truncated_error(self, pack: Any) -> None:
        """The compressed stream is complete, but it ends within a record."""
        error = await self.error_of(pack(framed([b"one", b"two"])[:-1]), Position(0, 0, 0))
        assert isinstance(error, TruncatedError)
        assert (error.record, error.offset) == (1, 19)

    async def test_reraised_error_keeps_its_location(self) -> None:
        """This matters if the caller that received the first error was cancelled."""
        pipeline = Pipeline("x", "", ReadOptions(max_record_bytes=100, chunk_size=100), Position(1000, 0, 50))
        storage = MemoryStorage()
        await storage.put("x", framed([b"one"]) + b"no record")
        async with storage.open_source("x") as source:
            assert await pipeline.next_records(source) == [b"one"]
            told = []
            for _ in range(2):
                with pytest.raises(TruncatedError) as caught:
                    await pipeline.next_records(source)
                told.append((caught.value.record, caught.value.offset))
        assert told == [(51, 1019)] * 2


async def test_records_and_bytes_count_from_start_position() -> None:
    storage = MemoryStorage()
    await storage.put("x", packed(RECORDS, [b"a", b"b", b"c"]))
    reader = await open_reader_at(
        storage, "x", Position(len(packed(RECORDS)), 1, 6), path="x", compression="GZIP", chunk_size=10
    )
    batch = await reader.next_batch()
    assert batch is not None
    assert (batch.records[0], batch.first, batch.members) == (b"b", 6, [(5, len(packed(RECORDS)))])
    found = batch.records
    while (batch := await reader.next_batch()) is not None:
        found += batch.records
    assert found == [b"b", b"c"]
    assert reader.stats().bytes == 2 * 17
    await reader.aclose()


async def test_batch_lists_members_of_its_records_only() -> None:
    """Members read earlier are not kept, because a file may have millions of them."""
    storage = MemoryStorage()
    await storage.put("x", packed(*[[b"%d" % number] for number in range(300)]))
    async with asyncrec.open_reader("x", storage=storage, chunk_size=10) as reader:
        numbers = []
        while (batch := await reader.next_batch()) is not None:
            assert len(batch.members) <= len(batch.records) + 1
            numbers += batch.records
    assert numbers == [b"%d" % number for number in range(300)]


async def test_closed_reader_rejects_reads() -> None:
    """This also holds for a reader from `open_reader_at`, even for records that it has buffered."""
    storage = MemoryStorage()
    await asyncrec.write_records("x", [b"a", b"b"], storage=storage)
    reader = await open_reader_at(storage, "x", Position(0, 0, 0), path="x")
    await reader.aclose()
    with pytest.raises(anyio.ClosedResourceError, match="x: the reader is closed"):
        await reader.next_batch()


async def test_reader_that_fails_to_open_closes_its_source() -> None:
    """If the first bytes cannot be read, the source that was opened for them is closed."""
    closed: list[str] = []

    class Broken(MemoryStorage):
        @asynccontextmanager
        async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
            async with super().open_source(key, **options) as source:

                async def broken(max_bytes: int) -> bytes:
                    raise StorageError("broken, as asked")

                source.receive = broken  # type: ignore[method-assign]  # always fails
                try:
                    yield source
                finally:
                    closed.append(key)

    storage = Broken()
    await asyncrec.write_records("x", [b"a"], storage=storage)
    with pytest.raises(StorageError, match="as asked"):
        await open_reader_at(storage, "x", Position(0, 0, 0), path="x", read_ahead=0)
    assert closed == ["x"]


async def test_reader_exposes_compression_etag_and_size() -> None:
    storage = MemoryStorage()
    info = await asyncrec.write_records("x", [b"a"], storage=storage, compression="GZIP")
    async with asyncrec.open_reader("x", storage=storage) as reader:
        assert (reader.compression, reader.info.etag, reader.info.size) == ("GZIP", info.etag, info.size)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("length", [LARGE_RECORD - 1, LARGE_RECORD, LARGE_RECORD + 1, 3 * LARGE_RECORD])
async def test_large_records_are_read_alongside_small_records(compression: str, length: int) -> None:
    storage = MemoryStorage()
    records = [b"before", b"x" * length, b"", b"y" * length, b"behind"]
    await asyncrec.write_records("x", records, storage=storage, compression=compression)
    assert await read("x", storage=storage) == (records, None)
    assert await read("x", storage=storage, max_record_bytes=length) == (records, None)
    found, error = await read("x", storage=storage, max_record_bytes=length - 1)
    assert found == records[:1]
    assert isinstance(error, RecordTooLargeError)


async def test_large_compressed_records_are_returned_one_by_one() -> None:
    storage = MemoryStorage()
    records = [bytes([n]) * (9 << 20) for n in range(4)]
    await storage.put("x", gzip.compress(framed(records), 1))  # one member, as other tools write it
    async with asyncrec.open_reader("x", storage=storage) as reader:
        assert [batch async for batch in reader.batches()] == [[record] for record in records]


async def test_damage_at_rest_after_transit_damage_raises() -> None:
    """A range that was correct when it was read again proves nothing about a different range."""
    storage = Remote(flips=1)
    data = bytearray(framed([os.urandom(1000) for _ in range(3000)]))
    data[-500] ^= 1
    await storage.put("x", bytes(data))
    async with asyncrec.open_reader("x", storage=storage) as reader:
        with pytest.raises(CorruptRecordError) as caught:
            async for _ in reader:
                pass
        assert reader.stats().rereads == 1
        assert reader.stats().records == 2999
    assert any("stored object itself is damaged" in note for note in caught.value.__notes__)


async def test_damaged_local_file_is_not_read_twice() -> None:
    """Local files have no transit in which they could be damaged."""
    storage = MemoryStorage()
    data = bytearray(framed([b"abc"]))
    data[-1] ^= 1
    await storage.put("x", bytes(data))
    _, error = await read("x", storage=storage)
    assert error is not None
    assert not hasattr(error, "__notes__")


async def test_forked_reader_rejects_every_read() -> None:
    """Reading further raises an error, both record by record and in batches."""
    storage = MemoryStorage()
    await asyncrec.write_records("x", [b"a", b"b"], storage=storage)
    async with asyncrec.open_reader("x", storage=storage) as reader:
        assert await anext(reader) == b"a"
        reader.forked()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="x: the reader"):
                await anext(reader)
            with pytest.raises(RuntimeError, match="x: the reader"):
                await anext(aiter(reader.batches()))
        assert reader._closed


async def test_large_block_is_decoded_in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    feed = FrameDecoder.feed

    def feeding(self: FrameDecoder, data: bytes) -> list[bytes]:
        if len(data) > LARGE_RECORD:
            threads.add(get_ident())
        return feed(self, data)

    monkeypatch.setattr(FrameDecoder, "feed", feeding)
    records = [bytes(1000)] * 5000
    storage = MemoryStorage()
    await asyncrec.write_records("x", records, storage=storage)
    async with asyncrec.open_reader("x", storage=storage, compression="", chunk_size=4 << 20) as reader:
        assert [record async for record in reader] == records
    assert threads
    assert get_ident() not in threads
