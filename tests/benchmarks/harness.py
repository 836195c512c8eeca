"""Measures a case: the contenders run in separate processes, and take turns in each round.

A `Case` is a job that several systems can do; a `Contender` is one system's way to do it. Each contender runs in a
process that lives as long as the case, so that imports and first calls are not timed, memory is its own, and libraries
do not disturb each other. It warms up on a small instance of the same job, and then waits for its turn: A B C, A B C,
... Medians are compared. A writer uses a new file for every round; all readers of a case read the same file, in the
page cache.

Peak memory is the growth of the process's resident set since its turn began (Linux only: VmHWM, reset through
clear_refs). The file itself is in a tmpfs or the page cache, and is not included.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
MIB = 1 << 20

Job = Callable[[Path], "Extras | None"]
Extras = dict[str, float]


@dataclass(frozen=True)
class Case:
    """A job to be measured.

    Attributes:
        name: unique; what ``--only`` matches.
        count: how many units of work a round does; times are given per unit.
        size: bytes of one unit, for MB/s.
        contenders: name -> maker. A maker imports modules, does the work that is not timed, and returns the job.
            The job takes the path (a new one for writers, `prepare`'s file for readers) and may return extra figures;
            ``seconds`` among them replaces the time of the whole job if it includes preparation.
        prepare: makes the file that readers share. `None`: each round gets a path that does not exist yet.
        check: checks a writer's output after every round, untimed; returns a description of any fault.
        rounds: the number of rounds, unless the command line overrides it.
        note: a remark for readers of the table.
    """

    name: str
    count: int
    size: int
    contenders: Mapping[str, Callable[[Case], Job]]
    prepare: Callable[[Case, Path], None] | None = None
    check: Callable[[Case, Path], str | None] | None = None
    rounds: int = 5
    note: str = ""

    def smaller(self, by: int) -> Case:
        return Case(**{**self.__dict__, "count": max(self.count // by, 2)})


@dataclass(frozen=True)
class Target:
    """``ours`` should take at most 1/``times`` of the time of ``other`` in ``case``."""

    case: str
    ours: str
    other: str
    times: float


@dataclass
class Result:
    """The figures of one contender in one case."""

    case: str
    contender: str
    count: int
    size: int
    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    extras: list[Extras] = field(default_factory=list)
    failed: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def extra(self, name: str) -> float | None:
        values = [extras[name] for extras in self.extras if name in extras]
        return max(values) if values else None


def case_options(description: str | None) -> argparse.Namespace:
    """Parse which cases a separate program runs, how often, and where it puts its files."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the files go; by default in memory, where there is room")
    parser.add_argument("--only", default="", help="cases that have this in their name")
    parser.add_argument("--rounds", type=int)
    return parser.parse_args()


def work_folder(chosen: str | None = None) -> tuple[Path, str]:
    """Return the folder for files and its description: on a tmpfs with room, if any, so that no disk is measured."""
    if chosen is not None:
        return Path(tempfile.mkdtemp(prefix="asyncrec-bench-", dir=chosen)), chosen
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 8 << 30:
            return Path(tempfile.mkdtemp(prefix="asyncrec-bench-", dir=memory)), "tmpfs (/dev/shm)"
    folder = Path(tempfile.mkdtemp(prefix="asyncrec-bench-"))
    return folder, f"{folder.parent} (no tmpfs with 8 GiB free: a disk is part of what is measured)"


# The driver's side ------------------------------------------------------------------------------------------------


class Worker:
    """A process with one contender, ready to run."""

    def __init__(self, module: str, case: str, contender: str, shrink: int) -> None:
        # TensorFlow prints a lot while it starts. The output is shown only if a worker dies.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in end()
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "harness.py"), module, case, contender, str(shrink)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"},
            text=True,
        )

    def ask(self, path: Path) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died while starting: its output is read below
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._said.seek(0)
            return {"failed": f"exit status {status}\n{self._said.read()[-2000:]}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._said.close()


def run_case(module: str, case: Case, *, folder: Path, rounds: int | None, shrink: int) -> list[Result]:
    """Measure one case. A contender that fails is excluded, and its result says why."""
    if shrink > 1:
        case = case.smaller(shrink)
    shared = folder / "shared"
    if case.prepare is not None:
        case.prepare(case, shared)
    workers: dict[str, Worker] = {}
    results = {name: Result(case.name, name, case.count, case.size) for name in case.contenders}
    try:
        for name in case.contenders:
            worker = workers[name] = Worker(module, case.name, name, shrink)
            answer = worker.ask(folder / "warm-up")  # starts, imports, warms up
            results[name].failed = answer.get("failed")
        for number in range(rounds or case.rounds):
            for name, result in results.items():
                if result.failed:
                    continue
                path = shared if case.prepare is not None else folder / f"{name.replace(' ', '-')}-{number}"
                answer = workers[name].ask(path)
                result.failed = answer.get("failed")
                if not result.failed:
                    result.seconds.append(answer["seconds"])
                    result.peak_bytes.append(answer["peak_bytes"])
                    result.extras.append(answer["extras"])
                if case.prepare is None:
                    if case.check is not None and not result.failed:
                        result.failed = case.check(case, path)
                    _remove(path)
    finally:
        for worker in workers.values():
            worker.end()
        _remove(shared)
    return list(results.values())


def _remove(path: Path) -> None:
    """Remove a job's output: a file, or a folder of shards."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# The worker's side ------------------------------------------------------------------------------------------------


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> None:
    # Other systems cannot reset the peak. Then the peak is measured since the start of the process.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _answer(out: IO[str], **values: object) -> None:
    print(json.dumps(values), file=out, flush=True)


def _worker(module: str, name: str, contender: str, shrink: int) -> None:
    # Keep the output of libraries out of the responses.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        case = next(case for case in importlib.import_module(module).CASES if case.name == name)
        if shrink > 1:
            case = case.smaller(shrink)
        warm_up = Path(sys.stdin.readline().rstrip("\n"))
        warm_up = warm_up.with_name(f"{warm_up.name}-{os.getpid()}")
        small = case.smaller(50)
        if case.prepare is not None:
            case.prepare(small, warm_up)
        case.contenders[contender](small)(warm_up)
        _remove(warm_up)
        job = case.contenders[contender](case)
        # A list of a million records, which only a benchmark has, would take the garbage collector 10 ms to scan.
        gc.collect()
        gc.freeze()
        _answer(out)
        for line in sys.stdin:
            _reset_peak()
            before = _status("VmRSS")
            began = time.perf_counter()
            extras = job(Path(line.rstrip("\n"))) or {}
            seconds = extras.pop("seconds", time.perf_counter() - began)
            _answer(out, seconds=seconds, peak_bytes=max(_status("VmHWM") - before, 0), extras=extras)
    except Exception as error:
        _answer(out, failed=f"{type(error).__name__}: {error}")


def modules(names: Sequence[str]) -> dict[str, list[Case]]:
    return {name: list(importlib.import_module(name).CASES) for name in names}


if __name__ == "__main__":
    _worker(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
