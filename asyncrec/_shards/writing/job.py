"""`Job`: the making of shards for one data set, from the mark before the first object to the one object that ends it.

Every writer and every tool that makes shards does it as a job, and so each rule stands here once:

1. Before anything is made there is a mark that says whose it is, and a lock that dies with the process.
2. Who wants the data set's name for itself claims it, and is told at once when somebody else has it.
3. Shards, indexes and keys are made under names that nobody else makes.
4. The closing segment is created exclusively, and by it everything is committed that was not before. Whoever gives a
   dead job up takes that name first, for a tombstone; so exactly one of both happens.
5. What replaces takes a place in the log of removals before, and deletes what it replaced after.
6. What is left, and by whom it may be taken away, can be read from the mark, which goes last.

    async with open_job(folder, note, path=path) as job:
        async with job.committer.open_shard(job.shard_name(0)) as shard: ...
        await job.commit([job.committer.entry_of(shard, begun, ended)])
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import anyio

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import entomb
from asyncrec._shards.commit.commit import Committer, OnCommit
from asyncrec._shards.journal.header import MOST_BYTES, Note
from asyncrec._shards.journal.journal import Journal, dead_notes, leftovers_of
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import claim_key, mark_key, new_writer_id
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec._shards.manifest.snapshot import for_each, load_manifest, load_segments, manifest_of
from asyncrec._shards.ownership.abandonment import delete_replaced, is_another_data_set
from asyncrec._shards.ownership.claims import refuse_makers, settle_claims
from asyncrec._shards.ownership.liveness import Life, this_host
from asyncrec._shards.ownership.marks import Claim, find_claims, put_claim, put_mark, remove_own_mark
from asyncrec._shards.ownership.removals import take_place
from asyncrec._shards.spool.folder import SpoolFolder
from asyncrec.errors import (
    ArgumentValueError,
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder
from asyncrec.storage._url import join

__all__ = ["Job", "Mode", "open_job", "whole_note"]

Mode = Literal["append", "new", "replace"]

_log = logging.getLogger("asyncrec._shards")

# Some small requests, or deleting what was replaced; each is retried by the backend, and then given up.
_CLEAN_UP_SECONDS = 30
_LONGEST_NAME = 255
# One shard at a time is open: chunks are not what bounds the memory of whoever gives no budget.
_ANY_NUMBER_OF_CHUNKS = 1 << 62


class Job:
    """Made by `open_job`.

    Attributes:
        note: what it makes, and how.
        store: the data set's folder, where it commits.
        home: where shards are opened and published; a spool, or else the store.
        before: the data set as it was when the job began; `None` where there was none.
        journal: its note, where the home is a local folder.
        committer: publishes its shards.
        committed: its closing segment is there: it has ended well.
    """

    def __init__(
        self,
        note: Note,
        store: Storage,
        home: Storage,
        *,
        mode: Mode,
        before: Manifest | None,
        journal: Journal | None,
        claim: Claim | None,
        budget: ByteBudget,
        on_commit: OnCommit | None,
    ) -> None:
        self.note = note
        self.store = store
        self.home = home
        self.spool = home if isinstance(home, SpoolFolder) else None
        self.before = before
        self.journal = journal
        self.committer = Committer(
            store, note, budget=budget, after=before, on_commit=on_commit, promised=self._is_promised, home=home
        )
        self._claim = claim
        self._replaces = mode == "replace"
        self._placed = False

    @property
    def committed(self) -> bool:
        return self.committer.closed

    def shard_name(self, number: int) -> str:
        """Of its shard with this number."""
        return self.note.shard_name(number, plain=self._claim is not None and self._claim.plain)

    async def commit(self, entries: Sequence[ShardEntry] = ()) -> None:
        """End the job well: these entries become part of the data set, and what it replaces no longer is. Once.

        Raises:
            ConflictError: it was abandoned, or the data set was replaced, by somebody else; nothing of this is in it.
            StorageError: it is not committed; or nobody knows, and a note says so.
        """
        removed: tuple[str, ...] = ()
        place = None
        if self._replaces:
            removed = tuple(entry.path for entry in self.before.shards) if self.before is not None else ()
            self._placed = True
            place = await take_place(
                self.store,
                self.note.name,
                self.note.writer,
                since=self.before.removals if self.before else 0,
                deadline=self.committer.deadline,
            )
            await self._compare(removed)
        await self.committer.close(sorted(entries, key=lambda entry: entry.path), remove=removed, removal=place)

    async def take_back(self, entries: Sequence[ShardEntry]) -> None:
        """After a failure: delete shards that were published and are in no manifest.

        Nothing that a manifest may name by now, nor what was acknowledged: `asyncrec.recover` finds it.
        """
        if not self.committed and not self.committer.unsettled and not self._is_promised():
            await self.committer.take_back(entries)

    def _is_promised(self) -> bool:
        """Whether `asyncrec.recover` would finish the job, or what is left of it."""
        if self.note.kind == "rolling":
            return True
        return self.note.kind == "fixed" and self.journal is not None and self.journal.acknowledged

    async def _compare(self, removed: Sequence[str]) -> None:
        now = await load_manifest(self.store, self.note.name, path=self.note.name)
        there = {entry.path for entry in now.shards} if now is not None else set()
        if missing := [path for path in removed if path not in there]:
            raise ConflictError(
                f"{self.store.root}/{self.note.name}: {missing[0]} was to be replaced, and was removed meanwhile; "
                "nothing of this writer is in the data set"
            )

    async def _end(self, life: Life | None, *, marked: bool) -> None:
        """Take away what marks the job, unless something is left that needs it. Shielded and limited in time."""
        ended = False
        async with AsyncExitStack() as stack:
            if life is not None:
                stack.push_async_callback(lambda: surely_in_thread(partial(life.end, keep=not ended)))
            if (journal := self.journal) is not None:
                stack.push_async_callback(lambda: surely_in_thread(partial(journal.end, keep=not ended)))
            with self.committer.cleaning_up() as scope:
                try:
                    ended = await self._clean_up(marked=marked)
                except Exception as error:
                    _log.warning("%s/%s: cleaning up failed: %s", self.store.root, self.note.name, error)
            if scope.cancelled_caught:
                _log.warning("%s/%s: cleaning up was given up", self.store.root, self.note.name)

    async def _clean_up(self, *, marked: bool) -> bool:
        """Whether nothing is left that needs a mark."""
        name, committer = self.note.name, self.committer
        if self.committed and self._replaces and self.before is not None:
            # The new manifest holds already: what stays is merely not listed.
            await delete_replaced(self.store, name, {entry.path for entry in self.before.shards})
        if committer.unsettled or (committer.pending and not self.committed):
            return False
        if self.journal is not None and not self.committed:
            left = await in_thread(leftovers_of, self.journal.folder, self.note)
            if left or self.journal.acknowledged:
                return False  # for `recover`
        # Elsewhere than on a disk, a request that was given up may still create what it asked for.
        lingers = marked and self._claim is not None and committer.publishing and not self.committed
        # What comes late is not committed, and who recovers finds it by the mark.
        doubtful = marked and committer.doubtful and not self.committed
        if not self.committed and (self._placed or lingers or doubtful):
            closing = await entomb(self.store, name, self.note.writer, by="itself")
            if doubtful and closing.abandoned:
                for key in committer.unanswered:
                    await self.store.delete(key)
        if self._claim is not None and not lingers:
            # Its own alone: one of an earlier job, which may live elsewhere, keeps the plain names from being used.
            await self.store.delete(claim_key(name, self._claim.number))
        if doubtful:
            return False
        if marked:
            await self.store.delete(mark_key(name, self.note.writer))
        return True


@asynccontextmanager
async def open_job(
    folder: Storage,
    note: Note,
    *,
    path: str,
    mode: Mode,
    take_over: bool = False,
    spool: SpoolFolder | None = None,
    budget: ByteBudget | None = None,
    on_commit: OnCommit | None = None,
) -> AsyncIterator[Job]:
    """Begin a job on the data set ``note.name`` in ``folder``; it ends with the context.

    Left without `Job.commit`, an all-or-nothing job has made nothing: whoever made shards takes them back first.

    Args:
        path: of the data set, for errors.
        mode: ``"append"``; ``"new"`` wants nothing there; ``"replace"`` makes this the whole data set.
        take_over: take the name from a job on another machine, which a person says is dead.
        spool: where shards are written to first.

    Raises:
        ObjectExistsError: there is a data set already, or a file of a fixed shard's name; or the id was used before.
        ConflictError: another job is making the data set.
    """
    local = local_folder(folder)
    owned: LocalStorage | None = spool
    if owned is None and local is not None:
        owned = local.owned_by(note.writer, keep=note.kind != "whole")
    marked = local is None or spool is not None  # its note is not in the data set's folder
    async with AsyncExitStack() as stack:
        life = await acquire_in_thread(_begin_life, _end) if marked else None
        left = False
        if life is not None:
            stack.push_async_callback(lambda: surely_in_thread(partial(life.end, keep=left)))
        note = replace(
            note,
            host=this_host(),
            pid=os.getpid(),
            since=datetime.now(UTC).isoformat(),
            life="" if not marked else "none" if life is None else life.token,
        )
        await in_thread(_refuse_unwritable, note, owned is not None)
        journal = None
        if owned is not None:
            journal = begun = await acquire_in_thread(partial(Journal.begin, owned, note), Journal.end)
            stack.push_async_callback(lambda: surely_in_thread(partial(begun.end, keep=left)))
        claim: Claim | None = None
        asking = False
        try:
            if marked:
                asking = True
                await put_mark(folder, note)
                asking = False
            before = await _before(folder, note, mode=mode, path=path)
            if mode == "new" or note.num_shards is not None or note.stems:
                asking = marked
                claim = await _claimed(folder, local, note, mode=mode, take_over=take_over, path=path)
                asking = False
                before = await _before(folder, note, mode=mode, path=path)
            if note.stems:
                await refuse_makers(folder, note)
            own_names = note.num_shards is not None and (claim is None or not claim.plain)
            if own_names and await is_another_data_set(folder, f"{note.name}-{note.writer}"):
                raise ObjectExistsError(
                    f"{path}: the shards would have the names of the data set {note.name}-{note.writer}; "
                    "choose another writer_id"
                )
            if local is not None:
                for dead in await in_thread(dead_notes, local, note):
                    _log.warning(
                        "%s: the writer %s died, and left unfinished shards; asyncrec.recover(%r) sees to them",
                        path,
                        dead.writer,
                        path,
                    )
        except BaseException as error:
            # A request of which no answer came may be granted yet: then `recover` has to find its job proven dead.
            doubtful = asking and isinstance(error, (UnsettledError, anyio.get_cancelled_exc_class()))
            left = True  # until it is known: cancelled once more, it is left
            left = not await _undo(folder, note, marked=marked) or doubtful
            raise
        job = Job(
            note,
            folder,
            owned if owned is not None else folder,
            mode=mode,
            before=before,
            journal=journal,
            claim=claim,
            budget=budget if budget is not None else ByteBudget(_ANY_NUMBER_OF_CHUNKS),
            on_commit=on_commit,
        )
        stack.pop_all()  # from here on, `Job._end` lets go
        try:
            yield job
        finally:
            await job._end(life, marked=marked)


def whole_note(folder: Storage, name: str, **fields: Any) -> Note:
    """The note of a job that is all or nothing, on the data set ``name`` in ``folder``; ``fields`` as in `Note`."""
    local = local_folder(folder)
    url = join(folder.root, name) if local is None else os.path.join(local.folder, name)
    return Note(**{"kind": "whole", "name": name, "writer": new_writer_id(), "url": url, "key": name, **fields})


def _refuse_unwritable(note: Note, local: bool) -> None:
    """Tell what could not be written down later, or not be read again, before anything is made. In a worker thread.

    Raises:
        TypeError, ValueError: schema or metadata hold what JSON or UTF-8 does not, or too much; or a name is too long.
    """
    Segment(writer=note.writer, time=note.since, schema=note.schema, metadata=note.metadata).encode()
    if len(note.encode()) > MOST_BYTES:
        raise ArgumentValueError(
            f"schema and metadata take more than {MOST_BYTES:,} bytes of JSON: keep that in records"
        )
    longest = f".{note.shard_name(0)}000.index.{note.writer}~begun.partial"
    if local and len(os.fsencode(longest)) > _LONGEST_NAME:
        raise ArgumentValueError(
            f"{note.name!r}: with it and the writer_id, the name of an unfinished file has {len(os.fsencode(longest))} "
            f"bytes, and a filesystem takes {_LONGEST_NAME}; choose shorter ones"
        )


async def _claimed(
    folder: Storage, local: LocalStorage | None, note: Note, *, mode: Mode, take_over: bool, path: str
) -> Claim | None:
    """The claim on the data set's name; `None` where what replaces finds the plain names taken, and uses its own."""
    fixed = note.num_shards is not None
    claim = None
    async with AsyncExitStack() as after:
        number, plain, met = await settle_claims(folder, local, note, take_over=take_over, after=after)
        taken = await _taken(folder, note) if fixed and plain else None
        if taken is None and (mode != "replace" or plain):
            claim = Claim(number=number + 1, writer=note.writer, since=note.since, plain=fixed and plain)
            await put_claim(folder, note.name, claim)
            await _refuse_others(folder, note, [*met, claim])
            taken = await _taken(folder, note) if claim.plain else None
            if taken is not None:  # by somebody who makes no claims
                await folder.delete(claim_key(note.name, claim.number))
                claim = None
    if taken is not None and mode != "replace":
        raise ObjectExistsError(f"{path}: {taken} is there already; mode='replace' would replace it")
    return claim


