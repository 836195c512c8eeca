"""A source of records for grain, with random access for grain's own global shuffle and states.

    import grain
    from asyncrec.integrations.grain import RecordDataSource

    source = RecordDataSource("data/pages")
    batches = grain.MapDataset.source(source).seed(7).shuffle().map(decode).batch(64).to_iter_dataset()

`RecordDataSource` is a ``grain.sources.RandomAccessDataSource``, but does not import grain.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, SupportsIndex

from asyncrec._arguments import Size
from asyncrec._sampling.shard_versions import FileVersions
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.integrations._snapshot import SnapshotRecords
from asyncrec.storage._cached import CACHE_BYTES

__all__ = ["RecordDataSource"]


class RecordDataSource:
    """The records of a snapshot of a data set, by number, for grain's ``MapDataset.source`` and ``DataLoader``.

    Any number of threads and processes may read from it. Each process opens the data set when it begins to read. The
    repr contains the data set's name and the snapshot's id, so that grain's ``DataLoader`` accepts a state only for the
    same snapshot, in any process. For files without a manifest, the repr also contains the files' versions, so a state
    is rejected for a copy of the files unless the store keeps checksums.

    Args:
        path: the data set's folder and name, or a `Manifest`. The snapshot is taken once and sent to the workers.
        newest: as for `asyncrec.open_dataset`. The records are the newest version of each key, numbered from 0.
        storage_options: options for the backend.
        cache, cache_bytes: a local cache folder shared by all processes on this machine, and its size limit; see
            `asyncrec.open_dataset`.

    Raises: the errors of `asyncrec.open_dataset`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        *,
        newest: str | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
    ) -> None:
        reading: dict[str, Any] = {"storage_options": storage_options, "cache": cache, "cache_bytes": cache_bytes}
        self._newest = newest
        self._records = SnapshotRecords(path, newest=newest, **reading)

    def __len__(self) -> int:
        return self._records.count

    def __getitem__(self, index: SupportsIndex) -> bytes:
        """Return a record by its number. Raises the errors of `asyncrec.Dataset.get`."""
        return self._records.get(index)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[bytes]:
        """Return records by their numbers, in the order of ``indices``. Nearby records are read together."""
        return self._records.get_many(indices)

    # grain's own name for this method.
    _getitems = __getitems__

    def __repr__(self) -> str:
        manifest = self._records.manifest
        name = manifest.path.rstrip("/").rpartition("/")[2]
        files = FileVersions(manifest.shards, str).fingerprint
        shown = f", files={files!r}" if files else ""
        shown += f", newest={self._newest!r}" if self._newest is not None else ""
        return f"RecordDataSource({name!r}, snapshot={manifest.id!r}{shown}, records={len(self)})"

    def close(self) -> None:
        """Close the data set in this process. Reading reopens it. Garbage collection also closes it."""
        self._records.close()
