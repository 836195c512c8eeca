"""`diff` finds the records that only one of two paths has, and the records that were changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._sampling.random_access.row_table import Rows
from asyncrec._shards.writing.keys import digest_of
from asyncrec.example._by_name import features_in, values_of
from asyncrec.example._wire import NONE
from asyncrec.storage._base import Storage
from asyncrec.tools._identity import CONTENT, KEY, Identities, check_by
from asyncrec.tools._parameters import Progress
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import Selection, selected
from asyncrec.tools._shard_reading import ShardKeys
from asyncrec.tools._shards_in_turn import has_keys

# How many record numbers and how many keys to report, at most, for each kind of difference. Finding a key requires
# reading its record.
_MOST_TOLD = 1000
_MOST_SHOWN = 10


@dataclass(slots=True, kw_only=True)
class DiffReport:
    """The result of `diff`.

    Attributes:
        by: how records were matched.
        first_records, second_records: the number of records in each path.
        only_first, only_second: the number of records that only the first path has, and that only the second has.
        changed: the number of records of the first path that have different contents in the second path.
        only_first_numbers, only_second_numbers, changed_numbers: the numbers of the first thousand records of each
            kind, ascending, in the path that has them; for changed records, pairs of the numbers in the first and
            second path.
        keys: the keys, or the values of the feature in ``by``, of the first ten records of each kind, under
            ``"only_first"``, ``"only_second"`` and ``"changed"``. A key is ``""`` if it is unknown, as for files in no
            manifest, or is not a feature of its record. Empty if records were matched by content.
        same_schema: whether both manifests have the same schema.
    """

    first: str
    second: str
    by: str
    first_records: int = 0
    second_records: int = 0
    only_first: int = 0
    only_second: int = 0
    changed: int = 0
    only_first_numbers: list[int] = field(default_factory=list)
    only_second_numbers: list[int] = field(default_factory=list)
    changed_numbers: list[tuple[int, int]] = field(default_factory=list)
    same_schema: bool = True
    keys: dict[str, list[str]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether both paths have the same records, in any order, and the same schema."""
        return not (self.only_first or self.only_second or self.changed) and self.same_schema

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "first second by same first_records second_records only_first only_second changed only_first_numbers "
            "only_second_numbers changed_numbers same_schema keys",
        )


