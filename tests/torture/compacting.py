"""Four processes join small shards while others append, read epochs and look up keys; joiners are killed now and then.

By itself, for as long as wanted: ``python tests/torture/compacting.py --seconds 300``.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio
from row import Row

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectNotFoundError

JOINERS = 4
GRACE = 60.0
# A kill is followed by another one in about so many seconds.
KILLED_EVERY = 3.0


async def _append(path: str, number: int, until: float, told: Any) -> None:
    """Append, again and again with a new writer; tells how many records of this process are committed."""
    written = 0
    while time.monotonic() < until:
        async with asyncrec.open_sharded_writer(path, max_shard_records=7, on_duplicate="write") as writer:
            for _ in range(300):
                await writer.write(b"%d-%d" % (number, written), key=f"{number}-{written}")
                written += 1
                await anyio.sleep(0.001)
        told[number] = written


async def _read(path: str, number: int, until: float, told: Any) -> None:
    """Read epochs: each record once, and all that were committed before; and look keys up."""
    rng = random.Random(number)
    while time.monotonic() < until:
        committed = list(told)
        try:
            async with asyncrec.open_dataset(path) as dataset:
                async with dataset.shuffled(seed=rng.randrange(1000)) as stream:
                    found = Counter([record async for record in stream])
                assert max(found.values(), default=1) == 1, "a record came twice"
                for writer, count in enumerate(committed):
                    lost = [each for each in range(count) if b"%d-%d" % (writer, each) not in found]
                    assert not lost, f"lost of {writer}: {lost[:5]}"
                    if count:
                        key = f"{writer}-{rng.randrange(count)}"
                        assert await dataset.get_by_key(key) == key.encode()
        except ObjectNotFoundError:
            if any(committed):
                raise
            await anyio.sleep(0.1)


async def _join(path: str, number: int, until: float, told: Any) -> None:
    while time.monotonic() < until:
        with contextlib.suppress(ConflictError, ObjectNotFoundError):  # nothing is there yet
            await tools.compact(path, max_shard_bytes=20_000, grace=GRACE)
        await anyio.sleep(0.5)


def _process(work: Callable[..., Any], path: str, number: int, until: float, told: Any, failed: Any) -> None:
    try:
        anyio.run(work, path, number, until, told)
    except BaseException as error:
        print(f"{work.__name__} {number}: {type(error).__name__}: {error}", flush=True)
        with failed.get_lock():
            failed.value += 1


def together(seed: int, seconds: float, *, writers: int = 10, readers: int = 10) -> Row:
    """Let them work for so long; returns how many of them failed, and what was lost in the end."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    told, failed = context.Array("q", writers), context.Value("q", 0)
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "pages"))

        def begin(work: Callable[..., Any], number: int) -> BaseProcess:
            process = context.Process(target=_process, args=(work, path, number, until, told, failed))
            process.start()
            return process

        others = [begin(_append, number) for number in range(writers)] + [begin(_read, n) for n in range(readers)]
        joiners = [begin(_join, number) for number in range(JOINERS)]
        while time.monotonic() < until:
            time.sleep(rng.random() * 2 * KILLED_EVERY)
            number = rng.randrange(JOINERS)
            joiners[number].kill()
            joiners[number].join()
            joiners[number] = begin(_join, number)
        for process in (*others, *joiners):
            process.join()
        lost = failed.value + anyio.run(_lost, path, list(told))
    return Row(f"{JOINERS} who join, {writers} writers, {readers} readers as processes; records", sum(told), lost, seed)


async def _lost(path: str, told: list[int]) -> int:
    """How many records are not there exactly once when everything has ended, and what is damaged."""
    report = await tools.compact(path, max_shard_bytes=20_000, grace=GRACE)
    async with asyncrec.open_dataset(path) as dataset:
        found = Counter([record async for record in dataset])
    wanted = Counter(b"%d-%d" % (writer, each) for writer, count in enumerate(told) for each in range(count))
    verified = await tools.verify(path)
    print(f"{report.records:,} records in {report.shards:,} shards", flush=True)
    return sum(((found - wanted) + (wanted - found)).values()) + len(verified.damaged) + len(verified.conflicts)


def _rounds(seed: int, rounds: int) -> Row:
    return together(seed, rounds / 8, writers=4, readers=3)


ROUNDS = [_rounds]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(together(given.seed, given.seconds))
