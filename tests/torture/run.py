"""`make torture`: what was promised, tried many times at random, from a seed. ``ARGS="--rounds 200 --seed 7"``.

Each module below has ``ROUNDS``: functions ``(seed, rounds) -> Row``, which try one thing ``rounds`` times (or do as
much work as so many rounds of the others) and say what was lost. The same seed tries the same things. A table is
printed as it grows; the exit status is 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent

# By their file names; one that is given with --only is run alone.
MODULES = ["mutations", "bombs", "kill", "power", "operations", "chaos", "endurance"]


def load(name: str) -> ModuleType:
    """A module of this folder, which is no package: pytest runs its short form by file name, too."""
    qualified = f"torture_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[qualified]


Row = load("row").Row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500, help="how often each thing is tried (500)")
    parser.add_argument("--seed", type=int, help="to repeat a run; drawn unless given")
    parser.add_argument("--only", choices=MODULES, action="append", help="one of the modules; may be given again")
    arguments = parser.parse_args()
    logging.getLogger("asyncrec").setLevel(logging.CRITICAL)  # it tells of every fault, and there are thousands
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    print(f"{'what was tried':72} {'times':>9} {'lost':>5} {'seconds':>8}   seed", flush=True)
    lost = 0
    for name in arguments.only or MODULES:
        if not (HERE / f"{name}.py").exists():
            continue
        rounds: list[Callable[[int, int], Row]] = load(name).ROUNDS
        for run in rounds:
            begun = time.monotonic()
            row = run(seed, arguments.rounds)
            lost += row.lost
            print(
                f"{row.what:72} {row.tried:>9,} {row.lost:>5,} {time.monotonic() - begun:>8.1f}   {row.seed}",
                flush=True,
            )
    print("nothing was lost" if not lost else f"{lost} LOST; repeat with ARGS='--seed {seed}'")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
