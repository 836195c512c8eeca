"""`recover`: after a crash, what its jobs left becomes part of the data set, or is given up.

What is there to find, in the folder of a data set or in a spool:

- the notes of jobs on this disk (`_shards.journal.journal`), with their journals, the unfinished shards. The whole
  records of a rolling writer's are written into a shard of the name they would have had, with index and keys, and
  committed. It is the way of every other shard, so that nothing is in the manifest that was not published and verified;
  a crash meanwhile leaves what the next call begins with.
- in a spool, whole shards that were not uploaded yet: the same.
- the marks of jobs that have no disk of their own (`_shards.ownership.marks`): what a rolling writer had published and
  could not commit any more is committed as it is.

A lock says which jobs are dead; what belongs to one that lives is left alone. One on another machine cannot be asked:
it is named, with its age, and stays as it is until somebody says that it is to be given up.

Shards that belong together (``num_shards``) are finished when their writer promised something, by a flush, or when all
of them are whole. Every other job that is all or nothing (what replaces, and tools) is given up: a tombstone takes the
name of its closing segment, so that it can commit nothing more, and then what it made is deleted.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import Note
from asyncrec._shards.journal.journal import find_notes, remove_small_leftovers, remove_unnamed_notes
from asyncrec._shards.manifest.names import mark_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.ownership.abandonment import abandon as abandon_job
from asyncrec._shards.ownership.claims import abandon_local, claim_journal, take_life
from asyncrec._shards.ownership.marks import find_marks, uses_plain_names
from asyncrec._shards.recovery.writer_recovery import Finished, FinishingLocal, FinishingRemote, clear_up
from asyncrec._shards.spool.folder import is_spool, lock_spool
from asyncrec.errors import AsyncRecError, ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder
from asyncrec.storage._url import join

__all__ = ["Recovery", "UnfinishedJob", "recover", "recover_spool"]

_log = logging.getLogger("asyncrec._shards")

# A writer that opens looks at the notes of others for a moment; only who holds one longer than that lives.
_LOOKS = 3
_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True, kw_only=True)
class UnfinishedJob:
    """A job that has not ended, and of which nobody here can say whether it lives.

    Attributes:
        id: for ``abandon=``.
        kind: ``"rolling"``, ``"fixed"`` or ``"whole"`` (what replaces, and tools).
        host, pid, since: of its process, and when it began.
        age: seconds since, by this machine's clock.
        spool: its records lie in a spool on that machine, to be recovered there.
    """

    id: str
    kind: str
    host: str
    pid: int
    since: datetime | None
    age: float
    spool: bool


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What `recover` found and did.

    Attributes:
        shards: that it committed.
        cut_bytes: behind the last whole record of journals: what was being written when the writer died, and had not
            been acknowledged.
        damaged: journals that end in something else than a torn tail. Their records up to there are committed; the
            files are kept under these names, for `asyncrec.tools.repair`.
        discarded: unfinished shards of jobs that were given up.
        abandoned: ids of the jobs that were given up.
        in_use: ids of jobs that live; what is theirs was left alone.
        unfinished: jobs of which nobody here can say whether they live; they were left alone.
        targets: the data sets that the shards went to: of a spool, where its records are now. Without credentials.
    """

    shards: tuple[ShardEntry, ...] = ()
    cut_bytes: int = 0
    damaged: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()
    unfinished: tuple[UnfinishedJob, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Of the shards, as stored."""
        return sum(shard.bytes for shard in self.shards)


async def recover(
    path: str | PathLike[str],
    *,
    abandon: Collection[str] = (),
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Recovery:
    """Make what writers left, when they died, part of the data set; give up what was all or nothing.

    Args:
        path: a spool; or a data set, as `open_sharded_writer` takes it.
        abandon: ids of jobs that are to be given up, whatever they promised; what they made and did not commit is
            deleted. One that is proven to live is not.
        storage: an open `Storage`; a data set's ``path`` is then a key in it. For a spool, the one that its writer
            had: given in the same way, or else the root of its path (``s3://bucket``).
        storage_options: for the backend, when it is opened here. A spool holds no credentials.

    It may be called at any time, also while others write; twice does no harm. Cancelled, or after an error, the rest
    is still there for the next call. A job that cannot be finished does not keep it from the others: what failed is
    raised at the end, the first error with a note for each other one and for what was done.

    Raises:
        StorageError: a writer uses the spool; the message names its process.
        ConflictError: a job that promised something was given up elsewhere; or one of ``abandon`` lives.
        ObjectNotFoundError: there is no job of an id in ``abandon``.
        ManifestError: of the data set.
    """
    run = _Run(abandon)
    if await in_thread(is_spool, path):
        async with lock_spool(path) as spool:
            for note_path, note in await in_thread(find_notes, spool):
                target = note.url if storage is None else note.key

                opened = dataset_at(target, storage=storage, storage_options=storage_options)
                await run.guarded(note, partial(run.spooled, spool, note_path, note, opened))
            await in_thread(remove_unnamed_notes, spool)
        return run.outcome(str(path))
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        home = local_folder(folder)
        if home is not None:
            for note_path, note in await in_thread(find_notes, home):
                if note.name == name:
                    await run.guarded(note, partial(run.local, home, note_path, note, folder))
            await in_thread(remove_unnamed_notes, home)
            await in_thread(remove_small_leftovers, home, name)
        for mark in await find_marks(folder, name):
            await run.guarded(mark, partial(run.remote, mark, folder))
        return run.outcome(join(folder.root, name))


async def recover_spool(spool: LocalStorage, folder: Storage, url: str) -> None:
    """Before a writer begins: commit what earlier ones left in its spool, for the data set at ``url`` in ``folder``.

    Raises:
        StorageError: something is for another data set, or could not be committed.
    """
    run = _Run(())
    for path, note in await in_thread(find_notes, spool):
        if note.url != url:
            raise StorageError(
                f"{spool.root}: holds records for {note.url}, written by {note.writer}; recover them first "
                f"(asyncrec.recover({spool.root!r})), or give {url} another spool"
            )
        await run.guarded(note, partial(run.local, spool, path, note, folder))
    recovered = run.outcome(url)
    if recovered.shards:
        _log.info("%s: recovered %d records", url, recovered.records)


class _Run:
    """One call's."""

    def __init__(self, abandon: Collection[str]) -> None:
        self._abandon = {abandon} if isinstance(abandon, str) else set(abandon)
        self._met: set[str] = set()
        self._done: list[Finished] = []
        self._in_use: list[str] = []
        self._unfinished: list[UnfinishedJob] = []
        self._errors: list[Exception] = []

    async def guarded(self, note: Note, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; what fails is told at the end."""
        try:
            await work()
        except (AsyncRecError, OSError, ValueError) as error:
            error.add_note(f"of the writer {note.writer}, on {note.url}; the others were seen to all the same")
            self._errors.append(error)

    async def spooled(
        self,
        spool: LocalStorage,
        path: str,
        note: Note,
        opened: AbstractAsyncContextManager[tuple[Storage, str]],
    ) -> None:
        async with opened as (folder, name):
            if name != note.name:
                raise StorageError(f"{path}: it says {note.url}, and names {note.name!r}")
            await self.local(spool, path, note, folder)

    async def local(self, home: LocalStorage, path: str, note: Note, target: Storage) -> None:
        for attempt in range(_LOOKS):
            try:
                journal = await claim_journal(home, path)
                break
            except StorageError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise
                if attempt == _LOOKS - 1:
                    self._lives(note)
                    return
            await anyio.sleep(_BETWEEN_LOOKS)
        if journal is None:
            return
        finishing = FinishingLocal(journal, target)
        self._done.append(finishing.done)
        ended = False
        try:
            if self._is_given_up(note):
                plain = await uses_plain_names(target, note)
                if not await abandon_local(target, journal, plain=plain):
                    await finishing.run()
                else:
                    await clear_up(target, note, plain=plain)
                    finishing.done.abandoned.append(note.writer)
            else:
                await finishing.run()
            ended = True
        finally:
            await surely_in_thread(partial(journal.end, keep=not ended))

    async def remote(self, note: Note, target: Storage) -> None:
        try:
            life = await take_life(note)
        except StorageError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            self._lives(note)
            return
        ended = False
        try:
            plain = await uses_plain_names(target, note)
            closing = await load_closing(target, note.name, note.writer)
            if closing is not None:
                self._is_given_up(note)
                await clear_up(target, note, plain=plain)
            elif self._is_given_up(note):
                if await abandon_job(target, note, plain=plain):
                    self._done.append(Finished(abandoned=[note.writer]))
                await target.delete(mark_key(note.name, note.writer))
            elif life is None or note.spool:
                self._unfinished.append(_unfinished(note))
                return
            else:
                finishing = FinishingRemote(note, target)
                self._done.append(finishing.done)
                await finishing.run()
            ended = True
        finally:
            if life is not None:
                await surely_in_thread(partial(life.end, keep=not ended))

    def outcome(self, path: str) -> Recovery:
        """What was done, or what failed."""
        done = self._done
        recovery = Recovery(
            shards=tuple(shard for each in done for shard in each.shards),
            cut_bytes=sum(each.cut_bytes for each in done),
            damaged=tuple(name for each in done for name in each.damaged),
            discarded=tuple(shard for each in done for shard in each.discarded),
            abandoned=tuple(maker for each in done for maker in each.abandoned),
            in_use=tuple(self._in_use),
            unfinished=tuple(self._unfinished),
            targets=tuple(dict.fromkeys(each.target for each in done if each.shards)),
        )
        if missing := self._abandon - self._met:
            self._errors.append(
                ObjectNotFoundError(f"{path}: there is no unfinished job of the id {', '.join(sorted(missing))}")
            )
        if self._errors:
            first, *others = self._errors
            for other in others:
                first.add_note(f"and: {other}")
            if recovery.shards:
                first.add_note(f"{recovery.records:,} records of other writers were recovered")
            raise first
        return recovery

    def _is_given_up(self, note: Note) -> bool:
        self._met.add(note.writer)
        return note.writer in self._abandon

    def _lives(self, note: Note) -> None:
        if self._is_given_up(note):
            raise ConflictError(f"the writer {note.writer} (process {note.pid} on {note.host}) lives: end it first")
        self._in_use.append(note.writer)


def _unfinished(note: Note) -> UnfinishedJob:
    return UnfinishedJob(
        id=note.writer,
        kind=note.kind,
        host=note.host,
        pid=note.pid,
        since=datetime.fromisoformat(note.since) if note.since else None,
        age=note.age,
        spool=note.spool,
    )
