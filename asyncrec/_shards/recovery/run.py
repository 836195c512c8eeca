"""`RecoveryRun`: one call of `asyncrec.recover`, job after job, and what comes of it."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.journal.leftovers import has_leftovers
from asyncrec._shards.ownership.abandonment import abandon as abandon_job
from asyncrec._shards.ownership.claims import abandon_local, claim_journal
from asyncrec._shards.ownership.clear_up import clear_up
from asyncrec._shards.ownership.liveness import BETWEEN_LOOKS, LOOKS, take_life
from asyncrec._shards.ownership.marks import load_mark, remove_mark, uses_plain_names
from asyncrec._shards.recovery.local_recovery import LocalWriterRecovery
from asyncrec._shards.recovery.report import RecoveredWriter, Recovery, UnfinishedJob
from asyncrec._shards.recovery.writer_recovery import RemoteWriterRecovery
from asyncrec.errors import AsyncRecError, ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder

__all__ = ["RecoveryRun"]


class RecoveryRun:
    """The progress of one call: what it has done so far, and what has failed.

    Attributes:
        left: jobs whose shards belong together, and would have been completed if it were to complete any.
    """

    def __init__(self, abandon: Collection[str], *, completes: bool = True) -> None:
        """``completes`` whether shards that belong together may be committed."""
        self.left: list[JobHeader] = []
        self._completes = completes
        self._abandon = {abandon} if isinstance(abandon, str) else set(abandon)
        self._met: set[str] = set()
        self._done: list[RecoveredWriter] = []
        self._lost: list[str] = []
        self._in_use: list[str] = []
        self._unfinished: list[UnfinishedJob] = []
        self._errors: list[Exception] = []

    async def guarded(self, header: JobHeader, work: Callable[[], Awaitable[None]]) -> None:
        """Recover one job by calling ``work``; an error is kept, and raised at the end by `outcome`."""
        try:
            await work()
        except (AsyncRecError, OSError, ValueError) as error:
            error.add_note(f"of the writer {header.writer}, on {header.url}; the others were seen to all the same")
            self._errors.append(error)

    async def recover_local(self, local: LocalStorage, path: str, header: JobHeader, target: Storage) -> None:
        home = local_folder(target)
        if header.spool and home is not None and home.folder == local.folder:
            # Whole shards there would be taken for what waits to be uploaded, and removed.
            raise StorageError(f"{path}: it says that its folder is a spool, which is the data set's own; remove it")
        for attempt in range(LOOKS):
            try:
                journal = await claim_journal(local, path)
                break
            except StorageError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise
                if attempt == LOOKS - 1:
                    self._lives(header)
                    return
            await anyio.sleep(BETWEEN_LOOKS)
        if journal is None:
            return
        if header.spool and await _is_anothers(journal, target):
            await surely_in_thread(journal.end)
            return
        recovery = LocalWriterRecovery(journal, target)
        self._done.append(recovery.done)
        ended = False
        try:
            if self._is_given_up(header):
                plain = await uses_plain_names(target, header)
                if not await abandon_local(target, journal, plain=plain):
                    await recovery.run()
                else:
                    await clear_up(target, header, plain=plain)
                    recovery.done.abandoned.append(header.writer)
                ended = True
            else:
                ended = await recovery.run(completes=self._completes)
                if not ended:
                    self.left.append(header)
        finally:
            await surely_in_thread(partial(journal.end, keep=not ended))

    async def recover_marked(self, header: JobHeader, target: Storage) -> None:
        try:
            life = await take_life(header)
        except StorageError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            self._lives(header)
            return
        ended = False
        try:
            plain = await uses_plain_names(target, header)
            closing = await load_closing(target, header.name, header.writer)
            if closing is not None:
                self._is_given_up(header)
                await clear_up(target, header, plain=plain)
            elif self._is_given_up(header):
                if await abandon_job(target, header, plain=plain):
                    self._done.append(RecoveredWriter(abandoned=[header.writer]))
                    await remove_mark(target, header.name, header.writer)
                else:  # it has ended well meanwhile
                    await clear_up(target, header, plain=plain)
            elif life is None or header.spool:
                self._unfinished.append(UnfinishedJob.of(header))
                return
            else:
                recovery = RemoteWriterRecovery(header, target)
                self._done.append(recovery.done)
                await recovery.run()
                if header.kind == "rolling":
                    self._lost.append(header.writer)
            ended = True
        finally:
            if life is not None:
                await surely_in_thread(partial(life.end, keep=not ended))

    def outcome(self, path: str) -> Recovery:
        """Return what was done, or raise what failed."""
        done = self._done
        recovery = Recovery(
            shards=tuple(shard for each in done for shard in each.shards),
            cut_bytes=sum(each.cut_bytes for each in done),
            damaged=tuple(name for each in done for name in each.damaged),
            discarded=tuple(shard for each in done for shard in each.discarded),
            abandoned=tuple(maker for each in done for maker in each.abandoned),
            lost=tuple(self._lost),
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

    def _is_given_up(self, header: JobHeader) -> bool:
        self._met.add(header.writer)
        return header.writer in self._abandon

    def _lives(self, header: JobHeader) -> None:
        if self._is_given_up(header):
            raise ConflictError(
                f"the writer {header.writer} (process {header.pid} on {header.host}) lives: end it first"
            )
        self._in_use.append(header.writer)


async def _is_anothers(journal: Journal, target: Storage) -> bool:
    """Whether the id in the note of a spool is another job's: whoever left it found the id taken, and made nothing.

    The mark of a job is there before anything else of it, so that nothing of the other one is its.

    Raises:
        ConflictError: it has made something all the same, which stays as it is.
    """
    header = journal.header
    try:
        mark = await load_mark(target, header.name, header.writer)
        if mark is None or mark == header:
            return False
        if await in_thread(has_leftovers, journal.folder, header):
            raise ConflictError(
                f"{header.url}: another job, begun {mark.since} on {mark.host}, has the id {header.writer}; what is "
                f"in {journal.folder.root} stays there until that one has ended"
            )
    except BaseException:
        await surely_in_thread(partial(journal.end, keep=True))
        raise
    return True
