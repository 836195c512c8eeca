"""Decode records to columns without a schema. The features are those found in the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asyncrec.errors import DecodeError
from asyncrec.example._columns import Column, read_columns
from asyncrec.example._wire import BYTES, NONE, Raw, parse_example, parse_sequence_example

# A batch with more features than this is not decoded to columns, because they would be nearly empty.
_MOST_FEATURES = 1000


def decode_columns(records: Sequence[bytes]) -> dict[str, Column] | None:
    """Decode a batch of Examples to one column per feature, with its values and the number of values in each record.

    A column's ``flat`` holds the values of all records in order, as an int64 or float32 array or a list of bytes, like
    those of `decode_example`. ``counts`` is an int64 array of the number of values in each record, or -1 for a record
    that does not have the feature. Columns are in the order in which the features first appear in the records.

    Return `None` if a record is not an Example or has feature lists, if a feature has two types, or if there are more
    than 1,000 features. Each record must then be decoded by `decode_sequence_example`.
    """
    found = _Found(records)
    try:
        read_columns(records, {}, found.check)
        columns = read_columns(records, found.kinds, lambda features, row: None)
    except (DecodeError, _UnlikeError):
        return None
    return found.completed(columns)


class _UnlikeError(Exception):
    """Raised when the records cannot be decoded to columns."""


class _Found:
    """The features of the records, in the order in which they were found, with their kinds.

    A record may have a feature without a kind, and so without values. Such a feature is present, but its column cannot
    distinguish it from an absent feature, so `completed` consults the record.
    """

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = records
        self._kinds: dict[str, int] = {}
        self._kindless: set[str] = set()

    @property
    def kinds(self) -> dict[str, int]:
        """The features to decode, with their kinds. A feature that has no kind in any record is decoded as BYTES."""
        return {name: kind or BYTES for name, kind in self._kinds.items()}

    def check(self, features: Mapping[str, Raw], row: int) -> None:
        """Add the features of a layout, as found in record ``row``.

        Raises:
            DecodeError: the record's feature lists cannot be decoded.
            _UnlikeError: the record has feature lists, a feature has two kinds, or there are too many features.
        """
        if parse_sequence_example(bytes(self._records[row]))[1]:
            raise _UnlikeError
        for name, (kind, _) in features.items():
            known = self._kinds.setdefault(name, kind)
            if kind == NONE:
                self._kindless.add(name)
            elif known == NONE:
                self._kinds[name] = kind
            elif known != kind:
                raise _UnlikeError
        if len(self._kinds) > _MOST_FEATURES:
            raise _UnlikeError

    def completed(self, columns: dict[str, Column]) -> dict[str, Column]:
        """Return the columns, with a count of 0 instead of -1 where a record has a feature without a kind."""
        rows: set[int] = set()
        for name in self._kindless:
            rows.update(np.flatnonzero(columns[name].counts < 0).tolist())
        for row in rows:
            for name, (kind, _) in parse_example(bytes(self._records[row])).items():
                if kind == NONE:
                    columns[name].counts[row] = 0
        return columns
