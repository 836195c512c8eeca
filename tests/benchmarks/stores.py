"""``make bench ARGS="--only stores"``: memory, connections and the event loop with data sets on S3, GCS and Azure.

The stores do no work and run in separate processes (`null_stores`); each figure is from a fresh process. Memory is the
growth of the resident set since the client was opened and used once. Its limit is ``memory_limit``, the parts in
flight, and 8 MiB; it has to be the same for 256 MiB and for 2 GiB, and within the limit for a store that accepts 1
MB/s. `Heartbeat` measures the event loop while the client is opened, and separately while records are written and then
read at full speed; on asyncio, so does the processor time of its thread in one step, which a busy machine does not
increase.

    make bench ARGS="--only stores"
    make bench ARGS="--only stores --quick"     64 and 256 MiB, 8 MiB at 1 MB/s: a quick run

The exit status is 0 whether or not limits were kept: a benchmark on a busy machine is not a test.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from harness import MIB, _reset_peak, _status
from heartbeat import Heartbeat, idle_figures
from null_stores import null_store

import asyncrec.blocking

MEMORY_LIMIT = 32 * MIB  # less than the smaller size, so that both reach it
# The data in flight with the default options, and the memory of the SDK and of Python's allocator.
PARTS = {"s3": 32 * MIB, "gcs": 25 * MIB, "azure": 32 * MIB}
BESIDE = 8 * MIB
SHARD = 24 * MIB  # the smaller size has several shards, too: while one is published, more records arrive
SLOW_LIMIT = 16 * MIB  # for the slow store: reached within a minute
SLOW_RATE = 1_000_000
_TOLD = 0.005  # a garbage collection that is long enough to explain a delay
HELD_P99, HELD_MAX, OPENING_MAX = 0.005, 0.020, 0.020
RECORD = 65_520  # with its frame 64 KiB, so that the tile contains whole records
SOURCES = 1_000
KINDS = ("s3", "gcs", "azure")
LOOPS = ("asyncio", "trio")
Figures = dict[str, float]


def storage(kind: str, endpoint: str, **options: Any) -> AbstractAsyncContextManager[Any]:
    import asyncrec

    if kind == "s3":
        os.environ.update(AWS_ACCESS_KEY_ID="AKIABENCHMARK", AWS_SECRET_ACCESS_KEY="of-a-store-that-checks-nothing")
        return asyncrec.open_storage("s3://bench", endpoint_url=endpoint, region="us-east-1", **options)
    if kind == "gcs":
        return asyncrec.open_storage("gs://bench", endpoint=endpoint, anonymous=True, **options)
    # Not a secret: the store needs none, but the SDK signs only if it has a key.
    return asyncrec.open_storage(
        "az://bench", endpoint=endpoint, account="bench", account_key="bm90aGluZw==", **options
    )


def _records(size: int = 4096) -> list[bytes]:
    source = random.Random(size)
    return [source.randbytes(size) for _ in range(4 * MIB // size)]


async def _write(storage: Any, total: int, records: list[bytes], memory_limit: int) -> None:
    import asyncrec

    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, memory_limit=memory_limit, max_shard_bytes=SHARD
    ) as writer:
        for _ in range(max(1, total // (4 * MIB))):
            await writer.write_many(records)


async def _read(storage: Any, total: int) -> None:
    import asyncrec

    found = 0
    async with asyncrec.open_reader(f"give-{total}", storage=storage) as reader:
        async for records in reader.batches():
            found += len(records)
    assert found == total // (RECORD + 16)


class Steps:
    """Measures the longest step of asyncio's loop in this thread, in seconds of processor time; 0 on trio.

    It also measures the longest garbage collection, which may run in any thread and stops all others.
    """

    def __enter__(self) -> Steps:
        self.longest = self.collecting = 0.0
        gc.callbacks.append(self._collected)
        own = threading.get_ident()
        handles: Any = asyncio.Handle  # no public function shows each step
        self._run = run = handles._run

        def measured(handle: asyncio.Handle) -> None:
            begun = time.thread_time()
            run(handle)
            if threading.get_ident() == own:
                self.longest = max(self.longest, time.thread_time() - begun)

        handles._run = measured
        return self

    def __exit__(self, *exc: object) -> None:
        handles: Any = asyncio.Handle
        handles._run = self._run
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.thread_time()
        else:
            self.collecting = max(self.collecting, time.thread_time() - self._begun)


# Jobs, each the whole life of a process -----------------------------------------------------------------------------


async def memory(kind: str, endpoint: str, total: int, limit: int) -> Figures:
    records = _records()
    async with storage(kind, endpoint) as opened:
        await _write(opened, 12 * MIB, records, limit)  # imports the modules for an upload of several requests
        _reset_peak()
        before = _status("VmRSS")
        begun = time.perf_counter()
        await _write(opened, total, records, limit)
        return {"peak": _status("VmHWM") - before, "seconds": time.perf_counter() - begun}


async def held(kind: str, endpoint: str, total: int, limit: int) -> Figures:
    """Measure the loop while a client is opened, for the first time and again, and while records go up and down."""
    import asyncrec

    for name in ("open_storage", "open_sharded_writer"):
        getattr(asyncrec, name)  # resolved on first use: importing asyncrec is not measured
    figures: Figures = {}
    records = _records(RECORD)
    for name in ("first", "again"):
        async with Heartbeat() as heartbeat:
            begun = time.perf_counter()
            with Steps() as steps:
                async with storage(kind, endpoint):
                    figures[f"{name}_seconds"] = time.perf_counter() - begun
                    await anyio.sleep(0.005)  # so that a beat that is already late is recorded
                    figures[f"{name}_max"] = heartbeat.figures()["held_max"]
                    figures[f"{name}_step"] = steps.longest
    async with storage(kind, endpoint) as store:
        await _write(store, 16 * MIB, records, limit)  # the first requests: makes connections, imports modules
        await _read(store, 16 * MIB)
        for what, work in (
            ("writing", partial(_write, store, total, records, limit)),
            ("reading", partial(_read, store, total)),
        ):
            async with Heartbeat() as heartbeat:
                begun = time.perf_counter()
                with Steps() as steps:
                    await work()
                figures |= {f"{what}_seconds": time.perf_counter() - begun, f"{what}_step": steps.longest}
                figures[f"{what}_collecting"] = steps.collecting
            figures |= {f"{what}_{name}": value for name, value in heartbeat.figures().items()}
    return figures


async def idle(kind: str, endpoint: str, total: int, limit: int) -> Figures:
    """Count this process's connections to the store while a thousand sources are in the middle of an object."""
    options = {"max_connections": 8} if kind == "s3" else {}
    port = f"{int(endpoint.rpartition(':')[2]):04X}"
    async with storage(kind, endpoint, **options) as opened:
        sources = [opened.open_source(f"give-{MIB}") for _ in range(SOURCES)]
        entered = [await source.__aenter__() for source in sources]
        for source in entered:
            assert len(await source.receive(1_000)) == 1_000
        tcp = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        connections = sum(line.split()[2].endswith(f":{port}") and line.split()[3] == "01" for line in tcp)
        for source in sources:
            await source.__aexit__(None, None, None)
    return {"connections": connections}


