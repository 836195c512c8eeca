"""Shards that were published, and whose writer could not commit them any more: committed as they are."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from crc32c import crc32c

from asyncrec.errors import FormatError, ObjectExistsError, ObjectNotFoundError
from asyncrec.framing.compression import CompressionOptions, detect_compression
from asyncrec.records.budget import ByteBudget
from asyncrec.records.reader import open_reader
from asyncrec.records.slab import KEY_BYTES
from asyncrec.shards.commit import Committer
from asyncrec.shards.manifest import merge_segments
from asyncrec.shards.naming import index_key, keys_key, replacing_key
from asyncrec.shards.segment import Segment, ShardEntry, format_time
from asyncrec.shards.snapshot import load_segments
from asyncrec.storage.base import Storage
from asyncrec.storage.resuming import ResumingSource

__all__ = ["adopt_unlisted", "adopted", "ever_listed", "is_there", "sequence_of"]

_log = logging.getLogger("asyncrec.shards")

# A writer gives up committing after two minutes: what is unlisted for longer, nobody will list. The rest is for clocks
# that differ.
_YOUNG = timedelta(minutes=15)


async def adopt_unlisted(target: Storage, name: str, in_use: Collection[str]) -> list[ShardEntry]:
    """Commit the rolling shards of a data set that no commit has ever named, as those of crashed writers are.

    Not those of writers in use, nor young ones, whose commit may be under way on another machine; nor those of a
    writer that was replacing the data set, or ended well. A damaged one is logged, and left where it is.
    """
    listed: set[str] | None = None
    others: set[str] = set()
    done: list[ShardEntry] = []
    rolling = re.compile(re.escape(name) + r"-([A-Za-z0-9][A-Za-z0-9_.]*)-[0-9]{6,}\.tfrecord")
    async for info in target.list_objects(f"{name}-"):
        match = rolling.fullmatch(info.key)
        if match is None or match[1] in in_use or datetime.now(UTC) - info.modified < _YOUNG:
            continue
        if listed is None:
            segments = await load_segments(target, name)
            listed = ever_listed(segments)
            manifest = merge_segments(name, segments)
            begun = [key.key async for key in target.list_objects(replacing_key(name, ""))]
            others = {key.rpartition("/")[2] for key in begun}
            others.update(writer.id for writer in manifest.writers.values() if writer.closed)
        if info.key in listed or match[1] in others:
            continue
        async with target.open_source(info.key) as source:
            compression = detect_compression(await source.receive(64))
        committer = Committer(
            target,
            name,
            match[1],
            compression=CompressionOptions(type=compression),
            with_index=True,
            schema=None,
            metadata=None,
            on_commit=None,
            budget=ByteBudget(1),
            after=manifest,
        )
        try:
            entry = await adopted(target, info.key, compression, committer.now())
            await committer.commit(sequence_of(info.key), entry)
        except FormatError as error:
            _log.warning("%s/%s: in no manifest, and damaged: %s", target.root, info.key, error)
        except (ObjectNotFoundError, ObjectExistsError):
            continue  # taken back, or committed, in this moment
        else:
            done.append(entry)
    return done


def ever_listed(segments: Iterable[Segment]) -> set[str]:
    """Every shard that was committed at some time."""
    return {entry.path for segment in segments for entry in segment.add}


async def adopted(target: Storage, shard: str, compression: str, now: str) -> ShardEntry:
    """What a manifest says of a shard that is there already, after reading all of it.

    Raises:
        ObjectNotFoundError: it is not.
        FormatError: it is damaged.
    """
    info = await target.head(shard)
    records = 0
    async with open_reader(shard, storage=target) as reader:
        async for batch in reader.batches():
            records += len(batch)
    checksum = info.crc32c
    if checksum is None:
        checksum = 0
        async with ResumingSource(target, shard, etag=info.etag) as source:
            while block := await source.receive(1 << 20):
                checksum = crc32c(block, checksum)
    index, keys = index_key(shard), keys_key(shard)
    return ShardEntry(
        path=shard,
        records=records,
        bytes=info.size,
        crc32c=checksum,
        compression=compression,
        index=index if await is_there(target, index) else None,
        keys=keys if await is_there(target, keys, size=KEY_BYTES * records) else None,
        last=format_time(info.modified.timestamp()),
        committed=now,
    )


async def is_there(target: Storage, key: str, *, size: int | None = None) -> bool:
    """Whether there is such an object, of that size if given."""
    try:
        info = await target.head(key)
    except ObjectNotFoundError:
        return False
    return size is None or info.size == size


def sequence_of(shard: str) -> int:
    """The number of a rolling shard among those of its writer."""
    return int(shard.rpartition("-")[2].removesuffix(".tfrecord"))
