"""`open_job` begins a job: it creates the job's mark and, if necessary, a claim. If it fails, it deletes both."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.manifest_writer import OnCommit
from asyncrec._shards.journal.header import MOST_BYTES, JobHeader, this_host
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.remedies import told_dead
from asyncrec._shards.journal.staging import LocalStaging, Staging
from asyncrec._shards.manifest.loading import find_history, load_listed
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import claim_key, new_writer_id
from asyncrec._shards.manifest.segment import Segment
from asyncrec._shards.manifest.snapshot import snapshot_of
from asyncrec._shards.ownership.census import dead_among, jobs_in
from asyncrec._shards.ownership.claims import refuse_makers, settle_claims
from asyncrec._shards.ownership.clearing import is_another_data_set
from asyncrec._shards.ownership.marks import Claim, find_claims, put_claim, put_mark, remove_own_mark
from asyncrec._shards.spool.folder import SpoolFolder, refuse_spool
from asyncrec._shards.writing.job import Job, Mode
from asyncrec._shards.writing.opening import Opening
from asyncrec.errors import (
    ArgumentValueError,
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, first_there
from asyncrec.storage._retry import BRIEF, DEFAULT, patience
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

_LONGEST_NAME = 255
# The number of local file names to look up in one call to a worker thread. Such a call takes some milliseconds and
# cannot be cancelled.
_NAMES_AT_ONCE = 1000
# Without a budget, only one shard is open at a time, so the number of its chunks needs no limit.
_ANY_NUMBER_OF_CHUNKS = 1 << 62

_REPLACE, _RENAME = "to replace it, pass mode='replace'", "choose another name"


@asynccontextmanager
async def open_job(
    folder: Storage,
    header: JobHeader,
    *,
    path: str,
    mode: Mode,
    take_over: bool = False,
    spool: SpoolFolder | None = None,
    budget: ByteBudget | None = None,
    on_commit: OnCommit | None = None,
) -> AsyncIterator[Job]:
    """Begin a job on the data set ``header.name`` in ``folder``. The job ends when the context exits.

    If the context exits before `Job.commit` is called, an all-or-nothing job deletes its shards, and the data set is
    unchanged.

    Args:
        path: the path of the data set, for error messages.
        mode: ``"append"`` adds to the data set; ``"new"`` raises an error if it exists; ``"replace"`` replaces all of
            it.
        take_over: whether to take the name from a job on another machine, because a person has declared that job dead.
        spool: the local folder to which shards are written before they are uploaded.

    Raises:
        ObjectExistsError: the data set or a file with a fixed shard's name already exists, or the writer's id was used
            before.
        ConflictError: another job is making the data set.
        StorageError: the folder is a spool.
    """
    home = home_of(folder)
    local = home.folder
    await in_thread(refuse_spool, local)
    owned: LocalStorage | None = spool
    if owned is None and local is not None:
        owned = local.owned_by(header.writer, keep=header.kind != "whole")
    marked = local is None or spool is not None  # the header is not in the data set's folder
    async with AsyncExitStack() as stack:
        header = replace(header, host=this_host(), pid=os.getpid(), since=datetime.now(UTC).isoformat())
        opening = Opening(remote=marked)
        mark: Staging | None = None
        if marked:
            mark = held = await acquire_in_thread(partial(Staging.begin_marked, header), Staging.end)
            header = mark.header
            stack.push_async_callback(
                lambda: surely_in_thread(
                    partial(held.end, keep=opening.now != "nothing", briefly=opening.now == "late")
                )
            )
        await in_thread(_refuse_unwritable, header, owned is not None)
        if owned is None:
            assert mark is not None, "a job without a local folder has a mark"
            staging = mark
        else:
            begun = await acquire_in_thread(partial(LocalStaging.begin, owned, header), LocalStaging.end)
            stack.push_async_callback(lambda: surely_in_thread(partial(begun.end, keep=opening.left)))
            owned.check = begun.check
            staging = begun
        claim: Claim | None = None
        failure: StorageError | None = None
        try:
            if marked:
                with opening.asking():
                    await put_mark(folder, header)
            before, uncovered = await _before(folder, header, mode=mode, path=path)
            if mode == "new" or header.num_shards is not None or header.stems:
                claim = await _claimed(folder, local, header, opening, mode=mode, take_over=take_over, path=path)
                before, uncovered = await _before(folder, header, mode=mode, path=path)
            if header.stems:
                await refuse_makers(folder, JobNames.of(header))
            own_names = header.num_shards is not None and (claim is None or not claim.plain)
            if own_names and await is_another_data_set(folder, f"{header.name}-{header.writer}"):
                raise ObjectExistsError(
                    f"{path}: the shards would have the same names as those of the data set "
                    f"{header.name}-{header.writer}; choose another writer_id"
                )
            others = [
                each for each in await in_thread(jobs_in, home, header.name) if each.header.writer != header.writer
            ]
            for each in await dead_among(others, looks=1):
                _path_log.warning(path, "%s", told_dead(each.header, path), writer=each.header.writer)
        except BaseException as error:
            # If the folder or bucket does not exist, or is not writable, nothing can have been left in it.
            quiet = opening.now in ("nothing", "asking", "refused") and _refusal_of(error)
            if await _undo(folder, header, marked=marked, error=error, quiet=quiet):
                opening.move("undo")
            if not isinstance(error, UnsettledError):
                raise
            failure = _told_plainly(error, path)
        if failure is not None:
            raise failure
        job = Job(
            header,
            folder,
            owned if owned is not None else folder,
            mode=mode,
            before=before,
            uncovered=uncovered,
            staging=staging,
            claim=claim,
            budget=budget if budget is not None else ByteBudget(_ANY_NUMBER_OF_CHUNKS),
            on_commit=on_commit,
        )
        opening.move("open")
        stack.pop_all()
        try:
            yield job
        finally:
            await job.end(mark if mark is not staging else None)


def whole_job_header(folder: Storage, name: str, **fields: Any) -> JobHeader:
    """Return the header of an all-or-nothing job on the data set ``name`` in ``folder``.

    ``fields`` are values for other fields of `JobHeader`.
    """
    local = home_of(folder).folder
    url = join(folder.root, name) if local is None else os.path.join(local.folder, name)
    return JobHeader(**{"kind": "whole", "name": name, "writer": new_writer_id(), "url": url, **fields})


def _refuse_unwritable(header: JobHeader, local: bool) -> None:
    """Reject a header that could not be written, or be read back later, before any object is created. Blocks.

    Raises:
        TypeError, ValueError: schema or metadata are too large or cannot be stored as JSON, or a name is too long.
    """
    Segment(writer=header.writer, time=header.since, schema=header.schema, metadata=header.metadata).encode()
    if len(header.encode()) > MOST_BYTES:
        raise ArgumentValueError(
            f"schema and metadata take more than {MOST_BYTES:,} bytes as JSON; store large values in records instead"
        )
    longest = f".{JobNames.of(header).shard(0)}000.index.{header.writer}~begun.partial"
    if local and len(os.fsencode(longest)) > _LONGEST_NAME:
        raise ArgumentValueError(
            f"{header.name!r}: with this name and writer_id, an unfinished file has a name of "
            f"{len(os.fsencode(longest))} bytes, but a filesystem allows {_LONGEST_NAME}; choose a shorter name or "
            "writer_id"
        )


async def _claimed(
    folder: Storage,
    local: LocalStorage | None,
    header: JobHeader,
    opening: Opening,
    *,
    mode: Mode,
    take_over: bool,
    path: str,
) -> Claim | None:
    """Claim the data set's name. Return `None` if the job replaces the data set and the plain shard names are taken."""
    fixed = header.num_shards is not None
    claim = None
    async with AsyncExitStack() as after:
        number, plain, met = await settle_claims(
            folder, header.name, by=header.writer, take_over=take_over, after=after
        )
        taken = await _taken(folder, local, JobNames.of(header, plain=True)) if fixed and plain else None
        if taken is None and (mode != "replace" or plain):
            claim = Claim(number=number + 1, writer=header.writer, since=header.since, plain=fixed and plain)
            with opening.asking():
                await put_claim(folder, header.name, claim)
            # A job that has won a different number in the meantime sees this claim when it looks.
            if any(each not in (*met, claim) for each in await find_claims(folder, header.name)):
                raise ConflictError(
                    f"{path}: another writer claimed this name at the same moment; open a writer again later, or "
                    "choose another name"
                )
            taken = await _taken(folder, local, JobNames.of(header, plain=True)) if claim.plain else None
            if taken is not None:  # taken by a program that does not make claims
                await folder.delete(claim_key(header.name, claim.number))
                claim = None
    if taken is not None and mode != "replace":
        raise ObjectExistsError(f"{path}: the shard {taken} already exists").with_remedy(_REPLACE, command=_RENAME)
    return claim


