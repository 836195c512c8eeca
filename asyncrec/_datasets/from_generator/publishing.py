"""`SplitTarget` publishes the records of a shuffler as a split, all or nothing."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import Any

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.description import Description
from asyncrec._datasets.progress import Progress
from asyncrec._datasets.shuffling.shuffler import HashShuffler
from asyncrec._datasets.sidecars import SHARD_INFO, ShardInfo, read_shard_info, update
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec._shards.manifest.splits import parse_split
from asyncrec._shards.writing.ordered_writer import BlockingBatches, Limits, check_num_shards, write_ordered
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact

_log = logging.getLogger("asyncrec.datasets")


@dataclass(frozen=True)
class SplitTarget:
    """One split of a folder. For the arguments, see `asyncrec.DatasetWriter`.

    Raises:
        ValueError: ``split`` is not a valid name, or ``num_shards`` is less than 1 or far too large.
    """

    path: str | os.PathLike[str]
    split: str
    compression: Compression = ""
    num_shards: int | None = None
    progress: bool | None = None
    storage: Storage | None = None
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        parts = parse_split(self.split).parts
        if len(parts) != 1 or str(parts[0]) != self.split or self.split != parts[0].name:
            raise ArgumentValueError(
                f"{self.split!r} is not a valid split name; use only letters, digits, '_', '-' and '.'"
            )
        if self.num_shards is not None:
            check_num_shards(self.num_shards)
        parse_compression(self.compression)

    def __str__(self) -> str:
        """Return the path of the split for error messages."""
        return redact(self._dataset)

    async def publish(self, shuffler: HashShuffler, description: Description) -> ShardInfo:
        """Publish the shuffler's records as the split, and return ``{split: {file name: records}}``.

        Raises:
            DuplicateKeyError: sorting found a key that occurred twice.
            StorageError: a store failed. The existing split is intact, unless the error's notes say otherwise.
        """
        await in_thread(shuffler.settle)
        async with dataset_at(self._dataset, storage=self.storage, storage_options=self.storage_options) as (
            folder,
            name,
        ):
            return await self._write(folder, name, shuffler, description)

    async def save(self, shard_info: ShardInfo) -> ShardInfo:
        """Write the counts to ``shard_info.json``, and return its content. See `DatasetWriter.save_shard_info`."""
        async with dataset_at(self._dataset, storage=self.storage, storage_options=self.storage_options) as (folder, _):
            await update(folder, shard_info)
            return await read_shard_info(folder)

    @property
    def _dataset(self) -> str:
        path = os.fspath(self.path)
        return f"{path.rstrip('/')}/{self.split}" if path else self.split

    async def _write(self, folder: Storage, name: str, shuffler: HashShuffler, description: Description) -> ShardInfo:
        schema = description.schema()
        manifest = await load_manifest(folder, name, path=str(self))
        listed = set(manifest.shards.paths()) if manifest else set()
        # Files that datum wrote and no manifest lists. The pattern ensures that only shards of this split are deleted.
        its_own = re.compile(re.escape(name) + r"-\d{5,}-of-\d{5,}\.tfrecord")
        stale = [file for file in (await read_shard_info(folder)).get(name, ()) if its_own.fullmatch(file)]
        num_shards = self.num_shards or shard_count(shuffler.size, shuffler.records)
        with Progress(f"{self.split}: records", shuffler.records, show=self.progress) as progress:
            entries = await write_ordered(
                folder,
                name,
                BlockingBatches(progress.counted(shuffler.batches())),
                limits=Limits(num_shards=num_shards, records=shuffler.records),
                compression=parse_compression(self.compression),
                schema=schema.to_json() if schema else None,
                metadata={"split": name, "features": description.table()},
                mode="replace",
            )
        shard_info = {name: {entry.path: entry.records for entry in entries}}
        try:
            await update(folder, shard_info, name)
        except Exception as error:
            error.add_note(f"{self} was written and committed to its manifest, but {SHARD_INFO} was not updated")
            raise
        with anyio.move_on_after(CLEAN_UP_SECONDS):  # no manifest lists these files, so nothing depends on them
            for key in stale:
                if key in listed or key in shard_info[name]:
                    continue
                try:
                    await folder.delete(key)
                except Exception as error:
                    _log.warning(
                        "%s/%s was replaced, but the old file could not be removed: %s",
                        folder.root,
                        key,
                        error,
                        extra={"path": f"{folder.root}/{key}"},
                    )
        return shard_info


MIN_SHARD_BYTES = 64 << 20
MAX_SHARD_BYTES = 1 << 30
_ROUND = 1024


def shard_count(payload_bytes: int, records: int) -> int:
    """Return the number of shards, at least 1, for ``records`` records of ``payload_bytes`` bytes in total.

    The average size of a shard is at most 1 GiB if there are enough records, and at least 64 MiB unless there is only
    one shard.
    """
    if payload_bytes < 0 or records < 0:
        raise ArgumentValueError(
            f"the size of a data set must not be negative: got {payload_bytes} bytes, {records} records"
        )
    size = payload_bytes + FRAME_OVERHEAD * records
    fewest = -(-size // MAX_SHARD_BYTES)
    most = min(size // MIN_SHARD_BYTES, records)
    if fewest <= _ROUND <= most:
        return _ROUND
    if fewest > _ROUND:
        rounded = -(-fewest // _ROUND) * _ROUND
        return rounded if rounded <= records else max(1, min(fewest, records))
    for power in (512, 256, 128, 64, 32, 16, 8, 4, 2):
        if fewest <= power <= most:
            return power
    return max(1, min(fewest, records))
