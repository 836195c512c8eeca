"""``make bench ARGS="--only formats"``: each format's cost, and how it handles kills and flipped bits.

The records are random, 1 KiB each, in one file (for asyncrec, a data set with one shard), without compression, on a
tmpfs if there is one. Each figure is from a separate process; the formats take turns, and medians are shown. The
processor time of all threads is compared, since a busy machine affects it least, but only within one run.

*cost*: the processor time for writing and reading everything, and the size of the files. *kill*: a process writes the
records one by one, does nothing for `IDLE` seconds, and is killed with SIGKILL. How many records does the format's own
reader find? (For asyncrec, after `recover`, which a new writer runs automatically.) *flip*: one bit in the middle of
the file is flipped. How many records are read, how many of those are wrong, and is anything reported? With the reader's
defaults, and for asyncrec also with ``on_corrupt="skip"``.

Formats that are not installed are left out. Since MosaicML Streaming depends on PyTorch, install it by hand: ``pip
install mosaicml-streaming``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from formats import FORMATS, POOL, SIZE, Format, record
from harness import work_folder

IDLE = 6  # longer than asyncrec's `flush_seconds`, which is one


# Run in a separate process, which prints one line of JSON - -----------------------------------------------------------


def write(form: Format, path: Path, count: int) -> dict[str, object]:
    put, close = form.writer(path)  # its imports are not counted
    records = [record(number) for number in range(count)]
    began = time.process_time()
    for data in records:
        put(data)
    close()
    seconds = time.process_time() - began
    return {"seconds": seconds, "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file())}


def read(form: Format, path: Path, count: int) -> dict[str, object]:
    """Read and compare the records up to the first error, and then time a second reading."""
    number = wrong = 0
    said = None
    try:
        for data in form.read(path):
            wrong += data[8:] != POOL[int.from_bytes(data[:8], "little") % 64][8:]
            number += 1
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    # A second time, with everything imported and no comparison, for the time.
    began = time.process_time()
    with suppress(Exception):
        deque(form.read(path), maxlen=0)
    return {"seconds": time.process_time() - began, "read": number, "wrong": wrong, "of": count, "said": said}


def hang(form: Format, path: Path, count: int) -> dict[str, object]:
    put, close = form.writer(path)
    for number in range(count):
        put(record(number))
    print("written", flush=True)
    signal.pause()
    close()
    return {}


# The driver ----------------------------------------------------------------------------------------------------------


def command(action: str, name: str, path: Path, count: int) -> list[str]:
    return [sys.executable, __file__, "--do", action, name, str(path), str(count)]


def asked(action: str, name: str, path: Path, count: int) -> dict[str, Any]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command(action, name, path, count), capture_output=True, text=True, check=False, env=environment
    )
    if not done.stdout.strip():
        return {"seconds": 0.0, "bytes": 0, "read": 0, "wrong": 0, "said": f"exit status {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fresh(folder: Path, name: str) -> Path:
    path = folder / f"{name.replace(' ', '-')}-{time.monotonic_ns()}"
    path.mkdir()
    return path


def cost(folder: Path, names: list[str], count: int, rounds: int) -> None:
    writes: dict[str, list[float]] = {name: [] for name in names}
    reads: dict[str, list[float]] = {name: [] for name in names}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name in names:
            path = fresh(folder, name)
            written = asked("write", name, path, count)
            done = asked("read", name, path, count)
            if done["read"] != count or done["said"]:
                print(f"{name}: {written}, {done}")
            writes[name].append(written["seconds"])
            reads[name].append(done["seconds"])
            sizes[name] = written["bytes"]
            subprocess.run(["rm", "-r", path], check=True)
    print("\n| | write, us | times asyncrec | read, us | times asyncrec | bytes a record |\n|---|---|---|---|---|---|")
    base = [statistics.median(figures["asyncrec"]) for figures in (writes, reads)]
    for name in names:
        each = [statistics.median(figures[name]) for figures in (writes, reads)]
        cells = [f"{one / count * 1e6:.2f} | {one / first:.1f}" for one, first in zip(each, base, strict=True)]
        print(f"| {name} | {cells[0]} | {cells[1]} | {sizes[name] / count:,.0f} |", flush=True)


def kill(folder: Path, names: list[str], count: int) -> None:
    print(f"\n{count:,} records, {IDLE} s of nothing, SIGKILL\n\n| | found | said by the reader |\n|---|---|---|")
    for name in names:
        path = fresh(folder, name)
        with subprocess.Popen(
            command("hang", name, path, count), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            while (line := process.stdout.readline()) and line != "written\n":
                pass
            time.sleep(IDLE)
            process.kill()
        found = asked("read", name, path, count)
        print(f"| {name} | {found['read']:,} | {found['said'] or 'nothing'} |", flush=True)


def flip(folder: Path, names: list[str], count: int) -> None:
    print(f"\none bit of {count:,} records\n\n| | read | of them wrong | said by the reader |\n|---|---|---|---|")
    for name in names:
        path = fresh(folder, name)
        asked("write", name, path, count)
        file = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
        content = bytearray(file.read_bytes())
        # In the middle of a record's data, wherever the format stores it.
        middle = content.index(record(count // 2)) + SIZE // 2
        content[middle] ^= 1
        file.write_bytes(content)
        found = asked("read", name, path, count)
        print(f"| {name} | {found['read']:,} | {found['wrong']} | {found['said'] or 'nothing'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=50_000, help="records; a tenth of them for kill and flip")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="formats whose name holds TEXT, and asyncrec")
    parser.add_argument("--what", nargs="+", default=["cost", "kill", "flip"], choices=["cost", "kill", "flip"])
    parser.add_argument("--do", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:  # in a separate process
        action, name, path, count = options.do
        work = {"write": write, "read": read, "hang": hang}[action]
        print(json.dumps(work(FORMATS[name], Path(path), int(count))))
        return
    wanted = [name for name in FORMATS if options.only in name or name == "asyncrec"]
    names = [name for name in wanted if find_spec(FORMATS[name].module)]
    folder, place = work_folder()
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, {load}, {place}")
    packages = dict.fromkeys(FORMATS[name].package for name in names)
    print(
        ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages if package != "asyncrec")
    )
    try:
        if "cost" in options.what:
            timed = [name for name in names if "checked" not in name and "skipping" not in name]
            cost(folder, timed, options.count, options.rounds)
        if "kill" in options.what:
            kill(folder, [name for name in names if "," not in name], options.count // 10)
        if "flip" in options.what:
            flip(folder, [name for name in names if "lists" not in name], options.count // 10)
    finally:
        subprocess.run(["rm", "-r", folder], check=True)


if __name__ == "__main__":
    main()
