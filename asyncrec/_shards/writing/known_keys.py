"""`load_keys` loads the keys of a data set, for a writer that skips duplicates.

The runs that the checkpoint names have them sorted, in one object for many shards. Each shard that is in no run costs a
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import KEY_BYTES, digest_bytes, fitted
from asyncrec._shards.manifest.key_runs import UNFIT, open_runs
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec._shards.writing.keys import KeySet
from asyncrec.errors import DatasetError, ManifestError
from asyncrec.storage._base import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray


async def load_keys(folder: Storage, name: str, before: Manifest | None) -> KeySet:
    """Load all keys of the snapshot: from the runs that its checkpoint names, and from shards that are in no run."""
    keys = await in_thread(KeySet)  # imports NumPy
    if before is None:
        return keys
    runs = await open_runs(folder, name, before.shards)
    contents: list[bytes] = []
    try:
        for run in runs.runs:
            contents += [part.digests.tobytes() async for part in run.all()]
    except UNFIT as error:
        runs.told(before.path, error)
        contents.clear()
    uncovered = await in_thread(_uncovered, before.shards, runs.covered)

    async def read(entry: ShardEntry) -> bytes:
        content = await load_digests(folder, entry)
        return await in_thread(fitted, content, entry.records, KEY_BYTES)

    try:
        await in_thread(keys.add_files, [*contents, *await for_each(read, uncovered)])
    except ValueError as error:
        raise ManifestError(f"{folder.root}: the keys of the data set cannot be read: {error}") from error
    return keys


async def load_digests(folder: Storage, entry: ShardEntry) -> bytes:
    """Load the keys file of a shard that has one.

    Raises:
        DatasetError: it is another file than the manifest's.
    """
    keys = entry.keys
    assert keys is not None, "asked for where there are keys"
    content = await folder.get(keys.path, max_bytes=keys.bytes)
    if not digest_bytes(len(content), entry.records):
        raise DatasetError(f"{keys.path} does not have the size of {entry.records:,} keys; the file is damaged")
    if keys.crc32c not in (None, await in_thread(crc32c, content)):
        raise DatasetError(
            f"{keys.path} does not match its checksum in the manifest; run 'asyncrec verify' for details"
        )
    return content


def _uncovered(shards: ShardList, covered: NDArray[np.bool_]) -> list[ShardEntry]:
    """The shards with keys that no run covers."""
    rows = np.flatnonzero(shards.keyed & ~covered).tolist()
    return list(shards) if len(rows) == len(shards) else list(map(shards.__getitem__, rows))
