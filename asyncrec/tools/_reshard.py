"""`reshard` writes the records of a source to new shards, whose number, size, compression or order may differ.

By default, records keep their order. ``shuffle`` puts them in a random order that depends on the seed and on their
original order. ``group_by`` puts records with equal values of a feature next to each other, as required by samplers
that interleave shards by class. Both options sort by a hash, and use temporary files above the memory limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.read_ahead import iterated_ahead
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._datasets.shuffling.shuffler import MEMORY_LIMIT
from asyncrec._framing.compression import parse_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES
from asyncrec._records.writing.write_batch import PAIR_BYTES
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.writing.ordered_writer import Batch, Limits, check_num_shards, write_ordered
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.example._by_name import features_of, unknown_feature
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact
from asyncrec.tools._count import counts_of
from asyncrec.tools._frames_reading import FramedRecords
from asyncrec.tools._keyed_records import (
    KeptCompression,
    KeyedRecords,
    carried_of,
    kept_compression,
)
from asyncrec.tools._metadata import metadata_of
from asyncrec.tools._parameters import Progress, at_once, check_jobs
from asyncrec.tools._report_json import json_of
from asyncrec.tools._salvaged import ShardLoss
from asyncrec.tools._selection import Selection, selected
from asyncrec.tools._shard_reading import key_bytes_of
from asyncrec.tools._shards_in_turn import has_keys
from asyncrec.tools._sorting import Order, Sorted, Sorter


@dataclass(slots=True, kw_only=True)
class ReshardReport:
    """The result of `reshard`.

    Attributes:
        spilled_bytes: the size of the temporary files for sorting.
        losses: with ``on_corrupt="skip"``, the loss of each damaged shard of the source.
    """

    source: str
    target: str
    shards: list[ShardEntry] = field(default_factory=list)
    spilled_bytes: int = 0
    seconds: float = 0.0
    losses: list[ShardLoss] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "source target records bytes spilled_bytes seconds losses shards")


async def reshard(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    num_shards: int | None = None,
    max_shard_bytes: Size | None = None,
    max_shard_records: int | None = None,
    compression: KeptCompression = "keep",
    shuffle: bool = False,
    seed: int = 0,
    group_by: str | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
    memory_limit: Size = MEMORY_LIMIT,
    temporary_folder: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> ReshardReport:
    """Write the records of ``source`` (any path) as the new data set ``target``: all or nothing.

    Keys, schema and metadata of a data set are kept.

    Args:
        num_shards: the number of shards, whose record counts differ by at most one. Cannot be combined with a maximum
            size of shards.
        max_shard_bytes, max_shard_records: the maximum size of a shard; 256 MiB if neither these nor ``num_shards`` is
            passed.
        compression: the compression of the new shards; by default that of most records of the source.
        shuffle: put the records in random order. The same ``seed`` and source result in the same order.
        group_by: a feature. Records with equal values are put next to each other, in their original order or, with
            ``shuffle``, in random order. The first 65,000 groups are in the order in which they first appear in the
            source, and all further groups are in the order of a hash.
        on_corrupt: ``"skip"`` leaves out damaged records. The index of a damaged shard is used to find the keys of its
            other records, and ``losses`` of the report lists the losses. Cannot be combined with ``num_shards`` or
            ``group_by``, which count the records first; reshard the result again to use them.
        memory_limit: the maximum size of the records held in memory for sorting. Above it, records are written to
            ``temporary_folder``, which needs room for all of them.
        jobs: the number of shards to count at once, if records must be counted first; by default the number of
            processors that this process may use. If it is 2 or more, a worker thread reads and checks records while
            earlier records are written. The new shards are the same for any number. Sorting uses one thread.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        FormatError: the source is damaged and ``on_corrupt`` is not ``"skip"``; no part of the target remains.
        ObjectChangedError: a shard is not the one in its manifest, and ``on_corrupt`` is not ``"skip"``; no part of the
            target remains.
        ObjectNotFoundError: a shard is missing, regardless of ``on_corrupt``.
        ObjectExistsError: the target already exists.
        DatasetError: no record has the feature ``group_by``.
        ValueError: options contradict each other, or ``jobs`` is less than 1.
    """
    check_jobs(jobs)
    if compression != "keep":
        parse_compression(compression)  # reject an invalid value before any file is opened
    if num_shards is not None and (max_shard_bytes is not None or max_shard_records is not None):
        raise ArgumentValueError("num_shards cannot be combined with max_shard_bytes or max_shard_records")
    if on_corrupt not in ("raise", "skip"):
        raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: expected "raise" or "skip"')
    if on_corrupt == "skip" and (num_shards is not None or group_by is not None):
        raise ArgumentValueError(
            "on_corrupt='skip' cannot be combined with num_shards or group_by, which count the records first; "
            "reshard the result again to use them"
        )
    if max_shard_bytes is not None:
        max_shard_bytes = byte_count(max_shard_bytes, "max_shard_bytes")
    memory_limit = byte_count(memory_limit, "memory_limit")
    for option, value in {"max_shard_bytes": max_shard_bytes, "max_shard_records": max_shard_records}.items():
        if value is not None and value < 1:
            raise ArgumentValueError(f"{option} must be at least 1, not {value}")
    if num_shards is not None:
        check_num_shards(num_shards)
    report = ReshardReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    begun = time.monotonic()
    sorts = shuffle or group_by is not None
    losses = report.losses if on_corrupt == "skip" else None
    async with AsyncExitStack() as stack:
        selection = await stack.enter_async_context(
            selected(source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options)
        )
        known = features_of(selection.schema)
        if group_by is not None and known is not None and group_by not in known:
            raise unknown_feature(group_by, known, selection.path)
        target_options = None if target_storage_options is None else dict(target_storage_options)
        folder, name = await stack.enter_async_context(
            dataset_at(target, storage=target_storage, storage_options=target_options)
        )
        ordered: AsyncIterator[Batch]
        if sorts:
            batches = KeyedRecords(
                selection, await stack.enter_async_context(AsyncExitStack()), progress, losses=losses
            )
            sorter = Sorter(
                Order(
                    shuffle=shuffle,
                    seed=seed,
                    group_by=group_by,
                    total=0 if shuffle else sum(await counts_of(selection, jobs=jobs)),
                ),
                key_bytes=key_bytes_of(selection) if has_keys(selection) else 0,
                memory_limit=memory_limit,
                temporary_folder=temporary_folder,
            )
            stack.push_async_callback(surely_in_thread, sorter.close)
            async for batch in batches:
                await in_thread(sorter.add, batch)
            if group_by is not None and sorter.records and not sorter.grouped:
                raise DatasetError(
                    f"{report.source}: no record has the feature {group_by!r}; pass the name of a feature that the "
                    "records have"
                )
            records = sorter.records
            ordered = Sorted(sorter)
        else:
            records = 0 if num_shards is None else sum(await counts_of(selection, jobs=jobs))
            ordered = await _in_order(
                selection, stack, progress, ahead=at_once(jobs, selection.storage) > 1, losses=losses
            )
        made = _made(selection, report.source, shuffle=shuffle, seed=seed, group_by=group_by)
        if max_shard_bytes is None and max_shard_records is None and num_shards is None:
            max_shard_bytes = MAX_SHARD_BYTES
        report.shards = await write_ordered(
            folder,
            name,
            ordered,
            limits=Limits(
                num_shards=num_shards, records=records, max_bytes=max_shard_bytes, max_records=max_shard_records
            ),
            compression=await kept_compression(compression, [selection]),
            schema=selection.schema,
            metadata=await in_thread(metadata_of, [selection], {"resharded": made}),
            contents=key_bytes_of(selection) == PAIR_BYTES,
            carried=carried_of([selection]),
        )
        report.spilled_bytes = sorter.spilled_bytes if sorts else 0
    report.seconds = time.monotonic() - begun
    return report


async def _in_order(
    selection: Selection, stack: AsyncExitStack, progress: Progress, *, ahead: bool, losses: list[ShardLoss] | None
) -> AsyncIterator[Batch]:
    """Return the records in order. With ``ahead``, records are read and checked while earlier ones are written."""

    def records(inner: AsyncExitStack) -> AsyncIterator[Batch]:
        if losses is not None:
            return KeyedRecords(selection, inner, progress, losses=losses)
        return FramedRecords(selection, inner, progress)

    if not ahead:
        return records(await stack.enter_async_context(AsyncExitStack()))
    return await stack.enter_async_context(iterated_ahead(records, "the source"))


def _made(selection: Selection, source: str, *, shuffle: bool, seed: int, group_by: str | None) -> dict[str, Any]:
    """Return a description of how the new shards were made, for the metadata."""
    made: dict[str, Any] = {"source": source}
    if len(selection.datasets) == 1:
        made["snapshot"] = selection.datasets[0].manifest.id
    if shuffle:
        made["seed"] = seed
    if group_by is not None:
        made["group_by"] = group_by
    return made
