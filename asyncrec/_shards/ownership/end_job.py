"""`end_job` is the only function that decides the fate of a dead job.

A writer A, or its machine, has died and left behind unfinished files, uncommitted shards, a mark and perhaps a claim.
Before A's names, keys or place can be used again, another process B must end A. B may be a writer that opens the same
data set, ``asyncrec recover``, the next run of a joint job, or a writer waiting for A's place in the log of removals.

The naive approach is to check that A's mark is old, and then delete the objects that A left. This can go wrong:

- A was only asleep. It wakes up and commits the shard that B has just deleted, so the manifest lists a missing shard.
- B deletes records that one of A's flushes has reported as safe.
- C ends A at the same time. B commits A's records while C deletes them, or both commit them.
- B dies after it has deleted the mark and half of the objects. No other process can find the rest.

Therefore B takes the following steps in this order. If B dies, the next process starts again with the first step:

1. *Is A alive?* A's lock shows this, or its silence in a shared folder (`FoundJob.claim`). If neither does, a person
   decides (`Verdict`). B keeps A's lock until it is done; until then, A seems alive to a process C on the same machine.
2. *Has A ended?* If its closing segment or a tombstone exists, B only cleans up.
3. *Has A promised to keep records?* If so, B commits them if its caller allows that (`finishing`), and otherwise leaves
   A unchanged.
4. *If not, B creates a tombstone under the name of A's closing segment.* Of A's commit and the tombstones of B and C,
   only one can be created. No object is deleted before that.
5. B deletes the objects that no commit lists, then the claims, and finally A's mark or header, which is needed to find
   the others.

A job that ends itself takes the steps from step 2 on (`end_own_job`). `end_unmarked` ends a job without a mark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.closing import abandoned_error, entomb, load_closing
from asyncrec._shards.journal.header import this_host
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.remedies import command_for
from asyncrec._shards.journal.staging import Staging
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import claim_key
from asyncrec._shards.manifest.segment import Segment
from asyncrec._shards.ownership.census import LOOKS, FoundJob, claimed
from asyncrec._shards.ownership.clearing import delete_replaced, delete_unlisted
from asyncrec._shards.ownership.flushed import delete_flushed, live_of, put_fence
from asyncrec._shards.ownership.marks import delete_claims, load_mark, names_of, remove_mark
from asyncrec._shards.ownership.unlisted import published_by
from asyncrec._shards.ownership.verdict import Answer, Ending, Verdict
from asyncrec.errors import ConflictError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

_ATTEMPTS = 10


async def end_job(
    folder: Storage,
    job: FoundJob,
    verdict: Verdict,
    *,
    ending: Ending | None = None,
    after: AsyncExitStack | None = None,
) -> Answer:
    """End another process's job if it is dead and the verdict allows it; otherwise leave the job unchanged.

    If a step raises an error, the earlier steps are not undone, and the next call takes the remaining steps.

    Args:
        folder: the folder of the data set.
        ending: collects the results.
        after: a stack whose exit deletes the job's claims and its header or mark, and releases the lock. Until then,
            they keep other jobs from using the names. Without ``after``, this is done immediately.

    Raises:
        ConflictError: the job had promised records, but another process abandoned it, or other jobs have its names.
        StorageError, ManifestError: a step failed.
    """
    state, staging = await claimed(job, looks=1 if job.marked else LOOKS)
    if staging is None:
        if state != "alive":
            return "ended"
        if not (verdict.living and job.marked and not job.header.spool):
            return "alive"
        staging = Staging(job.header, None)  # fence this job, as if its state were unknown
    taken = _Taken(folder, job, staging, ending if ending is not None else Ending())
    answer: Answer = "unknown"
    try:
        answer = await taken.end(verdict, dead=state == "dead" or verdict.dead or verdict.abandon)
    finally:
        if answer in ("unknown", "promised"):
            await surely_in_thread(partial(staging.end, keep=True))
    if answer not in ("unknown", "promised"):
        if after is not None:
            after.push_async_callback(taken.take_away_mark)
        else:
            await taken.take_away_mark()
    return answer


async def end_fenced(folder: Storage, staging: Staging) -> None:
    """End a rolling job of this process, which another process has fenced but not ended.

    Raises:
        ConflictError: another process is ending the job.
        StorageError, ManifestError: a step failed.
    """
    header = staging.header
    taken = _Taken(folder, FoundJob(header), staging, Ending())
    await taken.end(Verdict(dead=True, finishes="rolling"), dead=True)
    await remove_mark(folder, header.name, header.writer)


class _Taken:
    """A job of another process that this process has locked."""

    def __init__(self, folder: Storage, job: FoundJob, staging: Staging, ending: Ending) -> None:
        self._folder = folder
        self._header = staging.header
        self._staging = staging
        self._ending = ending
        self._marked = job.marked or bool(job.header.life)
        self._abandoned = False
        self._not_ours = False

    async def end(self, verdict: Verdict, *, dead: bool) -> Answer:
        """Take all steps except for those in `take_away_mark`."""
        folder, header, files = self._folder, self._header, self._staging.files
        if files is not None and not dead and not header.detached:  # no lock proves that the job is dead
            return "unknown"
        if await self._id_is_anothers():
            self._not_ours = True
            return "ended"
        closing = await load_closing(folder, header.name, header.writer)
        if closing is None and not dead:
            return "unknown"
        names = await names_of(folder, header)
        await in_thread(self._staging.take)
        answer: Answer | None = "ended"
        if closing is None or verdict.abandon:
            answer = None if verdict.abandon else await self._keep_promises(verdict, names)
            if answer == "promised":
                return answer
        elif closing.abandoned and await in_thread(self._staging.holds_promises):
            raise self._lost_promises(closing)
        found = [] if files is None else await in_thread(files.shards)
        flushes = files is None and bool(header.silent_after)
        if answer is None:
            if flushes and not self._staging.dead:
                await put_fence(folder, header.name, header.writer, by=this_host())
            closing = await entomb(folder, header.name, header.writer, by=this_host())
            answer = "given up" if closing.abandoned else "ended"
        self._abandoned = closing is not None and closing.abandoned
        if answer == "given up":
            self._ending.abandoned.append(header.writer)
            self._ending.discarded += found
            path = join(folder.root, header.name)
            _path_log.info(path, "the writer %s was given up", header.writer, writer=header.writer)
        if files is not None:
            await in_thread(files.remove)
        await delete_replaced(folder, header.name, closing.remove if closing and not header.joins else ())
        await delete_unlisted(folder, names)
        if flushes:
            await delete_flushed(folder, header.name, header.writer, fenced=not self._staging.dead)
        return answer

    def _lost_promises(self, closing: Segment) -> ConflictError:
        header, files = self._header, self._staging.files
        assert files is not None, "only files hold promises"
        error = abandoned_error(self._folder, header.name, closing)
        command = command_for(header, files.folder.root if header.spool else header.url, abandon=True)
        error.add_note(f"its unfinished files stay in {files.folder.root}; to remove them, run {command}")
        return error

    async def _keep_promises(self, verdict: Verdict, names: JobNames) -> Answer | None:
        """Keep the job's promises. Return ``"promised"`` if the verdict forbids it, or `None` if there were none."""
        header, files = self._header, self._staging.files
        if files is None and header.spool and not verdict.dead:
            return "promised"  # its records are in a spool on its machine
        if header.kind == "whole" or (header.kind == "fixed" and files is None):
            return None
        if verdict.finishes == "nothing":
            return "promised" if await self._holds_promises() else None
        module = await in_thread(import_module, "asyncrec._shards.ownership.finishing")  # imported late: rarely needed
        finishing = module.Finishing(self._folder, self._staging, names, self._ending)
        if header.kind == "rolling":
            # If a person declared the job dead, its disk may come back with unfinished journals, so abandon the job.
            returns = files is None and verdict.dead
            for attempts_left in reversed(range(_ATTEMPTS)):
                await finishing.begin()
                try:
                    await finishing.rolling(close=not returns)
                    break
                except ConflictError:
                    # An earlier request of the job has now committed more shards, so read its flush entries again.
                    went_on = (
                        header.silent_after and await load_closing(self._folder, header.name, header.writer) is None
                    )
                    if not (went_on and attempts_left):
                        raise
            return None if returns else "finished"
        await finishing.begin()
        if not await finishing.is_promised(files):
            return None
        if verdict.finishes == "rolling":
            return "promised"
        await finishing.fixed(files)
        return "finished"

    async def _holds_promises(self) -> bool:
        """Return whether the job may have reported records as safe that are not committed."""
        header = self._header
        if await in_thread(self._staging.holds_promises):
            return True
        if header.kind != "rolling":
            return False
        if self._staging.files is not None:
            # Once a rolling writer has published a shard, the records that it had flushed are no longer in a journal.
            shards = await published_by(self._folder, JobNames.of(header))
        else:
            shards = [*(await live_of(self._folder, header.name, header.writer)).records] if header.silent_after else []
        history = await load_history(self._folder, header.name)
        return await in_thread(lambda: not all(map(history.lists, shards)))

    async def _id_is_anothers(self) -> bool:
        """Return whether the job id in a spool's header belongs to a different job, which used the id first.

        A job creates its mark before any other object, so none of the objects with this id belong to this job.

        Raises:
            ConflictError: this job has left files anyway. The files are not changed.
        """
        header, files = self._header, self._staging.files
        if files is None or not header.spool:
            return False
        mark = await load_mark(self._folder, header.name, header.writer)
        if mark is None or mark == header:
            return False
        if await in_thread(files.any_left):
            raise ConflictError(
                f"{header.url}: another job with the id {header.writer}, started {mark.since} on {mark.host}, has "
                f"not ended; the files in {files.folder.root} are kept until it has"
            )
        return True

    async def take_away_mark(self) -> None:
        """Delete the claims, the mark and the header, and release the lock."""
        header = self._header
        ended = False
        try:
            if not self._not_ours:
                # If an abandoned job wrote to a store, its requests may still take effect later, so keep its claims.
                if not (header.life and self._abandoned):
                    await delete_claims(self._folder, header.name, header.writer)
                if self._marked:
                    await remove_mark(self._folder, header.name, header.writer)
            ended = True
        finally:
            await surely_in_thread(partial(self._staging.end, keep=not ended))
        if self._staging.files is not None and header.life and not self._not_ours:  # the files are in a spool
            with suppress(StorageError):  # another process has the lock, and abandons and ends the job
                _, marked = await claimed(FoundJob(header))
                if marked is not None:
                    await surely_in_thread(marked.end)


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The state of a job at its own exit, as far as the job knows.

    Attributes:
        committed: whether the job's closing segment exists.
        unsettled: whether the outcome of a commit is unknown.
        left: whether the job published an object that is not in any commit and could not be deleted.
        doubtful: whether an object may still appear because a request to create it was not answered.
        lingers: whether such an object may appear under a name that the job's claim reserves.
        placed: whether the job has a place in the log of removals.
        shared: whether other processes have created shards under the job's names, possibly without its knowledge.
        replaced: the shards that the job's own shards replace.
        claim: the number of the job's claim; `None` if it has no claim.
    """

    committed: bool
    unsettled: bool
    left: bool
    doubtful: bool
    lingers: bool
    placed: bool
    shared: bool
    replaced: Collection[str]
    claim: int | None


async def end_own_job(
    folder: Storage, staging: Staging, exit: Exit, *, bury: Callable[[Collection[str]], Awaitable[None]]
) -> bool:
    """Delete the objects that a job leaves when it ends itself. Return false if its mark or header is still needed.

    ``bury`` deletes the objects in doubt, except for the shards that are passed to it. It is called once a tombstone
    exists, with the shards that the tombstone adds, because another process may have created the tombstone and adopted
    a shard whose creation request was not answered.

    Raises:
        StorageError, ManifestError: a step failed; the mark and the header are still needed.
    """
    header, files = staging.header, staging.files
    name, writer = header.name, header.writer
    if exit.committed:
        # The new manifest is already in effect, so an old shard that is not deleted does no harm.
        await delete_replaced(folder, name, exit.replaced)
    if exit.unsettled or exit.left:
        return False
    if exit.shared:
        # Check the store, because a commit may have taken effect even though its response was lost.
        if not exit.committed and not (await entomb(folder, name, writer, by=this_host())).abandoned:
            return False
        await delete_unlisted(folder, JobNames.of(header))
    if files is not None and (exit.shared or not exit.committed):
        left = await in_thread(files.any_left)
        if left and (exit.shared or (header.kind == "fixed" and not staging.acknowledged)):
            await in_thread(files.remove)  # they are left over from a failed flush, whose caller got an error
            left = False
        if left or staging.acknowledged:
            return False  # keep them for `recover`
    if not exit.committed and (exit.placed or exit.lingers or exit.doubtful):
        closing = await entomb(folder, name, writer, by="itself")
        if exit.doubtful and closing.abandoned:
            await bury({entry.path for entry in closing.add})
    if exit.claim is not None and not exit.lingers:
        # Delete only the job's own claim. An earlier job's claim reserves the plain names, and that job may be alive.
        await folder.delete(claim_key(name, exit.claim))
    if exit.doubtful and not exit.committed:
        return False  # if an object appears later, recovery needs the mark to find it
    if header.life:
        await remove_mark(folder, name, writer)
    return True


async def end_unmarked(folder: Storage, name: str, writers: Collection[str]) -> None:
    """End the writers with these ids, which have no mark and no header.

    After this, their uncommitted objects no longer belong to any job.
    """
    for writer in sorted(writers):
        await entomb(folder, name, writer, by="verify")
