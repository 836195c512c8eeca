"""Create manifest entries for shards that their writer published but could not commit."""

from __future__ import annotations

import re

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._framing.crc import crc32c
from asyncrec._framing.frames import ANY_RECORD_BYTES
from asyncrec._records.index import parse_index
from asyncrec._records.writing.write_batch import Positions, digest_bytes
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.positions_file import parse_positions
from asyncrec._shards.journal.reader import JournalReader
from asyncrec._shards.manifest.names import index_key, keys_key, progress_key, rolling_shard_name, with_maker
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar, format_time, noting
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._checksums import end_crc32c, stored_crc32c


async def entry_of_unlisted(
    target: Storage, names: JobNames, shard: str, *, compression: CompressionOptions, now: str
) -> ShardEntry:
    """Read an existing shard, and return its entry for the manifest. ``now`` is the time of its commit.

    Raises:
        ObjectNotFoundError: the shard does not exist.
        FormatError: the shard is damaged.
    """
    from asyncrec._records.reading.reader import open_reader  # most writers import this module but read no records

    info = await target.head(shard)
    records = largest = 0
    # Checking the checksums of the records is enough, because an asyncrec writer made this file.
    async with open_reader(
        shard, storage=target, compression=compression.type, max_record_bytes=ANY_RECORD_BYTES
    ) as reader:
        async for batch in reader.batches():
            records += len(batch)
            largest = max(largest, *map(len, batch))
    checksum = info.crc32c
    if checksum is None:
        checksum = await stored_crc32c(target, shard, info=info)
    sidecar_name = with_maker(names.name, shard, names.writer)
    return ShardEntry(
        path=shard,
        records=records,
        bytes=info.size,
        crc32c=checksum,
        end_crc32c=await end_crc32c(target, info),
        compression=compression.type,
        index=await _index(target, index_key(sidecar_name), records),
        keys=await _keys(target, keys_key(sidecar_name), records),
        last=format_time(info.modified.timestamp()),
        committed=now,
        extra=noting(largest),
    )


async def begins_like(target: Storage, shard: str, journal: JournalReader) -> bool:
    """Return whether an existing shard begins with a journal's records. Opens the journal, and closes it at the end.

    Raises:
        FormatError: the shard is damaged.
    """
    from asyncrec._records.reading.reader import open_reader

    try:
        await in_thread(journal.open)
        async with open_reader(shard, storage=target, max_record_bytes=ANY_RECORD_BYTES) as reader:
            batches = reader.batches()
            theirs: list[bytes] = []
            while (batch := await in_thread(journal.next)) is not None:
                records = batch[0]
                while len(theirs) < len(records):
                    more = await anext(batches, None)
                    if more is None:
                        return False
                    theirs += more
                if theirs[: len(records)] != records:
                    return False
                del theirs[: len(records)]
        return True
    finally:
        journal.close()


async def published_by(target: Storage, names: JobNames) -> list[str]:
    """List the rolling shards of a job in the data set's folder, committed or not."""
    prefix = rolling_shard_name(names.name, names.writer, 0).removesuffix("000000.tfrecord")
    keys = [info.key async for info in target.list_objects(prefix)]
    return [key for key in keys if re.fullmatch(r"[0-9]{6,}\.tfrecord", key[len(prefix) :])]


async def load_positions(target: Storage, names: JobNames, entry: ShardEntry) -> Positions:
    """Load the progress of the sources in an uncommitted shard, from the object that was published with the shard."""
    try:
        content = await target.get(progress_key(with_maker(names.name, entry.path, names.writer)))
    except ObjectNotFoundError:
        return {}
    found = await in_thread(parse_positions, content, entry.records)
    return {} if found is None else found[1]


async def is_there(target: Storage, key: str) -> bool:
    """Return whether an object with this key exists."""
    try:
        await target.head(key)
    except ObjectNotFoundError:
        return False
    return True


async def _index(target: Storage, key: str, records: int) -> Sidecar | None:
    try:
        text = await target.get(key)
        index = await in_thread(parse_index, text)
    except (ObjectNotFoundError, ValueError):
        return None
    if len(index) != records:
        return None
    return Sidecar(path=key, bytes=len(text), crc32c=await in_thread(crc32c, text))


async def _keys(target: Storage, key: str, records: int) -> Sidecar | None:
    try:
        size = (await target.head(key)).size
        if not digest_bytes(size, records):
            return None
        return Sidecar(path=key, bytes=size, crc32c=await stored_crc32c(target, key))
    except ObjectNotFoundError:
        return None
