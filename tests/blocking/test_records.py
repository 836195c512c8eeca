from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec._records.writing.write_batch import BATCH_RECORDS

RECORDS = [b"%d" % number for number in range(3 * BATCH_RECORDS + 7)]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records_round_trip_singly_and_in_lists(tmp_path: Path, compression: str) -> None:
    half = len(RECORDS) // 2
    with blocking.open_writer(tmp_path / "x", compression=compression) as writer:
        for record in RECORDS[:half]:
            writer.write(record)
        writer.write_many(iter(RECORDS[half:]))
    assert writer.published is not None
    assert writer.published.size == (tmp_path / "x").stat().st_size
    with blocking.open_reader(tmp_path / "x") as reader:
        assert reader.compression == compression
        first = [next(reader) for _ in range(10)]
        rest = [record for records in reader.batches() for record in records]
        assert first + rest == RECORDS
        assert list(reader) == []
        assert reader.stats().records == len(RECORDS)


def test_buffer_may_be_reused_immediately(tmp_path: Path) -> None:
    buffer = bytearray(b"first")
    with blocking.open_writer(tmp_path / "x") as writer:
        writer.write(buffer)
        buffer[:] = b"other"
        writer.write(memoryview(buffer)[::2])
    assert blocking.read_records(tmp_path / "x") == [b"first", b"ohr"]


def test_writer_rejects_text_at_once(tmp_path: Path) -> None:
    with blocking.open_writer(tmp_path / "x") as writer:
        with pytest.raises(TypeError, match="encode it first"):
            writer.write("text")  # type: ignore[arg-type]  # deliberately wrong
        with pytest.raises(TypeError, match="needs a list of records"):
            writer.write_many(b"one")  # type: ignore[arg-type]  # deliberately wrong
    assert blocking.read_records(tmp_path / "x") == []


def test_flush_writes_collected_records(tmp_path: Path) -> None:
    with blocking.open_writer(tmp_path / "x", mode="a") as writer:
        writer.write(b"1")
        assert writer.flush() == "spooled"
        assert blocking.read_records(tmp_path / "x") == [b"1"]


def test_writer_accepts_records_from_many_threads(tmp_path: Path) -> None:
    with blocking.open_writer(tmp_path / "x") as writer:

        def work(number: int) -> None:
            for record in RECORDS[number::4]:
                writer.write(record)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(blocking.read_records(tmp_path / "x")) == sorted(RECORDS)


def test_failed_body_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), blocking.open_writer(tmp_path / "x") as writer:
        writer.write(b"1")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_closed_writer_and_reader_raise_closed_resource_error(tmp_path: Path) -> None:
    with blocking.open_writer(tmp_path / "x") as writer:
        writer.write(b"1")
    with pytest.raises(anyio.ClosedResourceError, match="closed"):
        writer.write(b"2")
    with blocking.open_reader(tmp_path / "x") as reader:
        pass
    with pytest.raises(anyio.ClosedResourceError, match="closed"):
        next(reader)


def test_reader_yields_records_before_damage_then_raises(tmp_path: Path) -> None:
    blocking.write_records(tmp_path / "x", [b"1", b"2", b"3"])
    data = bytearray((tmp_path / "x").read_bytes())
    data[-5] ^= 1
    (tmp_path / "x").write_bytes(data)
    found = []
    with pytest.raises(asyncrec.CorruptRecordError), blocking.open_reader(tmp_path / "x") as reader:
        for record in reader:
            found.append(record)
    assert found == [b"1", b"2"]


def test_reader_skips_and_reports_damage(tmp_path: Path) -> None:
    blocking.write_records(tmp_path / "x", [b"1", b"2", b"3"])
    data = bytearray((tmp_path / "x").read_bytes())
    data[17 + 12] ^= 1
    (tmp_path / "x").write_bytes(data)
    with blocking.open_reader(tmp_path / "x", on_corrupt="skip") as reader:
        assert list(reader) == [b"1", b"3"]
        assert reader.damage == [asyncrec.Damage(17, 17, "data", 1)]
        assert reader.stats().lost_bytes == 17


def test_write_records_iterates_in_callers_thread(tmp_path: Path) -> None:
    blocking.write_records(tmp_path / "a", RECORDS)
    with blocking.open_reader(tmp_path / "a") as reader:
        blocking.write_records(tmp_path / "b", reader)
    assert blocking.read_records(tmp_path / "b") == RECORDS


def test_storage_errors_are_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(asyncrec.ObjectNotFoundError):
        blocking.read_records(tmp_path / "nothing")
    blocking.write_records(tmp_path / "x", [])
    with pytest.raises(asyncrec.ObjectExistsError), blocking.open_writer(tmp_path / "x", mode="x"):
        pass
