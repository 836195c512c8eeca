"""`Profile` is a bounded summary of records by feature. Records are added in lists. This module does no I/O.

A record is an Example, a SequenceExample, or neither. If neither, only its kind is kept, and in a few cases its first
bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec import FixedLen, Schema, decode_sequence_example
from asyncrec.errors import DecodeError
from asyncrec.example import Tensor

from .numbers import Numbers
from .strings import PictureRoom, Strings
from .texts import LOOKED_AT, preview, sniff

# A feature as decoded by `asyncrec.decode_sequence_example`: float32, int64, or bytes.
Values: TypeAlias = "npt.NDArray[Any] | list[bytes]"
# Records as decoded by `asyncrec.example.decode_columns`.
Columns: TypeAlias = "Mapping[str, tuple[Any, Values, npt.NDArray[np.int64]]]"
# A function that returns the label of the image in the record with a given number.
LabelOf: TypeAlias = Callable[[int], str]

# The maximum number of features with a summary, which takes up to a megabyte. A record may have millions of features.
_FEATURES = 200
# The maximum number of other feature names to count.
_NAMES = 10_000
_NAME_CHARACTERS = 500
_OTHERS = 5
# The maximum number of features to search for the label of a record's image.
_LABEL_FEATURES = 12
_LABEL_VALUES = 10
# Common names of the class feature, most likely first.
_CLASS_NAMES = ("label", "class", "category", "target", "labels", "class_id", "label_id", "y", "package", "kind")


@dataclass
class Feature:
    """A summary of one feature or one feature list.

    Attributes:
        entry: the schema's entry; `None` if the feature is not in the schema.
        is_list: whether this is a feature list of SequenceExamples.
        records: the number of records that have the feature.
        kinds: the number of occurrences of each kind: "int64", "float", "bytes", or (without values) "nothing".
        counts: the number of values per record.
        steps: the number of steps per record, for a feature list.
        numbers, strings: the summaries of the values.
    """

    name: str
    entry: Any = None
    is_list: bool = False
    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    counts: Numbers = field(default_factory=Numbers)
    steps: Numbers = field(default_factory=Numbers)
    numbers: Numbers = field(default_factory=Numbers)
    strings: Strings = field(default_factory=Strings)
    _pending_numbers: list[Any] = field(default_factory=list)
    _pending_strings: list[bytes] = field(default_factory=list)
    _pending_records: list[int] = field(default_factory=list)
    _pending_counts: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether values were read, and all of them are empty strings."""
        return bool(self.strings.count) and not self.strings.lengths.maximum and not self.numbers.count

    @property
    def raw_dtype(self) -> str | None:
        """The schema's type of numbers that are stored as raw bytes, or `None`."""
        raw = isinstance(self.entry, FixedLen | Tensor) and self.entry.raw
        return self.entry.dtype if raw else None

    @property
    def declared_kind(self) -> str | None:
        """The kind of the stored feature according to the schema, or `None` if the feature is not in the schema."""
        if self.entry is None or self.name not in self.entry.stored(self.name):
            return None
        dtype = "bytes" if self.raw_dtype else self.dtype
        return {"bytes": "bytes", "str": "bytes"}.get(dtype, "float" if dtype.startswith("float") else "int64")

    @property
    def dtype(self) -> str:
        """The type to show: the schema's type or, if there is no schema entry, the stored kinds."""
        if self.entry is not None and hasattr(self.entry, "dtype"):
            return str(self.entry.dtype)
        text = [kind for kind, _ in self.kinds.most_common() if kind != "nothing"]
        return " or ".join(text) or "nothing"

    def take(self, record: int, steps: Sequence[Values]) -> None:
        """Add the values of one record, by step if this is a feature list. They are counted by `settle`."""
        self.records += 1
        count = 0
        for values in steps:
            self.kinds[_kind_of(values)] += 1
            if isinstance(values, list):
                count += self._take_bytes(record, values)
            else:
                count += len(values)
                self._pending_numbers.append(values)
        self._pending_counts.append(count)
        if self.is_list:
            self.steps.add(np.array([len(steps)]))

    def _take_bytes(self, record: int, payload: list[bytes]) -> int:
        if self.raw_dtype is None:
            self._pending_strings += payload
            self._pending_records += [record] * len(payload)
            return len(payload)
        arrays = _raw_numbers(payload, self.raw_dtype)
        self._pending_numbers += arrays
        return sum(map(len, arrays))

    def take_column(self, first: int, flat: Values, counts: npt.NDArray[np.int64], label_of: LabelOf) -> None:
        """Count the values of records from number ``first`` on. ``counts`` is -1 for records without the feature."""
        has = counts >= 0
        present = counts[has]
        self.records += len(present)
        some = int(np.count_nonzero(present))
        times = {_kind_of(flat): some, "nothing": len(present) - some}
        for kind in times if len(present) and present[0] else reversed(times):  # in order of appearance
            if times[kind]:
                self.kinds[kind] += times[kind]
        if self.is_list:  # in other records, this feature is a list
            self.steps.add(np.ones(len(present), np.int64))
        if not isinstance(flat, list):
            numbers: Values = flat
        elif self.raw_dtype is None:
            numbers = np.empty(0)
            if flat:
                self.strings.add(flat, np.repeat(np.flatnonzero(has) + first, present), label_of)
        else:
            arrays = _raw_numbers(flat, self.raw_dtype)
            ends = np.concatenate(([0], np.cumsum([len(array) for array in arrays], dtype=np.int64)))
            upto = np.cumsum(present)
            present = ends[upto] - ends[upto - counts[has]]
            numbers = np.concatenate(arrays) if arrays else np.empty(0)
        self.counts.add(present)
        if len(numbers):
            self.numbers.add(np.asarray(numbers))

    def settle(self, label_of: LabelOf) -> None:
        """Count the values added by `take`."""
        if self._pending_counts:
            self.counts.add(np.array(self._pending_counts, np.int64))
        if self._pending_numbers:
            self.numbers.add(np.concatenate(self._pending_numbers))
        if self._pending_strings:
            self.strings.add(self._pending_strings, self._pending_records, label_of)
        self._pending_counts, self._pending_numbers = [], []
        self._pending_strings, self._pending_records = [], []


