"""`open_sharded_writer` checks the options of a sharded writer, and opens the writer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from os import PathLike
from typing import Any, Literal

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.record_encoder import GivenSchema, Validate, encoder_of, schema_of
from asyncrec._records.writing.write_batch import JoinDigests
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.commit.manifest_writer import OnCommit
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.manifest.manifest import CheckedMetadata, refuse_incompatible
from asyncrec._shards.manifest.names import new_writer_id, validate_writer_id
from asyncrec._shards.manifest.snapshot import address_of, dataset_at
from asyncrec._shards.recovery.on_opening import recover_on_opening, refuse_other_spool
from asyncrec._shards.spool.backlog import SPOOL_LIMIT, SpoolBacklog
from asyncrec._shards.spool.folder import SpoolFolder, lock_spool
from asyncrec._shards.writing.checkpoints import tending
from asyncrec._shards.writing.job import Job, Mode
from asyncrec._shards.writing.keys import RepeatedKeys, join_digests
from asyncrec._shards.writing.known_contents import Seen, check_seen, load_keys
from asyncrec._shards.writing.open_job import open_job
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.running import running
from asyncrec._shards.writing.shard_limits import check_is_no_file, limits_of, one_of, seconds_to_flush, silence_of_dead
from asyncrec._shards.writing.succession import going_on
from asyncrec._shards.writing.telling import telling
from asyncrec._shards.writing.totals import counted
from asyncrec._shards.writing.writer import Partition, ShardedWriter
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact

# On a local disk, 8 MiB would be just as fast. Stores with large parts raise the limit, up to 256 MiB.
_MEMORY_LIMIT = 64 << 20
_MOST_MEMORY = 256 << 20
_SEEN = "asyncrec._shards.writing.seen_writer"
# Kubernetes and most supervisors allow 30 s after SIGTERM. The remaining time is for the program's own shutdown.
_EXIT_TIMEOUT = 20.0
# The smallest first batch of a queue, as a fraction of a full one. A smaller one is not worthwhile: with a thousand
# shards, only a few of them then fill a batch in the same iteration of the event loop.
_LEAST_PART = 1 / 32


@asynccontextmanager
async def open_sharded_writer(
    path: str | PathLike[str],
    *,
    num_shards: int | None = None,
    max_shard_bytes: Size | None = None,
    max_shard_records: int | None = None,
    max_shard_seconds: float | None = None,
    flush_seconds: float | Literal["default"] | None = "default",
    open_shards: int = 1,
    partition_by: Callable[[bytes], Partition] | None = None,
    compression: Compression = "",
    index: bool = True,
    schema: GivenSchema = None,
    validate: Validate = "sample",
    key_feature: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    on_duplicate: Literal["write", "skip"] | None = None,
    seen: Seen | None = None,
    on_error: Literal["commit", "discard"] | None = None,
    exit_timeout: float = _EXIT_TIMEOUT,
    memory_limit: Size | None = None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    writer_id: str | None = None,
    take_over: bool = False,
    dead_after: float | None = None,
    recover: bool = True,
    spool: str | PathLike[str] | None = None,
    spool_limit: Size = SPOOL_LIMIT,
    on_commit: OnCommit | None = None,
    mode: Mode = "append",
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[ShardedWriter]:
    """Write records to many shards: ``async with open_sharded_writer("s3://crawl/2026/pages") as writer: ...``.

    ``path`` is a folder and the name of the data set in it. Any number of writers, in any number of processes, may
    append to one data set at once, because the names of rolling shards contain the id of their writer. Fixed shards
    have one writer at a time, and opening a second one raises an error. If several writers replace the data set at
    once, the first to finish wins, and the others raise an error when they exit.

    Args:
        num_shards: write this fixed number of shards, which are published together at the exit, all or none. Without
            it, shards are rolling: a shard ends when it reaches any of the three limits below.
        max_shard_bytes: the size of a shard's file, as a number or as text such as ``"64MiB"`` (2**20) or ``"64M"``
            (10**6); 256 MiB by default, unless ``max_shard_records`` is passed. With compression, a shard may exceed it
            by the compressed size of 1 MiB of records.
        max_shard_records: the number of records in a shard.
        max_shard_seconds: the time since a shard's first record; a shard then ends even if nothing more is written.
        flush_seconds: the age at which a rolling writer that appends flushes a record, which then survives a kill -9.
            With a local disk (a local data set, or ``spool``), the writer flushes to the disk, after one second by
            default. Otherwise it flushes to the store, after 30 seconds by default, and the record also survives the
            loss of the machine. With `None`, it flushes only on request, and never to a store. Fixed and replacing
            writers ignore the option, as do those with ``on_error="discard"``.
        open_shards: how many shards are open at once; records go to them in turn, or by partition.
        partition_by: a function that returns the partition of a record. Records with equal partitions go to the same
            open shard, but not every value has a shard of its own.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        index: write ``_index/<shard>.index`` for each shard.
        schema: a `Schema`, which is stored in the manifest; ``write`` then also accepts mappings of names to values,
            and checks them. It must be able to decode every existing record, so a new feature needs a default. By
            default, a writer that appends uses the schema of the data set, if there is one.
        validate: which of the records passed as bytes are checked against the schema: ``"sample"`` (the first hundred,
            then every hundredth), ``"all"`` or ``"none"``.
        key_feature: the feature, ``FixedLen((), "str")`` or bytes, that holds each record's key. A ``key`` that you
            pass is stored in it; otherwise the key is read from it. Without the feature, only a digest of the key is
            stored, so keys cannot be listed.
        metadata: values that JSON can represent, stored in the manifest.
        on_duplicate: ``"skip"`` drops a record whose key was written before, by this writer or in the snapshot on which
            it opened. It takes 16 bytes of memory for each key of the snapshot, and about 100 for each key of this
            writer. ``"write"`` stores both records. So does `None`, which also logs a warning for the first duplicate
            among this writer's first 65,536 keys.
        seen: for a rolling writer of pages (``schema=pages.PAGE``) that appends: a page whose body is already stored,
            under any key, becomes a revisit of the page that has the body, and `asyncrec.pages.resolve` restores it.
            Pass the name of the feature that distinguishes bodies, ``"digest"``, or a function that returns text or
            bytes for a page, or `None` to store the page whole. Bodies are looked up in the snapshot on which the
            writer opened, and among its own, so two writers that are open at once may both store a body. Every page
            needs a key. A page without content, or whose key is not its `asyncrec.pages.page_key`, is stored whole.
            Digests are kept in temporary files (``TMPDIR``), in 24 bytes for each body.
        on_error: the fate of the open shards when the block raises an exception or is cancelled: ``"commit"`` commits
            their complete records (the default), ``"discard"`` discards them (the default for fixed shards, and for
            ``mode="replace"``).
        exit_timeout: how many seconds the exit may take, plus two for cleaning up, after the block raised an exception
            or was cancelled, or after the exit itself was cancelled. Meanwhile, commits are shielded from cancellation.
            Unless it is cancelled, the exit from a block that ended normally takes as long as the store needs.
        memory_limit: how many bytes all shards together may hold in memory; beyond it, ``write`` waits. A single
            record, or the records of one position, may exceed it. The default is 64 MiB, or four times the size of the
            open shards' chunks, up to 256 MiB. A chunk of a local file takes at most 2 MiB, and a part for S3 8 MiB.
        max_record_bytes: the length above which a record is rejected; 256 MiB by default. For each shard with records
            longer than that, the manifest states the maximum length, so that readers of the data set accept them.
        writer_id: the id used in names; generated by default. It must never have been used in this data set.
        take_over: whether to declare dead a writer on another machine that has claimed these fixed shards. It can then
            commit nothing more, and its uncommitted records are deleted. If a writer on this machine is dead, its lock
            proves that, and its claim ends without this option.
        dead_after: after how many seconds without a change in the store another process may consider a writer that
            flushes there dead, and commit its flushed records. If the writer is alive after all, it continues under a
            new id, with the records that it had not flushed. The default is two minutes, or four times
            ``flush_seconds`` if that is longer.
        recover: whether a rolling writer that appends first commits the records that dead writers left on the disk (in
            the folder of a local data set, or in the spool), like `recover`, and logs that. With
            ``on_duplicate="skip"``, it also commits shards published by dead writers on this machine that had no spool,
            so that their keys are known. The work of fixed and replacing writers is never completed automatically; the
            log names the remedies. With `False`, nothing is recovered, and the log names each dead writer.
        spool: a local folder, used by only one writer at a time. Shards are written there first and uploaded from
            there, so ``flush`` reaches ``"spooled"``, and a store that is slow or down does not block ``write``. If
            the store stays down, the exit raises an error, and everything stays in the spool for `recover`.
        spool_limit: how many bytes the spool may hold (8 GiB by default, an hour of 2 MB/s); beyond it, ``write`` waits
            for the store, and open shards end early. Records accepted before that may exceed the limit by at most
            ``memory_limit``.
        on_commit: called with each `ShardEntry` after this writer has committed it, but not for shards that another
            process commits for it. It may be async. If it raises an exception, the writer fails with that exception.
        mode: ``"append"`` adds to an existing data set; ``"new"`` raises an error if the data set exists; ``"replace"``
            replaces the data set when the context exits cleanly, and then deletes the shards that the data set had when
            the writer opened. No object is overwritten: if the plain names of fixed shards are taken, the new names
            contain the writer's id. Shards that other writers append in the meantime are kept.
        storage: an open `Storage`; it is used but not closed, and ``path`` is a key in it.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ObjectExistsError: fixed shards with this name exist, or with ``mode="new"`` any data set does; or the
            ``writer_id`` was used before.
        ConflictError: another writer is making this data set, or, at the exit, another writer has replaced it.
        SchemaError: the schema cannot decode some of the existing records.
        ValueError: options contradict each other, or ``memory_limit`` is too small for the open shards.
        StorageError: the spool is used by another process, which the message names, or is a folder of data sets; or the
            data set's folder is a spool.
    """
    if max_shard_bytes is not None:
        max_shard_bytes = byte_count(max_shard_bytes, "max_shard_bytes")
    spool_limit = byte_count(spool_limit, "spool_limit")
    longest = record_limit(max_record_bytes)
    limits = limits_of(num_shards, max_shard_bytes, max_shard_records, max_shard_seconds, open_shards)
    if on_duplicate is not None:
        one_of("on_duplicate", on_duplicate, ("write", "skip"))
    one_of("mode", mode, ("append", "new", "replace"))
    if isinstance(flush_seconds, str):
        one_of("flush_seconds", flush_seconds, ("default",))
    elif flush_seconds is not None and flush_seconds <= 0:
        raise ArgumentValueError(f"flush_seconds={flush_seconds}: must be greater than 0, or None to never flush")
    if on_error is not None:
        one_of("on_error", on_error, ("commit", "discard"))
    if seen is not None and (num_shards is not None or mode == "replace"):
        raise ArgumentValueError("seen= is for rolling shards that are appended, not for num_shards= or mode='replace'")
    if spool is not None and mode == "replace":
        raise ArgumentValueError("spool= cannot be combined with mode='replace', which publishes everything or nothing")
    options = parse_compression(compression)
    display_path = redact(str(path))
    check_is_no_file(display_path)
    described = schema_of(schema)
    encode_for = partial(encoder_of, display_path, validate=validate, key_feature=key_feature)
    encoder = encode_for(described)
    if seen is not None and described is not None:
        check_seen(display_path, seen, described)
    objects = num_shards or open_shards
    if memory_limit is None:
        budget = ByteBudget(_MEMORY_LIMIT, objects=objects, most=_MOST_MEMORY)
    else:
        budget = ByteBudget(byte_count(memory_limit, "memory_limit"), objects=objects)
    async with AsyncExitStack() as stack:
        folder, name = await stack.enter_async_context(
            dataset_at(path, storage=storage, storage_options=storage_options)
        )
        local = home_of(folder).folder
        url = address_of(path, folder, name, storage=storage)
        header = JobHeader(
            kind="whole" if mode == "replace" else "rolling" if num_shards is None else "fixed",
            name=name,
            writer=validate_writer_id(writer_id) if writer_id is not None else new_writer_id(),
            url=url,
            num_shards=num_shards,
            contents=seen is not None,
            spool=spool is not None,
            index=index,
            compression=options,
            schema=None if described is None else described.to_json(),
            metadata=dict(metadata or {}),
        )
        home = local if header.kind == "rolling" and mode == "append" else None
        if spool is not None:
            home = await stack.enter_async_context(lock_spool(spool, target=local))
            await refuse_other_spool(home, url, name)
        skips = on_duplicate == "skip" and mode == "append"
        await recover_on_opening(folder, header, home=home, known_keys=skips, path=display_path, wanted=recover)
        commits = commits_on_error(on_error, together=header.together)
        on_disk = spool is not None or local is not None or folder.flush_level == "spooled"
        seconds = seconds_to_flush(flush_seconds, on_disk=on_disk) if header.kind == "rolling" else None
        header = replace(header, silent_after=0.0 if on_disk else silence_of_dead(seconds, dead_after))
        if not commits:  # open shards are discarded if the body fails, but their flushed records would remain
            seconds = None
        hashed: JoinDigests = RepeatedKeys(display_path) if on_duplicate is None else join_digests
        if seen is not None:  # each record is passed with its digests
            hashed = b"".join
        queues = [
            WriteQueue(
                url,
                budget,
                limits=limits,
                compressed=bool(options.type),
                flush_seconds=seconds,
                join_digests=hashed,
                first_part=max((number + 1) / objects, _LEAST_PART),
            )
            for number in range(objects)
        ]
        job = await stack.enter_async_context(
            open_job(
                folder,
                header,
                path=display_path,
                mode=mode,
                take_over=take_over,
                spool=None
                if spool is None
                else _spool_folder(display_path, spool, header, spool_limit, budget, queues),
                budget=budget,
                on_commit=on_commit,
            )
        )
        theirs = None if job.before is None or mode == "replace" else job.before.schema
        if described is not None and job.before is not None and mode != "replace":
            await in_thread(refuse_incompatible, display_path, described, theirs)
        elif described is None and theirs is not None:  # do not store records that the schema cannot decode
            encoder = await in_thread(lambda: encode_for(schema_of(theirs)))
        before = None if mode == "replace" else job.before
        if isinstance(metadata, CheckedMetadata):
            await in_thread(metadata.check, before)
        keys = await load_keys(folder, name, before) if on_duplicate == "skip" else None
        continues = header.kind == "rolling" and mode == "append" and commits and partition_by is None
        shards = OpenShards(display_path, job, queues, budget, continues=continues)

        def begin() -> AbstractAsyncContextManager[Job]:
            another = replace(header, writer=new_writer_id())
            return open_job(folder, another, path=display_path, mode="append", budget=budget, on_commit=on_commit)

        if seen is None:
            writer = ShardedWriter(shards, longest, partition_by=partition_by, keys=keys, encoder=encoder)
        else:
            opening = await in_thread(import_module, _SEEN)  # imports asyncrec.pages
            writer = await stack.enter_async_context(
                opening.open_seen_writer(shards, longest, seen, partition_by=partition_by, keys=keys, encoder=encoder)
            )
        async with (
            going_on(shards, begin),
            tending(shards, recovers=recover),
            telling(shards) as teller,
            running(shards, commits=commits, exit_timeout=exit_timeout),
        ):
            stack.enter_context(counted(writer.stats))
            try:
                yield writer
            finally:
                teller.ending = True
        shards.sources.refuse_lost(if_dropped=True)


def commits_on_error(on_error: str | None, *, together: bool) -> bool:
    """Return whether open shards are committed if the block fails.

    By default, they are, unless all shards are committed together.
    """
    return (on_error or ("discard" if together else "commit")) == "commit"


def _spool_folder(
    path: str,
    spool: str | PathLike[str],
    header: JobHeader,
    limit: int,
    budget: ByteBudget,
    queues: Sequence[WriteQueue],
) -> SpoolFolder:
    all_or_none = header.num_shards is not None
    backlog = SpoolBacklog(path, str(spool), limit=limit, budget=budget, queues=queues, all_or_none=all_or_none)
    return SpoolFolder(spool, header.writer, backlog)
