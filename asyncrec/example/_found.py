"""Decode records to columns without a schema. The features are found in the records themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asyncrec.errors import DecodeError
from asyncrec.example._columns import Column, read_columns
from asyncrec.example._wire import BYTES, NONE, Raw, parse_example, parse_sequence_example

# If a batch had more features than this, its columns would be nearly empty.
_MOST_FEATURES = 1000


def decode_columns(records: Sequence[bytes]) -> dict[str, Column] | None:
    """Decode many Examples at once to a column for each feature, with its values and their number per record.

    A column's ``flat`` holds the values of all records in order, as an int64 or float32 array or a list of bytes, as in
    `decode_example`. ``counts`` is an int64 array of the number of values in each record, or -1 for a record that does
    not have the feature. Columns are in the order in which the features first appear in the records.

    Return `None` if each record must be decoded by `decode_sequence_example`, because a record is not an Example or has
    feature lists, a feature has two types, or there are more than 1,000 features.
    """
    found = _Found(records)
    try:
        read_columns(records, {}, found.check)
        columns = read_columns(records, found.kinds, lambda features, row: None)
    except (DecodeError, _UnlikeError):
        return None
    return found.completed(columns)


class _UnlikeError(Exception):
    """Raised if the records cannot be decoded to columns."""


class _Found:
    """The features of the records, in the order in which they were found, with their kinds.

    A record may have a feature without a kind, and so without values. Such a feature is not absent, but only the record
    shows the difference; a column does not.
    """

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = records
        self._kinds: dict[str, int] = {}
        self._kindless: set[str] = set()

    @property
    def kinds(self) -> dict[str, int]:
        """The features to decode, with their kinds. A feature without a kind in any record gets an arbitrary kind."""
        return {name: kind or BYTES for name, kind in self._kinds.items()}

    def check(self, features: Mapping[str, Raw], row: int) -> None:
        """Add the features of a layout, from the record ``row``, which has that layout.

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
        """Return the columns with a count of 0, instead of -1, where a record has a feature without a kind."""
        rows: set[int] = set()
        for name in self._kindless:
            rows.update(np.flatnonzero(columns[name].counts < 0).tolist())
        for row in rows:
            for name, (kind, _) in parse_example(bytes(self._records[row])).items():
                if kind == NONE:
                    columns[name].counts[row] = 0
        return columns
