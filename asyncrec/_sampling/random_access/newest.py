"""`NewestVersions` finds the newest record of one key, or of every key, by the value of a feature.

The naive way to do this for all keys would be to read every record. But most keys occur only once, and their records
need not be read. Three tables are therefore built, each of which uses bounded memory (a `RowTable`). The first contains
all keys, to find those that occur more than once. The second contains only these keys, in the order of their records,
so that neighbouring records are read together. The third also contains the values of the feature, to find the newest
records. The result is one bit for each record.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.epochs.shuffled_order import NumberedRecords
from asyncrec._sampling.random_access.in_order import step_of
from asyncrec._sampling.random_access.key_index import KeyIndex, Keys, Numbers
from asyncrec._sampling.random_access.row_table import BUCKETS, Rows, RowTable, by_digest
from asyncrec._sampling.record_set import RecordSet, all_bits, clear
from asyncrec.errors import DatasetError
from asyncrec.example._age import AGE_BYTES, Age
from asyncrec.example._by_name import features_in

_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<i8")])
_AGED_ROW = np.dtype([*_ROW.descr, ("age", f"S{AGE_BYTES}")])
# The memory limit of a table, of which two are in use at a time. It is enough for the keys of 700,000 records. Beyond
# the limit, rows are written to files.
_MEMORY = 16 << 20
# The number of steps read concurrently.
_TASKS = 4


class NewestVersions:
    """The newest record of each key: the record with the largest value of a feature.

    If values are equal, the record that was committed last is the newest. A record without the feature is older than
    any record with it. A record without a key always counts as the newest.

    Args:
        dataset: the records.
        keys: the keys of the records.
        age: the feature that determines the age of a record.
    """

    def __init__(self, dataset: NumberedRecords, keys: KeyIndex, age: Age) -> None:
        self._dataset = dataset
        self._keys = keys
        self._age = age
        manifest = dataset.manifest
        self._step = step_of(len(dataset), manifest.bytes, compressed=any(manifest.shards.compressions))
        self._making = anyio.Lock()
        self._found: RecordSet | None = None
        self._past_damage: tuple[RecordSet, DamageByShard] | None = None

    def take(self, found: RecordSet) -> None:
        """Use a result that another process computed for the same snapshot and feature."""
        self._found = found

    async def of(self, versions: Numbers) -> tuple[int, bytes | None]:
        """Return the number of the newest record of one key, and the record itself if it was read.

        Args:
            versions: the numbers of all records with the key, in the order in which they were committed.

        Raises:
            FormatError: a record is damaged.
            ValueError: the values of the feature have no order.
        """
        if len(versions) == 1:
            return int(versions[0]), None
        if self._found is not None:
            return int(versions[self._found.has(versions)][0]), None
        newest, age, kept = int(versions[0]), b"", None
        async for some, records, ages in self._read(versions):
            last = max(range(len(ages)), key=lambda at: (ages[at], at))
            if ages[last] >= age:
                newest, age, kept = int(some[last]), ages[last], records[last]
        return newest, kept

    async def ordered(self, versions: Numbers) -> tuple[Numbers, list[bytes]]:
        """Sort the records with one key, given their numbers, from the oldest to the newest.

        Return their numbers and the records.
        """
        records: list[bytes] = []
        ages: list[bytes] = []
        async for _, read, told in self._read(versions):
            records += read
            ages += told
        order = sorted(range(len(ages)), key=ages.__getitem__)
        return versions[order], [records[at] for at in order]

    async def records(self, damage: DamageByShard | None = None, *, keyless: bool = False) -> RecordSet:
        """Return the set of the newest records of all keys. It is computed once, and kept in memory.

        Args:
            damage: damaged records are added to this, and count as the oldest. If `None`, they raise an error.
            keyless: whether to accept a data set in which no record has a key.

        Raises:
            DatasetError: no record has a key, and ``keyless`` is `False`.
            FormatError: a record is damaged, and ``damage`` is `None`.
            ValueError: no record that was read has the feature, or its values have no order.
        """
        async with self._making:
            if damage is None or self._found is not None:
                if self._found is None:
                    self._found = await self._find(None, keyless=keyless)
                return self._found
            if self._past_damage is None:
                met = DamageByShard()
                self._past_damage = await self._find(met), met
                if not met.listed():
                    self._found = self._past_damage[0]
        found, met = self._past_damage
        for each in met.listed():
            damage.add(each.path, [each.damage])
        return found

    async def _find(self, damage: DamageByShard | None, *, keyless: bool = False) -> RecordSet:
        size = len(self._dataset)
        async with RowTable(
            _ROW, lambda rows: rows["number"] * BUCKETS // max(1, size), memory=_MEMORY, folder=None
        ) as same:
            await self._find_same(same, keyless=keyless)
            async with RowTable(_AGED_ROW, by_digest, memory=_MEMORY, folder=None) as aged:
                await self._find_ages(same, aged, damage)
                return await self._choose(aged)

    async def _find_same(self, same: RowTable, *, keyless: bool) -> None:
        """Add the keys that occur more than once to ``same``, with their records."""
        async with RowTable(_ROW, by_digest, memory=_MEMORY, folder=None) as table:
            async with aclosing(self._keys.all()) as parts:
                async for keys in parts:
                    await in_thread(_add, table, keys)
            if not (table.count or keyless) and len(self._dataset):
                raise no_keys(self._dataset.manifest.path)
            await _for_each(table.groups(), lambda rows: same.add(_repeated(rows)))

    async def _find_ages(self, same: RowTable, aged: RowTable, damage: DamageByShard | None) -> None:
        """Read the records in ``same`` in stored order, a step at a time, and add the records' ages to ``aged``."""
        adding = anyio.Lock()

        async def read(rows: Rows) -> None:
            records: Sequence[bytes | None]
            if damage is None:
                records = await self._dataset.get_many(rows["number"])
            else:
                records = await self._dataset.get_whole(rows["number"], damage)
            found = await in_thread(self._aged, rows, records)
            async with adding:
                await in_thread(aged.add, found)

        groups = same.groups()
        while (group := await in_thread(next, groups, None)) is not None:
            rows = await in_thread(_by_number, group)
            parts = (rows[at : at + self._step] for at in range(0, len(rows), self._step))
            await concurrently(read, parts, tasks=_TASKS)
        if aged.count:
            self._age.end(f", among the {aged.count:,} records whose keys occur more than once")

    async def _choose(self, aged: RowTable) -> RecordSet:
        size = len(self._dataset)
        bits = all_bits(size)
        await _for_each(aged.groups(), lambda rows: self._clear_older(bits, rows))
        return await in_thread(RecordSet, size, bits)

    def _aged(self, rows: Rows, records: Sequence[bytes | None]) -> Rows:
        """Return the rows with the ages of their records. Blocks."""
        found = np.empty(len(rows), _AGED_ROW)
        for name in ("high", "low", "number"):
            found[name] = rows[name]
        found["age"] = self._ages(records)
        return found

    def _ages(self, records: Sequence[bytes | None]) -> list[bytes]:
        return [b"" if record is None else self._age.of(features_in(record)) for record in records]

    def _clear_older(self, bits: NDArray[np.uint8], rows: Rows) -> None:
        """Clear the bits of the records that have a newer version. Blocks."""
        numbers = rows["number"]
        order = np.lexsort((numbers, self._keys.turns(numbers), rows["age"], rows["low"], rows["high"]))
        rows = rows[order]
        clear(bits, rows["number"][:-1][_alike(rows)])

    async def _read(self, versions: Numbers) -> AsyncGenerator[tuple[Numbers, list[bytes], list[bytes]]]:
        """Yield the numbers of these records, the records and their ages, a step at a time."""
        for at in range(0, len(versions), self._step):
            some = versions[at : at + self._step]
            records = await self._dataset.get_many(some)
            yield some, records, await in_thread(self._ages, records)


