"""``python -m simulation.run``: worlds for as long as asked; see ``--help``."""

from __future__ import annotations

import argparse
import sys

from . import seams, sources
from .plan import draw
from .world import Outcome, run_plan


def one(seed: int, *, keep_log: bool = False, **options) -> Outcome:
    return run_plan(draw(seed, **options), keep_log=keep_log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("-e", action="store_true")
    parser.add_argument("-t")
    parser.add_argument("-n", type=int, default=1)
    arguments = parser.parse_args()
    import collections
    import logging
    import time

    logging.getLogger("asyncrec").setLevel(logging.CRITICAL)
    kinds = collections.Counter()
    first = {}
    with seams.patched():
        sources.prepare()
        begun = time.monotonic()
        for seed in range(arguments.seed, arguments.seed + arguments.n):
            outcome = one(seed, keep_log=arguments.log, **({'holes': frozenset()} if arguments.e else {}), **({'themes': (arguments.t,)} if arguments.t else {}))
            if arguments.n == 1:
                print(outcome.plan)
                if outcome.log:
                    print("\n".join(outcome.log))
                print(outcome.complaints, outcome.digest, outcome.steps, outcome.operations, outcome.kills, outcome.faults)
            for promise in {each.partition(": ")[0] for each in outcome.complaints}:
                kinds[promise] += 1
                first.setdefault(promise, []).append((seed, next(c for c in outcome.complaints if c.startswith(promise))))
        print(f"{arguments.n / (time.monotonic() - begun):.1f} worlds/s")
        for kind, number in kinds.most_common():
            print(f"{number:5} {kind}")
            for seed, text in first[kind][:4]:
                print(f"        {seed}: {text[:230]}")
    sys.exit()
