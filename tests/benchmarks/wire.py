"""Contenders that send one object to a store that does no work, and receive it, shared by the benchmarks of stores.

The store and each contender are separate processes. Contenders take turns, round by round, so that the ratios are valid
even on a machine that is not quite idle. Both the time by the clock and the processor time of the client's process
(including its threads) are compared: by the clock alone, a contender with threads could hide its cost on a second core.
The client is open and has sent one request before the clock starts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import MIB, Case, Extras, Job, Result, Target, run_case, work_folder
from heartbeat import Heartbeat

PART = 8 * MIB  # the plugins' own, used by all contenders
AT_ONCE = 4  # parts in flight, used by all contenders
RECORD = 64 * 1024 - 16  # with its frame 64 KiB, so that a tile of 16 MiB contains whole records
TILE = 256  # in records
OURS = "asyncrec"
ENDPOINT, SIZE = "ASYNCREC_BENCH_STORE", "ASYNCREC_BENCH_STORE_MIB"


def endpoint() -> str:
    return os.environ[ENDPOINT]


@cache
def source() -> memoryview:
    """Return the data for uploads; it belongs to the caller, so a contender that sends it later has to copy it."""
    return memoryview(os.urandom(PART))


@cache
def whole(size: int) -> bytes:
    """Return an entire object, for contenders that need it in one piece."""
    return b"".join(source()[:part] for part in chunks(size))


class Stopwatch:
    """Measures time by the clock and processor time in seconds, the latter for all threads of this process."""

    def __enter__(self) -> Stopwatch:
        self.cpu = time.process_time()
        self.wall = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.wall = time.perf_counter() - self.wall
        self.cpu = time.process_time() - self.cpu


Work = Callable[[Case, Any], Awaitable[None]]
Contender = Callable[[Case], Job]


def job(opened: Callable[[], AbstractAsyncContextManager[Any]], work: Work) -> Contender:
    """Return a contender: its client is opened and used once; then the work is timed, on a new loop per round."""

    def maker(case: Case) -> Job:
        async def run() -> Extras:
            async with opened() as client:
                await work(replace(case, count=2 * PART // MIB), client)
                async with Heartbeat() as heartbeat:
                    with Stopwatch() as watch:
                        await work(case, client)
            return {"seconds": watch.wall, "cpu": watch.cpu, **heartbeat.figures()}

        return lambda _: asyncio.run(run())

    return maker


# asyncrec, by whatever storage it is given --------------------------------------------------------------------------


async def ours_sends(case: Case, storage: Any) -> None:
    data = source()
    async with storage.open_sink("sent") as sink:
        for size in chunks(case.count * MIB):
            await sink.send([data[:size]])


async def ours_writes(case: Case, storage: Any) -> None:
    import asyncrec

    records = [source()[:RECORD]] * (TILE // 16)
    async with asyncrec.open_writer("written", storage=storage) as writer:
        for _ in range(case.count):
            await writer.write_many(records)


async def ours_receives(case: Case, storage: Any) -> None:
    from asyncrec.storage._chunk_writer import ResumingSource

    async with ResumingSource(storage, f"give-{case.count * MIB}") as given:
        await received(case, given.receive)


async def ours_reads(case: Case, storage: Any) -> None:
    import asyncrec

    found = 0
    async with asyncrec.open_reader(f"give-{case.count * MIB}", storage=storage) as reader:
        async for records in reader.batches():
            found += len(records)
    assert found == case.count * TILE // 16


async def received(case: Case, read: Callable[[int], Awaitable[bytes]]) -> None:
    """Read at most a MiB at a time until the end, and check the total size."""
    size = 0
    while block := await read(MIB):
        size += len(block)
    assert size == case.count * MIB


def chunks(total: int) -> Iterator[int]:
    for start in range(0, total, PART):
        yield min(PART, total - start)


def both_ways(note: str, *, senders: dict[str, Contender], receivers: dict[str, Contender]) -> list[Case]:
    """Return the two cases: one object is uploaded by ``senders``, as described by ``note``, and one is read in order.

    Its size in MiB is in the environment of the processes, each of which makes the cases again.
    """
    count = int(os.environ.get(SIZE, "512"))
    return [
        Case("upload", count=count, size=MIB, rounds=7, note=note, contenders=senders),
        Case("download", count=count, size=MIB, rounds=7, note="one object, in its order", contenders=receivers),
    ]


def table(case: Case, results: list[Result]) -> str:
    base = results[0]
    lines = [
        f"\n{case.name} of {case.count:,} MiB ({case.note})",
        f"  {'':38} {'MB/s':>7} {'x ours':>7} {'spread':>7}   {'CPU ms/MiB':>10} {'x ours':>7}   "
        f"{'peak MiB':>8}   held p99 / max",
    ]
    for result in results:
        if result.failed:
            lines.append(f"  {result.contender:38} FAILED: {result.failed}")
            continue
        spread = (max(result.seconds) - min(result.seconds)) / result.median
        cpu = cpu_of(result)
        row = f"  {result.contender:38} {result.count * result.size / result.median / 1e6:7,.0f}"
        row += f" {result.median / base.median:7.2f}" if not base.failed else f" {'':7}"
        row += f" {spread:7.0%}   {cpu / result.count * 1e3:10.2f}"
        row += f" {cpu / cpu_of(base):7.2f}" if not base.failed else f" {'':7}"
        p99, worst = result.extra("held_p99"), result.extra("held_max")
        row += f"   {max(result.peak_bytes) / MIB:8.1f}"
        lines.append(row + (f"   {p99 * 1e3:.1f} / {worst * 1e3:.1f} ms" if p99 is not None and worst else ""))
    return "\n".join(lines)


def cpu_of(result: Result) -> float:
    return statistics.median(extras["cpu"] for extras in result.extras)


def verdict(target: Target, ours: Result, other: Result) -> tuple[bool, str]:
    wall = statistics.median(b / a for a, b in zip(ours.seconds, other.seconds, strict=True))
    cpu = statistics.median(b["cpu"] / a["cpu"] for a, b in zip(ours.extras, other.extras, strict=True))
    met = wall >= target.times and cpu >= target.times
    return met, (
        f"{target.case}: {target.ours} {wall:.2f} times as fast as {target.other} by the clock, {cpu:.2f} times by"
        f" processor time (wanted {target.times})"
    )


@contextmanager
def environment(**values: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def compare(
    module: str,
    cases: list[Case],
    targets: list[Target],
    *,
    server: Callable[[Path], AbstractContextManager[str]],
    distributions: tuple[str, ...],
) -> int:
    """Run the command line of a benchmark: ``module``, which contains ``cases``, on the store that ``server`` starts.

    Returns 1 if asyncrec itself fails, and otherwise 0, whether or not the targets are met: a benchmark on a busy
    machine is no test.
    """
    parser = argparse.ArgumentParser(prog=module)
    parser.add_argument("--size", type=int, default=512, metavar="MIB", help="of an object (%(default)s)")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--contender", default="", metavar="TEXT", help="and contenders whose name holds TEXT")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(", ".join(f"{name} {version(name)}" for name in distributions))
    results: dict[tuple[str, str], Result] = {}
    folder, _ = work_folder()
    try:
        tile = folder / "tile"
        make_tile(tile)
        with server(tile) as url, environment(**{ENDPOINT: url, SIZE: str(options.size), "NO_PROXY": "127.0.0.1"}):
            for case in cases:
                if options.only not in case.name:
                    continue
                chosen = {name: maker for name, maker in case.contenders.items() if options.contender in name}
                sized = replace(case, count=options.size, contenders=chosen)
                done = run_case(module, sized, folder=folder, rounds=options.rounds, shrink=1)
                results.update({(case.name, result.contender): result for result in done})
                print(table(sized, done), flush=True)
    finally:
        shutil.rmtree(folder)
    said = []
    for target in targets:
        ours, other = (results.get((target.case, name)) for name in (target.ours, target.other))
        if ours and other and not ours.failed and not other.failed:
            said.append(verdict(target, ours, other))
    for met, heading in ((True, "met"), (False, "MISSED")):
        if some := [text for reached, text in said if reached is met]:
            print(f"\n{heading}:", *some, sep="\n  ")
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    return int(any(result.failed and result.contender.startswith(OURS) for result in results.values()))


def make_tile(path: Path) -> None:
    import asyncrec.blocking

    asyncrec.blocking.write_records(str(path), [os.urandom(RECORD) for _ in range(TILE)])
