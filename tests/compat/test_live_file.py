"""Local files that grow: what tensorboardX's RecordWriter writes, here through ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncrec import CorruptRecordError, StorageError, blocking
from asyncrec.compat.tensorboardx import RecordWriter


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_was_flushed_can_be_read_while_it_is_written() -> None:
    with RecordWriter("live") as writer:
        for number in range(3):
            writer.write(b"%d" % number)
            writer.flush()
            assert blocking.read_records("live") == [b"%d" % each for each in range(number + 1)]


def test_a_local_file_is_continued_behind_its_last_whole_record() -> None:
    with RecordWriter("live") as writer:
        writer.write(b"first")
    with open("live", "ab") as file:
        file.write(b"\x05\0\0\0")  # a writer that was killed
    with RecordWriter("live") as writer:
        writer.write(b"second")
    assert blocking.read_records("live") == [b"first", b"second"]


def test_what_is_no_record_file_is_left_as_it_is() -> None:
    Path("notes.txt").write_bytes(b"not records at all, but quite some text")
    with pytest.raises(CorruptRecordError, match=r"notes\.txt"):
        RecordWriter("notes.txt")
    assert Path("notes.txt").read_bytes() == b"not records at all, but quite some text"


def test_two_writers_do_not_have_one_file() -> None:
    with RecordWriter("live") as writer:
        with pytest.raises(StorageError, match="live: another writer"):
            RecordWriter("live")
        writer.write(b"1")
    with RecordWriter("live") as writer:
        writer.write(b"2")
    assert blocking.read_records("live") == [b"1", b"2"]


@pytest.mark.parametrize("size", [100, 8_000, 300_000])
def test_a_file_ends_with_a_whole_record_whenever_it_is_looked_at(size: int) -> None:
    with RecordWriter("live") as writer:
        for number in range(40):
            writer.write(bytes(size + 7 * number))
            found = len(blocking.read_records("live"))
            assert found == number + 1 or size < 8_192
    assert len(blocking.read_records("live")) == 40


def test_an_error_of_the_disk_names_the_file_and_is_told_by_every_later_call() -> None:
    writer = RecordWriter("/dev/full")
    with pytest.raises(StorageError, match="writing /dev/full"):
        writer.write(bytes(1 << 20))
    for call in (lambda: writer.write(b"1"), writer.flush, writer.close, writer.close):
        with pytest.raises(StorageError, match="failed before, /dev/full"):
            call()
