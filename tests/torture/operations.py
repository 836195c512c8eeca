"""Let a store fail at its k-th operation, for each k, during write, flush, roll, commit, exit and recover.

A fault occurs before or after the operation takes effect, once or permanently, as an outage or as a denied permission.
Then the store works again, and `recover` is called, also with a fault at a random operation. No acknowledged record may
be lost, no record may be stored twice, and no missing object may be listed. If there is no error, all records must be
stored.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
from crc32c import crc32c
from row import Row  # this folder is on the path

import asyncrec
from asyncrec.errors import ObjectExistsError, StorageError, StoragePermissionError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import Fault, FlakyStorage

FAULTS = (
    Fault(),
    Fault(when="after"),
    Fault(for_good=True),
    Fault(when="after", for_good=True),
    Fault(error=StoragePermissionError),
)
RECORDS = [b"record %06d" % i for i in range(10)]
Job = Callable[[Storage, Path | None, Callable[[int], None]], Awaitable[None]]


async def rolling(storage: Storage, spool: Path | None, tell: Callable[[int], None]) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool, max_shard_records=4) as writer:
        for number, record in enumerate(RECORDS):
            ticket = await writer.write(record, key=record)
            if number % 3 == 2 and spool is not None:
                await writer.wait(ticket, "spooled")
                tell(number)
            elif number == 7:
                with anyio.move_on_after(600):  # with a spool, commit waits while the store is down
                    await writer.commit()
                    tell(number)


async def fixed(storage: Storage, spool: Path | None, tell: Callable[[int], None]) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool, num_shards=2) as writer:
        await writer.write_many(RECORDS)
        if await writer.flush() == "spooled":
            tell(len(RECORDS) - 1)


JOBS: tuple[Job, ...] = (rolling, fixed)


@dataclass(frozen=True)
class Attempt:
    job: Job
    spooled: bool
    k: int
    fault: Fault
    operation: tuple[str, str]


async def attempts(folder: Path) -> list[Attempt]:
    """Return an attempt for every combination of job, operation and fault."""
    found = []
    for job, spooled in itertools.product(JOBS, (False, True)):
        calm = FlakyStorage(MemoryStorage())
        await job(calm, folder / f"calm-{job.__name__}" if spooled else None, lambda number: None)
        found += [
            Attempt(job, spooled, k, fault, operation)
            for k, operation in enumerate(calm.operations)
            for fault in FAULTS
        ]
    return found


async def stored(store: Storage) -> list[bytes]:
    try:
        manifest = await asyncrec.read_manifest("pages", storage=store)
    except FileNotFoundError:
        return []
    found = []
    for shard in manifest.shards:
        records = await asyncrec.read_records(shard.path, storage=store)
        info = await store.head(shard.path)
        if (len(records), info.size, info.crc32c) != (shard.records, shard.bytes, shard.crc32c):
            raise AssertionError(f"the manifest is wrong about {shard.path}: {info}")
        for beside in (shard.index, shard.keys):
            if beside is not None:
                content = await store.get(beside.path)
                if (len(content), crc32c(content)) != (beside.bytes, beside.crc32c):
                    raise AssertionError(f"the manifest is wrong about {beside.path}")
        found += records
    return found


async def broken(attempt: Attempt, spool: Path | None, seed: int) -> list[str]:
    """Make an attempt, and return descriptions of the promises that it broke."""
    store = MemoryStorage()
    told = [-1]
    raised: StorageError | None = None
    try:
        await attempt.job(FlakyStorage(store, {attempt.k: attempt.fault}), spool, told.append)
    except StorageError as error:
        raised = error
    try:
        if spool is not None:
            await _recover(store, spool, seed)
        records = await stored(store)
    except (StorageError, AssertionError) as error:
        return [f"{error!r}"]
    problems = []
    if lost := set(RECORDS[: max(told) + 1]) - set(records):
        problems.append(f"{len(lost)} acknowledged records are lost")
    if len(set(records)) != len(records):
        problems.append("records are there twice")
    if raised is None and sorted(records) != RECORDS:
        problems.append(f"no error, and {len(records)} records")
    if raised is not None and attempt.job is fixed and len(records) not in (0, len(RECORDS)):
        problems.append(f"{len(records)} records of what belongs together")
    if spool is not None and (left := [path.name for path in spool.rglob("*.tfrec*")]):
        problems.append(f"left in the spool: {left}")
    return problems


async def _recover(store: Storage, spool: Path, seed: int) -> None:
    """Recover with a fault, then without one, and then once more, which must do nothing."""
    rng = random.Random(seed)
    script = {rng.randrange(30): Fault(when=rng.choice(("before", "after")), for_good=rng.random() < 0.5)}
    with contextlib.suppress(StorageError):
        await asyncrec.recover(spool, to="pages", storage=FlakyStorage(store, script))
    await asyncrec.recover(spool, to="pages", storage=store)
    if (again := await asyncrec.recover(spool, to="pages", storage=store)) != asyncrec.Recovery():
        raise AssertionError(f"recovering once more did something: {again}")


async def _all(seed: int, rounds: int, folder: Path) -> tuple[int, int]:
    """Make up to four random attempts per round, without repetition; return how many there were and how many failed."""
    every = await attempts(folder)
    chosen = random.Random(seed).sample(every, min(len(every), 4 * rounds))
    lost = 0
    for number, attempt in enumerate(chosen):
        spool = folder / str(number) if attempt.spooled else None
        if problems := await broken(attempt, spool, seed + number):
            lost += 1
            print(f"{attempt}, seed {seed + number}:\n  " + "\n  ".join(problems), flush=True)
    return len(chosen), lost


def failing_operations(seed: int, rounds: int) -> Row:
    tried = lost = 0
    for loop in ("asyncio", "trio"):
        folder = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
        name, options = virtual_backend(loop)
        done, bad = anyio.run(_all, seed, rounds, folder, backend=name, backend_options=options)
        tried, lost = tried + done, lost + bad
        shutil.rmtree(folder)
    return Row("a store that fails at its k-th operation, then recover", tried, lost, seed)


async def _race(seed: int) -> list[str]:
    """Run two writers for the same names in a store whose responses may be lost."""
    rng = random.Random(seed)
    store = MemoryStorage(chunk_size=100)
    won: list[bytes] = []

    async def write(name: bytes) -> None:
        faults = {rng.randrange(60): Fault(when="after") for _ in range(rng.randrange(3))}
        try:
            async with asyncrec.open_sharded_writer(
                "pages", storage=FlakyStorage(store, faults), num_shards=rng.choice((1, 2))
            ) as writer:
                for number in range(20):
                    await writer.write(name * 10 + b"%d" % number)
                    await anyio.sleep(rng.random())
                await anyio.sleep(rng.choice((0, rng.random())))
        except ObjectExistsError:
            pass
        except StorageError:
            pass
        else:
            won.append(name)

    async with anyio.create_task_group() as group:
        for name in (b"a", b"b"):
            group.start_soon(write, name)
    try:
        records = await stored(store)
    except (StorageError, AssertionError) as error:
        return [f"{error!r}"]
    problems = []
    writers = {record[:1] for record in records}
    if won and not set(won) <= writers:
        problems.append(f"{won} were told that they had won, and {writers} are there")
    if len(records) != 20 * len(writers):
        problems.append(f"{len(records)} records of {writers}")
    return problems


def races(seed: int, rounds: int) -> Row:
    lost = 0
    for number in range(rounds):
        name, options = virtual_backend("trio" if number % 2 else "asyncio")
        if problems := anyio.run(_race, seed + number, backend=name, backend_options=options):
            lost += 1
            print(f"race {seed + number}: {problems}", flush=True)
    return Row("two writers race for the same names", rounds, lost, seed)


ROUNDS = [failing_operations, races]
