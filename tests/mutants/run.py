"""``make mutants``: draws mutants of the modules that carry promises, and shows what no test noticed.

    make mutants ARGS="--count 350 --seed 1 --workers 2"    a sample of all groups, by their shares
    make mutants ARGS="--group shards --match recovery"     of one group, of modules with such a name
    make mutants ARGS="--group gcs --near"                  asked of that package's own tests alone, some minutes
    make mutants ARGS="--survivors"                         what is known, without running anything
    make mutants ARGS="--whole"                             what survived is run against the whole suite, too

A group's own tests are asked first. What survives them is asked of the other packages', whose lines are only collected
then. It goes on where it was stopped. What is equivalent is listed in ``equivalent.txt``, with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from . import inside, targets
from .book import Book, Equivalents, Result
from .changes import WEIGHTS, Change, apply, changes_of, compiles
from .reach import Reach
from .scratch import Running, Scratch, warm

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
PLACE = (ROOT / ".cache" / "mutants").resolve()  # it may lie on another disk

_FIRST_SECONDS = 40.0  # for the first tests of a mutant,
_FIRST_BUDGET = 6.0  # which take so long by themselves
_WHOLE_SECONDS = 1200.0
_HUNG = 12.0  # a test that has run for so long hangs,
_DOUBTFUL = 10.0  # unless the machine is busy: what took so long, or ended pytest, is asked of the tree as it is, too


@dataclass(frozen=True)
class Mutant:
    group: str
    module: Path
    source: bytes
    change: Change

    @property
    def key(self) -> str:
        return Book.key(self.module, self.source, self.change)

    def __str__(self) -> str:
        return f"{self.module}:{self.change}"

    def begin(self, tree: Path) -> None:
        place = tree / self.module
        place.write_bytes(apply(self.source, self.change))
        # A time that no compiled file knows.
        os.utime(place, (1e9 + int(self.key[:7], 16), 1e9 + int(self.key[:7], 16)))

    def end(self, tree: Path) -> None:
        shutil.copy2(ROOT / self.module, tree / self.module)
        (tree / self.module).write_bytes(self.source)
        shutil.copystat(ROOT / self.module, tree / self.module)

    @property
    def last_line(self) -> int:
        return self.change.line + self.change.old.count("\n")


def draw(seed: int, count: int, group: str, match: str) -> list[Mutant]:
    """So many, by the groups' shares; within a group by the weights of modules and kinds. More for the same seed has
    these and others, and a change somewhere moves none of them."""
    groups = [each for each in targets.GROUPS if group in ("", each.name)]
    shares = sum(each.share for each in groups)
    drawn = []
    for each in groups:
        lots: list[tuple[float, Mutant]] = []
        for module in targets.modules_of(each, ROOT):
            if match not in str(module):
                continue
            source = (ROOT / module).read_bytes()
            important = next((more for end, more in each.weights.items() if str(module).endswith(end)), 1.0)
            for change in changes_of(source):
                # A lot by weight (Efraimidis and Spirakis): the lowest are drawn.
                lot = -math.log(1 - random.Random(f"{seed} {module.name} {change.name}").random())
                lots.append((lot / (important * WEIGHTS[change.kind]), Mutant(each.name, module, source, change)))
        lots.sort(key=lambda pair: pair[0])
        whole = (mutant for _, mutant in lots if compiles(mutant.source, mutant.change))
        drawn += islice(whole, max(1, round(count * each.share / shares)))
    return drawn


class Trials:
    """One mutant after the other in one copy of the tree."""

    def __init__(
        self, scratch: Scratch, reach: Reach, book: Book, *, near: bool, whole: bool, first: bool, rest: float
    ) -> None:
        self._scratch, self._reach, self._book = scratch, reach, book
        self._near, self._whole, self._first, self._rest_seconds = near, whole, first, rest

    def _ask(self, mutant: Mutant | None, tests: list[str], seconds: float) -> Running:
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        limit = f"timeout={max(map(self._patience, tests)):.0f}"
        return self._scratch.pytest(
            ["-x", "-o", limit, *files], lambda: inside.Choosing(tests), seconds=seconds, broken=mutant
        )

    def _patience(self, test: str) -> float:
        """How long it may run."""
        return max(_HUNG, 8 * self._reach.seconds.get(test, 0))

    def _rest(self, mutant: Mutant) -> Running:
        """The files that nobody collected."""
        near = {str(path) for path in near_tests(ROOT)}
        files = [str(path) for path in all_tests(ROOT) if str(path) not in near]
        own = inside.Nothing
        return self._scratch.pytest(["-x", *files], own, seconds=_WHOLE_SECONDS, broken=mutant)

    def steps(self, mutant: Mutant) -> Iterator[Running]:
        """Each pytest that has to run, until one of them notices: whoever drives this waits for it."""
        tests = self._reach.tests_of(mutant.module, mutant.source, mutant.change.line, mutant.last_line)
        own = {str(path) for path in own_tests(mutant.group)}
        tests = [test for test in tests if (test.partition("::")[0] in own) is self._near]
        total, first = 0.0, 0
        while first < len(tests) and (total < _FIRST_BUDGET or first < 10):
            total += self._reach.seconds[tests[first]]
            first += 1
        result = Result("survived" if tests else "untested", asked=len(tests), near=self._near)
        before = self._book.find(mutant.key, any_tests=True)
        if not self._near and before is not None and before.outcome == "survived":
            result.outcome, result.asked = "survived", before.asked + len(tests)
        begun = time.monotonic()
        left, seconds = tests[:first], _FIRST_SECONDS
        later = tests[first:] + [self._reach.twins[test] for test in tests if test in self._reach.twins]
        while left and result.outcome == "survived":
            running = self._ask(mutant, left, seconds)
            yield running
            ran = running.wait()
            if ran.failed:
                result.outcome, result.by = "killed", ran.failed[0]
            elif ran.status == -1 and ran.since >= self._patience(ran.at):
                result.outcome, result.by = "killed", f"no end of {ran.at}"
            elif ran.status not in (0, -1):
                result.outcome, result.by = "killed", f"pytest ended with {ran.status}: {ran.said[-300:]}"
            else:
                unseen = [test for test in left if test not in ran.passed]
                if ran.status == 0:
                    unseen = []
                if self._first or seconds == self._rest_seconds:
                    result.asked -= len(unseen)  # its time is over
                    break
                left, later, seconds = unseen + later, [], self._rest_seconds
        if self._whole and result.outcome != "killed":
            running = self._rest(mutant)
            yield running
            ran = running.wait()
            result.whole = True
            if ran.failed:
                result.outcome, result.by = "killed", ran.failed[0]
        result.seconds = round(time.monotonic() - begun, 1)
        if result.outcome == "killed" and not result.whole and (result.seconds > _DOUBTFUL or not ran.failed):
            blamed = [test for test in (*ran.failed, ran.at) if "::" in test]
            running = self._ask(None, blamed[:1] or left[:1], _FIRST_SECONDS)
            yield running
            if running.wait().status:  # nothing is noted, and the next run tries it again
                print(f"unclear   {mutant}   [{result.by} fails here without it, too]", flush=True)
                return
        self._book.add(mutant.key, result)
        print(f"{result.outcome:9} {mutant}   [{result.by or result.asked} {result.seconds} s]", flush=True)


def own_tests(group: str) -> list[Path]:
    globs = next(each.near for each in targets.GROUPS if each.name == group)
    found = [path.relative_to(ROOT) for glob in globs for path in sorted(ROOT.glob(glob))]
    return [path for path in found if str(path) not in targets.LATER]


def near_tests(root: Path) -> list[Path]:
    found = [path.relative_to(root) for glob in targets.TESTS for path in sorted(root.glob(glob))]
    return [path for path in found if str(path) not in targets.LATER]


def all_tests(root: Path) -> list[Path]:
    found = [*(root / "tests").rglob("test_*.py"), *root.glob("plugins/*/tests/**/test_*.py")]
    far = {"interop", "benchmarks", "mutants"}
    return sorted(path for path in (each.relative_to(root) for each in found) if far.isdisjoint(path.parts))


def hash_of_tests(root: Path) -> str:
    told = hashlib.sha256()
    for path in sorted([*root.glob("tests/**/*.py"), *root.glob("plugins/*/tests/**/*.py")]):
        if "mutants" not in path.relative_to(root).parts and path.is_file():
            told.update(path.read_bytes())
    return told.hexdigest()[:16]


def table(drawn: list[Mutant], book: Book, equivalents: Equivalents) -> None:
    head = ("", "mutants", "equivalent", "killed", "survived", "not run", "of 100")
    print(f"\n{head[0]:12}" + "".join(f"{each:>12}" for each in head[1:]))
    sums = [0] * 5
    for group in dict.fromkeys(each.group for each in drawn):
        row = [0] * 5
        for mutant in (each for each in drawn if each.group == group):
            row[0] += 1
            result = book.find(mutant.key, any_tests=True)
            if equivalents.reason(mutant.module, mutant.change):
                row[1] += 1
            elif result is None:
                row[4] += 1
            else:
                row[2 if result.outcome == "killed" else 3] += 1
        print(_row(group, row))
        sums = [a + b for a, b in zip(sums, row, strict=True)]
    print(_row("all", sums))


def _row(name: str, row: list[int]) -> str:
    judged = row[2] + row[3]
    return f"{name:12}" + "".join(f"{each:12}" for each in row) + f"{100 * row[2] / judged if judged else 0:12.1f}"


def survivors(drawn: list[Mutant], book: Book, equivalents: Equivalents) -> list[Mutant]:
    left = []
    for mutant in drawn:
        result = book.find(mutant.key, any_tests=True)
        if result and result.outcome != "killed" and not equivalents.reason(mutant.module, mutant.change):
            left.append(mutant)
    return left


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=350, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="how many run at a time")
    parser.add_argument("--nice", type=int, default=10, help="how far it stands back behind other processes")
    parser.add_argument("--group", default="", choices=["", *(each.name for each in targets.GROUPS)])
    parser.add_argument("--match", default="", help="what a module's path has to contain")
    parser.add_argument(
        "--again", action="store_true", help="what survived is tried again, whether tests changed or not"
    )
    parser.add_argument("--whole", action="store_true", help="what survives is run against the whole suite, too")
    parser.add_argument("--first", action="store_true", help="ask only the quickest tests: a first look")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all tests but the quickest")
    parser.add_argument("--near", action="store_true", help="ask only the group's own tests")
    parser.add_argument("--survivors", action="store_true", help="show what is known, and run nothing")
    chosen = parser.parse_args(arguments)
    os.nice(chosen.nice)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, too
    book = Book(PLACE, hash_of_tests(ROOT))
    equivalents = Equivalents((Path(__file__).parent / "equivalent.txt").read_text())
    drawn = draw(chosen.seed, chosen.count, chosen.group, chosen.match)
    if not chosen.survivors:
        waiting = [each for each in drawn if not equivalents.reason(each.module, each.change)]
        waiting = [each for each in waiting if _is_open(book.find(each.key), chosen)]
        if waiting:
            _run(_mixed(waiting), book, chosen)
    left = survivors(drawn, book, equivalents)
    for mutant in left:
        print(f"\n{mutant.module}\n{Equivalents.entry(mutant.module, mutant.change)}(line {mutant.change.line})")
    table(drawn, book, equivalents)
    return 1 if left else 0


def _mixed(mutants: list[Mutant]) -> list[Mutant]:
    """The groups side by side, each in proportion: a run that is stopped has looked at all of them."""
    sizes: dict[str, int] = {}
    places = []
    for mutant in mutants:
        sizes[mutant.group] = sizes.get(mutant.group, 0) + 1
        places.append(sizes[mutant.group])
    order = sorted(range(len(mutants)), key=lambda at: places[at] / sizes[mutants[at].group])
    return [mutants[at] for at in order]


def _is_open(result: Result | None, chosen: argparse.Namespace) -> bool:
    if result is None:
        return True
    unasked = (result.near and not chosen.near) or (chosen.whole and not result.whole)
    return result.outcome != "killed" and (chosen.again or unasked)


def _run(waiting: list[Mutant], book: Book, chosen: argparse.Namespace) -> None:
    scratches = [Scratch(ROOT, PLACE / f"worker-{number}") for number in range(chosen.workers)]
    reach = Reach(ROOT, PLACE / "reach")
    warm()
    print(f"{len(waiting)} mutants to run", file=sys.stderr, flush=True)
    groups = dict.fromkeys(each.group for each in waiting)
    own = list(dict.fromkeys(path for group in groups for path in own_tests(group)))
    reach.collect(scratches[0], own, _packages())

    def trials(*, near: bool) -> list[Trials]:
        whole, first, rest = chosen.whole and not near, chosen.first, chosen.seconds
        return [Trials(each, reach, book, near=near, whole=whole, first=first, rest=rest) for each in scratches]

    _try(waiting, trials(near=True))
    left = [each for each in waiting if _is_open(book.find(each.key), chosen)]
    if left and not (chosen.first or chosen.near):
        print(f"{len(left)} of them are asked of the tests of other packages", file=sys.stderr, flush=True)
        reach.collect(scratches[0], [path for path in near_tests(ROOT) if path not in own], _packages())
        _try(left, trials(near=False))


def _packages() -> list[str]:
    return sorted({each.split("*")[0].rsplit("/", 1)[0] for group in targets.GROUPS for each in group.globs})


def _try(waiting: list[Mutant], trials: list[Trials]) -> None:
    queue = iter(waiting)
    busy: list[tuple[Iterator[Running], Running] | None] = [None] * len(trials)
    ended = False
    while not ended or any(busy):
        for number, trial in enumerate(trials):
            work = busy[number]
            if work is None:
                mutant = next(queue, None)
                if mutant is None:
                    ended = True
                    continue
                steps = trial.steps(mutant)
            elif work[1].poll() is None:
                continue
            else:
                steps = work[0]
            running = next(steps, None)
            busy[number] = None if running is None else (steps, running)
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
