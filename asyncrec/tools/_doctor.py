"""`doctor` tests whether a store, with the caller's permissions, meets the requirements of asyncrec.

It writes, reads, lists and deletes objects named ``.asyncrec-doctor-...`` below the path, and removes them all. On a
read-only store, it reads the file at the path.

If two writers create the same small object, exactly one must succeed. Otherwise, the check fails, because the store
cannot be used for data sets. If two writers create the same object in several parts, only one should succeed.
Otherwise, the check reports the limitation but does not fail, because data sets depend only on small objects.
"""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec.errors import (
    ArgumentError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)
from asyncrec.storage._base import ExclusiveParts, ObjectInfo, ReadOnlyStorage, Storage, UnfinishedUploads
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._resuming_source import ResumingSource, read_head, receive_exactly
from asyncrec.storage._retry import DEFAULT, RetryPolicy, patience
from asyncrec.storage._url import redact
from asyncrec.tools._doctor_report import Check, DoctorReport, installed
from asyncrec.tools._probes import HeldLoop, check_locks, race

_ROUNDS = 5
_WRITERS = 4
_SMALL = 1 << 10
_CHANGED = 256 << 10
_LARGE = 8 << 20
# The first request is attempted only a few times, so an unresponsive store is reported within two seconds.
_FIRST = RetryPolicy(attempts=4)


