"""Columns of records without a schema: which features there are is found out from the records themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asyncrec.errors import DecodeError
from asyncrec.example._columns import Column, read_columns
from asyncrec.example._wire import BYTES, NONE, Raw, parse_example, parse_sequence_example

# Of more features than these in one batch, columns would be nearly empty.
_MOST_FEATURES = 1000


def decode_columns(records: Sequence[bytes]) -> dict[str, Column] | None:
    """Decode many Examples together: for each feature all its values, and how many of them each record has.

    A column has ``flat``, an int64 or float32 array or a list of bytes, as from `decode_example`, of all records one
    after the other; and ``counts``, an int64 array, with -1 for a record that does not have the feature. Columns
    are in the order in which features were found, as when each record is looked at in turn.

    Returns `None` if each record must be decoded by `decode_sequence_example`: one of them is not an Example or has
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
    """Columns cannot hold what these records have."""


class _Found:
    """The features of some records, in the order in which they were found, with the kind of each.

    A feature may be in a record without a kind, and so without values. Such a feature is not absent. Columns do not
    show the difference; only the record does.
    """

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = records
        self._kinds: dict[str, int] = {}
        self._kindless: set[str] = set()

    @property
    def kinds(self) -> dict[str, int]:
        """What to read. If no record has a kind, there is nothing to read, and any kind does."""
        return {name: kind or BYTES for name, kind in self._kinds.items()}

    def check(self, features: Mapping[str, Raw], row: int) -> None:
        """Learn what the records of a layout have, of which this row is one.

        Raises:
            DecodeError: its feature lists cannot be read.
            _UnlikeError: it has some, or does not go with other rows.
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
        """Return the columns, in which a feature without a kind has no values, and is not absent."""
        rows: set[int] = set()
        for name in self._kindless:
            rows.update(np.flatnonzero(columns[name].counts < 0).tolist())
        for row in rows:
            for name, (kind, _) in parse_example(bytes(self._records[row])).items():
                if kind == NONE:
                    columns[name].counts[row] = 0
        return columns
