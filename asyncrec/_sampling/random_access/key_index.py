"""`KeyIndex` finds the number of a record by its key, in the sorted keys of all shards: 24 bytes a record."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._shards.manifest.names import keys_key
from asyncrec._shards.manifest.segment import ShardEntry, in_order_of_commits
from asyncrec._shards.writing.keys import digest_of
from asyncrec.errors import DatasetError, ObjectNotFoundError, RecordKeyError
from asyncrec.storage._base import Storage

# Of a key, so much is shown.
_LONGEST = 200


class KeyIndex:
    """Finds the number of a record by its key. The keys are read when it is first asked.

    ``path`` is the data set's, for messages.
    """

    def __init__(self, folder: Storage, shards: Sequence[ShardEntry], starts: NDArray[np.int64], path: str) -> None:
        self._path = path
        self._folder = folder
        self._shards = shards
        self._starts = starts
        self._reading = anyio.Lock()
        self._columns: tuple[NDArray[np.bytes_], NDArray[np.int64]] | None = None

    async def find(self, key: str | bytes) -> int:
        """The number of the record with this key, of several the one that was committed first.

        Raises:
            KeyError: there is none.
            DatasetError: a file of keys does not fit its shard.
        """
        if self._columns is None:
            async with self._reading:
                if self._columns is None:
                    self._columns = await self._read()
        return self.look_up(key)

    @property
    def are_read(self) -> bool:
        """Whether `look_up` may be called."""
        return self._columns is not None

    def look_up(self, key: str | bytes) -> int:
        """As `find`, where the keys were read before. From any thread."""
        assert self._columns is not None, "asked for where they are read"
        digests, numbers = self._columns
        if not len(digests):
            raise RecordKeyError(
                f"{self._path}: there is no record with the key {_shown(key)}, nor with any other: none was written "
                "with a key"
            ).with_remedy("a record gets its key from writer.write(..., key=)", command="")
        # S16 compares without trailing zeros on both sides alike.
        wanted = np.frombuffer(digest_of(key), dtype="S16")[0]
        at = int(np.searchsorted(digests, wanted))
        if at == len(digests) or digests[at] != wanted:
            raise RecordKeyError(f"{self._path}: no record has the key {_shown(key)}")
        return int(numbers[at])

    async def _read(self) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        async def read(shard: ShardEntry) -> bytes:
            if shard.keys is None and shard.committed:
                return b""  # written without keys
            path = keys_key(shard.path) if shard.keys is None else shard.keys.path
            try:
                content = await self._folder.get(path)
            except ObjectNotFoundError:
                if shard.keys is not None:
                    raise
                return b""
            if len(content) != KEY_BYTES * shard.records:
                raise DatasetError(
                    f"{path}: {len(content):,} bytes of keys for {shard.records:,} records of {KEY_BYTES} bytes; "
                    "it belongs to another version of the shard"
                )
            if shard.keys is not None and shard.keys.crc32c not in (None, await in_thread(crc32c, content)):
                raise DatasetError(f"{path}: its checksum is not the manifest's; 'asyncrec verify' says more")
            return content

        return await in_thread(self._sorted, await for_each(read, self._shards))

    def _sorted(self, contents: list[bytes]) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        turns = in_order_of_commits(self._shards)
        digests = np.frombuffer(b"".join([contents[shard] for shard in turns]), dtype="S16")
        starts = [(int(self._starts[shard]), len(contents[shard]) // KEY_BYTES) for shard in turns]
        numbers = np.concatenate([np.arange(start, start + size) for start, size in starts] or [np.empty(0, np.int64)])
        keyed = digests != b""
        digests, numbers = digests[keyed], numbers[keyed]
        order = np.argsort(digests, kind="stable")  # stable: of equal ones the first committed stays the first
        return digests[order], numbers[order]


def _shown(key: str | bytes) -> str:
    return repr(key) if len(key) <= _LONGEST else f"{key[:_LONGEST]!r}..."