JOBS: dict[str, Callable[[str, str, int, int], Awaitable[Figures]]] = {"memory": memory, "held": held, "idle": idle}


def measure(job: str, kind: str, loop: str, endpoint: str, total: int = 0, limit: int = MEMORY_LIMIT) -> Figures:
    """Measure in a separate process."""
    command = [sys.executable, __file__, "--job", job, kind, loop, endpoint, str(total), str(limit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    value: Figures = json.loads(done.stdout)
    return value


# The report -----------------------------------------------------------------------------------------------------------


class Report:
    def __init__(self) -> None:
        self.missed: list[str] = []

    def say(self, kept: bool, text: str) -> None:
        print(f"  {text}{'' if kept else '   MISSED'}", flush=True)
        if not kept:
            self.missed.append(text)


def main() -> int:
    if sys.argv[1:2] == ["--job"]:
        job, kind, loop, endpoint, total, limit = sys.argv[2:]
        print(json.dumps(anyio.run(partial(JOBS[job], kind, endpoint, int(total), int(limit)), backend=loop)))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the sizes")
    parser.add_argument("--only", choices=["memory", "slow", "held", "idle"], action="append")
    options = parser.parse_args()
    parts = options.only or ["held", "idle", "memory", "slow"]
    small, large = (64 * MIB, 256 * MIB) if options.quick else (256 * MIB, 2048 * MIB)
    slow = 8 * MIB if options.quick else 72 * MIB
    quiet = idle_figures()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; an idle loop wakes late by", end=" ")
    print(f"{quiet['held_p99'] * 1e3:.1f} ms at p99, {quiet['held_max'] * 1e3:.1f} at worst")
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        tile = Path(folder) / "tile"
        asyncrec.blocking.write_records(str(tile), _records(RECORD))
        for kind in KINDS:
            with null_store(kind, tile) as endpoint:
                for loop in LOOPS:
                    print(f"\n{kind} on {loop}")
                    if "held" in parts:
                        _held(report, measure("held", kind, loop, endpoint, large // 2))
                    if "idle" in parts:
                        count = measure("idle", kind, loop, endpoint)["connections"]
                        report.say(count <= 8, f"{SOURCES:,} idle sources: {count:.0f} connections, free for others")
                    if "memory" in parts:
                        found = [measure("memory", kind, loop, endpoint, total) for total in (small, large)]
                        _memory(report, kind, found)
            if "slow" in parts:
                with null_store(kind, tile, rate=SLOW_RATE) as endpoint:
                    _slow(report, kind, slow, measure("memory", kind, "asyncio", endpoint, slow, SLOW_LIMIT))
    print("\nall limits kept" if not report.missed else f"\nMISSED: {len(report.missed)}")
    return 0


def _slow(report: Report, kind: str, size: int, found: Figures) -> None:
    peak, limit = found["peak"], SLOW_LIMIT + PARTS[kind] + BESIDE
    text = f"{kind}: {size / MIB:.0f} MiB to a store that takes 1 MB/s, in {found['seconds']:.0f} s"
    report.say(peak <= limit, f"{text}: peak {peak / MIB:.1f} MiB (limit {limit / MIB:.0f})")


def _held(report: Report, found: Figures) -> None:
    for name, what in (("first", "opening a client"), ("again", "and once more")):
        seconds, worst = found[f"{name}_seconds"], found[f"{name}_max"]
        text = f"{what} took {seconds * 1e3:.0f} ms and held the loop for {worst * 1e3:.1f} ms at worst"
        report.say(worst <= OPENING_MAX, f"{text} (limit {OPENING_MAX * 1e3:.0f}){_of_cpu(found[f'{name}_step'])}")
    for what in ("writing", "reading"):
        p99, worst, seconds = (found[f"{what}_{name}"] for name in ("held_p99", "held_max", "seconds"))
        text = f"{what} held the loop for {p99 * 1e3:.1f} ms at p99, {worst * 1e3:.1f} at worst (limits "
        text += f"{HELD_P99 * 1e3:.0f}, {HELD_MAX * 1e3:.0f}){_of_cpu(found[f'{what}_step'])}, for {seconds:.1f} s"
        if (collecting := found[f"{what}_collecting"]) >= _TOLD:
            text += f"; Python's garbage collector took {collecting * 1e3:.1f} at once"
        report.say(worst <= HELD_MAX and p99 <= HELD_P99, text)


def _of_cpu(step: float) -> str:
    return f", {step * 1e3:.1f} of processor time" if step else ""


def _memory(report: Report, kind: str, found: list[Figures]) -> None:
    small, large = (figures["peak"] for figures in found)
    limit = MEMORY_LIMIT + PARTS[kind] + BESIDE
    text = f"peak {small / MIB:.1f} MiB for the smaller size, {large / MIB:.1f} for the larger"
    text += f" (limit {limit / MIB:.0f})"
    # More data may cost a tenth more due to the allocator's noise, but not its own size.
    report.say(max(small, large) <= limit and large <= small * 1.1 + MIB, text)


if __name__ == "__main__":
    sys.exit(main())
