"""`open_sharded_writer`: the options of a sharded writer are checked together, and the writer is put together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from typing import Any, Literal

from crc32c import crc32c

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import ObjectLimits
from asyncrec._records.writing.record_encoder import GivenSchema, Validate, encoder_of, schema_of
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.commit.manifest_writer import OnCommit
from asyncrec._shards.journal.header import MOST_SHARDS, JobHeader
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import new_writer_id, validate_writer_id
from asyncrec._shards.manifest.schemas import refuse_incompatible
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.recovery.recover import recover_spool
from asyncrec._shards.spool.backlog import SPOOL_LIMIT, SpoolBacklog
from asyncrec._shards.spool.folder import SpoolFolder, lock_spool
from asyncrec._shards.writing.job import Mode
from asyncrec._shards.writing.keys import KeySet
from asyncrec._shards.writing.open_job import open_job
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.running import running
from asyncrec._shards.writing.writer import Partition, ShardedWriter
from asyncrec.errors import ArgumentValueError, DatasetError, ManifestError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._url import join, redact

__all__ = ["open_sharded_writer"]

# Large enough that a store's cost per object does not count, small enough to be lost, moved or read whole.
_MAX_SHARD_BYTES = 256 << 20
_MEMORY_LIMIT = 256 << 20
# What Kubernetes and most supervisors grant after SIGTERM is 30 s: what is left is for the program's own end.
_EXIT_TIMEOUT = 20.0
# The name of a file of records, with the data set's first.
_SHARD = re.compile(r"([^_.].*?)(?:-\d{5,6}(?:-of-\d{5,6})?)?\.tfrecords?(?:\.gz)?")


@asynccontextmanager
async def open_sharded_writer(
    path: str | PathLike[str],
    *,
    num_shards: int | None = None,
    max_shard_bytes: Size | None = None,
    max_shard_records: int | None = None,
    max_shard_seconds: float | None = None,
    open_shards: int = 1,
    partition_by: Callable[[bytes], Partition] | None = None,
    compression: Compression = "",
    index: bool = True,
    schema: GivenSchema = None,
    validate: Validate = "sample",
    key_feature: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    on_duplicate: Literal["write", "skip"] = "write",
    on_error: Literal["commit", "discard"] | None = None,
    exit_timeout: float = _EXIT_TIMEOUT,
    memory_limit: Size = _MEMORY_LIMIT,
    writer_id: str | None = None,
    take_over: bool = False,
    spool: str | PathLike[str] | None = None,
    spool_limit: Size = SPOOL_LIMIT,
    on_commit: OnCommit | None = None,
    mode: Mode = "append",
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[ShardedWriter]:
    """Write records to many shards: ``async with open_sharded_writer("s3://crawl/2026/pages") as writer: ...``.

    ``path`` is a folder and the data set's name in it. Any number of writers, in any number of processes, may append
    to one data set at once: every name holds the writer's id. Fixed shards are one writer's alone: another is told
    when it opens. Of writers that replace the data set at the same time the first to finish wins, and the others are
    told at their exit.

    Args:
        num_shards: fixed: so many shards, published together at the exit, all or none. Without it the writer is
            rolling, and the limits say when a shard is full; they combine.
        max_shard_bytes: of a shard's file; a number, or text such as ``"64MiB"`` (2**20) or ``"64M"`` (10**6). 256 MiB
            unless another limit is given. With compression a shard may exceed it by what 1 MiB of records compresses
            to.
        max_shard_records: of a shard.
        max_shard_seconds: from a shard's first record on, idle or not.
        open_shards: how many are open at once; records go to them in turn, or by partition.
        partition_by: chooses the shard by the record: equal values, same open shard. Never a shard per value.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        index: write ``_index/<shard>.index`` beside each shard.
        schema: a `Schema`, kept in the manifest; then ``write`` takes mappings of names to values too, and holds each
            against it. Of records that are there already all must decode with it: a new feature has a default.
        validate: which of the records given as bytes are held against the schema: ``"sample"`` (the first hundred, and
            one of a hundred behind them), ``"all"`` or ``"none"``.
        key_feature: the feature, ``FixedLen((), "str")`` or bytes, that is each record's key: given as ``key`` it is
            stored, given in the record it is the key. Without it a key is kept as a digest, and cannot be listed.
        metadata: kept in the manifest; what JSON can hold.
        on_duplicate: ``"skip"`` drops a record whose key was written before, by this writer or in the snapshot it
            opened on; 16 bytes of memory for each key of the snapshot, and about 100 for each of this writer.
        on_error: what becomes of the open shards when the body ends with an exception or is cancelled: ``"commit"``
            commits their whole records (the default), ``"discard"`` drops them (the default for fixed, and for
            ``mode="replace"``).
        exit_timeout: seconds that committing may take then; it is shielded from cancellation meanwhile.
        memory_limit: bytes held at once for all shards; beyond it ``write`` waits. One record may exceed it, alone.
        writer_id: in names; made up unless given. Never used before in this data set.
        take_over: a fixed data set is claimed by one writer at a time. One that died on this machine is proven dead by
            a lock, and gives way; of one on another machine nobody here can tell. `True` says that it is dead: it is
            given up, can commit nothing more, and what it had not committed is deleted.
        spool: a local folder, of this writer alone while it lives. Shards are written there first and uploaded from
            there, so that ``flush`` promises `"spooled"`, and a store that is slow or down stops nobody. What a
            writer that died left in it is committed on opening. A store that is down for good is told at the exit;
            then, too, everything is in the spool, for `recover`.
        spool_limit: bytes in the spool from which on ``write`` waits for the store, and open shards end early; 8 GiB,
            an hour of 2 MB/s. What was taken before, at most ``memory_limit``, still comes on top.
        on_commit: called with each `ShardEntry` after it was committed; may be async. Its error is the writer's.
        mode: ``"append"`` adds to what is there; ``"new"`` wants nothing there; ``"replace"`` makes this the whole
            data set when the context exits cleanly, in place of what it was at the opening, and then deletes that. No
            name is written over: fixed shards have the writer's id in theirs where the plain ones are taken. What
            others append meanwhile stays.
        storage: an open `Storage`, used and not closed; ``path`` is then a key in it.
        storage_options: for the backend, when it is opened here.

    Raises:
        ObjectExistsError: fixed shards of this name are there, or with ``mode="new"`` anything is; or the
            ``writer_id`` was used before.
        ConflictError: another writer is making this data set; or, at the exit, has replaced it meanwhile.
        SchemaError: records are there that the schema would not decode.
        ValueError: options that contradict each other, or a memory_limit too small for the open shards.
        StorageError: another process, which the message names, uses the spool.
    """
    if max_shard_bytes is not None:
        max_shard_bytes = byte_count(max_shard_bytes, "max_shard_bytes")
    spool_limit = byte_count(spool_limit, "spool_limit")
    limits = _limits(num_shards, max_shard_bytes, max_shard_records, max_shard_seconds, open_shards)
    _one_of("on_duplicate", on_duplicate, ("write", "skip"))
    _one_of("mode", mode, ("append", "new", "replace"))
    if on_error is not None:
        _one_of("on_error", on_error, ("commit", "discard"))
    if spool is not None and mode == "replace":
        raise ArgumentValueError(
            "what replaces a data set is promised only whole: spool= has no meaning with mode='replace'"
        )
    options = parse_compression(compression)
    display_path = redact(str(path))
    _check_is_no_file(display_path)
    described = schema_of(schema)
    encoder = encoder_of(display_path, described, validate=validate, key_feature=key_feature)
    budget = ByteBudget(byte_count(memory_limit, "memory_limit"), objects=num_shards or open_shards)
    async with AsyncExitStack() as stack:
        folder, name = await stack.enter_async_context(
            dataset_at(path, storage=storage, storage_options=storage_options)
        )
        local = local_folder(folder)
        url = display_path if storage is None else join(folder.root, name)
        if local is not None:
            url = join(local.folder, name)
        if spool is not None:
            await recover_spool(await stack.enter_async_context(lock_spool(spool)), folder, url)
        header = JobHeader(
            kind="whole" if mode == "replace" else "rolling" if num_shards is None else "fixed",
            name=name,
            writer=validate_writer_id(writer_id) if writer_id is not None else new_writer_id(),
            url=url,
            key=str(path) if storage is not None else name,
            num_shards=num_shards,
            spool=spool is not None,
            index=index,
            compression=options,
            schema=None if described is None else described.to_json(),
            metadata=dict(metadata or {}),
        )
        queues = [
            WriteQueue(url, budget, limits=limits, compressed=bool(options.type))
            for _ in range(num_shards or open_shards)
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
        if described is not None and job.before is not None and mode != "replace":
            await in_thread(refuse_incompatible, display_path, described, job.before.schema)
        keys = await _keys(folder, None if mode == "replace" else job.before) if on_duplicate == "skip" else None
        shards = OpenShards(display_path, job, queues, budget)
        commits = (on_error or ("discard" if header.together else "commit")) == "commit"
        async with running(shards, commits=commits, exit_timeout=exit_timeout):
            yield ShardedWriter(shards, partition_by=partition_by, keys=keys, encoder=encoder)


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


def _check_is_no_file(path: str) -> None:
    """Refuse the name of a shard, or of a single file, where a data set's belongs."""
    name = path.replace("\\", "/").rpartition("/")[2]
    if match := _SHARD.fullmatch(name):
        raise ArgumentValueError(
            f"{path}: that is the name of a file, and a data set has no suffix and no shard numbers: write to "
            f"{path[: len(path) - len(name)]}{match[1]}, or to a single file with open_writer"
        )


