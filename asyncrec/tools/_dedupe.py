"""`dedupe` writes one of the records that are the same as a new data set: by content, key or a feature."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.tools._identity import CONTENT, Identities, check_by
from asyncrec.tools._keyed_records import KeptCompression, KeyedRecords, NewTarget, WriteReport, picked, write_chosen
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import selected


async def dedupe(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    by: str = CONTENT,
    keep: Literal["first", "last"] = "first",
    compression: KeptCompression = "keep",
    max_shard_bytes: Size | None = None,
    temporary_folder: str | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> WriteReport:
    """Write the records of ``source``, of those that are the same only one, as the new data set ``target``.

    They keep their order, their keys, the schema and the metadata. The source is read twice, and not changed. Where the
    target's name holds ``.tfrec`` it is a single file.

    Args:
        by: what makes records the same: ``"content"``; ``"key"``; or ``"feature:url"``, of which a record without it
            is like no other.
        keep: of those that are the same, the first one or the last.
        compression: of what is written; that of the source unless given.
        max_shard_bytes: of a shard; 256 MiB.
        temporary_folder: for 40 bytes a record, where there are more than 1.6 million.
        max_record_bytes: as for `asyncrec.open_reader`, and for a file that is written; longer records that a manifest
            notes are read in any case.

    Raises:
        DatasetError: by key, and the source has none; or, a file in no manifest, it was changed meanwhile.
        ValueError: by a feature that no record has.
        FormatError: the source is damaged; nothing is left of the target.
        ObjectExistsError: there is something at the target.
    """
    if keep not in ("first", "last"):
        raise ArgumentValueError(f"keep is 'first' or 'last', not {keep!r}")
    check_by(by)
    into = NewTarget(target, compression, max_shard_bytes, max_record_bytes, target_storage, target_storage_options)
    async with selected(
        source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        total = 2 * selection.bytes
        with Identities(by, temporary_folder=temporary_folder) as identities:
            count = await identities.read(selection, 0, lambda done, _: progress(done, total))
            dropped = await in_thread(_dropped, identities, count, keep)
        made = {"deduplicated": {"source": selection.path, "by": by, "keep": keep}}
        return await write_chosen(
            into,
            selection,
            lambda records: _kept(records, dropped),
            made,
            lambda done, _: progress(total // 2 + done, total),
            count=count,
        )


def _dropped(identities: Identities, count: int, keep: Literal["first", "last"]) -> NDArray[np.uint8]:
    """A bit for each record: whether it is left out. Blocks."""
    dropped = np.zeros((count + 7) // 8, np.uint8)
    for rows in identities.groups():
        same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
        numbers = rows["number"][1:][same] if keep == "first" else rows["number"][:-1][same]
        np.bitwise_or.at(dropped, numbers >> 3, np.left_shift(1, numbers & 7).astype(np.uint8))
    return dropped


async def _kept(records: KeyedRecords, dropped: NDArray[np.uint8]) -> AsyncIterator[KeyedBatch]:
    async for batch in records:
        numbers = np.arange(records.given - len(batch.records), records.given)
        keeps = (dropped[numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1 == 0
        if keeps.all():
            yield batch
        elif keeps.any():
            yield picked(batch, np.flatnonzero(keeps).tolist())
