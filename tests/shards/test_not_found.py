"""A proxy or a restarting gateway reports once that an existing object was not found."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import Fault, FlakyStorage

from . import mortal
from .flushing import RECORDS, flush_entries, stored, write
from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def copied(storage: Storage) -> MemoryStorage:
    copy = MemoryStorage()
    for info in [info async for info in storage.list_objects()]:
        await copy.put(info.key, await storage.get(info.key))
    return copy


async def left_by_dead_writer(**options: Any) -> MemoryStorage:
    """Return a store where all records are flushed and half are also committed, but the writer was killed."""
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w", **options) as writer:
        await write(writer, RECORDS[:50])
        await writer.commit()
        for begin, end in ((50, 60), (60, 80), (80, 100)):
            await write(writer, RECORDS[begin:end])
            await writer.flush()
    return storage


def misses(hidden: Callable[[str], bool], *, times: int, skip: int = 0) -> Callable[[str, str], Awaitable[None]]:
    """Return a callback that makes ``times`` reads of the ``hidden`` objects, after ``skip`` others, find nothing."""
    reads = 0

    async def before(operation: str, key: str) -> None:
        nonlocal reads
        if operation == "open_source" and hidden(key):
            reads += 1
            if skip < reads <= skip + times:
                raise ObjectNotFoundError(f"{key}: not found, as asked")

    return before


def is_entry(key: str) -> bool:
    return key.startswith("_flush/")


async def missed_in_turn(
    calm: Storage, recover: Callable[[Storage, int], Awaitable[Any]], check: Callable[[Storage, int], Awaitable[None]]
) -> None:
    """Hide the object from one read or look-up per run of `recover`, which may then fail, and `check` the result."""
    seen = FlakyStorage(await copied(calm))
    await recover(seen, -1)
    places = [n for n, (operation, _) in enumerate(seen.operations) if operation in ("open_source", "head")]
    assert places
    for place in places:
        copy = await copied(calm)
        flaky = FlakyStorage(copy, {place: Fault(error=ObjectNotFoundError)})
        with suppress(StorageError):
            await recover(flaky, place)
        await check(copy, place)


async def test_recovery_survives_any_missed_read_of_flush_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is on another machine, so its log is fenced first."""
    with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
        calm = await left_by_dead_writer()

    async def recover(storage: Storage, place: int) -> None:
        await asyncrec.recover("pages", storage=storage, dead=["w"])

    async def check(storage: Storage, place: int) -> None:
        with suppress(ObjectNotFoundError):  # the writer has been ended
            await recover(storage, place)
        assert await stored(storage) == RECORDS, f"operation {place}"

    await missed_in_turn(calm, recover, check)


async def test_recovery_survives_any_missed_read_about_spool(tmp_path: Path) -> None:
    """The set of shards is fixed, and the shards are named by a claim in the store."""
    storage, spool = MemoryStorage(), tmp_path / "spool"
    async with mortal.killed(storage, spool=spool, num_shards=2) as writer:
        await write(writer, RECORDS)
        await writer.flush(require="spooled")

    def of_run(place: int) -> Path:
        folder = tmp_path / str(place)
        if not folder.exists():
            shutil.copytree(spool, folder)
        return folder

    async def check(storage: Storage, place: int) -> None:
        await asyncrec.recover(of_run(place), to="pages", storage=storage)
        assert await stored(storage) == RECORDS, f"operation {place}"

    await missed_in_turn(
        storage, lambda storage, place: asyncrec.recover(of_run(place), to="pages", storage=storage), check
    )


@pytest.mark.parametrize("skip", [0, 3], ids=["while it is listed", "while it is published"])
async def test_listed_entry_that_is_not_found_fails_recovery(skip: int) -> None:
    storage = await left_by_dead_writer()
    before = await flush_entries(storage)
    missing = misses(is_entry, times=1000, skip=skip)
    with pytest.raises(StorageError, match=r"_flush/pages/w-0\S+: the store lists this object but does not find it"):
        await asyncrec.recover("pages", storage=MetStorage(storage, before=missing))
    assert await flush_entries(storage) == before
    await asyncrec.recover("pages", storage=storage)
    assert await stored(storage) == RECORDS


async def test_entries_deleted_by_another_process_are_left_out() -> None:
    """Another process ends the log between this one's list and its first read of an entry."""
    storage = await left_by_dead_writer()
    done = False

    async def before(operation: str, key: str) -> None:
        nonlocal done
        if operation == "open_source" and is_entry(key) and not done:
            done = True
            await asyncrec.recover("pages", storage=storage)

    with suppress(ConflictError):
        await asyncrec.recover("pages", storage=MetStorage(storage, before=before))
    assert done
    assert await stored(storage) == RECORDS


async def test_fence_missed_by_one_lookup_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a writer that was only cut off could flush again."""
    with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
        storage = await left_by_dead_writer()
    calm = await copied(storage)
    await asyncrec.recover("pages", storage=calm, dead=["w"])
    fences = await flush_entries(calm)
    assert len(fences) == 1
    for skip in range(4):
        copy = await copied(storage)
        met = MetStorage(copy, before=misses(lambda key: key == fences[0], times=1, skip=skip))
        await asyncrec.recover("pages", storage=met, dead=["w"])
        assert await flush_entries(copy) == fences, f"read {skip}"
        assert await stored(copy) == RECORDS
