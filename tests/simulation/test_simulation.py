"""Simulate worlds for a minute, and test the simulation itself."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from asyncrec import native
from asyncrec.stats import writer_totals

from . import book, broken, contents, judgement, plan, playing, run, seams, sources, world
from .shrink import promise_of, shrink

# One minute of processor time in total, shared by the workers that run tests concurrently.
_SECONDS = 60.0
_PARTS = 4
_SEED = 1_000_000
# The minimum number of worlds in each part, even on a slow or busy machine.
_LEAST = 20


# The garbage collector closes the coroutines of dead processes, and warns that they have no event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def worlds() -> Any:
    """Let asyncrec access only simulated worlds."""
    with seams.patched():
        sources.prepare()
        yield


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_simulated_worlds_break_no_promise(part: int) -> None:
    totals = run.run_worlds(_SEED + part, step=_PARTS, seconds=_SECONDS / _PARTS, least=_LEAST, tell=True)
    assert not totals.broken, f"make simulate ARGS='--one SEED --shrink' shows each: {totals.broken}"
    assert totals.kills > 10


@pytest.mark.slow
def test_seed_gives_same_world_in_any_order(worlds: None) -> None:
    first = [playing.run_plan(plan.draw(seed)).events for seed in range(15)]
    for seed in reversed(range(15)):
        again = playing.run_plan(plan.draw(seed)).events
        if again.digest() != first[seed].digest():
            lines = zip_longest(first[seed].lines(), again.lines())
            at, differ = next((at, both) for at, both in enumerate(lines) if both[0] != both[1])
            pytest.fail(f"world {seed} differs at line {at:,}: {differ[0]!r}, and then {differ[1]!r}")


@pytest.mark.slow
def test_seed_gives_same_world_for_any_hash_seed(worlds: None) -> None:
    here = [playing.run_plan(plan.draw(seed)).digest for seed in range(6)]
    # If this process has no C code, the others must not have it either, because it affects how reads are scheduled.
    code = "" if native.FUNCTIONS else "import sys\nsys.modules['asyncrec._native._c'] = None\n"
    code += (
        "from simulation import plan, playing, seams, sources\n"
        "with seams.patched():\n"
        "    sources.prepare()\n"
        "    print(*[playing.run_plan(plan.draw(seed)).digest for seed in range(6)])\n"
    )
    for hash_seed in ("1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent.parent)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=100
        )
        assert done.stdout.split() == here


@pytest.mark.slow
def test_finished_world_leaves_no_objects_or_writers(worlds: None) -> None:
    """Otherwise, worlds would accumulate, and their writers would count as this process's own."""
    before = writer_totals().writers
    assert sum(playing.run_plan(plan.draw(seed)).kills for seed in range(20)) > 5
    assert not [each for each in gc.get_objects() if isinstance(each, world.World)]
    assert writer_totals().writers == before


def test_modules_reach_outside_world_only_through_seams(worlds: None) -> None:
    """A module that imported a function by name would use the real clock, disk or random numbers."""
    outside = (fcntl, os, random, secrets, shutil, tempfile, time)
    real = [getattr(module, name) for module in outside for name in getattr(module, "__all__", vars(module))]
    known = {id(value) for value in real if callable(value) and not isinstance(value, type)} - {id(os.fspath)}
    found = [
        f"{module.__name__}.{name}"
        for module in seams.modules()
        for name in vars(module)
        if id(vars(module)[name]) in known
    ]
    assert found == []


@pytest.mark.slow
def test_different_seeds_give_different_worlds(worlds: None) -> None:
    assert len({playing.run_plan(plan.draw(seed)).digest for seed in range(20)}) == 20


@pytest.mark.parametrize("rule", broken.RULES)
def test_patch_removing_rule_applies(rule: str) -> None:
    broken.apply(rule, broken.ROOT, "--check")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "theme", "most"),
    [
        ("a shard comes before its commit", "crawl", 150),
        ("recovery respects locks", "crawl", 500),
        ("recovery removes journals last", "crawl", 100),
        ("a flush waits for the disk", "crawl", 100),
        ("a flush is synced", "crawl", 400),
        ("folders are synced", "crawl", 400),
        ("recovery reads the notes", "crawl", 100),
        ("records are flushed automatically", "held", 150),
        ("memory is released", "crawl", 20),
        ("a promise is recorded after its records", "fixed", 500),
        ("a flush checks that its job was not taken over", "shared folder", 150),
        ("a lock proves death only on its own machine", "shared folder", 100),
        ("shards after a checkpoint are searched for keys", "keys", 100),
        ("an unreferenced key run is deleted", "keys", 100),
        ("flushed records of an ignored shard are adopted", "flushed", 100),
        ("a published shard is not written again", "flushed", 100),
        ("flushed records of a committed shard are ignored", "flushed", 100),
        ("a fence stays while its writer may be alive", "flushed", 200),
        ("the owner of a source ends before its next turn", "queues", 50),
        ("the end of a log records source positions", "queues", 50),
        ("records of a lost source are dropped", "queues", 150),
        ("a lost source is reported before any acknowledgement", "queues", 150),
        ("a rewriting tool detects missing shards", "joined", 150),
        ("a follower knows shards by their first names", "joined", 50),
    ],
)
def test_simulation_detects_removed_rule(rule: str, theme: str, most: int) -> None:
    assert broken.find(rule, 0, most, f"--theme={theme}") is not None