class Profile:
    """A bounded summary of records.

    ``labels[n]`` is the name of class number ``n``.

    Attributes:
        records: the number of records.
        sizes: the sizes of the records' data in bytes.
        features: the first 200 features by name.
        more_features: the number of other feature names, up to 10,000.
        others: the number of records that are not Examples.
        other_kinds: the number of these records of each kind.
        other_examples: some of these as (record, kind, piece of the data, whether the piece is text, size in bytes).
    """

    def __init__(
        self, schema: Schema | None = None, *, class_feature: str | None = None, labels: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        self.class_feature = class_feature
        self.labels = labels
        self.records = 0
        self.sizes = Numbers()
        self.features: dict[str, Feature] = {}
        self.others = 0
        self.other_kinds: Counter[str] = Counter()
        self.other_examples: list[tuple[int, str, str, bool, int]] = []
        self._more: set[int] = set()
        self._room = PictureRoom()

    @property
    def more_features(self) -> int:
        return len(self._more)

    @property
    def examples(self) -> int:
        """The number of records that are Examples or SequenceExamples."""
        return self.records - self.others

    def add(self, records: Sequence[bytes], first: int | None = None, columns: Columns | None = None) -> None:
        """Count records. Call this in a worker thread, because it takes time proportional to the size of the records.

        ``columns`` is the result of `asyncrec.example.decode_columns`. If it is `None`, each record is decoded
        separately. ``first`` is the number of the first record among all records; by default, the number already
        counted. A negative number represents an unknown number, and is not shown.
        """
        first = self.records if first is None else first
        self.records += len(records)
        self.sizes.add(np.fromiter(map(len, records), np.int64, len(records)))
        if columns is None or any(len(name) > _NAME_CHARACTERS for name in columns):
            self._add_one_by_one(records, first)
            return

        def label_of(number: int) -> str:
            return self._label(decode_sequence_example(records[number - first])[0])

        lacking = np.ones(len(records), np.bool_)
        for name, (_, flat, counts) in columns.items():
            lacking &= counts < 0
            if feature := self._feature(name, is_list=False):
                feature.take_column(first, flat, counts, label_of)
        for place in np.flatnonzero(lacking).tolist():
            self._other(first + place, records[place])

    def _add_one_by_one(self, records: Sequence[bytes], first: int) -> None:
        contexts: dict[int, dict[str, Values]] = {}
        for number, record in enumerate(records, first):
            try:
                context, lists = decode_sequence_example(record)
                self._take(number, context, lists)
            except DecodeError:
                context, lists = {}, {}
            if not context and not lists:
                self._other(number, record)
            contexts[number] = context
        for feature in self.features.values():
            feature.settle(lambda number: self._label(contexts.get(number, {})))

    def classes(self) -> Feature | None:
        """Return the class feature: the requested one, or one with a common name and suitable values."""
        if self.class_feature is not None:
            return self.features.get(self.class_feature)
        for name in _CLASS_NAMES:
            for feature in self.features.values():
                if feature.name.rpartition("/")[2].lower() == name and self._tells_classes(feature):
                    return feature
        return None

    def class_name(self, value: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return self.labels[value] if 0 <= value < len(self.labels) else f"{value:,}"

    def _tells_classes(self, feature: Feature) -> bool:
        """Return whether each record has at most one value, and values repeat."""
        found = feature.numbers.values if feature.numbers.count else feature.strings.values
        return bool(found) and feature.counts.maximum == 1 and 2 <= len(found) <= max(2, feature.records // 2)  # type: ignore[arg-type]  # not None

    def _take(self, number: int, context: Mapping[str, Values], lists: Mapping[str, list[Values]]) -> None:
        for name, values in context.items():
            if feature := self._feature(name, is_list=False):
                feature.take(number, [values])
        for name, steps in lists.items():
            if feature := self._feature(name, is_list=True):
                feature.take(number, steps)

    def _feature(self, name: str, *, is_list: bool) -> Feature | None:
        name = name[:_NAME_CHARACTERS]
        feature = self.features.get(name)
        if feature is None:
            if len(self.features) >= _FEATURES:
                if len(self._more) < _NAMES:
                    self._more.add(hash(name))
                return None
            entry = self.schema.features.get(name) if self.schema else None
            feature = self.features[name] = Feature(name, entry, is_list, strings=Strings(self._room))
        return feature

    def _other(self, number: int, record: bytes) -> None:
        self.others += 1
        kind = sniff(record)
        self.other_kinds[kind] += 1
        if len(self.other_examples) < _OTHERS:
            piece, is_text = preview(record[: LOOKED_AT + 1], 600)
            self.other_examples.append((number, kind, piece, is_text, len(record)))

    def _label(self, context: Mapping[str, Values]) -> str:
        """Return an image's label: the value of the class feature, or of a feature with a common name, or ``""``."""
        wanted: tuple[str, ...] = () if self.class_feature else _CLASS_NAMES
        for name, values in list(context.items())[:_LABEL_FEATURES]:
            if self.class_feature == name or name.rpartition("/")[2].lower() in wanted:
                if _kind_of(values) == "int64" and len(values) <= _LABEL_VALUES:
                    return ", ".join(map(self.class_name, np.asarray(values).tolist()))
                if isinstance(values, list) and values:
                    return preview(values[0], 40)[0]
        return ""


def _raw_numbers(values: Sequence[bytes], raw_dtype: str) -> list[npt.NDArray[Any]]:
    dtype = np.dtype(raw_dtype).newbyteorder("<")
    arrays = [np.frombuffer(value, dtype, len(value) // dtype.itemsize) for value in values]
    return [array.astype(np.float64 if dtype.kind == "f" else np.int64) for array in arrays]


def _kind_of(values: Values) -> str:
    """Return the kind of a feature's values, or "nothing" if there are no values."""
    if not len(values):
        return "nothing"
    if isinstance(values, list):
        return "bytes"
    return "int64" if values.dtype == np.int64 else "float"
