"""Endurance tests: SIGTERM from a supervisor, a fast producer with a store of 1 MB/s, and hours of faults."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
from kill import forked, record_of
from row import Row

import asyncrec
from asyncrec.errors import StorageError
from asyncrec.storage import ByteSink
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import Fault, FlakyStorage, SlowStorage

GRACE = 30


# -- SIGTERM ----------------------------------------------------------------------------------------------------------


async def _until_terminated(target: str, seed: int, pipe: int) -> None:
    """Write to eight open shards until SIGTERM cancels the body; at the end, report the number of accepted records."""
    taken = 0
    with anyio.CancelScope() as scope:

        async def wait_for_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                os.write(pipe, b"ready\n")
                async for _ in signals:
                    scope.cancel()
                    return

        async with asyncrec.open_sharded_writer(target, open_shards=8) as writer, anyio.create_task_group() as group:
            group.start_soon(wait_for_signal)
            while True:
                await writer.write(record_of(seed, taken, 2000), key=b"%d" % taken)
                taken += 1
                if taken % 500 == 0:
                    await anyio.lowlevel.checkpoint()
    os.write(pipe, b"%d\n" % taken)


def _terminated_child(target: str, seed: int, loop: str, pipe: int) -> None:
    anyio.run(_until_terminated, target, seed, pipe, backend=loop)


def _listed(target: str, pipe: int) -> None:
    async def count() -> tuple[int, int]:
        manifest = await asyncrec.read_manifest(target)
        found = [len(await asyncrec.read_records(path)) for path in await asyncrec.list_shards(manifest)]
        assert sum(found) == manifest.records
        return manifest.records, len(manifest.shards)

    os.write(pipe, b"%d %d" % anyio.run(count))


def _read_all(pipe: int) -> bytes:
    content = b""
    while block := os.read(pipe, 1 << 16):
        content += block
    os.close(pipe)
    return content


def terminated(seed: int, rounds: int) -> Row:
    times, lost = max(rounds // 50, 2), 0
    rng = random.Random(seed)
    for number in range(times):
        folder = tempfile.mkdtemp(prefix="asyncrec-torture-")
        target = f"{folder}/pages"
        child, pipe = forked(_terminated_child, target, seed, ("asyncio", "trio")[number % 2])
        os.read(pipe, 6)
        time.sleep(rng.random())
        begun = time.monotonic()
        os.kill(child, signal.SIGTERM)
        said = _read_all(pipe)
        seconds = time.monotonic() - begun
        _, status = os.waitpid(child, 0)
        checker, pipe = forked(_listed, target)
        found = _read_all(pipe).split()
        os.waitpid(checker, 0)
        if status or seconds > GRACE or [*said.split(), b"8"] != found:
            lost += 1
            print(f"SIGTERM {number}: status {status}, {seconds:.1f} s, took {said!r}, committed {found}", flush=True)
        shutil.rmtree(folder)
    return Row("SIGTERM with eight open shards: all committed within 30 s", times, lost, seed)


# -- a slow store -----------------------------------------------------------------------------------------------------


class _Forgetting(MemoryStorage):
    """A memory storage that deletes each shard once it is published, so that only the writer uses memory."""

    @contextlib.asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        if key.endswith(".tfrecord"):
            await self.delete(key)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _slow(seconds: float, limit: int) -> list[int]:
    """Sample the memory in use while a producer that never pauses writes to a store of 1 MB/s."""
    storage = SlowStorage(_Forgetting(), bytes_per_second=1e6)
    record = bytes(10_000)
    samples = []
    end = anyio.current_time() + seconds
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, memory_limit=limit, max_shard_bytes=4 << 20, open_shards=2
    ) as writer:
        while anyio.current_time() < end:
            for _ in range(100):
                await writer.write(record)
            stats = writer.stats()
            if stats.buffered_bytes + stats.reserved_bytes > limit:
                samples.append(1 << 60)
            samples.append(_resident())
    return samples


def slow_store(seed: int, rounds: int) -> Row:
    minutes = max(5, rounds // 100)  # malloc's memory use settles in the first two minutes
    lost = 0
    for loop in ("asyncio", "trio"):
        name, options = virtual_backend(loop)
        samples = anyio.run(_slow, minutes * 60.0, 16 << 20, backend=name, backend_options=options)
        half = len(samples) // 2
        grown = max(samples[half:]) - max(samples[:half])
        if grown > 4 << 20:
            lost += 1
            print(f"a slow store, {loop}: memory grew by {grown / 1e6:.1f} MB in the second half", flush=True)
    return Row(f"{minutes} minutes of 1 MB/s under a fast producer: memory flat", 2, lost, seed)


# -- chaos ------------------------------------------------------------------------------------------------------------


async def _chaos(seed: int, rounds: int, folder: Path) -> list[str]:
    """Write and recover in a store that fails 5% of its operations. Check also for leaked descriptors and threads."""
    rng = random.Random(seed)
    faults = (Fault(), Fault(when="after"))
    first: tuple[int, int] | None = None
    store = MemoryStorage(chunk_size=1000)
    acknowledged: set[bytes] = set()
    for number in range(rounds):
        flaky = FlakyStorage(store, seed=rng.randrange(1 << 30), rate=0.05, faults=faults)
        with contextlib.suppress(StorageError):
            async with asyncrec.open_sharded_writer(
                "pages", storage=flaky, spool=folder / "spool", max_shard_records=20, open_shards=2
            ) as writer:
                for n in range(100):
                    record = b"%d %d" % (number, n)
                    ticket = await writer.write(record)
                    if n % 10 == 0:
                        await writer.wait(ticket, "spooled")
                        acknowledged.add(record)
        if number % 20 == 10:
            gc.collect()
            now = (len(os.listdir("/proc/self/fd")), threading.active_count())
            first = first or now
            if now[0] > first[0] + 2 or now[1] > first[1] + 4:
                return [f"descriptors and threads grew from {first} to {now} in {number} rounds"]
    await asyncrec.recover(folder / "spool", to="pages", storage=store)
    found = set()
    for path in await asyncrec.list_shards("pages", storage=store):
        found.update(await asyncrec.read_records(path, storage=store))
    if lost := acknowledged - found:
        return [f"{len(lost)} of {len(acknowledged)} acknowledged records are lost"]
    return []


def chaos(seed: int, rounds: int) -> Row:
    lost = 0
    for loop in ("asyncio", "trio"):
        folder = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
        name, options = virtual_backend(loop)
        if problems := anyio.run(_chaos, seed, max(rounds // 2, 12), folder, backend=name, backend_options=options):
            lost += 1
            print(f"chaos, {loop}: {problems}", flush=True)
        shutil.rmtree(folder)
    return Row("chaos over one spool: descriptors, threads flat, nothing lost", rounds, lost, seed)


# The function that forks comes first, because threads may be left after an event loop has run in this process.
ROUNDS = [terminated, slow_store, chaos]
