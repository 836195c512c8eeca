"""``make simulate``: run worlds from a seed for some time, and print the broken promises with the seeds that reproduce
them.

``--one SEED`` runs one world and prints it; ``--shrink`` makes it smaller first, and ``--log`` shows each step.
``--fixes`` removes one rule of asyncrec at a time (`simulation.broken`), and prints how many worlds were needed to
detect that. ``--everything`` includes all known holes (`simulation.plan.KNOWN_HOLES`), ``--hole`` only one.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from . import broken, operations, seams, sources
from .plan import KNOWN_HOLES, draw
from .playing import Outcome, run_plan
from .shrink import promise_of, shrink

__all__ = ["Totals", "main", "run_worlds"]

_SEEDS_SHOWN = 5
_MOST_UNTIL_FOUND = 5000


@dataclass
class Totals:
    """The combined results of many worlds. ``broken`` maps each broken promise to its ``(seed, complaint)`` pairs.

    ``first`` and ``last`` are seeds. ``seconds`` is the elapsed time, and ``cpu`` the processor time, which shows the
    speed even on a busy machine.
    """

    first: int = -1
    last: int = -1
    worlds: int = 0
    operations: int = 0
    kills: int = 0
    faults: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    broken: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, outcome: Outcome) -> None:
        self.first = seed if self.first < 0 else self.first
        self.last = max(seed, self.last)
        self.worlds += 1
        self.operations += outcome.operations
        self.kills += outcome.kills
        self.faults += outcome.faults
        self.steps += outcome.steps
        self.tried += outcome.tried
        for promise, said in {each.partition(":")[0]: each for each in reversed(outcome.complaints)}.items():
            self.broken.setdefault(promise, []).append((seed, said))

    def merge(self, other: Totals) -> None:
        self.first = min(self.first, other.first) if self.first >= 0 else other.first
        self.last = max(self.last, other.last)
        for name in ("worlds", "operations", "kills", "faults", "steps"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds = max(self.seconds, other.seconds)
        self.cpu += other.cpu
        self.tried += other.tried
        for promise, found in other.broken.items():
            self.broken.setdefault(promise, []).extend(found)

    def failures(self) -> int:
        return len({seed for found in self.broken.values() for seed, _ in found})


def run_worlds(
    seed: int,
    *,
    step: int = 1,
    seconds: float,
    least: int = 0,
    most: int = 1 << 60,
    tell: bool = False,
    first: bool = False,
    **drawing: Any,
) -> Totals:
    """Run worlds for ``seed``, ``seed + step``, ... until the time is up, but at least ``least`` and at most ``most``.

    With ``first``, stop after the first world that breaks a promise.
    """
    totals = Totals()
    begun, cpu = time.monotonic(), time.process_time()
    with seams.patched():
        sources.prepare()
        while totals.worlds < most and (totals.worlds < least or time.monotonic() - begun < seconds):
            outcome = run_plan(draw(seed, **drawing))
            totals.add(seed, outcome)
            if tell and outcome.complaints:
                print(f"seed {seed}: {outcome.complaints[0][:300]}", flush=True)
            if first and outcome.complaints:
                break
            seed += step
    totals.seconds, totals.cpu = time.monotonic() - begun, time.process_time() - cpu
    return totals


def _work(arguments: dict[str, Any]) -> Totals:
    return run_worlds(**arguments)


def _table(totals: Totals, workers: int) -> None:
    rate = totals.worlds / max(totals.seconds, 1e-9) / workers
    print(
        f"{'worlds':>10} {'operations':>12} {'kills':>9} {'faults':>9} {'failed':>7} {'a second and core':>18} "
        f"{'a CPU second':>13}   seeds"
    )
    print(
        f"{totals.worlds:>10,} {totals.operations:>12,} {totals.kills:>9,} {totals.faults:>9,} {totals.failures():>7,} "
        f"{rate:>18.1f} {totals.worlds / max(totals.cpu, 1e-9):>13.1f}   {totals.first} to {totals.last}"
    )
    print("tried: " + ", ".join(f"{what} {count:,}" for what, count in totals.tried.most_common()))
    for promise, found in sorted(totals.broken.items(), key=lambda item: -len(item[1])):
        seeds = ", ".join(str(seed) for seed, _ in sorted(found)[:_SEEDS_SHOWN])
        print(f"\n{len(found):>6} x broken: {promise}\n         seeds {seeds}\n         {sorted(found)[0][1][:400]}")


def _broken_on_purpose(first: int, most: int, names: list[str], arguments: list[str]) -> int:
    print(f"{'removed rule':<62} {'worlds':>6}  {'seed':>9}  what broke", flush=True)
    missed = 0
    for rule in broken.RULES:
        if not names or any(each in rule for each in names):
            found = broken.find(rule, first, most, *arguments)
            missed += found is None
            seed, promise = found or (0, "")
            worlds, at = (seed - first + 1, seed) if found else ("none", "")
            print(f"{rule:<62} {worlds:>6}  {at:>9}  {promise or f'in {most} worlds'}", flush=True)
    return 1 if missed else 0


def _show(seed: int, drawing: dict[str, Any], *, smaller: bool, log: bool) -> int:
    with seams.patched():
        sources.prepare()
        outcome = run_plan(draw(seed, **drawing))
        if smaller and outcome.complaints:
            outcome = run_plan(shrink(outcome.plan, promise_of(outcome)).plan)
    if log:
        print("\n".join(outcome.events.lines()))
    print(json.dumps(outcome.plan["settings"]), json.dumps(outcome.plan["faults"]), sep="\n")
    for number, process in enumerate(outcome.plan["processes"]):
        for spec in process["operations"]:
            print(f"p{number} on {process['machine']} at {process['start']:.3f}: {json.dumps(spec)}")
    print("\n".join(outcome.told))
    print(f"{outcome.steps} steps, {outcome.digest}")
    for complaint in outcome.complaints:
        print(f"broken: {complaint}")
    return 1 if outcome.complaints else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--worlds", type=int, default=1 << 60, help="at most so many for each worker")
    parser.add_argument("--seed", type=int, help="of the first world; drawn unless given")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--theme", choices=sorted(operations.THEMES), action="append", help="only of this kind")
    parser.add_argument("--everything", action="store_true", help="draw the known holes, too")
    parser.add_argument("--hole", choices=sorted(KNOWN_HOLES), action="append", help="draw this known hole, too")
    parser.add_argument("--one", type=int, metavar="SEED", help="run this world alone, and show it")
    parser.add_argument("--shrink", action="store_true", help="with --one: make it smaller while it fails")
    parser.add_argument("--fixes", nargs="*", metavar="NAME", help="take out rules: all, or those named")
    parser.add_argument("--first", action="store_true", help="stop at the first world that breaks, whatever the time")
    parser.add_argument("--log", action="store_true", help="with --one: every step")
    arguments = parser.parse_args(argv)
    drawing: dict[str, Any] = {
        "holes": frozenset() if arguments.everything else KNOWN_HOLES.difference(arguments.hole or ())
    }
    if arguments.theme:
        drawing["themes"] = tuple(arguments.theme)
    if arguments.one is not None:
        return _show(arguments.one, drawing, smaller=arguments.shrink, log=arguments.log)
    first = arguments.seed if arguments.seed is not None else secrets.randbelow(1 << 30)
    if arguments.fixes is not None:
        drawn = [f"--theme={theme}" for theme in arguments.theme or ()]
        drawn += [f"--hole={hole}" for hole in arguments.hole or ()] + ["--everything"] * arguments.everything
        return _broken_on_purpose(first, min(arguments.worlds, _MOST_UNTIL_FOUND), arguments.fixes, drawn)
    work = [
        {
            "seed": first + n,
            "step": arguments.workers,
            "seconds": math.inf if arguments.first else arguments.seconds,
            "first": arguments.first,
            "most": arguments.worlds,
            **drawing,
        }
        for n in range(arguments.workers)
    ]
    print(f"worlds from seed {first} for {arguments.seconds:.0f} s, in {arguments.workers} processes", flush=True)
    totals = Totals()
    if arguments.workers == 1:
        totals = run_worlds(**work[0], tell=True)
    else:
        with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
            for part in pool.imap_unordered(_work, [{**each, "tell": True} for each in work]):
                totals.merge(part)
    _table(totals, arguments.workers)
    return 1 if totals.broken else 0


if __name__ == "__main__":
    sys.exit(main())
