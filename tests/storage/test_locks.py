"""`FileLock`: a lock is released when its owner dies, even if a forked child of the owner lives on."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec.errors import StorageError
from asyncrec.storage._local.lock import FileLock

# The parent takes the lock, forks, and dies; the child reports this and lives until its input ends.
PROGRAM = """
import os, sys
from asyncrec.storage._local.lock import FileLock
lock = FileLock(os.open(sys.argv[1], os.O_RDWR), sys.argv[1])
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    os._exit(0)
os.write(writer, b"x")
sys.stdin.read()
"""


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_second_lock_owner_is_rejected_naming_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"4242\n")
    lock = FileLock(opened(path), str(path))
    with pytest.raises(
        StorageError, match="process 4242 is still using this folder; wait until it ends, or stop it, and then"
    ):
        FileLock(opened(path), str(path))
    lock.release()
    lock.release()
    FileLock(opened(path), str(path)).release()


def test_lock_is_released_with_owner_despite_forked_child(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdin=subprocess.PIPE) as process:
        process.wait(timeout=60)  # waits for the parent; the child keeps the pipe's other end
        FileLock(opened(path), str(path)).release()


def test_unreferenced_lock_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    FileLock(opened(path), str(path))
    gc.collect()
    FileLock(opened(path), str(path)).release()


def test_lock_owner_is_read_from_opened_file(tmp_path: Path) -> None:
    """Someone could put a pipe in the file's place, and reading from that would block."""
    path = tmp_path / "lock"
    path.write_bytes(b"4242\n")
    lock, other = FileLock(opened(path), str(path)), opened(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(
        StorageError, match="process 4242 is still using this folder; wait until it ends, or stop it, and then"
    ):
        FileLock(other, str(path))
    lock.release()