async def _taken(folder: Storage, local: LocalStorage | None, plain: JobNames) -> str | None:
    """Return a plain shard name that exists or was ever listed in the manifest, or `None` if all names are free."""
    history = await find_history(folder, plain.name)

    def look() -> tuple[list[str], str | None]:  # takes a microsecond per shard, of which there may be a million
        names = plain.fixed()
        return names, None if history is None else min(filter(history.lists, names), default=None)

    names, listed = await in_thread(look)
    if listed is not None:
        return listed
    if local is not None:
        for begin in range(0, len(names), _NAMES_AT_ONCE):
            if (found := await in_thread(first_there, local, names[begin : begin + _NAMES_AT_ONCE])) is not None:
                return found
        return None

    async def find(key: str) -> str | None:
        try:
            return (await folder.head(key)).key
        except ObjectNotFoundError:
            return None

    return next((key for key in await for_each(find, names) if key is not None), None)


async def _before(
    folder: Storage, header: JobHeader, *, mode: Mode, path: str
) -> tuple[Manifest | None, tuple[int, int]]:
    """Load the current manifest.

    Return it with the number of segments that no checkpoint covers, and the number of the newest checkpoint.

    Raises:
        ObjectExistsError: the data set exists already, or the id was used before.
    """
    loaded = await load_listed(folder, header.name)
    if loaded is None:
        return None, (0, 0)
    history = loaded.history
    if header.writer in history.writers:
        raise ObjectExistsError(
            f"{path}: a writer with the id {header.writer} has already written to this data set or was abandoned; "
            "use a new writer_id, because its commits could not be distinguished from the earlier ones"
        )
    before = await snapshot_of(path, history)
    if (
        mode != "replace"
        and before is not None
        and (mode == "new" or (header.num_shards is not None and before.shards))
    ):
        raise ObjectExistsError(f"{path}: a data set with this name already exists").with_remedy(
            _REPLACE, command=_RENAME
        )
    return before, (await loaded.count_uncovered(), history.checkpoint)