def no_keys(path: str) -> DatasetError:
    """Return the error for a data set in which no record has a key."""
    return DatasetError(
        f"{path}: no record in this data set was written with a key, so no record is a version of another; open it "
        "without newest"
    ).with_remedy("to give a record a key, pass key= to writer.write", command="")


async def _for_each(groups: Iterator[Rows], work: Callable[[Rows], None]) -> None:
    """Call ``work`` on each group in a thread, one group at a time, so that a cancellation waits only for one group."""

    def work_on_next() -> bool:
        rows = next(groups, None)
        if rows is not None:
            work(rows)
        return rows is not None

    while await in_thread(work_on_next):
        pass


def _by_number(rows: Rows) -> Rows:
    return rows[np.argsort(rows["number"])]


def _add(table: RowTable, keys: Keys) -> None:
    rows = np.empty(len(keys.numbers), _ROW)
    rows["high"], rows["low"] = keys.digests[:, 0], keys.digests[:, 1]
    rows["number"] = keys.numbers
    table.add(rows)


def _repeated(rows: Rows) -> Rows:
    """Return the rows whose key belongs to more than one record, without duplicate rows for the same record."""
    rows = rows[np.argsort(rows["high"], kind="stable")]
    rows = rows[_in_pairs(rows, rows["high"][1:] == rows["high"][:-1])]  # few rows are left
    rows = rows[np.lexsort((rows["number"], rows["low"], rows["high"]))]
    again = np.zeros(len(rows), np.bool_)
    again[1:] = _alike(rows) & (rows["number"][1:] == rows["number"][:-1])
    rows = rows[~again]
    return rows[_in_pairs(rows, _alike(rows))]


def _in_pairs(rows: Rows, same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return, for each row, whether it matches the previous or the next row.

    ``same`` says, for each row except the last, whether the row matches the next row.
    """
    found = np.zeros(len(rows), np.bool_)
    found[:-1] |= same
    found[1:] |= same
    return found


def _alike(rows: Rows) -> NDArray[np.bool_]:
    """Return, for each of the sorted rows except the last, whether the row has the same key as the next row."""
    same: NDArray[np.bool_] = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    return same