async def diff(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    by: str | None = None,
    ignore: Collection[str] = (),
    temporary_folder: str | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DiffReport:
    """Compare the records of two paths, in any order.

    Args:
        by: how records are matched: ``"key"``, the default if both have keys; ``"content"``, the default otherwise; or
            ``"feature:url"``. With ``"content"``, a changed record counts as two records, one in each path. Records
            without a key, or without the feature, are matched by content.
        ignore: features that may differ, such as ``["date"]`` for two crawls of the same pages.
        temporary_folder: a folder for 40 bytes a record, used if there are more than 1.6 million records.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are always read.

    Raises:
        DatasetError: ``by`` is ``"key"``, but one of the paths has no keys.
        ValueError: no record has the feature of ``by`` or ``ignore``.
        FormatError: one of the paths is damaged.
        ObjectChangedError: a shard is not the one in its manifest.
    """
    if by is not None:
        check_by(by)
    async with (
        selected(first, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options) as one,
        selected(second, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options) as other,
    ):
        by = by or (KEY if has_keys(one) and has_keys(other) else CONTENT)
        report = DiffReport(first=one.path, second=other.path, by=by, same_schema=one.schema == other.schema)
        total = one.bytes + other.bytes
        async with Identities(by, ignore=ignore, every=True, temporary_folder=temporary_folder) as identities:
            report.first_records = await identities.read(one, 0, lambda done, _: progress(done, total))
            report.second_records = await identities.read(other, 1, lambda done, _: progress(one.bytes + done, total))
            await in_thread(_compare, identities, report)
        if by != CONTENT:
            report.keys = {
                "only_first": await _keys_of(one, by, report.only_first_numbers),
                "only_second": await _keys_of(other, by, report.only_second_numbers),
                "changed": await _keys_of(one, by, [number for number, _ in report.changed_numbers]),
            }
    return report


async def _keys_of(selection: Selection, by: str, numbers: Sequence[int]) -> list[str]:
    """Read the first ten records, and return their keys, or their values of the feature in ``by``, as text.

    A shard stores only the digests of keys, so the text of a key is taken from the feature with the same digest.
    """
    if selection.kind != "data set":
        return [""] * len(numbers[:_MOST_SHOWN])
    found = selection.datasets[0]
    dataset = Dataset(found.folder, found.name, found.manifest)
    texts = []
    for number in numbers[:_MOST_SHOWN]:
        shard = int(np.searchsorted(dataset.starts, number, side="right")) - 1
        async with ShardKeys(selection, selection.shards[shard]) as keys:
            (digest,) = await keys.of([number - int(dataset.starts[shard])])
        texts.append(await in_thread(_name_of, await dataset.get(number), by, digest))
    return texts


def _name_of(record: bytes, by: str, digest: bytes) -> str:
    features = features_in(record)
    if by == KEY:
        return next((text for text in map(_text, features.values()) if digest_of(text) == digest), "")
    return _text(features.get(by.removeprefix("feature:"), (NONE, b"")))


def _text(feature: tuple[int, bytes | list[bytes]]) -> str:
    """Return the value of a feature as text, even if it is bytes, or ``""`` if it does not have exactly one value."""
    kind, payload = feature
    values = () if kind == NONE else values_of(kind, payload)
    if len(values) != 1:
        return ""
    return values[0].decode("utf-8", "surrogateescape") if isinstance(values[0], bytes) else str(values[0])


def _compare(identities: Identities, report: DiffReport) -> None:
    """Compare the rows of all groups, and add the differences to the report. Blocks."""
    for rows in identities.groups():
        if len(rows):
            _count(rows, report)
    for numbers in (report.only_first_numbers, report.only_second_numbers, report.changed_numbers):
        numbers.sort()
        del numbers[_MOST_TOLD:]


def _count(rows: Rows, report: DiffReport) -> None:
    new = np.ones(len(rows), bool)
    new[1:] = (rows["high"][1:] != rows["high"][:-1]) | (rows["low"][1:] != rows["low"][:-1])
    starts = np.flatnonzero(new)
    of_second = rows["side"] == 1
    in_second = np.add.reduceat(of_second.astype(np.int64), starts)
    in_first = np.diff(np.append(starts, len(rows))) - in_second
    # The sum of the content digests identifies the contents of a group of rows regardless of their order.
    signed = np.where(of_second, np.uint64(0) - rows["content"], rows["content"])
    differs = np.add.reduceat(signed, starts) != 0
    both = (in_first > 0) & (in_second > 0)
    surplus = in_first - in_second if report.by == CONTENT else np.where(both, 0, in_first - in_second)
    changed = both & (differs | (in_first != in_second)) if report.by != CONTENT else np.zeros(len(starts), bool)
    report.only_first += int(surplus[surplus > 0].sum())
    report.only_second -= int(surplus[surplus < 0].sum())
    report.changed += int(changed.sum())
    # In each group, rows from the first side come before those from the second, and surplus rows come last within their
    # side.
    second = starts + in_first
    report.only_first_numbers += _told(rows, (second - surplus)[surplus > 0], surplus[surplus > 0])
    report.only_second_numbers += _told(rows, (second + in_second + surplus)[surplus < 0], -surplus[surplus < 0])
    pairs = zip(rows["number"][starts[changed]].tolist(), rows["number"][second[changed]].tolist(), strict=True)
    report.changed_numbers += pairs
    report.changed_numbers[:] = sorted(report.changed_numbers)[:_MOST_TOLD]


def _told(rows: Rows, begins: Rows, counts: Rows) -> list[int]:
    """Return the lowest record numbers in the groups of rows that begin at ``begins`` and have ``counts`` rows."""
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found: list[int] = np.sort(rows["number"][np.repeat(begins, counts) + within])[:_MOST_TOLD].tolist()
    return found
