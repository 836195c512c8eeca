"""`KeyFiles` reads the keys of a data set's shards from the keys file of each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES, digest_bytes, digests_in
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec._shards.manifest.names import keys_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import DatasetError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import expect

Numbers: TypeAlias = NDArray[np.int64]


# Files read at once. Each reading thread keeps some memory, so only a few threads read from a disk.
_TASKS, _TASKS_NEAR = 32, 4


class Keys(NamedTuple):
    """The keys of some records: their digests, uint64 (n, 2), and the numbers of the records, int64 (n,)."""

    digests: NDArray[np.uint64]
    numbers: Numbers


class KeyFiles:
    """The keys files of a data set; ``starts`` are the numbers of its shards' first records.

    With ``contents``, the digests of contents are read in place of those of keys.
    """

    def __init__(
        self, folder: Storage, shards: Sequence[ShardEntry], starts: Numbers, *, contents: bool = False
    ) -> None:
        self._contents = contents
        self._folder = folder
        self._shards = shards
        self._starts = starts

    async def of(self, rows: Sequence[int]) -> Keys:
        """Return the keys of all records of these shards that have a key.

        Raises:
            DatasetError: a keys file does not fit its shard.
        """

        async def read(row: int) -> bytes:
            shard = self._shards[row]
            if shard.keys is None and shard.committed:
                return b""  # written without keys
            if self._contents and shard.keys is not None and shard.key_bytes != PAIR_BYTES:
                return b""  # of a shard that a pattern has found, the size says it
            path = keys_key(shard.path) if shard.keys is None else shard.keys.path
            if shard.keys is not None:
                expect(self._folder, path, shard.keys.bytes, shard.keys.crc32c)
            try:
                with naming_lost_shards():
                    content = await self._folder.get(path)
            except ObjectNotFoundError:
                if shard.keys is not None:
                    raise
                return b""
            if not digest_bytes(len(content), shard.records):
                raise DatasetError(
                    f"{path}: the file has {len(content):,} bytes, but the keys of {shard.records:,} records take "
                    f"{KEY_BYTES} bytes each, or twice that with contents; the file belongs to another version of the "
                    "shard. Run 'asyncrec verify' for details"
                )
            if shard.keys is not None and shard.keys.crc32c not in (None, await in_thread(crc32c, content)):
                raise DatasetError(
                    f"{path}: the keys do not match their checksum in the manifest; run 'asyncrec verify' for details"
                )
            return b"" if self._contents and len(content) != PAIR_BYTES * shard.records else content

        return await in_thread(
            self._keyed, rows, await for_each(read, rows, tasks=_TASKS if self._folder.read_ahead else _TASKS_NEAR)
        )

    def _keyed(self, rows: Sequence[int], contents: list[bytes]) -> Keys:
        read = [(row, content) for row, content in zip(rows, contents, strict=True) if content]
        columns = [digests_in(content, self._shards[row].records, of_contents=self._contents) for row, content in read]
        digests = np.concatenate([np.empty((0, 2), np.uint64), *columns])
        starts = self._starts[[row for row, _ in read]].tolist() if read else []
        numbers = np.concatenate(
            [np.empty(0, np.int64)]
            + [np.arange(start, start + len(column)) for start, column in zip(starts, columns, strict=True)]
        )
        keyed = digests.any(axis=1)
        return Keys(digests[keyed], numbers[keyed])
