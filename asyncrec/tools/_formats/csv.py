"""The CSV format: a row for each record, a column for each feature, and a first row of column names.

`convert` only writes CSV; `asyncrec.tools.from_csv` reads it. A cell contains the feature's single value, a number or
text. Several values, and bytes that are not UTF-8, are written as JSON, as in a JSON lines file. The cell is empty if
the record lacks the feature.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asyncrec.errors import SchemaError
from asyncrec.plugins._hookspecs import hookimpl
from asyncrec.plugins._kinds import Format
from asyncrec.tools._json_values import RECORD, SEQUENCE, lists_of, to_json


class CsvEncoder:
    """Encodes records as the bytes of a CSV file. The methods block."""

    def __init__(self, columns: Sequence[str], *, lists: frozenset[str], compressed: bool) -> None:
        self._columns = list(columns)
        self._known = frozenset(columns)
        self._lists = lists
        self._compressor = zlib.compressobj(wbits=31) if compressed else None
        self._header = True

    def encode(self, records: Sequence[bytes]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text)
        if self._header:
            writer.writerow(self._columns)
            self._header = False
        for at, record in enumerate(records):
            writer.writerow(self._row(record, at))
        data = text.getvalue().encode("utf-8")
        return data if self._compressor is None else self._compressor.compress(data)

    def finish(self) -> bytes:
        header = self.encode([]) if self._header else b""
        return header if self._compressor is None else header + self._compressor.flush()

    def _row(self, record: bytes, at: int) -> list[Any]:
        values = to_json(record, lists=self._lists)
        if values.keys() == RECORD:
            raise SchemaError(f"record {at} of the batch is not an Example, so it has no features to write as columns")
        if values.keys() == SEQUENCE:
            if values["$lists"]:
                raise SchemaError(
                    f"record {at} of the batch is a SequenceExample, which does not fit in a table; convert to JSON "
                    "lines instead"
                )
            values = values["$context"]
        if extra := sorted(values.keys() - self._known):
            raise SchemaError(
                f"record {at} of the batch has the feature {extra[0]!r}, which is not in the schema and therefore "
                "has no column; convert to JSON lines instead"
            )
        cells = (values.get(name, "") for name in self._columns)
        return [json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell for cell in cells]


def _encoder(name: str, schema: Mapping[str, Any] | None) -> CsvEncoder:
    features = (schema or {}).get("features")
    columns = list(features) if isinstance(features, Mapping) else []
    return CsvEncoder(columns, lists=lists_of(schema), compressed=name.endswith(".gz"))


@hookimpl
def asyncrec_formats() -> Iterable[Format]:
    return [Format(name="csv", suffixes=(".csv", ".csv.gz"), encoder=_encoder, needs_schema=True)]