def _limits(
    num_shards: int | None,
    max_bytes: int | None,
    max_records: int | None,
    max_seconds: float | None,
    open_shards: int,
) -> ObjectLimits:
    given = {"max_shard_bytes": max_bytes, "max_shard_records": max_records, "max_shard_seconds": max_seconds}
    for option, value in {**given, "num_shards": num_shards, "open_shards": open_shards}.items():
        if value is not None and value <= 0:
            raise ArgumentValueError(f"{option} is {value}; it is greater than 0")
    if num_shards is not None and num_shards > MOST_SHARDS:
        raise ArgumentValueError(f"num_shards is {num_shards:,}; a fixed data set has at most {MOST_SHARDS:,}")
    if num_shards is None:
        if max_bytes is None and max_records is None:
            max_bytes = _MAX_SHARD_BYTES
        return ObjectLimits(bytes=max_bytes, records=max_records, seconds=max_seconds)
    rolling = [option for option, value in given.items() if value is not None]
    if rolling or open_shards != 1:
        named = ", ".join(rolling or ["open_shards"])
        raise ArgumentValueError(
            f"num_shards={num_shards} fixes the shards, and {named} has them roll: give one or the other"
        )
    return ObjectLimits()


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentValueError(f"{option} is one of {', '.join(map(repr, allowed))}, not {value!r}")


async def _keys(folder: Storage, before: Manifest | None) -> KeySet:
    """Load the keys of everything in the snapshot."""
    keys = KeySet()
    sidecars = {each.keys.path: each.keys for each in before.shards if each.keys is not None} if before else {}

    async def read(path: str) -> bytes:
        content = await folder.get(path, max_bytes=sidecars[path].bytes)
        if sidecars[path].crc32c not in (None, await in_thread(crc32c, content)):
            raise DatasetError(f"{path} is not what was committed: its checksum is another")
        return content

    try:
        await in_thread(keys.add_files, await for_each(read, list(sidecars)))
    except ValueError as error:
        raise ManifestError(f"{folder.root}: the keys of the data set cannot be read: {error}") from error
    return keys