def _refusal_of(error: BaseException) -> bool:
    """Return whether the store rejected the request to create the first object, so that nothing was created."""
    failure = error.__cause__ if isinstance(error, UnsettledError) else error
    return isinstance(failure, StorageError) and not isinstance(failure, (TransientStorageError, ObjectExistsError))


def _told_plainly(error: UnsettledError, path: str) -> StorageError:
    """Return an error that explains why no writer was opened, given the error about an unsettled mark or claim."""
    failure = error.__cause__
    if failure is None:
        return TransientStorageError(f"{path}: no writer was opened, because the store did not answer in time")
    if not isinstance(failure, StorageError) or isinstance(failure, ObjectExistsError):
        return error
    failure.add_note(f"{path}: no writer was opened and nothing was written")
    return failure


async def _undo(folder: Storage, header: JobHeader, *, marked: bool, error: BaseException, quiet: bool) -> bool:
    """Delete the objects that a failed opening has created, but not the objects of another job with the same id.

    Return whether everything was deleted. If the opening failed with ``error`` because the store is down, do not wait
    long for the store again. With ``quiet``, a failure is logged only at the debug level, because there is probably
    nothing to delete.
    """
    brief = isinstance(error, TransientStorageError)
    with (
        anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEAN_UP_SECONDS),
        patience(BRIEF if brief else DEFAULT),
    ):
        try:
            for claim in await find_claims(folder, header.name):  # including one whose request was not answered
                if claim.since == header.since and claim.writer == header.writer:
                    await folder.delete(claim_key(header.name, claim.number))
            if marked:
                await remove_own_mark(folder, header)
            return True
        except Exception as failure:
            _path_log.log(
                logging.DEBUG if quiet else logging.WARNING,
                join(folder.root, header.name),
                "the mark of the writer %s, if it exists, could not be removed: %s",
                header.writer,
                failure,
                writer=header.writer,
            )
    return False
