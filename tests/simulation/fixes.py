"""The mends of holes that were found, taken out again, one at a time: the simulation has to find each.

Not among them is what the simulation cannot see by itself: that indexes and keys carry their maker (the claim alone
keeps two makers apart), that a copy shares no names with a living writer (no plan gives two the same id), and that
`recover` goes on past a job that fails (a world gets well all the same). tests/shards/test_jobs.py has tests for each.

Like `mutants`, each is a context manager that replaces a function while worlds run; ``make simulate ARGS=--fixes`` asks
how many worlds it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from asyncrec._concurrency import tasks
from asyncrec._records.writing import append
from asyncrec._shards.commit import manifest_writer, shard_publisher
from asyncrec._shards.journal import header as note
from asyncrec._shards.journal import journal
from asyncrec._shards.ownership import abandonment as abandoning
from asyncrec._shards.ownership import claims as claiming
from asyncrec._shards.ownership import liveness, removals
from asyncrec._shards.spool import folder as spool
from asyncrec._shards.spool import uploader as uploading
from asyncrec._shards.writing import job, joint_job, open_job, open_shards
from asyncrec.errors import ObjectExistsError
from asyncrec.storage._local import storage as local
from asyncrec.storage._local import unfinished as unfinished_file
from asyncrec.storage._local.disk import write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.unfinished import UnfinishedFile
from asyncrec.tools import _orphans as orphans
from asyncrec.tools import _selection as selecting
from asyncrec.tools import _uploads as unfinished

__all__ = ["FIXES"]

FIXES: dict[str, Callable[[], AbstractContextManager[Any]]] = {}


def fix(body: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    FIXES[body.__name__.replace("_", " ")] = contextmanager(body)
    return body


def _everywhere(name: str, replacement: Any, *modules: Any) -> ExitStack:
    """A function that several modules have imported by its name."""
    stack = ExitStack()
    for module in modules:
        stack.enter_context(mock.patch.object(module, name, replacement))
    return stack


# -- durability --------------------------------------------------------------------------------------------------------


@fix
def keys_reach_the_disk_before_their_records() -> Iterator[None]:
    def write_behind(self: Any, other: Any, tail: Any) -> None:
        other._ahead_of = self

    with mock.patch.object(UnfinishedFile, "write_behind", write_behind):
        yield


@fix
def keys_that_begin_late_have_their_zeros_from_the_start() -> Iterator[None]:
    real = local.LocalStorage.open_sink_of_zeros

    def open_sink(self: Any, key: str, zeros: int) -> Any:
        return real(self, key, 0)

    with mock.patch.object(local.LocalStorage, "open_sink_of_zeros", open_sink):
        yield


@fix
def keys_are_kept_with_the_journal_that_is_kept() -> Iterator[None]:
    def write_behind(self: Any, other: Any, tail: Any) -> None:
        self._before_write = lambda: other.push(tail())

    with mock.patch.object(UnfinishedFile, "write_behind", write_behind):
        yield


@fix
def a_torn_end_longer_than_the_file_is_cut() -> Iterator[None]:
    """A file is continued behind whatever stands at its end."""

    def end(fd: int, name: str, kind: str) -> int:
        return append.os.fstat(fd).st_size

    with mock.patch.object(append, "_cut", end):
        yield


# -- commit ------------------------------------------------------------------------------------------------------------


@fix
def a_fixed_set_is_claimed_when_it_is_opened() -> Iterator[None]:
    async def settle_claims(*_: Any, **__: Any) -> tuple[int, bool, list[Any]]:
        return 0, True, []

    async def put_claim(*_: Any) -> None:
        pass

    with (
        mock.patch.object(open_job, "settle_claims", settle_claims),
        mock.patch.object(open_job, "put_claim", put_claim),
    ):
        yield


@fix
def one_of_commit_and_tombstone_wins() -> Iterator[None]:
    async def create(storage: Any, key: str, content: bytes, **_: Any) -> None:
        await storage.put(key, content)

    with mock.patch.object(manifest_writer, "create", create):
        yield


@fix
def what_replaces_takes_a_place_in_the_log_of_removals() -> Iterator[None]:
    async def take_place(folder: Any, name: str, writer: str, *, since: int, **_: Any) -> int:
        return since + 1

    with mock.patch.object(job, "take_place", take_place):
        yield


@fix
def what_replaces_sees_that_another_is_about_to() -> Iterator[None]:
    """The log has its places, and nobody asks who holds them."""

    async def take_place(folder: Any, name: str, writer: str, *, since: int, **_: Any) -> int:
        places = await removals._places(folder, name)
        place: int = max(places, default=0)
        while True:
            place += 1
            try:
                await removals.create(folder, removals.removal_key(name, place), writer.encode())
            except ObjectExistsError:
                continue
            return place

    with mock.patch.object(job, "take_place", take_place):
        yield


@fix
def a_commit_that_nobody_knows_of_is_not_taken_back() -> Iterator[None]:
    async def take_back(self: Any, entries: Any) -> None:
        await self.publisher.take_back(entries)

    with mock.patch.object(job.Job, "take_back", take_back):
        yield


@fix
def what_was_replaced_is_deleted_after_the_commit() -> Iterator[None]:
    real = job.Job.commit

    async def commit_late(self: Any, entries: Any = ()) -> None:
        if self._replaces and self.before is not None:
            for entry in self.before.shards:
                await self.store.delete(entry.path)
        await real(self, entries)

    with mock.patch.object(job.Job, "commit", commit_late):
        yield


# -- recovery ----------------------------------------------------------------------------------------------------------


@fix
def what_is_all_or_nothing_is_adopted_by_nobody() -> Iterator[None]:
    real = note.JobHeader.decode.__func__  # type: ignore[attr-defined]

    def decode(cls: Any, content: bytes) -> Any:
        found = real(cls, content)
        if found is not None and found.kind == "whole" and found.num_shards is None:
            return replace(found, kind="rolling")
        return found

    with mock.patch.object(note.JobHeader, "decode", classmethod(decode)):
        yield


@fix
def a_tombstone_comes_before_any_deletion() -> Iterator[None]:
    async def entomb(folder: Any, name: str, writer: str, *, by: str) -> Any:
        found = await abandoning.load_closing(folder, name, writer)
        return found or manifest_writer.Segment(writer=writer, time="", closed=True, abandoned=True)

    with _everywhere("entomb", entomb, abandoning, claiming, manifest_writer, job):
        yield


@fix
def what_may_have_been_promised_gives_way_to_nobody() -> Iterator[None]:
    with mock.patch.object(journal.Journal, "holds_promises", return_value=False):
        yield


@fix
def the_note_goes_last() -> Iterator[None]:
    def end(self: Any, *, keep: bool = False) -> None:
        if self._lock.fd >= 0:
            self.remove()
        self._lock.release()

    with mock.patch.object(journal.Journal, "end", end):
        yield


@fix
def the_mark_goes_last() -> Iterator[None]:
    async def clean_up(self: Any, *, marked: bool) -> bool:
        if marked:
            await self.store.delete(job.mark_key(self.header.name, self.header.writer))
        return True

    with mock.patch.object(job.Job, "_clean_up", clean_up):
        yield


@fix
def a_note_is_read_to_its_end() -> Iterator[None]:
    def read(fd: int, size: int, position: int) -> bytes:
        return journal.os.pread(fd, size, position)

    with mock.patch.object(journal, "read_at", read):
        yield


@fix
def a_spool_is_known_as_one_before_its_first_note() -> Iterator[None]:
    def lock(folder: Any) -> Any:
        folder.disk.make_folder(folder.folder, 0o700)
        path = spool.os.path.join(folder.folder, spool.LOCK_NAME)
        return spool.FileLock(spool.open_own(path, spool.os.O_RDWR | spool.os.O_CREAT), path)

    with mock.patch.object(spool, "_lock", lock):
        yield


@fix
def plain_names_that_somebody_may_use_yet_are_not_used_again() -> Iterator[None]:
    real = claiming.settle_claims

    async def settle_claims(*args: Any, **kwargs: Any) -> tuple[int, bool, list[Any]]:
        number, _, met = await real(*args, **kwargs)
        return number, True, met

    with mock.patch.object(open_job, "settle_claims", settle_claims):
        yield


# -- removal -----------------------------------------------------------------------------------------------------------


@fix
def uploads_removes_nothing_that_a_note_speaks_for() -> Iterator[None]:
    with mock.patch.object(unfinished._Jobs, "have", return_value=False):
        yield


@fix
def verify_deletes_nothing_of_a_job_that_has_not_ended() -> Iterator[None]:
    async def nobody(*_: Any) -> dict[str, str]:
        return {}

    with mock.patch.object(orphans, "_owners", nobody), mock.patch.object(orphans, "entomb", _no_tombstone):
        yield


async def _no_tombstone(*_: Any, **__: Any) -> Any:
    return manifest_writer.Segment(writer="w", time="", closed=True, abandoned=True)


@fix
def a_shard_is_deleted_before_its_keys() -> Iterator[None]:
    real = shard_publisher.ShardPublisher._delete

    async def delete(self: Any, storage: Any, shards: Any) -> None:
        await real(self, storage, [list(reversed(keys)) for keys in shards])

    with mock.patch.object(shard_publisher.ShardPublisher, "_delete", delete):
        yield


@fix
def what_is_discarded_goes_before_its_keys() -> Iterator[None]:
    def later(self: Any) -> bool:
        return not self.acknowledged

    with mock.patch.object(UnfinishedFile, "remove_durably", later):
        yield


@fix
def what_could_not_be_deleted_keeps_its_mark() -> Iterator[None]:
    real = shard_publisher.ShardPublisher._delete

    async def delete(self: Any, storage: Any, shards: Any) -> None:
        await real(self, storage, shards)
        self.published.clear()

    with mock.patch.object(shard_publisher.ShardPublisher, "_delete", delete):
        yield


@fix
def what_was_not_answered_keeps_its_mark() -> Iterator[None]:
    never = property(lambda self: False, lambda self, value: None)
    with mock.patch.object(shard_publisher.ShardPublisher, "doubtful", never, create=True):
        yield


@fix
def what_came_late_is_deleted_though_there_is_no_data_set() -> Iterator[None]:
    with mock.patch.object(selecting, "merged", selecting.snapshot_of):
        yield


# -- cancellation ------------------------------------------------------------------------------------------------------


@fix
def what_a_thread_made_for_a_cancelled_read_is_kept() -> Iterator[None]:
    async def take(self: Any, func: Any, *args: Any) -> Any:
        return await tasks.in_thread(func, *args)

    with mock.patch.object(tasks.ThreadedStep, "take", take):
        yield


@fix
def a_joint_job_that_could_not_clean_up_keeps_its_mark() -> Iterator[None]:
    never = property(lambda self: False, lambda self, value: None)
    with mock.patch.object(job.Job, "left_over", never, create=True):
        yield


@fix
def a_joint_job_deletes_nothing_that_is_committed() -> Iterator[None]:
    async def delete_unlisted(folder: Any, header: Any, *, plain: bool) -> None:
        for below in ("", "_index/", "_keys/"):
            async for info in folder.list_objects(f"{below}{header.name}-{header.writer}-"):
                await folder.delete(info.key)

    with mock.patch.object(joint_job, "delete_unlisted", delete_unlisted):
        yield


@fix
def what_is_acquired_in_a_thread_is_released() -> Iterator[None]:
    async def acquire(func: Any, release: Any, *, limiter: Any = None) -> Any:
        return await tasks.in_thread(func, limiter=limiter)

    with _lost_locks_stay(), _everywhere("acquire_in_thread", acquire, claiming, open_job, spool, uploading, append):
        yield


@contextmanager
def _lost_locks_stay() -> Iterator[None]:
    """A lock that nobody refers to any more closes itself, and would hide that nobody let it go."""
    locks: list[FileLock] = []
    real = FileLock.__init__

    def take(self: FileLock, *args: Any, **options: Any) -> None:
        locks.append(self)
        real(self, *args, **options)

    with mock.patch.object(FileLock, "__init__", take):
        yield


@fix
def every_lock_is_let_go_at_the_end_of_a_job() -> Iterator[None]:
    async def end(self: Any, life: Any, *, marked: bool) -> None:
        with self.deadline.cleaning_up():
            ended = await self._clean_up(marked=marked)
            if self.journal is not None:
                await tasks.in_thread(job.partial(self.journal.end, keep=not ended))
            if life is not None:
                await tasks.in_thread(job.partial(life.end, keep=not ended))

    with _lost_locks_stay(), mock.patch.object(job.Job, "end", end):
        yield


# -- promises, and proofs of death -------------------------------------------------------------------------------------


@fix
def a_promise_is_written_down_behind_what_it_promises() -> Iterator[None]:
    real = open_shards.OpenShards.flush

    async def flush(self: Any) -> None:
        await self.promise()
        await real(self)

    def acknowledge(self: Any) -> None:  # and is not taken back
        if not self.acknowledged:
            write_at(self._lock.fd, journal._ACKNOWLEDGED, self._end, self.folder.disk.system)
            self.folder.disk.system.fsync(self._lock.fd)
            self.acknowledged = True

    with (
        mock.patch.object(open_shards.OpenShards, "flush", flush),
        mock.patch.object(journal.Journal, "acknowledge", acknowledge),
    ):
        yield


@fix
def a_flush_looks_whether_its_job_is_still_its_own() -> Iterator[None]:
    with _everywhere("_see_found", lambda *_: None, unfinished_file):
        yield


@fix
def a_lock_proves_death_only_where_it_was_taken() -> Iterator[None]:
    with (
        _everywhere("lock_proves", lambda *_: True, journal, liveness),
        _everywhere("_see_found", lambda *_: None, unfinished_file),
    ):
        yield
