"""Infer the entries of a schema from records that it must decode.

The inferred types are the three types of an Example: int64, float32 and bytes. Records do not show whether their writer
converted values from other types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._compound import Sequence
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, VarLen
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, FLOAT, INT64, KINDS, NONE, Raw

_DTYPES = {BYTES: "bytes", FLOAT: "float32", INT64: "int64"}


def inferred(records: Iterable[tuple[Mapping[str, Raw], Mapping[str, SequenceOf[Raw]]]]) -> dict[str, Entry]:
    """Return the entries for the contexts and feature lists of the records, sorted by the UTF-8 bytes of their names.

    Raises SchemaError if there are no records, if a feature has two kinds, or if a feature and a feature list have the
    same name. Raises DecodeError if an int64 feature cannot be decoded.
    """
    seen: dict[tuple[str, bool], _Seen] = {}
    count = 0
    for row, (context, lists) in enumerate(records):
        count += 1
        for name, raw in context.items():
            seen.setdefault((name, False), _Seen()).add(name, row, [raw])
        for name, steps in lists.items():
            seen.setdefault((name, True), _Seen()).add(name, row, steps)
    if not count:
        raise SchemaError("a schema cannot be inferred from no records; pass at least one")
    features: dict[str, Entry] = {}
    for (name, in_list), feature in sorted(seen.items()):
        if feature.kind == NONE:
            continue
        if name in features:
            raise SchemaError(
                f"feature {name!r} is both in the context and a feature list; a schema can have only one entry per name"
            )
        entry = feature.entry(all_records=count)
        features[name] = Sequence(entry) if in_list else entry
    return features


class _Seen:
    """A summary of one feature, or of the steps of one feature list, in the records so far."""

    def __init__(self) -> None:
        self.kind = NONE
        self.first_row = 0
        self.records = 0
        self.counts: set[int] = set()

    def add(self, name: str, row: int, raws: SequenceOf[Raw]) -> None:
        """Add one record's feature, or the steps of its feature list."""
        complete = True
        for kind, payload in raws:
            if kind == NONE:
                complete = False
                continue
            if self.kind == NONE:
                self.kind, self.first_row = kind, row
            if kind != self.kind:
                raise SchemaError(
                    f"feature {name!r}: its values are {KINDS[self.kind]} in record {self.first_row} and {KINDS[kind]} "
                    f"in record {row}"
                )
            if len(self.counts) < 2:  # two counts already show that the lengths differ
                self.counts.add(self._count(name, row, kind, payload))
        self.records += complete

    def entry(self, all_records: int) -> FixedLen | VarLen:
        """Return the entry that decodes the feature in all records."""
        dtype = _DTYPES[self.kind]
        if self.records < all_records or len(self.counts) > 1:
            return VarLen(dtype)
        (count,) = self.counts
        return FixedLen(() if count == 1 else (count,), dtype)

    @staticmethod
    def _count(name: str, row: int, kind: int, payload: bytes | list[bytes]) -> int:
        if isinstance(payload, list):
            return len(payload)
        try:
            return len(payload) // 4 if kind == FLOAT else len(int64_values(payload))
        except DecodeError as error:
            raise DecodeError(f"record {row} of the batch: feature {name!r}: {error}") from None
