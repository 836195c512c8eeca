"""asyncrec, broken on purpose, one promise at a time, by replacing a function while worlds run.

Each is a context manager. They show that the simulation finds what it says it looks for; `test_mutants` asks it to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from asyncrec._records.writing import flush_timer
from asyncrec._records.writing import memory_budget as budget
from asyncrec._shards.commit import manifest_writer
from asyncrec._shards.journal import journal
from asyncrec._shards.recovery import local_recovery as finishing
from asyncrec._shards.recovery import recover as recovery
from asyncrec.storage._local import disk as local_disk
from asyncrec.storage._local import lock as locks
from asyncrec.storage._local import sink as local_sink
from asyncrec.storage._local import unfinished

__all__ = ["MUTANTS"]

MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {}


def mutant(body: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    MUTANTS[body.__name__.replace("_", " ")] = contextmanager(body)
    return body


@mutant
def a_flush_does_not_fsync() -> Iterator[None]:
    real = unfinished.UnfinishedFile.flush

    def flush(self: Any, tail: Any) -> int:
        disk = self._disk
        system, disk.system = disk.system, _Without(disk.system, "fsync")
        try:
            return real(self, tail)
        finally:
            disk.system = system

    with mock.patch.object(unfinished.UnfinishedFile, "flush", flush):
        yield


class _Without:
    def __init__(self, system: Any, name: str) -> None:
        self._system, self._name = system, name

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._name else getattr(self._system, name)


@mutant
def folders_are_not_fsynced() -> Iterator[None]:
    with mock.patch.object(local_disk.Disk, "sync_folder", return_value=None):
        yield


@mutant
def the_commit_comes_before_the_shard() -> Iterator[None]:
    """What a segment names is published after it: here, a moment after it was written."""
    real = manifest_writer.ManifestWriter.commit

    async def first(self: Any, entry: Any) -> None:
        store, key = self._storage, entry.path
        data = await store.get(key)
        await store.delete(key)
        await real(self, entry)
        await store.put(key, data)

    with mock.patch.object(manifest_writer.ManifestWriter, "commit", first):
        yield


@mutant
def recover_ignores_locks() -> Iterator[None]:
    real = locks.FileLock.__init__

    def take(self: Any, fd: int, path: str, **options: bool) -> None:
        flock = locks.fcntl.flock
        with mock.patch.object(locks, "fcntl", _Without(locks.fcntl, "flock")):
            assert flock
            real(self, fd, path, **options)

    with mock.patch.object(locks.FileLock, "__init__", take):
        yield


@mutant
def recover_removes_journals_first() -> Iterator[None]:
    real = finishing.LocalWriterRecovery.run

    async def run(self: Any) -> None:
        for shard in journal.leftovers_of(self._folder, self._header):
            await finishing.in_thread(finishing.remove_leftovers_of, self._journal, shard)
        await real(self)

    with mock.patch.object(finishing.LocalWriterRecovery, "run", run):
        yield


@mutant
def a_flush_is_acknowledged_before_the_disk_has_it() -> Iterator[None]:
    async def flush(self: Any, tail: Any) -> int:
        return sum(len(buffer) for buffer in tail)

    with mock.patch.object(local_sink.LocalSink, "flush", flush):
        yield


@mutant
def nothing_is_flushed_unasked() -> Iterator[None]:
    with mock.patch.object(flush_timer.FlushTimer, "due", return_value=math.inf):
        yield


@mutant
def the_note_is_not_kept() -> Iterator[None]:
    """Whoever opens after a crash forgets whose the files are."""
    with mock.patch.object(recovery, "find_job_headers", return_value=[]):
        yield


@mutant
def room_is_not_given_back() -> Iterator[None]:
    real = budget.ByteBudget.give

    def give(self: Any, size: int) -> None:
        real(self, size - 1 if size > 1 else size)

    with mock.patch.object(budget.ByteBudget, "give", give):
        yield
