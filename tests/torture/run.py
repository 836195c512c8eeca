"""`make torture`: test the promises many times, with randomness from a seed, as in ``ARGS="--rounds 200 --seed 7"``.

Each of the modules has ``ROUNDS``: functions ``(seed, rounds) -> Row`` that try one thing ``rounds`` times (or do about
as much work as that many rounds of the others) and count losses. The same seed makes the same random choices. The table
of results is printed row by row. The exit status is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent

# The names of the modules. --only selects some of them.
MODULES = [
    "mutations", "bombs", "kill", "lost_machines", "consumers", "crawl", "frameworks", "power", "operations", "chaos",
    "compacting", "endurance",
]  # fmt: skip


class _Modules:
    """Import ``torture_NAME`` from this folder, which is not a package, even in processes that `multiprocessing`
    starts.

    These processes import this file before they import the module of the function that they run.
    """

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> ModuleSpec | None:
        folder, _, module = name.partition("_")
        file = HERE / f"{module}.py"
        return importlib.util.spec_from_file_location(name, file) if folder == "torture" and file.exists() else None


sys.meta_path.append(_Modules)


def load(name: str) -> ModuleType:
    """Load a module of this folder by name."""
    return importlib.import_module(f"torture_{name}")


Row = load("row").Row


def run_module(name: str, seed: int, rounds: int) -> int:
    """Run a module's functions in this process, and return the number of losses."""
    logging.getLogger("asyncrec").setLevel(logging.CRITICAL)  # thousands of faults would be logged
    lost = 0
    runs: list[Callable[[int, int], Row]] = load(name).ROUNDS
    for run in runs:
        begun = time.monotonic()
        row = run(seed, rounds)
        lost += row.lost
        seconds = time.monotonic() - begun
        print(f"{row.what:72} {row.tried:>9,} {row.lost:>5,} {seconds:>8.1f}   {row.seed}", flush=True)
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500, help="how often each thing is tried (500)")
    parser.add_argument("--seed", type=int, help="to repeat a run; drawn unless given")
    parser.add_argument("--only", choices=MODULES, action="append", help="one of the modules; may be given again")
    parser.add_argument("--here", choices=MODULES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        return 1 if run_module(arguments.here, arguments.seed, arguments.rounds) else 0
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    print(f"{'what was tried':72} {'times':>9} {'lost':>5} {'seconds':>8}   seed", flush=True)
    failed = []
    for name in arguments.only or MODULES:
        # Each module runs in its own process, because some fork, which requires a process without threads.
        command = [sys.executable, __file__, "--here", name, "--seed", str(seed), "--rounds", str(arguments.rounds)]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print("nothing was lost" if not failed else f"LOST in {', '.join(failed)}; repeat with ARGS='--seed {seed}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
