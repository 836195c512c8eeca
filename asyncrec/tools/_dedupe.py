"""`dedupe` writes one of each group of equal records to a new data set, comparing them by content, key or a feature.

The order of the records does not show which record is the oldest. Records are in the order of the shards' names, which
contain the time at which their writers were opened, so a writer that stays open for a long time commits new records
under a name that sorts early. Therefore, the first of several equal records is the one that was committed first or,
within a shard, written first.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.record_set import RecordSet, all_bits, clear
from asyncrec._shards.manifest.origins import CommitOrder
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.tools._identity import CONTENT, Identities, check_by
from asyncrec.tools._keyed_records import KeptCompression, KeyedRecords, NewTarget, WriteReport, in_set, write_chosen
from asyncrec.tools._parameters import Progress
from asyncrec.tools._revisited import revisits_among
from asyncrec.tools._selection import Selection, selected

_NEWEST = "newest-by="


async def dedupe(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    by: str = CONTENT,
    keep: str = "first",
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
    """Write the records of ``source`` as the new data set ``target``, with one record for each group of equal records.

    Records keep their order and keys, and the data set keeps its schema and metadata. The source is read twice, or
    three times if its records may be revisits, but not changed. If the name of the target contains ``.tfrec``, it is a
    single file.

    Args:
        by: how records are compared: by ``"content"``, ``"key"``, or ``"feature:url"``; records without that feature
            are never equal.
        keep: which of several equal records to keep. ``"first"`` or ``"last"``: the first or last committed, by the
            times in the manifest, and within a shard by the order of its records (for files in no manifest, by their
            names). ``"newest-by=date"``: the record with the largest value of that feature, a number or text of at most
            32 bytes; if several records have that value, the last of them. A record without the feature counts as older
            than all others.
        compression: the compression of the new shards; by default that of the source.
        max_shard_bytes: the maximum size of a shard; by default 256 MiB.
        temporary_folder: a folder for 40 bytes for each record, or 73 with ``"newest-by=..."``, if they exceed 64 MiB.
        max_record_bytes: as for `asyncrec.open_reader`, and for a file that is written; longer records that a manifest
            allows are always read.

    Raises:
        DatasetError: ``by`` is ``"key"``, but the source has no keys; or a file in no manifest was changed during the
            call.
        ValueError: no record has the feature, or its values have no order; or a kept page is a revisit of a page that
            would be left out.
        FormatError: the source is damaged; no part of the target remains.
        ObjectChangedError: a shard is not the one in its manifest; no part of the target remains.
        ObjectExistsError: the target exists.
    """
    newest_by = keep.removeprefix(_NEWEST) if keep.startswith(_NEWEST) else None
    if keep not in ("first", "last") and not newest_by:
        raise ArgumentValueError(f"keep must be 'first', 'last' or 'newest-by=FEATURE', not {keep!r}")
    check_by(by)
    into = NewTarget(target, compression, max_shard_bytes, max_record_bytes, target_storage, target_storage_options)
    async with selected(
        source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        total = 2 * selection.bytes
        async with Identities(by, newest_by=newest_by, temporary_folder=temporary_folder) as identities:
            count = await identities.read(selection, 0, lambda done, _: progress(done, total))
            kept = await in_thread(_kept, identities, count, keep, selection)
        if by != CONTENT and (lost := await revisits_among(selection, kept)):
            raise ArgumentValueError(
                f"{selection.path}: some of the kept pages are revisits, whose bodies are in pages that would be left "
                f"out, such as {', '.join(lost)}; nothing was written"
            ).with_remedy(
                "keep the first records, or read the newest ones with open_dataset(newest=...) and their bodies with "
                "pages.resolve",
                command="use --keep first",
            )
        made = {"deduplicated": {"source": selection.path, "by": by, "keep": keep}}
        return await write_chosen(
            into,
            selection,
            lambda records: _those(records, kept),
            made,
            lambda done, _: progress(total // 2 + done, total),
            count=count,
            carries=True,
        )


def _kept(identities: Identities, count: int, keep: str, selection: Selection) -> RecordSet:
    """Return the records to keep. Blocks."""
    bits = all_bits(count)
    in_turn = _by_commit(selection)
    for rows in identities.groups():
        keys = [in_turn(rows["number"]), rows["low"], rows["high"]]
        if rows.dtype.names is not None and "age" in rows.dtype.names:
            keys.insert(1, rows["age"])
        rows = rows[np.lexsort(keys)]
        same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
        clear(bits, rows["number"][1:][same] if keep == "first" else rows["number"][:-1][same])
    return RecordSet(count, bits)


def _by_commit(selection: Selection) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return a function that maps record numbers to positions in commit order. Blocks."""
    entries = [shard.entry for shard in selection.shards]
    known = [entry for entry in entries if entry is not None]
    if len(known) < len(entries):
        return lambda numbers: numbers
    return CommitOrder(known).places


async def _those(records: KeyedRecords, kept: RecordSet) -> AsyncIterator[KeyedBatch]:
    async for batch in records:
        some = in_set(batch, records.given, kept)
        if some.records:
            yield some
