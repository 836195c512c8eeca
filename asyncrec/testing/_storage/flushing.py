"""Cases for rolling writers that flush to their storage or to journals. Flushed records must outlive the process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.reader import read_records
from asyncrec._shards.manifest.snapshot import read_manifest
from asyncrec._shards.recovery.recover import recover
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec._shards.writing.writer import ShardedWriter
from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage._base import LocalFiles, Storage
from asyncrec.testing._faults import Call, FlakyStorage
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, keys_of

T = TypeVar("T")

_RECORDS = [b"one", b"two", b"three", b"four", b"five"]
_FLUSHED = "flushing/_flush/pages/"
# How many seconds to wait for a flush that must not return: longer than a store takes to write one object.
_WAITS = 3.0


class FlushCases(StorageHooks):
    """The cases for a storage without local files."""

    async def test_records_flushed_to_store_survive(self) -> None:
        """If a writer's process dies between two flushes, `asyncrec.recover` commits each flushed record exactly once.

        The recovery also removes all of the writer's flush entries.
        """
        async with self.open_storage() as storage:
            process = _Process(storage)
            async with _writer(process) as writer:
                await _flush(writer, _RECORDS[:2])
                await writer.commit()
                for record in _RECORDS[2:]:
                    await _flush(writer, [record])
                await writer.write(b"not flushed", key="not flushed")
                process.dead = True
            assert await keys_of(storage, _FLUSHED), "the flushed records are in no object"
            await recover("flushing/pages", storage=storage)
            found = await _stored(storage)
            assert found == sorted(_RECORDS), f"after recovery, the data set holds {found}"
            again = await recover("flushing/pages", storage=storage)
            assert again == type(again)(), f"the second recovery found {again}"
            left = [key for key in await self.raw_list(storage) if key.startswith(_FLUSHED)]
            assert not left, f"left behind by the recovery: {left}"
            assert not await self.raw_unfinished(storage)

    async def test_flush_number_taken(self) -> None:
        """A flush waits if its number was used by another process, as happens when that process ends the writer's job.

        If the flush returned, the writer would acknowledge records that are never read. It waits until the writer's log
        has ended.
        """
        async with self.open_storage() as storage:
            process = _Process(storage)
            async with _writer(process) as writer:
                await _flush(writer, _RECORDS[:2])
                [first] = await keys_of(storage, _FLUSHED)
                entry = await storage.get(first)
                await storage.put(first.replace("-000001.", "-000002."), entry, exclusive=True)
                await writer.write(_RECORDS[2])
                with anyio.move_on_after(_WAITS) as scope:
                    await writer.flush()
                assert scope.cancelled_caught, "a flush was acknowledged although another process had taken its number"
                assert await storage.get(first.replace("-000001.", "-000002.")) == entry, (
                    "the flush replaced an object that another process had created"
                )
                process.dead = True


class _Process(FlakyStorage):
    """The storage of a process that may die. Once the process is dead, its requests fail."""

    dead = False

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if self.dead:
            raise StoragePermissionError("the process is dead")  # this error is not retried
        return await call()


class _Dies(Exception):
    pass


@asynccontextmanager
async def _writer(process: _Process) -> AsyncIterator[ShardedWriter]:
    """Open a writer for a body that ends by setting ``process.dead``, leaving the writer as if its process had died."""
    if process.flush_level == "spooled":
        nothing_to_try("this storage flushes to a disk, so writers keep no flush log in it")
    try:
        async with open_sharded_writer("flushing/pages", storage=process) as writer:
            yield writer
            raise _Dies
    except (_Dies, StorageError):
        if not process.dead:
            raise


async def _flush(writer: ShardedWriter, records: Sequence[bytes]) -> None:
    for record in records:
        await writer.write(record, key=record)
    level = await writer.flush()
    assert level == "spooled", f"a flush reached the level {level!r} instead of spooled"


async def _stored(storage: Storage) -> list[bytes]:
    manifest = await read_manifest("flushing/pages", storage=storage)
    shards = [await read_records(f"flushing/{shard.path}", storage=storage) for shard in manifest.shards]
    return sorted(record for shard in shards for record in shard)


class JournalCases(StorageHooks):
    """The cases for a storage that implements `LocalFiles`, so that writers keep their journals in its folder."""

    async def test_objects_are_files(self) -> None:
        """The file at a key's path contains the object's bytes, even if the file was linked there.

        A partial file is not an object.
        """
        async with self.open_storage() as storage:
            folder = _folder_of(storage)
            await storage.put("journals/written", b"by the storage")
            written = await in_thread(_read, os.path.join(folder, "journals", "written"))
            assert written == b"by the storage", f"the file of the key contains {written!r}"
            await in_thread(_put, os.path.join(folder, "journals", ".begun.x.partial"), b"unfinished")
            listed = await keys_of(storage, "journals/")
            assert listed == ["journals/written"], f"{listed} were listed, but .begun.x.partial is not an object"
            begun, linked = (os.path.join(folder, "journals", name) for name in (".begun.x.partial", "linked"))
            await in_thread(os.link, begun, linked)
            await in_thread(os.unlink, begun)
            assert await storage.get("journals/linked") == b"unfinished", (
                "the object of a key must be the file that is linked to it"
            )
            assert await keys_of(storage, "journals/") == ["journals/linked", "journals/written"]

    async def test_flushed_records_survive(self) -> None:
        """If a rolling writer fails, its flushed records stay in journals, and `asyncrec.recover` commits them."""
        async with self.open_storage() as storage:
            _folder_of(storage)
            try:
                async with open_sharded_writer("journals/pages", storage=storage, on_error="discard") as writer:
                    await _flush(writer, _RECORDS)
                    raise _Dies
            except _Dies:
                pass
            recovery = await recover("journals/pages", storage=storage)
            assert recovery.records == len(_RECORDS), f"{recovery.records} of {len(_RECORDS)} records were recovered"
            manifest = await read_manifest("journals/pages", storage=storage)
            found = [
                each
                for shard in manifest.shards
                for each in await read_records(f"journals/{shard.path}", storage=storage)
            ]
            assert found == _RECORDS, f"the recovered records are {found}"
            assert await recover("journals/pages", storage=storage) == type(recovery)(), (
                "unfinished files were left behind"
            )


def _folder_of(storage: Storage) -> str:
    if not isinstance(storage, LocalFiles):
        nothing_to_try("the storage does not implement LocalFiles, so writers keep journals only in a spool")
    return storage.files_folder()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _put(path: str, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
