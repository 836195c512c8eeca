"""`JournalReader`: the complete records of a journal, and whether the bytes after them are a torn tail or damage."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from asyncrec._framing.frames import encode_frames
from asyncrec._shards.journal.reader import JournalReader
from asyncrec._shards.writing.keys import key_digest
from asyncrec.errors import CorruptRecordError, StorageError

RECORDS = [b"record %06d " % i + bytes(range(i % 200)) for i in range(100)]
FRAMES = [b"".join(encode_frames([record])) for record in RECORDS]
WHOLE = b"".join(FRAMES)


def replayed(
    folder: Path, content: bytes, *, keys: bytes | None = None, compressed: bool = False
) -> tuple[list[bytes], list[bytes] | None, JournalReader]:
    (folder / "journal").write_bytes(content)
    if keys is not None:
        (folder / "keys").write_bytes(keys)
    replay = JournalReader(str(folder / "journal"), str(folder / "keys"), compressed=compressed)
    replay.open()
    records: list[bytes] = []
    found: list[bytes] | None = None
    while (batch := replay.next()) is not None:
        records += batch[0]
        assert (batch[1] is None) == (keys is None)
        if batch[1] is not None:
            assert len(batch[1]) == len(batch[0])
            found = (found or []) + batch[1]
    replay.close()
    replay.close()
    assert replay.records == len(records)
    return records, found, replay


def test_complete_journal_is_replayed_without_truncation(tmp_path: Path) -> None:
    for content, compressed in (
        (WHOLE, False),
        (gzip.compress(WHOLE), True),
        (zlib.compress(WHOLE), True),
        (b"", False),
    ):
        records, keys, replay = replayed(tmp_path, content, compressed=compressed)
        assert records == (RECORDS if content else [])
        assert (keys, replay.cut, replay.damage) == (None, 0, None)


@pytest.mark.parametrize("size", [1, 7, 8, 11, 12, 13, 30, 31])
@pytest.mark.parametrize("zeros", [0, 1, 5000, 3 << 20])
def test_cut_record_counts_as_torn_tail_before_zeros(tmp_path: Path, size: int, zeros: int) -> None:
    torn = FRAMES[20][:size] + bytes(zeros)
    records, _, replay = replayed(tmp_path, b"".join(FRAMES[:20]) + torn)
    assert records == RECORDS[:20]
    assert (replay.cut, replay.damage) == (len(torn), None)


def test_trailing_zeros_are_torn_tail_unless_followed_by_data(tmp_path: Path) -> None:
    for tail in (bytes(12), bytes(5000), bytes(2 << 20)):
        records, _, replay = replayed(tmp_path, WHOLE + tail)
        assert (records, replay.cut, replay.damage) == (RECORDS, len(tail), None)
        records, _, replay = replayed(tmp_path, WHOLE + tail + b"\1")
        assert (records, replay.cut) == (RECORDS, len(tail) + 1)
        assert isinstance(replay.damage, CorruptRecordError)


@pytest.mark.parametrize("part", ["length", "length's checksum", "data", "data's checksum"])
@pytest.mark.parametrize("at", [0, 1, 50, 98])
def test_damage_ends_replay_and_differs_from_torn_tail(tmp_path: Path, at: int, part: str) -> None:
    begin = sum(map(len, FRAMES[:at]))
    size = len(FRAMES[at])
    byte = begin + {"length": 0, "length's checksum": 8, "data": 12, "data's checksum": size - 1}[part]
    content = bytearray(WHOLE)
    content[byte] ^= 0x55
    records, _, replay = replayed(tmp_path, bytes(content))
    assert records == RECORDS[:at]
    assert replay.cut == len(WHOLE) - begin
    assert isinstance(replay.damage, CorruptRecordError)


def test_unfinished_record_is_torn_only_at_end(tmp_path: Path) -> None:
    """A file system may have extended the file before it wrote the data."""
    for behind, torn in ((b"", True), (b"\1", False)):
        records, _, replay = replayed(tmp_path, WHOLE[:-20] + bytes(20) + behind)
        assert records == RECORDS[:-1]
        assert (replay.damage is None) is torn
        assert replay.cut == len(FRAMES[-1]) + len(behind)


@pytest.mark.parametrize("whole", [0, 1, 40, 99, 100])
@pytest.mark.parametrize("rest", [0, 1, 15])
def test_replay_ends_at_last_complete_key(tmp_path: Path, whole: int, rest: int) -> None:
    digests = [key_digest(record) for record in RECORDS]
    keys = b"".join(digests)[: 16 * whole + (rest if whole < 100 else 0)]
    records, found, replay = replayed(tmp_path, WHOLE, keys=keys)
    assert (records, found or []) == (RECORDS[:whole], digests[:whole])
    assert (replay.cut, replay.damage) == (sum(map(len, FRAMES[whole:])), None)


def test_surplus_keys_without_records_are_dropped(tmp_path: Path) -> None:
    digests = [key_digest(record) for record in RECORDS]
    records, found, _ = replayed(tmp_path, b"".join(FRAMES[:30]), keys=b"".join(digests))
    assert (records, found) == (RECORDS[:30], digests[:30])


@pytest.mark.parametrize("records", [400_000, 3])
def test_keys_continue_across_replay_batches(tmp_path: Path, records: int) -> None:
    many = [b"%d" % number for number in range(records)] + [bytes(3_000_000)] * 2
    content = b"".join(b"".join(encode_frames([record])) for record in many)
    digests = [key_digest(b"%d" % number) for number in range(len(many))]
    assert replayed(tmp_path, content, keys=b"".join(digests))[:2] == (many, digests)


class TestCompressed:
    @pytest.mark.parametrize("cut", [1, 5, 8, 9, 100, 300])
    @pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
    def test_truncated_stream_keeps_every_complete_record(self, tmp_path: Path, cut: int, kind: str) -> None:
        content = gzip.compress(WHOLE) if kind == "GZIP" else zlib.compress(WHOLE)
        for zeros in (0, 5000):
            records, _, replay = replayed(tmp_path, content[:-cut] + bytes(zeros), compressed=True)
            assert records == RECORDS[: len(records)]
            if cut <= 4 and not zeros:
                assert records == RECORDS
            if not zeros:
                assert replay.damage is None
                assert replay.cut < max(map(len, FRAMES))

    @pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
    def test_damaged_byte_keeps_records_before_damage(self, tmp_path: Path, kind: str) -> None:
        """The first 60 records are in a complete part of the stream; after them, the block type is invalid."""
        packer = zlib.compressobj(0, zlib.DEFLATED, 31 if kind == "GZIP" else 15)
        first = packer.compress(b"".join(FRAMES[:60])) + packer.flush(zlib.Z_FULL_FLUSH)
        second = packer.compress(b"".join(FRAMES[60:])) + packer.flush()
        damaged = first + b"\xff" + second[1:]  # an invalid block type
        records, _, replay = replayed(tmp_path, damaged, compressed=True)
        assert records == RECORDS[:60]
        assert isinstance(replay.damage, CorruptRecordError)
        assert "cannot be decompressed" in str(replay.damage)

    def test_concatenated_members_are_read_and_trailing_zeros_torn(self, tmp_path: Path) -> None:
        content = b"".join(gzip.compress(b"".join(FRAMES[at : at + 25])) for at in range(0, 100, 25))
        for tail, torn in ((b"", True), (bytes(5000), True), (b"\xa5" * 5000, False), (bytes(40_000) + b"\1", False)):
            records, _, replay = replayed(tmp_path, content + tail, compressed=True)
            assert records == RECORDS
            assert (replay.damage is None) is torn

    def test_damaged_record_in_complete_stream_counts_as_damage(self, tmp_path: Path) -> None:
        broken = bytearray(WHOLE)
        broken[sum(map(len, FRAMES[:99])) + 13] ^= 1
        records, _, replay = replayed(tmp_path, gzip.compress(bytes(broken)), compressed=True)
        assert records == RECORDS[:99]
        assert isinstance(replay.damage, CorruptRecordError)
        assert replay.cut == len(FRAMES[99])


def test_missing_journal_raises_on_open_and_closes_quietly(tmp_path: Path) -> None:
    replay = JournalReader(str(tmp_path / "none"), str(tmp_path / "keys"), compressed=False)
    replay.close()
    with pytest.raises(StorageError, match="none"):
        replay.open()
    replay.close()