@pytest.mark.slow
def test_failing_plan_is_shrunk_and_still_fails(worlds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise that fails is one that asyncrec does not actually make."""

    def run_plan(drawn: dict[str, Any]) -> playing.Outcome:
        outcome = playing.run_plan(drawn)
        outcome.complaints[:] = ["nobody is killed: as asked"] * bool(outcome.kills)
        return outcome

    monkeypatch.setattr("simulation.shrink.run_plan", run_plan)
    failing = next(
        outcome for seed in range(100) if (outcome := run_plan(plan.draw(seed, themes=("crawl",)))).complaints
    )
    smaller = shrink(failing.plan, promise_of(failing), runs=150)
    assert promise_of(run_plan(smaller.plan)) == "nobody is killed"

    def size(drawn: dict[str, Any]) -> int:
        return sum(len(spec.get("tasks", [])) for process in drawn["processes"] for spec in process["operations"])

    assert size(smaller.plan) <= size(failing.plan)
    assert len(smaller.plan["faults"]) <= len(failing.plan["faults"])


def test_disk_fault_following_another_fault_is_recognised() -> None:
    """If a disk failed to create a job's locked file, it is correct that the job cannot be proven dead."""
    cancel = {"kind": "cancel", "process": 0, "how": "anyio", "since": "", "at": 1}
    for faults, fails in (([cancel], False), ([{**cancel, "then": {"kind": "disk", "at": 1, "for": 1}}], True)):
        made = world.World({**plan.draw(0), "faults": faults})
        made.loop.close()
        assert made.disks_fail is fails


class _World:
    """A stub with the part of a world that the tested code uses."""

    def __init__(self) -> None:
        self.book = book.Book()
        self.settings = {"damaging": 0.0}
        self.power_cuts = 0

    def taken(self, count: int, *, level: str = "spooled", kind: str = "rolling") -> book.Run:
        class Somebody:
            dead = False

        run = self.book.begin("/m0/d/pages", kind, Somebody(), {}, 0.0)
        for number in range(count):
            record = self.book.offer(run, 0, 20, None)
            record.state, record.ticket = "taken", number + 1
        run.promise(level, count, 1.0)
        return run

    def judged(self, *numbers: int) -> list[str]:
        records = [self.book.records[number].data for number in numbers]
        judgement.of_dataset(self, "/m0/d/pages", [contents.Shard("pages-x-000000.tfrecord", records, None, [])])
        return [complaint.partition(":")[0] for complaint in self.book.complaints]


def test_oracle_accepts_kept_promises() -> None:
    told = _World()
    told.taken(3)
    assert told.judged(0, 1, 2) == []


def test_oracle_detects_lost_record() -> None:
    told = _World()
    told.taken(3)
    assert told.judged(0, 2) == ["what was acknowledged stays"]


def test_oracle_detects_duplicate_record() -> None:
    told = _World()
    told.taken(3)
    assert "each record is there once" in told.judged(0, 1, 1, 2)


def test_oracle_detects_stored_rejected_records() -> None:
    told = _World()
    told.taken(3).records[1].state = "refused"
    assert told.judged(0, 1, 2) == ["nothing that was refused is there"]


def test_oracle_detects_changed_order() -> None:
    told = _World()
    told.taken(3)
    assert told.judged(0, 2, 1) == ["the order of a task is kept"]


def test_oracle_detects_missing_key() -> None:
    told = _World()
    told.taken(2).records[1].key = b"k"
    assert told.judged(0, 1) == ["a record has its key"]


def test_oracle_detects_incomplete_fixed_set() -> None:
    told = _World()
    told.taken(3, kind="fixed").outcome = "clean"
    assert "a fixed set is whole or absent" in told.judged(0, 1)
