"""Open a selection's data set to look up keys, and find the newest version of each key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._sampling.record_set import RecordSet
from asyncrec.errors import DatasetError
from asyncrec.tools._selection import Selection


@asynccontextmanager
async def keyed_dataset(selection: Selection, newest: str | None) -> AsyncIterator[Dataset]:
    """Open a selection's data set in order to look up keys.

    Raises:
        DatasetError: the selection is not a data set, or ``newest`` is passed but no shard has keys.
        ValueError: the values of the feature ``newest`` have no order.
    """
    if selection.kind != "data set":
        raise DatasetError(f"{selection.path}: only a data set has keys; pass the folder and name of a data set")
    (found,) = selection.datasets
    dataset = Dataset(found.folder, found.name, found.manifest, newest=newest)
    try:
        yield dataset
    finally:
        await dataset.lookup.close()


async def newest_records(selection: Selection, newest: str, *, keyless: bool = False) -> RecordSet:
    """Return the set of records that are the newest versions of their keys.

    Args:
        keyless: return all records, instead of raising DatasetError, if shards have keys files but no record has a key.

    Raises: as for `keyed_dataset`, and FormatError if a record is damaged.
    """
    async with keyed_dataset(selection, newest) as dataset:
        assert dataset.newest_versions is not None, "newest was passed"
        return await dataset.newest_versions.records(keyless=keyless)
