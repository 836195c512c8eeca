"""`CountsBy` counts records exactly by the values of a feature, and rejects a feature with too many values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ArgumentValueError, DecodeError
from asyncrec.example._by_name import features_of, unknown_feature, values_of
from asyncrec.example._wire import NONE, parse_example
from asyncrec.tools._conditions import Conditions, Where
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import open_shard

# A feature with more values, such as a URL, is not a class. This many short values take some megabytes.
MOST_VALUES = 10_000
# The maximum number of names that a message lists for records without a schema.
_MOST_NAMED = 30

# The value counted for a record: `None` if it lacks the feature, or if it has several values their list as text.
CountedValue: TypeAlias = int | float | str | None


class CountsBy:
    """The counts of a selection's records that meet all of ``where``, by the value of ``by``, in bounded memory.

    Attributes:
        side_by_side: whether the order of the shards makes no difference.

    Raises:
        ValueError: the schema does not have the feature.
    """

    def __init__(self, selection: Selection, by: str | None, where: Sequence[Where]) -> None:
        self._selection = selection
        self._by = by
        self._known = features_of(selection.schema)
        if by is not None and self._known is not None and by not in self._known:
            raise unknown_feature(by, self._known, selection.path)
        self._conditions = Conditions(where, self._known, selection.path) if where else None
        self.side_by_side = self._conditions is None or self._known is not None
        self._counts: Counter[CountedValue] = Counter()
        self._seen: dict[str, None] = {}

    async def count(self, shard: SelectedShard) -> int:
        """Count a shard. Return the number of its records that meet the conditions.

        Raises:
            ValueError: there are more values than `MOST_VALUES`, or a condition does not fit the feature's values.
        """
        found = 0
        async with open_shard(self._selection, shard) as reader:
            while batch := await reader.next_batch():
                records, counts, seen = await in_thread(lambda: self._look(batch.records))
                found += records
                self._counts.update(counts)
                self._seen |= seen
                if len(self._counts) > MOST_VALUES:
                    raise ArgumentValueError(
                        f"{self._selection.path}: the feature {self._by!r} has more than {MOST_VALUES:,} different "
                        "values, which is too many to count by; choose another feature"
                    )
        return found

    def end(self) -> Mapping[CountedValue, int] | None:
        """Return the counts, the most frequent value first; `None` without ``by``.

        Raises:
            ValueError: there were records, but none with the feature.
        """
        if self._conditions is not None:
            self._conditions.end()
        if self._by is None:
            return None
        if self._counts and set(self._counts) == {None} and self._known is None:
            raise unknown_feature(self._by, self._seen, self._selection.path)
        return dict(sorted(self._counts.items(), key=lambda item: (-item[1], str(item[0]))))

    def _look(self, records: list[bytes]) -> tuple[int, Counter[CountedValue], dict[str, None]]:
        """Parse and count the records. Blocks."""
        if self._conditions is not None:
            records = [records[at] for at in self._conditions.chosen(records)]
        counts: Counter[CountedValue] = Counter()
        seen: dict[str, None] = {}
        for record in records if self._by is not None else ():
            try:
                features = parse_example(record)
            except DecodeError:
                features = {}
            if len(seen) < _MOST_NAMED:
                seen |= dict.fromkeys(features)
            kind, payload = features.get(self._by or "", (NONE, b""))
            values = [] if kind == NONE else [_shown(value) for value in values_of(kind, payload)]
            counts[None if not values else values[0] if len(values) == 1 else str(values)] += 1
        return len(records), counts, seen


def _shown(value: object) -> int | float | str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)  # one key for all NaNs and one for each infinity, none of which JSON has
    assert isinstance(value, int | float), "a feature has bytes, integers or floats"
    return value
