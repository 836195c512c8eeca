"""`RecoveryRun`: one call of `asyncrec.recover`, job after job, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.job_files import has_leftovers
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.ownership.abandonment import abandon as abandon_job
from asyncrec._shards.ownership.claims import abandon_local
from asyncrec._shards.ownership.clear_up import clear_up
from asyncrec._shards.ownership.liveness import BETWEEN_LOOKS, LOOKS, claim_journal, claim_life
from asyncrec._shards.ownership.marks import load_mark, remove_mark, uses_plain_names
from asyncrec._shards.recovery.local_recovery import LocalWriterRecovery
from asyncrec._shards.recovery.report import RecoveredWriter, Recovery, UnfinishedJob
from asyncrec._shards.recovery.writer_recovery import RemoteWriterRecovery
from asyncrec.errors import ArgumentValueError, AsyncRecError, ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder


class RecoveryRun:
    """The progress of one call: what it has done so far, and what has failed.

    Attributes:
        left: jobs whose shards belong together, and would have been completed if it were to complete any.
    """

    def __init__(self, abandon: Collection[str], dead: Collection[str] = (), *, completes: bool = True) -> None:
        """``completes`` whether shards that belong together may be committed.

        Raises:
            ArgumentValueError: an id is in ``abandon`` and in ``dead``.
        """
        self.left: list[JobHeader] = []
        self._completes = completes
        self._abandon = {abandon} if isinstance(abandon, str) else set(abandon)
        self._dead = {dead} if isinstance(dead, str) else set(dead)
        if both := self._abandon & self._dead:
            raise ArgumentValueError(
                f"{min(both)} is to be given up, and is to be recovered because it is dead: say one"
            )
        self._done: list[RecoveredWriter] = []
        self._lost: list[str] = []
        self._in_use: list[str] = []
        self._unfinished: list[UnfinishedJob] = []
        self._errors: list[Exception] = []

    def refuse_unknown(self, path: str, headers: Iterable[JobHeader]) -> None:
        """See that every id that the caller names is that of one of these jobs.

        Raises:
            ObjectNotFoundError: one is not.
        """
        if missing := (self._abandon | self._dead).difference(header.writer for header in headers):
            raise ObjectNotFoundError(f"{path}: there is no unfinished job of the id {', '.join(sorted(missing))}")

    @property
    def records(self) -> int:
        """How many records it has recovered so far."""
        return sum(shard.records for each in self._done for shard in each.shards)

    async def guarded(self, header: JobHeader, work: Callable[[], Awaitable[None]]) -> bool:
        """Recover one job by calling ``work``; an error is kept, and raised at the end by `outcome`: then False."""
        try:
            await work()
        except (AsyncRecError, OSError, ValueError) as error:
            error.add_note(f"of the writer {header.writer}, on {header.url}; the others were seen to all the same")
            self._errors.append(error)
            return False
        return True

    async def recover_local(self, local: LocalStorage, path: str, header: JobHeader, target: Storage) -> None:
        home = local_folder(target)
        if header.spool and home is not None and home.folder == local.folder:
            # Whole shards there would be taken for what waits to be uploaded, and removed.
            raise StorageError(f"{path}: it says that its folder is a spool, which is the data set's own; remove it")
        # No lock says of a detached job that it has ended.
        over = header.detached and await load_closing(target, header.name, header.writer) is not None
        for look in range(LOOKS):
            if look:
                await anyio.sleep(BETWEEN_LOOKS)
            state, journal = await claim_journal(local, path)
            if state != "alive":
                break
        else:
            self._lives(header)
            return
        if journal is None:
            return
        if state == "unknown" and not over and header.writer not in self._abandon | self._dead:
            await surely_in_thread(partial(journal.end, keep=True))
            self._unfinished.append(UnfinishedJob.of(header))
            return
        if header.spool and await _is_anothers(journal, target):
            await surely_in_thread(journal.end)
            return
        recovery = LocalWriterRecovery(journal, target)
        self._done.append(recovery.done)
        ended = False
        try:
            await in_thread(journal.take)
            if header.writer in self._abandon:
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
        state, life = await claim_life(header)
        if state == "alive":
            self._lives(header)
            return
        ended = False
        try:
            plain = await uses_plain_names(target, header)
            closing = await load_closing(target, header.name, header.writer)
            if closing is not None:
                await clear_up(target, header, plain=plain)
            elif header.writer in self._abandon:
                await self._give_up(header, target, plain=plain)
            elif header.writer in self._dead:
                # It may live after all, or its machine come back with a spool: so it is fenced, and not closed.
                recovery = RemoteWriterRecovery(header, target)
                self._done.append(recovery.done)
                await recovery.commit_published()
                self._lost.append(header.writer)
                await self._give_up(header, target, plain=plain)
            elif state == "unknown" or header.spool:
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

    async def _give_up(self, header: JobHeader, target: Storage, *, plain: bool) -> None:
        if await abandon_job(target, header, plain=plain):
            self._done.append(RecoveredWriter(abandoned=[header.writer]))
            await remove_mark(target, header.name, header.writer)
        else:  # it has ended well meanwhile
            await clear_up(target, header, plain=plain)

    def outcome(self) -> Recovery:
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
        if self._errors:
            first, *others = self._errors
            for other in others:
                first.add_note(f"and: {other}")
            if recovery.shards:
                first.add_note(f"{recovery.records:,} records of other writers were recovered")
            raise first
        return recovery

    def _lives(self, header: JobHeader) -> None:
        if header.writer in self._abandon | self._dead:
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