async def doctor(
    path: str | os.PathLike[str] | None = None,
    *,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DoctorReport:
    """Test the store of ``path``, a folder or a prefix, with the operations that asyncrec uses.

    The report lists failures. Without a path, it lists only the installed versions.

    Raises:
        PluginError: no installed backend serves the path.
    """
    if path is None:
        return DoctorReport(path="", installed=installed())
    report = DoctorReport(path=redact(os.fspath(path)), installed=installed())
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        prefix = key.rstrip("/")
        ask = None
        if isinstance(store, ExclusiveParts):
            ask = partial(_excludes_parts, store, f"{prefix}/" if prefix else "")
        if isinstance(store, ReadOnlyStorage):
            report.checks.append(Check(name="write", ok=None, detail=f"not available: {store.why}"))
            report.checks.append(await _reading(store, key))
            return report
        if await _Doctor(folder_at(store, prefix), report, ask).run():
            report.checks += [await _uploads(store, key), _kills(store)]
            if (local := local_folder(folder_at(store, prefix))) is not None:
                report.checks.append(await in_thread(check_locks, local))
    return report


class _Enough(Exception):
    """Raised inside a sink's context to make the sink abandon its object."""


class _Doctor:
    """One run of the checks: the objects that it has created, and the results."""

    def __init__(
        self, folder: Storage, report: DoctorReport, excludes_parts: Callable[[str], Awaitable[bool]] | None
    ) -> None:
        self._folder = folder
        self._excludes_parts = excludes_parts
        self._report = report
        self._keys: list[str] = []
        self._small = secrets.token_bytes(_SMALL)
        self._info: ObjectInfo | None = None
        self._silent = False  # set if the store did not respond even to the first request
        self._loop = HeldLoop()

    async def run(self) -> bool:
        """Run all checks, and return whether the store responds."""
        async with TaskScope() as scope:
            scope.start_soon(self._loop.watch)
            try:
                answers = await self._checks()
            finally:
                scope.cancel()
        if answers:
            seconds, row = self._loop.longest
            detail = f"other tasks had to wait up to {1000 * seconds:.0f} ms (row {row!r})"
            self._report.checks.append(Check(name="event loop", ok=None, detail=detail))
        return answers

    async def _checks(self) -> bool:
        try:
            with patience(_FIRST):
                written = await self._try("write", self._write)
            if self._silent:
                detail = "not tested, because the store failed the first request; fix that and run the command again"
                self._report.checks.append(Check(name="all else", ok=None, detail=detail))
                return False
            if not written:
                await self._try("list", self._list)
                return True
            await self._try("read", self._read)
            await self._try("list", self._list)
            await self._try("read a range", self._range)
            await self._try("notice a change", self._change)
            await self._try("create exclusively", self._exclusive)
            await self._try("exclusive creation, small object", self._race)
            await self._try("exclusive creation, several parts", self._race_in_parts)
            await self._try("checksums", self._checksum)
            await self._try("latency", partial(_latency, self._folder, self._keys[0]))
            await self._try("throughput", partial(_throughput, self._folder, self._key()))
            await self._try("delete", self._delete)
            return True
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEAN_UP_SECONDS):
                with patience(_FIRST if self._silent else DEFAULT):
                    for key in self._keys:
                        try:
                            await self._folder.delete(key)
                        except StorageError:
                            break  # one of the checks has already reported this error

    async def _try(self, name: str, check: Callable[[], Awaitable[str | Check]]) -> bool:
        self._loop.trying(name)
        try:
            result = await check()
        except (StorageError, AssertionError) as error:
            self._silent = self._info is None and isinstance(error, TransientStorageError)
            result = Check(name=name, ok=False, detail="; ".join([str(error), *getattr(error, "__notes__", ())]))
        self._loop.tick()
        if isinstance(result, str):
            result = Check(name=name, ok=True, detail=result)
        self._report.checks.append(result)
        return result.ok is not False

    def _key(self) -> str:
        key = f".asyncrec-doctor-{secrets.token_hex(8)}"
        self._keys.append(key)
        return key

    async def _write(self) -> str:
        begun = time.perf_counter()
        self._info = await self._folder.put(self._key(), self._small)
        return f"{_SMALL:,} bytes in {1000 * (time.perf_counter() - begun):.1f} ms"

    async def _read(self) -> str:
        data = await self._folder.get(self._keys[0])
        assert data == self._small, "the data read differs from the data written"
        return "the data that was read equals the data that was written"

    async def _list(self) -> str:
        found = [info.key async for info in self._folder.list_objects(".asyncrec-doctor-")]
        missing = [key for key in self._keys if key not in found]
        assert not missing or self._info is None, "a new object is missing from the list"
        return "manifests and folders can be read"

    async def _range(self) -> str:
        async with self._folder.open_source(self._keys[0], start=100, end=200) as source:
            data = b""
            while block := await source.receive(_SMALL):
                data += block
        assert data == self._small[100:200], "the store returned another range than requested"
        return "random access and resumed reads"

    async def _change(self) -> str:
        key = self._keys[0]
        old, new = [await in_thread(secrets.token_bytes, _CHANGED) for _ in range(2)]
        before = await self._folder.put(key, old)
        async with self._folder.open_source(key, info=before) as source:
            got = await source.receive(_SMALL)
            self._info = await self._folder.put(key, new)
            with suppress(ObjectChangedError):
                while block := await source.receive(_CHANGED):
                    got += block
                assert got == old, "an object that was replaced during a read differs from the one that was opened"
        try:
            async with self._folder.open_source(key, info=before) as source:
                await source.receive(1)
        except ObjectChangedError:
            return "replacing an object is noticed, also during a read"
        raise AssertionError("a replaced object is read as if it had not changed")

    async def _exclusive(self) -> str:
        for size in (_SMALL, await self._parts()):
            try:
                await self._folder.put(self._keys[0], await in_thread(secrets.token_bytes, size), exclusive=True)
            except ObjectExistsError:
                continue
            raise AssertionError(
                f"an object of {size:,} bytes overwrites an existing one although it must not, so two writers may "
                "lose each other's commits"
            )
        return "an existing object is not overwritten"

    async def _race(self) -> str:
        for _ in range(_ROUNDS):
            won = await race(self._folder, self._key(), [secrets.token_bytes(16) for _ in range(_WRITERS)])
            assert len(won) == 1, (
                f"{len(won)} of {_WRITERS} writers created the same object according to the store: two writers "
                "may lose each other's commits, so this store cannot hold data sets"
            )
        return f"{_ROUNDS} races of {_WRITERS} writers had one winner each, as data sets with many writers require"

    async def _race_in_parts(self) -> Check:
        name, size = "exclusive creation, several parts", await self._parts()
        bodies = [await in_thread(secrets.token_bytes, size) for _ in range(2)]
        won = await race(self._folder, self._key(), bodies)
        assert won, "the store rejected both writers, as if the object already existed"
        # One race proves nothing, because the losing writer may just have been late. Use the store's own test, if any.
        apart = len(won) == 1 and (self._excludes_parts is None or await self._excludes_parts(self._key()))
        if apart:
            found = (
                "are also created exclusively"
                if self._excludes_parts
                else "had one winner in a single race, which is not a proof"
            )
            return Check(name=name, ok=True, detail=f"objects of {size:,} bytes {found}")
        return Check(
            name=name,
            ok=None,
            detail=(
                f"not supported for objects of {size - 1:,} bytes or more: the store ignores the condition when it "
                "joins parts, so both writers may appear to win. Data sets are safe, because they depend "
                "only on small objects, but two writers of the same single file with mode='x' may both succeed"
            ),
        )

    async def _parts(self) -> int:
        """Return the size of the smallest object that is sent in more than one part."""
        size = 0
        with suppress(_Enough):
            async with self._folder.open_sink(self._key()) as sink:
                size = sink.chunk_size + 1
                raise _Enough
        return size

    async def _checksum(self) -> Check:
        info = await self._folder.head(self._keys[0])
        if info.crc32c is not None:
            return Check(name="checksums", ok=True, detail="the store keeps a CRC32C of each object")
        return Check(
            name="checksums",
            ok=None,
            detail="the store has no checksums that asyncrec can read; asyncrec uses those in the manifest",
        )

    async def _delete(self) -> str:
        await self._folder.delete(self._keys[0])
        try:
            await self._folder.head(self._keys[0])
        except ObjectNotFoundError:
            return "deleted objects are gone"
        raise AssertionError("a deleted object is still there")


