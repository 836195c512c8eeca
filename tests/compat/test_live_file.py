"""Growing local files, as tensorboardX's RecordWriter writes them, written through asyncrec instead."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from asyncrec import StorageError, blocking
from asyncrec.compat import _shared_file as shared_file
from asyncrec.compat._live_file import LiveFile
from asyncrec.compat.tensorboardx import RecordWriter


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(program: str) -> None:
    program = f"import os, signal\nfrom asyncrec.compat.tensorboardx import RecordWriter\n{program}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_flushed_records_are_readable_before_close() -> None:
    with RecordWriter("live") as writer:
        for number in range(3):
            writer.write(b"%d" % number)
            writer.flush()
            assert blocking.read_records("live") == [b"%d" % each for each in range(number + 1)]


@pytest.mark.parametrize("there", [b"not records at all, but quite some text", b"", b"\x05\0\0\0"])
def test_opening_truncates_existing_file(there: bytes) -> None:
    Path("x").write_bytes(there)
    RecordWriter("x").close()
    assert Path("x").read_bytes() == b""
    for record in (b"one", b"two"):
        with RecordWriter("x") as writer:
            writer.write(record)
    assert blocking.read_records("x") == [b"two"]


def test_two_writers_of_one_file_both_write_whole_records() -> None:
    """In tensorboardX, the second writer truncated the first one's flushed data, and they overwrote each other's."""
    one = RecordWriter("x")
    one.write(b"first")
    one.flush()
    two = RecordWriter("x")
    for size in (3, 9_000, 40_000):
        for writer, letter in ((one, b"1"), (two, b"2")):
            writer.write(letter * size)
    two.close()
    one.write(b"last")
    one.close()
    records = blocking.read_records("x")
    assert records[0] == b"first"
    assert sorted(records[1:], key=lambda record: (len(record), record)) == [
        b"111", b"222", b"last", *(letter * size for size in (9_000, 40_000) for letter in (b"1", b"2"))
    ]  # fmt: skip


@pytest.mark.slow
def test_concurrent_processes_lose_and_mix_no_records() -> None:
    program = """
import sys
from asyncrec.compat.tensorboardx import RecordWriter
writer = RecordWriter("x")
print("open", flush=True)
sys.stdin.readline()
for number in range(300):
    writer.write(sys.argv[1].encode() * (1 + 97 * number % 30_000))
    if number % 7 == 0:
        writer.flush()
writer.close()
"""
    command = [sys.executable, "-c", program]
    names = ["a", "b", "c"]
    writers = [subprocess.Popen([*command, name], stdin=PIPE, stdout=PIPE) for name in names]
    for each in writers:
        assert each.stdout is not None
        each.stdout.readline()
    for each in writers:
        each.communicate(b"go\n")
        assert each.returncode == 0
    records = blocking.read_records("x")
    for name in names:
        own = [len(record) for record in records if record[:1] == name.encode()]
        assert own == [1 + 97 * number % 30_000 for number in range(300)]
    assert len(records) == 900


def test_torn_record_of_killed_writer_is_truncated() -> None:
    one, two = RecordWriter("x"), RecordWriter("x")
    one.write(b"whole")
    one.flush()
    with open("x", "ab") as file:
        file.write(b"\x05\0\0\0\0")  # the start of a third record, whose writer was killed
    two.write(b"behind it")
    two.close()
    one.close()
    assert blocking.read_records("x") == [b"whole", b"behind it"]


def test_failed_write_leaves_no_remains_before_later_records() -> None:
    two = RecordWriter("x")
    one = RecordWriter("x")
    one.write(b"kept")
    one.flush()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal_before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(StorageError, match="writing x"):
            one.write(bytes(60_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signal_before)
    two.write(b"goes on")
    two.close()
    assert blocking.read_records("x") == [b"kept", b"goes on"]


def test_reopening_truncates_file_still_open_in_child() -> None:
    run(
        """
writer = RecordWriter("x")
writer.write(b"old")
child = os.fork()
if not child:
    signal.pause()
writer.close()
with RecordWriter("x") as writer:
    writer.write(b"new")
os.kill(child, signal.SIGKILL)
"""
    )
    assert blocking.read_records("x") == [b"new"]


def test_forked_child_writes_only_own_records() -> None:
    run(
        """
writer = RecordWriter("x")
writer.write(b"parent 1")
if not os.fork():
    writer.write(b"child")
    writer.close()
    os._exit(0)
assert os.wait()[1] == 0
writer.write(b"parent 2")
RecordWriter("x").close()  # joins: the parent has it still
writer.close()
"""
    )
    assert blocking.read_records("x") == [b"child", b"parent 1", b"parent 2"]


def test_exclusive_writer_blocks_other_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "_PATIENCE", 0.01)
    with blocking.open_writer("x", mode="a") as writer:
        writer.write(b"1")
        with pytest.raises(StorageError, match="x: another writer has this file open exclusively"):
            RecordWriter("x")
    with RecordWriter("x"):
        with pytest.raises(StorageError, match="another writer is appending"):
            with blocking.open_writer("x", mode="a"):
                pass


def test_flush_gives_up_on_stalled_lock_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "_PATIENCE", 0.01)
    one, two = RecordWriter("x"), RecordWriter("x")
    stopped = one._writer
    assert isinstance(stopped, LiveFile)
    with stopped._file._alone():
        two.write(b"2")
        with pytest.raises(StorageError, match="another writer has held this file"):
            two.flush()
    one.close()


def test_folder_path_raises_is_a_directory_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="a folder with this name exists") as caught:
        RecordWriter(str(tmp_path))
    assert isinstance(caught.value, StorageError)


def test_unclosed_self_referencing_writer_is_flushed_at_exit() -> None:
    run("""
writer = RecordWriter("x")
writer.itself = writer
writer.write(b"1")
""")
    assert blocking.read_records("x") == [b"1"]


@pytest.mark.parametrize("size", [100, 8_000, 300_000])
def test_live_file_always_ends_with_whole_record(size: int) -> None:
    with RecordWriter("live") as writer:
        for number in range(40):
            writer.write(bytes(size + 7 * number))
            found = len(blocking.read_records("live"))
            assert found == number + 1 or size < 8_192
    assert len(blocking.read_records("live")) == 40


def test_disk_error_names_file_and_repeats_on_later_calls() -> None:
    writer = RecordWriter("/dev/full")
    with pytest.raises(StorageError, match="writing /dev/full"):
        writer.write(bytes(1 << 20))
    for call in (lambda: writer.write(b"1"), writer.flush, writer.close, writer.close):
        with pytest.raises(StorageError, match="an earlier write failed\\) /dev/full"):
            call()