async def _refuse_others(folder: Storage, note: Note, known: Sequence[Claim]) -> None:
    """Look again, once one's own claim is there: one who came to another number has looked, or will, and sees it.

    Raises:
        ConflictError: there are others than these.
    """
    if any(claim not in known for claim in await find_claims(folder, note.name)):
        raise ConflictError(f"{join(folder.root, note.name)}: another writer has claimed this name in the same moment")


async def _taken(folder: Storage, note: Note) -> str | None:
    """A plain name that is there, or was ever listed."""
    names = [note.shard_name(shard, plain=True) for shard in range(note.num_shards or 0)]
    listed = {entry.path for segment in await load_segments(folder, note.name) for entry in segment.add}
    if found := listed.intersection(names):
        return min(found)

    async def find(key: str) -> str | None:
        try:
            return (await folder.head(key)).key
        except ObjectNotFoundError:
            return None

    return next((key for key in await for_each(find, names) if key is not None), None)


def _begin_life() -> Life | None:
    try:
        return Life.begin()
    except StorageError as error:
        _log.debug("nothing on this machine will prove the job alive or dead: %s", error)
        return None


def _end(life: Life | None) -> None:
    if life is not None:
        life.end()


async def _before(folder: Storage, note: Note, *, mode: Mode, path: str) -> Manifest | None:
    """The data set as it is.

    Raises:
        ObjectExistsError: it is in the way, or the id was used before.
    """
    segments = await load_segments(folder, note.name)
    if any(segment.writer == note.writer for segment in segments):
        raise ObjectExistsError(
            f"{path}: a writer with the id {note.writer} has written to this data set, or was given up; an id is used "
            "once: its commits would not be told from the earlier ones"
        )
    before = await manifest_of(path, segments)
    if mode != "replace" and before is not None and (mode == "new" or (note.num_shards is not None and before.shards)):
        raise ObjectExistsError(f"{path}: there is a data set of this name; mode='replace' would replace it")
    return before


async def _undo(folder: Storage, note: Note, *, marked: bool) -> bool:
    """Take away what an opening that failed had made: nothing has used the names yet. Whether nothing is left.

    What another job of the same id has made stays: only what says that it is this one's is taken for it.
    """
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_UP_SECONDS):
        try:
            for claim in await find_claims(folder, note.name):  # also one of whose creation no answer came
                if claim.since == note.since and claim.writer == note.writer:
                    await folder.delete(claim_key(note.name, claim.number))
            if marked:
                await remove_own_mark(folder, note)
            return True
        except Exception as error:
            _log.warning("%s/%s: the mark of %s could not be removed: %s", folder.root, note.name, note.writer, error)
    return False