async def _latency(folder: Storage, key: str) -> str:
    small = secrets.token_bytes(_SMALL)
    writes, reads = [], []
    for _ in range(_ROUNDS):
        writes.append(await _timed(partial(folder.put, key, small)))
        reads.append(await _timed(partial(folder.get, key)))
    write, read = 1000 * statistics.median(writes), 1000 * statistics.median(reads)
    return f"{write:.1f} ms to write 1 KiB, {read:.1f} ms to read it (medians of {_ROUNDS})"


async def _throughput(folder: Storage, key: str) -> str:
    data = await in_thread(secrets.token_bytes, _LARGE)  # takes about 10 ms
    write = await _timed(partial(folder.put, key, data))
    read = await _timed(partial(folder.get, key))
    return f"{_LARGE / write / (1 << 20):,.0f} MiB/s to write, {_LARGE / read / (1 << 20):,.0f} MiB/s to read 8 MiB"


async def _excludes_parts(store: ExclusiveParts, prefix: str, key: str) -> bool:
    return await store.excludes_parts(prefix + key)


async def _reading(store: Storage, key: str) -> Check:
    """Read the beginning and the end of the object at ``key``, on a read-only store."""
    name = "read"
    try:
        info = await store.head(key)
        head, _ = await read_head(store, key, _SMALL)
        async with ResumingSource(store, key, start=max(0, info.size - _SMALL), info=info, read_ahead=0) as source:
            tail = await receive_exactly(source, _SMALL)
        assert len(head) == len(tail) == min(_SMALL, info.size), "the store returned fewer bytes than the object has"
    except ArgumentError:
        return Check(name=name, ok=None, detail="this store is read-only, so pass the path of a file to test")
    except (StorageError, AssertionError) as error:
        return Check(name=name, ok=False, detail="; ".join([str(error), *getattr(error, "__notes__", ())]))
    return Check(name=name, ok=True, detail=f"{info.size:,} bytes; the first and the last were read")


async def _uploads(store: Storage, key: str) -> Check:
    name = "unfinished uploads"
    if not isinstance(store, UnfinishedUploads):
        return Check(name=name, ok=None, detail="this store cannot list them")
    try:
        found = [info async for info in store.list_unfinished(key)]
    except StorageError as error:
        return Check(name=name, ok=None, detail=f"they cannot be listed: {error}")
    return Check(name=name, ok=None, detail=f"{len(found):,}; 'asyncrec uploads' lists and removes them")


def _kills(store: Storage) -> Check:
    """Return a check that states which of a rolling writer's records a kill -9 can lose on this store."""
    if store.flush_level == "spooled":
        detail = "a kill loses at most what a rolling writer wrote in the last second (flush_seconds)"
    else:
        detail = (
            "a kill loses at most what a rolling writer wrote in the last 30 seconds (flush_seconds), which it "
            "flushes to the store; with spool= in a local folder it loses the last second"
        )
    return Check(name="kill -9", ok=None, detail=detail)


async def _timed(func: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await func()
    return max(time.perf_counter() - begun, 1e-9)
