"""The writers of the commit race (`commits`) in a separate process: asyncrec's are tasks, a peer's are threads.

    python tests/benchmarks/commit_writers.py create | write | count | read

reads a `Race` as JSON from standard input, and prints JSON lines. ``write`` prints "ready" once all writers are open,
starts when it receives a line, reports each commit, prints "done", and closes the writers when it receives another
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from commit_peers import PEERS, SECRET, Commit, Place

OURS = "asyncrec"
RECORDS = 10
FOLDER, NAME = "crawl", "pages"
PATH = f"{FOLDER}/{NAME}"


@dataclass(frozen=True)
class Race:
    """The work of the writers in one process."""

    contender: str
    place: Place
    first: int
    writers: int
    commits: int
    every: float  # in seconds; 0: without a pause


def batch(writer: int, number: int) -> list[bytes]:
    return [f"{writer:04}-{number:04}-{index}".encode().ljust(100, b".") for index in range(RECORDS)]


def mark(writer: int) -> str:
    return f"race{writer:04}"


def say(*values: object) -> None:
    sys.stdout.write(f"{json.dumps(values)}\n")
    sys.stdout.flush()


def told(writer: int, number: int, began: float, error: Exception | None) -> None:
    say("told", writer, number, time.perf_counter() - began, f"{type(error).__name__}: {error}" if error else "")


def storage(place: Place) -> Any:
    import asyncrec

    return asyncrec.open_storage(
        "s3://bench", endpoint_url=place.endpoint, region="us-east-1", aws_access_key_id="reader",
        aws_secret_access_key=SECRET, max_connections=1000,
    )  # fmt: skip


async def ours_writes(race: Race) -> None:
    import asyncrec

    opening, opened, going = asyncio.Semaphore(32), asyncio.Semaphore(0), asyncio.Event()
    done, closing = asyncio.Semaphore(0), asyncio.Event()

    async def write(writer: int) -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with opening:
                sharded = await stack.enter_async_context(
                    asyncrec.open_sharded_writer(PATH, storage=store, writer_id=mark(writer), flush_seconds=None)
                )
            opened.release()
            await going.wait()
            begun = time.perf_counter() + race.every * writer / race.writers
            for number in range(race.commits):
                if race.every:
                    await asyncio.sleep(begun + number * race.every - time.perf_counter())
                began, error = time.perf_counter(), None
                try:
                    await sharded.write_many(batch(writer, number))
                    await sharded.commit()
                except Exception as raised:
                    error = raised
                told(writer, number, began, error)
            done.release()
            await closing.wait()

    async with storage(race.place) as store, asyncio.TaskGroup() as tasks:
        for writer in range(race.first, race.first + race.writers):
            tasks.create_task(write(writer))
        for _ in range(race.writers):
            await opened.acquire()
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        cpu = time.process_time()
        going.set()
        for _ in range(race.writers):
            await done.acquire()
        say("done", time.process_time() - cpu)
        await asyncio.to_thread(sys.stdin.readline)
        closing.set()


async def ours_counts(place: Place) -> int:
    import asyncrec

    async with storage(place) as store:
        manifest = await asyncrec.read_manifest(PATH, storage=store)
        return manifest.records


async def ours_reads(place: Place) -> list[bytes]:
    import asyncrec

    found: list[bytes] = []
    room = asyncio.Semaphore(64)

    async def read(path: str) -> None:
        async with room:
            found.extend(await asyncrec.read_records(path, storage=store))

    async with storage(place) as store:
        manifest = await asyncrec.read_manifest(PATH, storage=store)
        async with asyncio.TaskGroup() as tasks:
            for shard in manifest.shards:
                tasks.create_task(read(f"{FOLDER}/{shard.path}"))
    return found


def peer_writes(race: Race) -> None:
    peer = PEERS[race.contender]
    writers = range(race.first, race.first + race.writers)
    connected: dict[int, Commit] = {}
    room, going = threading.Semaphore(16), threading.Event()

    def write(writer: int) -> None:
        with room:
            connected[writer] = commit = peer.connect(race.place, mark(writer))
        going.wait()
        for number in range(race.commits):
            began, error = time.perf_counter(), None
            try:
                commit(batch(writer, number))
            except Exception as raised:
                error = raised
            told(writer, number, began, error)

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    while len(connected) < race.writers:
        if not any(thread.is_alive() for thread in threads):
            raise RuntimeError("no writer could open the table")
        time.sleep(0.05)
    say("ready")
    sys.stdin.readline()
    cpu = time.process_time()
    going.set()
    for thread in threads:
        thread.join()
    say("done", time.process_time() - cpu)


def work(what: str) -> None:
    given = json.load(sys.stdin) if what != "write" else json.loads(sys.stdin.readline())
    race = Race(**given | {"place": Place(**given["place"])})
    peer = PEERS.get(race.contender)
    match what:
        case "write" if peer:
            peer_writes(race)
        case "write":
            asyncio.run(ours_writes(race))
        case "create" if peer:
            peer.create(race.place, "reader")
        case "count":
            for name in peer.modules if peer else (OURS, "asyncrec_s3.client"):
                importlib.import_module(name)
            began = time.perf_counter()
            count = peer.count(race.place, "reader") if peer else asyncio.run(ours_counts(race.place))
            say(count, time.perf_counter() - began)
        case "read":
            found = peer.read(race.place, "reader") if peer else asyncio.run(ours_reads(race.place))
            say(Counter(record.rstrip(b".").decode() for record in found))


if __name__ == "__main__":
    work(sys.argv[1])
    # Skip the exit handlers of the libraries' threads, one of which may call terminate().
    sys.stdout.flush()
    os._exit(0)
