"""`sample` draws records at random, and writes them as a new data set. `open_sample` only reads them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.epochs.permutation import key_of, permuted
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.tools._count import counts_of
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._keyed_records import KeptCompression, KeyedRecords, NewTarget, WriteReport, picked, write_chosen
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import Selection, selected

# The number of drawn records to read from a data set at once.
_TOGETHER = 256


async def sample(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    records: int | None = None,
    fraction: float | None = None,
    seed: int = 0,
    compression: KeptCompression = "keep",
    max_shard_bytes: Size | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> WriteReport:
    """Write ``records`` records of ``source``, or a ``fraction`` of them, as the new data set ``target``.

    Every record is equally likely to be drawn, and no record is drawn twice. The same source, seed and number of
    records result in the same sample. Records keep their order and keys, and the data set keeps its schema and
    metadata. If the name of the target contains ``.tfrec``, it is a single file. The source is not changed.

    Args:
        records: the number of records to draw. If the source has fewer records, all are drawn.
        fraction: the fraction of the records to draw, from 0 to 1. Pass either this or ``records``.
        compression: the compression of the new shards; by default that of most records of the source.
        max_shard_bytes: the maximum size of a shard; by default 256 MiB.
        max_record_bytes: as for `asyncrec.open_reader`; also the limit for a target that is a single file. Longer
            records that a manifest allows are read in any case.

    Raises:
        ValueError: neither or both of ``records`` and ``fraction`` are passed, or a value is out of range.
        DatasetError: a file in no manifest was changed meanwhile; no part of the target remains.
        FormatError: the source is damaged; no part of the target remains.
        ObjectExistsError: the target exists.
    """
    into = NewTarget(target, compression, max_shard_bytes, max_record_bytes, target_storage, target_storage_options)
    async with selected(
        source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        drawn, total = await _draw(selection, records, fraction, seed)
        made = {"sampled": {"source": selection.path, "seed": seed, "records": len(drawn)}}
        return await write_chosen(into, selection, lambda reading: _drawn(reading, drawn), made, progress, count=total)


class SampleStream:
    """The drawn records in stored order; ``async for records in stream`` yields lists of them.

    Attributes:
        selection: the selection from which the records were drawn.
    """

    def __init__(self, selection: Selection, drawn: NDArray[np.int64], stack: AsyncExitStack) -> None:
        self.selection = selection
        self._drawn = drawn
        self._given = 0
        found = selection.datasets[0] if selection.kind == "data set" else None
        self._dataset = None if found is None else Dataset(found.folder, found.name, found.manifest)
        self._records = RecordStream(selection, (), stack)

    def __aiter__(self) -> SampleStream:
        return self

    async def __anext__(self) -> list[FoundRecord]:
        while self._given < len(self._drawn):
            if self._dataset is not None:
                numbers = self._drawn[self._given : self._given + _TOGETHER]
                records = await self._dataset.get_many(numbers)
                self._given += len(numbers)
                shards = np.searchsorted(self._dataset.starts, numbers, side="right") - 1
                paths = [self.selection.shards[shard].display_path for shard in shards.tolist()]
                return [FoundRecord(*each) for each in zip(paths, numbers.tolist(), records, strict=True)]
            batch = await anext(self._records, None)
            if batch is None:
                break
            positions = _positions(self._drawn, batch[0].number, len(batch))
            self._given += len(positions)
            if positions:
                return [batch[at] for at in positions]
        raise StopAsyncIteration


@asynccontextmanager
async def open_sample(
    path: str | os.PathLike[str],
    *,
    records: int | None = None,
    fraction: float | None = None,
    seed: int = 0,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[SampleStream]:
    """Iterate over the records that `sample` would write. From a data set, only these records are read.

    Args:
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        ValueError: as for `sample`.
        ObjectNotFoundError, StoragePermissionError: raised on opening.
        FormatError: raised while reading.
    """
    async with (
        selected(
            path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
        ) as selection,
        AsyncExitStack() as stack,
    ):
        drawn, _ = await _draw(selection, records, fraction, seed)
        yield SampleStream(selection, drawn, stack)


async def _draw(
    selection: Selection, records: int | None, fraction: float | None, seed: int
) -> tuple[NDArray[np.int64], int]:
    """Draw records. Return their numbers in ascending order, and the total number of records."""
    if (records is None) == (fraction is None):
        raise ArgumentValueError("pass either records (how many to draw) or fraction")
    if records is not None and records < 0:
        raise ArgumentValueError(f"records={records}: must be at least 0")
    if fraction is not None and not 0 <= fraction <= 1:
        raise ArgumentValueError(f"fraction={fraction}: must be between 0 and 1")
    total = sum(await counts_of(selection))
    count = min(total, records if records is not None else round(total * (fraction or 0)))
    if count == 0:
        return np.empty(0, np.int64), total

    def draw() -> NDArray[np.int64]:
        return np.sort(permuted(np.arange(count), total, key_of("sample", seed)))

    return await in_thread(draw), total


def _positions(drawn: NDArray[np.int64], first: int, count: int) -> list[int]:
    """Return the positions of the drawn records among the ``count`` records that begin with number ``first``."""
    begin, end = np.searchsorted(drawn, [first, first + count])
    positions: list[int] = (drawn[begin:end] - first).tolist()
    return positions


async def _drawn(reading: KeyedRecords, drawn: NDArray[np.int64]) -> AsyncIterator[KeyedBatch]:
    async for batch in reading:
        positions = _positions(drawn, reading.given - len(batch.records), len(batch.records))
        if positions:
            yield picked(batch, positions)
