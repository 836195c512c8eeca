"""Lose or pause machines whose writers have no disk. All records flushed to the store must be stored exactly once.

In each round, several machines write to several data sets, with one writer for each. Most are killed with -9 at a
random time, and their local files are removed. Others are stopped for longer than ``dead_after`` and continue later. In
the meantime, other machines, which may also be killed, take over: with `recover`, with a writer that skips known keys
and writes the dead machines' records again, or with a plain writer. `lost_judge` then judges the result.

Rounds run concurrently, because they mostly wait. The parent has no event loop and no threads, and has imported all
modules, so that it can fork.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import store_processes
from flushing_machines import DEAD_AFTER, IDLE_SECONDS, MACHINE, Machine, recover, write
from kill import forked, import_what_is_used
from lost_judge import MARGIN, Life, judge
from row import Row  # this folder is on the path
from store_processes import Store

# How long to wait after the last sign of life: stores round times to seconds, and a late request may take effect.
_SILENCE = DEAD_AFTER + 1.3
_AT_ONCE = 7
# A machine that takes longer counts as hung.
_MOST_SECONDS = 300
_BYTES_PER_SECOND = 1e6
# Other tests play this many rounds for each round here, which takes about ten seconds per store.
_ROUNDS_FOR_ONE = 10
# With at least this many rounds, SeaweedFS and Azurite are also used if they are installed.
_ROUNDS_FOR_REAL = 100
_FAILED = '{"problems": ["the judge failed by itself"], "counts": {}, "oldest": 0.0}'


class Round:
    """A round. Its random choices depend only on the seed, but its timing does not."""

    def __init__(self, seed: int, store: Store, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.seed, self.folder = seed, folder
        place = store.for_round(str(seed))
        self.store = place if self.rng.random() < 0.5 else place.in_one_part()
        self.names = [f"pages{number or ''}" for number in range(self.rng.choice((1, 2, 2, 3)))]
        self.flush_seconds = [self.rng.choice((0.5, 0.7, 1.0)) for _ in self.names]
        self.keyed = self.rng.choice((0.0, 1.0, 1.0, 0.5))
        self.record_bytes = self.rng.choice((0, 30, 1000, 1000, 20_000))
        self.machines: list[Machine] = []
        self.lives: dict[int, Life] = {}
        self.processes: dict[int, int] = {}  # the running processes, by the number of their machine
        self.problems: list[str] = []
        self.tried: Counter[str] = Counter()

    # -- processes ----------------------------------------------------------------------------------------------------

    def machine(self, **given: Any) -> Machine:
        rng = self.rng
        options = []
        for flush_seconds in self.flush_seconds:
            shards = rng.choice((1, 1, 2, 3))
            options.append(
                {
                    "flush_seconds": flush_seconds,
                    "open_shards": shards,
                    "max_shard_records": rng.choice((20, 100, 1000, 100_000)),
                    "compression": rng.choice(("", "", "GZIP", "ZLIB")),
                    "memory_limit": rng.choice((None, None, 8 * shards * self.store.chunk)),
                }
            )
        plan = {
            "number": len(self.machines),
            "seed": self.seed,
            "loop": rng.choice(("asyncio", "trio")),
            "store": self.store,
            "names": self.names,
            "folder": self.folder,
            "most": rng.choice((50, 500, 3000)),
            "options": options,
            "tasks": rng.choice((1, 1, 4)),
            "record_bytes": self.record_bytes,
            "keyed": self.keyed,
            "burst": (burst := rng.choice((1, 10, 50))),
            # If a writer were faster than its store, its backlog would become older than promised.
            "pause": max(rng.choice((0.01, 0.05, 0.3)), burst * self.record_bytes / _BYTES_PER_SECOND),
            "waits": rng.choice((0.0, 0.02, 0.2)),
            "flushes": rng.choice((0.0, 0.02, 0.2)),
            "commits": rng.choice((0.0, 0.0, 0.01)),
            "idles": rng.choice((0.0, 0.0, 0.005)),
        }
        machine = Machine(**plan | given)
        self.machines.append(machine)
        return machine

    def start(self, number: int, func: Callable[..., None], *arguments: Any) -> None:
        self.processes[number], pipe = forked(func, *arguments)
        os.close(pipe)
        self.lives[number] = Life()

    def kill(self, number: int) -> None:
        """Kill a machine's process and remove all its files."""
        self.lives[number].killed = time.monotonic()
        os.kill(self.processes[number], signal.SIGKILL)
        self.wait(number)

    def wait(self, number: int) -> None:
        """Wait until a process has ended."""
        process = self.processes.pop(number)
        deadline = time.monotonic() + _MOST_SECONDS
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                self.problems.append(f"machine {number} hung")
                self.lives[number].killed = time.monotonic()
                os.kill(process, signal.SIGKILL)
                ended = os.waitpid(process, 0)
                break
            time.sleep(0.01)
        if os.WIFSIGNALED(ended[1]):
            self.tried["kills"] += 1
            shutil.rmtree(self.folder / f"run-machine-{number}", ignore_errors=True)
        elif ended[1]:
            self.problems.append(f"machine {number} failed by itself: {ended[1]}")

    def until(self, number: int, kinds: str, seconds: float) -> None:
        """Wait for at most ``seconds`` until each writer of a machine has logged one of these kinds of lines."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if len({line.dataset for line in self.machines[number].lines() if line.kind in kinds}) == len(self.names):
                return
            time.sleep(0.02)

    # -- the course of a round ----------------------------------------------------------------------------------------

    def play(self) -> None:
        rng = self.rng
        first = [self.machine().number for _ in range(rng.choice((1, 2, 2, 3)))]
        for number in first:
            self.start(number, write, self.machines[number])
        if rng.random() < 0.9:
            for number in first:
                self.until(number, "ofx", 30)
        time.sleep(rng.random() * rng.choice((0.3, 1.0, 3.0)))
        stopped, alive = [], []
        for number in first:
            fate = rng.random()
            if fate < 0.65:
                self.kill(number)
            elif fate < 0.92:
                self.lives[number].stopped = time.monotonic()
                os.kill(self.processes[number], signal.SIGSTOP)
                self.tried["pauses"] += 1
                stopped.append(number)
            else:
                alive.append(number)
            time.sleep(rng.choice((0.0, rng.random() * 0.5)))
        in_time = rng.random() < 0.8
        time.sleep(_SILENCE * (1.0 if in_time else rng.random()))
        early = rng.random() < 0.25
        self.take_over(first if in_time else [], early=stopped if early else [])
        if not early:
            self.go_on(stopped)
        for number in stopped:
            self.until(number, "fex", max(self.flush_seconds) + MARGIN + IDLE_SECONDS)
        for number in (*stopped, *alive):
            if number in self.processes:
                self.end(number)
        time.sleep(_SILENCE)

    def go_on(self, numbers: list[int]) -> None:
        for number in numbers:
            self.lives[number].continued = time.monotonic()
            os.kill(self.processes[number], signal.SIGCONT)

    def end(self, number: int) -> None:
        """End or kill a machine."""
        if self.rng.random() < 0.25:
            self.kill(number)
        else:
            self.machines[number].end.touch()
            self.wait(number)

    def take_over(self, lost: list[int], *, early: list[int]) -> None:
        """Start machines that take over, and kill some of them; meanwhile, resume the stopped machines in ``early``."""
        rng = self.rng
        numbers, killed, writes_again = [], [], False
        for way in rng.choices(("recover", "skip", "plain"), k=rng.choice((1, 1, 2))):
            given: dict[str, Any] = {"most": rng.choice((0, 50, 300)), "idles": 0.0, "seconds": DEAD_AFTER + 2.5}
            if way == "skip":
                given["seconds"] = rng.random() * 2
                if not writes_again:  # two concurrent writers do not know each other's keys
                    given["again"] = self.written([number for number in lost if self.lives[number].killed])
                    writes_again = True
            machine = self.machine(**given)
            if way == "skip":
                for options in machine.options:
                    options["on_duplicate"] = "skip"
            if way == "recover":
                self.start(machine.number, recover, machine)
            else:
                self.start(machine.number, write, machine)
            self.tried[way] += 1
            numbers.append(machine.number)
            if rng.random() < 0.3:
                killed.append(machine.number)
        if early:
            time.sleep(rng.random())
            self.go_on(early)
        for number in killed:
            time.sleep(rng.random() * 1.5)
            self.kill(number)
        for number in numbers:
            if number in self.processes:
                self.wait(number)

    def written(self, numbers: list[int]) -> dict[int, dict[int, int]]:
        """Return the number of records that each of these machines wrote, for each data set."""
        again: dict[int, dict[int, int]] = {dataset: {} for dataset in range(len(self.names))}
        for number in numbers:
            for line in self.machines[number].lines():
                if line.kind == "w":
                    again[line.dataset][number] = max(again[line.dataset].get(number, 0), line.number % MACHINE + 1)
        return again


def one_round(seed: int, store: Store, folder: Path, pipe: int) -> None:
    folder.mkdir()
    this = Round(seed, store, folder)
    try:
        this.play()
    finally:
        for process in this.processes.values():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    child, answers = forked(judge, this.machines, this.lives, this.flush_seconds)
    answer = b""
    while block := os.read(answers, 1 << 16):
        answer += block
    os.waitpid(child, 0)
    seen = json.loads(answer or _FAILED)
    seen["problems"] += this.problems
    seen["counts"] = Counter(seen["counts"]) + this.tried
    if not seen["problems"] and "TORTURE_KEEP" not in os.environ:
        shutil.rmtree(folder)
    os.write(pipe, json.dumps(seen).encode())


def use(store: Store, folder: Path, loop: str, pipe: int) -> None:
    """Run the children's code, and report the modules that it imports."""
    machine = Round(0 if loop == "asyncio" else 1, store, folder).machine(most=10, loop=loop, seconds=0.1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    write(machine, nothing)
    judge([machine], {0: Life()}, [1.0] * 3, nothing)
    os.write(pipe, "\n".join(sys.modules).encode())


def lost_machines(seed: int, rounds: int) -> Row:
    root = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    counts: Counter[str] = Counter()
    kinds = store_processes.kinds(real=rounds >= _ROUNDS_FOR_REAL)
    for kind in kinds:
        seen = on_store(kind, seed, max(2, rounds // _ROUNDS_FOR_ONE), root / kind)
        print(f"{kind}: {', '.join(f'{what} {count:,}' for what, count in sorted(seen.items()))}", flush=True)
        counts.update(seen)
    if not counts["broken"]:
        shutil.rmtree(root)
    what = f"{counts['kills']} kills, {counts['pauses']} pauses of machines without a disk, on {len(kinds)} stores"
    return Row(what, counts["kills"] + counts["pauses"], counts["broken"], seed)


def on_store(kind: str, seed: int, times: int, folder: Path) -> Counter[str]:
    """Play ``times`` rounds on one store, some of them concurrently; count faults, findings and ``broken`` rounds."""
    folder.mkdir()
    (folder / "store").mkdir()
    counts: Counter[str] = Counter()
    oldest = 0.0
    with store_processes.running(kind, folder / "store") as store:
        for loop in ("asyncio", "trio"):
            (folder / loop).mkdir()
            import_what_is_used(use, store, folder / loop, loop)
        waiting = [seed * 1_000_003 + number for number in range(times)]
        running: dict[int, tuple[int, int, bytes]] = {}
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                each = waiting.pop(0)
                child, pipe = forked(one_round, each, store, folder / str(each))
                running[pipe] = each, child, b""
            for pipe in select.select([*running], [], [])[0]:
                each, child, answer = running[pipe]
                if block := os.read(pipe, 1 << 16):
                    running[pipe] = each, child, answer + block
                    continue
                del running[pipe]
                os.close(pipe)
                os.waitpid(child, 0)
                seen = json.loads(answer or _FAILED)
                counts.update(seen["counts"])
                oldest = max(oldest, seen["oldest"])
                if seen["problems"]:
                    counts["broken"] += 1
                    print(f"{folder / str(each)}:\n  " + "\n  ".join(seen["problems"]), flush=True)
    counts["oldest lost, in ms"] = int(1000 * oldest)
    return counts


ROUNDS = [lost_machines]
