"""Commands that find damage or cannot read a file report it by their exit codes, which scripts rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli_data import Run

from asyncrec.blocking import open_sharded_writer

_DYING = """\
import os, sys
from asyncrec.blocking import open_sharded_writer

with open_sharded_writer(sys.argv[1]) as writer:
    for number in range(100):
        writer.write(b"record %06d" % number)
    writer.flush()
    os._exit(9)
"""


def test_recover_exits_with_1_for_damaged_journal(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "pages"
    assert subprocess.run([sys.executable, "-c", _DYING, str(path)], check=False).returncode == 9
    unfinished = max(tmp_path.rglob("*.partial"), key=lambda each: each.stat().st_size)
    content = bytearray(unfinished.read_bytes())
    content[500] ^= 1
    unfinished.write_bytes(content)
    found = run("recover", path)
    assert found.code == 1
    assert "damaged" in found.out
    assert run("recover", path).code == 0


def test_verify_exits_with_3_for_unreadable_path(tmp_path: Path, run: Run) -> None:
    with open_sharded_writer(tmp_path / "pages", max_shard_records=1) as writer:
        writer.write_many([b"1", b"2"])
    shard = sorted(tmp_path.glob("*.tfrecord"))[0]
    shard.unlink()
    shard.symlink_to(shard)  # the disk returns an error other than "not found"
    found = run("verify", tmp_path / "pages")
    assert "unreadable" in found.out
    assert found.code == 3
