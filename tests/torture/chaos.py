"""The long version of ``tests/stores``: entire data sets on S3 and GCS, with failing requests and cancelled tasks.

Each seed writes and reads 200 shards on each store and event loop. Each request of a writer fails once in every way.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from row import Row  # this folder is on the path

STORES = Path(__file__).parents[1] / "stores"


def through_chaos(seed: int, rounds: int) -> Row:
    """Run one seed per hundred rounds, because each takes about a minute."""
    environment = {**os.environ, "ASYNCREC_LONG": str(max(1, rounds // 100)), "ASYNCREC_SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=600", str(STORES)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=STORES.parents[1])
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    lost = counts.get("failed", 0) + counts.get("error", 0)
    if done.returncode:
        print(done.stdout[-4_000:], flush=True)
    return Row("S3 and GCS: chaos, outages, each request failed, cancelled", sum(counts.values()), lost, seed)


ROUNDS = [through_chaos]
