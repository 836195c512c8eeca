"""Four processes join small shards while others append, read epochs and look up keys. Some joiners are killed.

In addition, single calls of `compact` and `delete` are killed at random times, and the next call must finish the work.

To run only the processes, for as long as you like: ``python tests/torture/compacting.py --seconds 300``.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import random
import re
import shutil
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
# The mean time between kills, in seconds.
KILLED_EVERY = 3.0


async def _append(path: str, number: int, until: float, told: Any) -> None:
    """Append with one writer after the other, and report the number of records that this process has committed."""
    written = 0
    while time.monotonic() < until:
        async with asyncrec.open_sharded_writer(path, max_shard_records=7, on_duplicate="write") as writer:
            for _ in range(300):
                await writer.write(b"%d-%d" % (number, written), key=f"{number}-{written}")
                written += 1
                await anyio.sleep(0.001)
        told[number] = written


async def _read(path: str, number: int, until: float, told: Any) -> None:
    """Read epochs and look up keys. No record may be returned twice, and no previously committed record be missing."""
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
        with contextlib.suppress(
            ConflictError, ObjectNotFoundError
        ):  # another process was faster, or nothing exists yet
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
    """Run the processes for ``seconds``, and count the failed processes and the records lost in the end."""
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
        broken = sum(process.exitcode != 0 for process in others)
        lost = broken + failed.value + anyio.run(_lost, path, list(told))
    return Row(f"{JOINERS} who join, {writers} writers, {readers} readers as processes; records", sum(told), lost, seed)


async def _lost(path: str, told: list[int]) -> int:
    """Return the number of records that are not stored exactly once in the end, plus the number of damaged files."""
    report = await tools.compact(path, max_shard_bytes=20_000, grace=GRACE)
    async with asyncrec.open_dataset(path) as dataset:
        found = Counter([record async for record in dataset])
    wanted = Counter(b"%d-%d" % (writer, each) for writer, count in enumerate(told) for each in range(count))
    verified = await tools.verify(path)
    print(f"{report.records:,} records in {report.shards:,} shards", flush=True)
    return sum(((found - wanted) + (wanted - found)).values()) + len(verified.damaged) + len(verified.conflicts)


def _rounds(seed: int, rounds: int) -> Row:
    return together(seed, max(10.0, rounds / 8), writers=4, readers=3)  # processes take seconds to start


_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.partial")

# The number of records. Every fifth one shares its key with others.
RECORDS = 400


async def _make(path: str) -> None:
    for part in range(4):
        async with asyncrec.open_sharded_writer(path, max_shard_records=5, on_duplicate="write") as writer:
            for number in range(part, RECORDS, 4):
                key = f"again {number % 7}" if number % 5 == 0 else f"once {number}"
                await writer.write(asyncrec.encode_example({"n": number, "age": number}), key=key)


def _expected(what: str) -> set[int]:
    """Return the numbers of the records that remain after the call."""
    again = range(0, RECORDS, 5)
    newest = {max(number for number in again if number % 7 == key) for key in range(7)}
    return {number for number in range(RECORDS) if number % 5} | (newest if what == "compact" else set())


async def _work(what: str, path: str) -> None:
    if what == "compact":
        await tools.compact(path, max_shard_bytes=3000, drop_duplicates=True, newest="age", grace=GRACE)
    else:
        await tools.delete(path, keys=[f"again {key}" for key in range(7)])


def _alone(what: str, path: str, begun: Any) -> None:
    logging.disable(logging.CRITICAL)
    begun.set()
    anyio.run(_work, what, path)


async def _numbers(path: str) -> tuple[Counter[int], set[str]]:
    """Return how often each record number occurs in a data set, and the names of the data set's objects."""
    async with asyncrec.open_dataset(path) as dataset:
        found = Counter([int(asyncrec.decode_example(record)["n"][0]) async for record in dataset])
    return found, {each for shard in (await asyncrec.read_manifest(path)).shards for each in shard.objects}


async def _judge(what: str, path: str) -> list[str]:
    """Return the faults found after a kill, and after the next call."""
    wanted = Counter(_expected(what))
    at_first, seen = await _numbers(path)
    wrong = [] if wanted <= at_first <= Counter(range(RECORDS)) else ["lost or doubled behind the kill"]
    await _work(what, path)
    at_last, there = await _numbers(path)
    if at_last != wanted:
        wrong.append("lost, doubled or still there at the end")
    verified = await tools.verify(path)
    if verified.damaged or verified.conflicts or verified.orphans:
        wrong.append(f"verify: {verified.damaged} {verified.conflicts} {verified.orphans}")
    files = _files(path)
    if any(map(_UNNAMED.fullmatch, files)):  # the header of a job that was killed before it was linked
        await asyncrec.recover(path)
        files = _files(path)
    # `compact` keeps replaced shards for readers: the original ones and those that the killed call made.
    may_stay = there | (seen | await _old_objects(path) if what == "compact" else set())
    if there - files or files - may_stay:
        wrong.append(f"missing {sorted(there - files)[:3]}, left behind {sorted(files - may_stay)[:3]}")
    return wrong


def _files(path: str) -> set[str]:
    """Return the files next to the manifest."""
    folder = Path(path).parent
    files = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
    return {each for each in files if not each.startswith("_manifest/")}


async def _old_objects(path: str) -> set[str]:
    """Return the objects of the original data set, which each round copies."""
    original = Path(path).parents[1] / "original" / "pages"
    return {each for shard in (await asyncrec.read_manifest(original)).shards for each in shard.objects}


def killed(what: str, seed: int, rounds: int) -> Row:
    """Kill a call at random times until ``rounds`` kills have interrupted it, and count the kills that did harm."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["asyncrec", "asyncrec.tools", "anyio"])
    lost, seconds, kills = 0, 0.0, -2
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(_make, str(Path(folder, "original", "pages")))
        while kills < rounds:
            path = str(Path(folder, "round", "pages"))
            shutil.copytree(Path(folder, "original"), Path(folder, "round"))
            begun = context.Event()
            process = context.Process(target=_alone, args=(what, path, begun))
            process.start()
            if not begun.wait(60):
                raise TimeoutError(f"{what} has not begun in a process of its own")
            began = time.monotonic()
            if kills >= 0:  # the first two calls only measure the duration
                process.join(rng.random() * seconds)
                process.kill()
            process.join()
            seconds = time.monotonic() - began if kills < 0 else seconds
            if wrong := anyio.run(_judge, what, path):
                print(f"{what}, {kills} kills before: {'; '.join(wrong)}", flush=True)
                lost += 1
            kills += kills < 0 or process.exitcode != 0
            shutil.rmtree(Path(folder, "round"))
    return Row(f"{what} killed at a random moment, and called again", rounds, lost, seed)


def _killed_compact(seed: int, rounds: int) -> Row:
    return killed("compact", seed, rounds)


def _killed_delete(seed: int, rounds: int) -> Row:
    return killed("delete", seed, rounds)


ROUNDS = [_killed_compact, _killed_delete, _rounds]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(together(given.seed, given.seconds))
