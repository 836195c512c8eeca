"""Records that were read, decoded one by one on the caller's side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncrec._records.reading.examples import decoder
from asyncrec.errors import ExampleError
from asyncrec.example._schema import Schema


class Examples(Iterator[dict[str, Any]]):
    """An iterator over the examples of ``records``; after a record that does not decode it goes on with the next."""

    def __init__(self, path: str, records: Iterator[bytes], schema: Schema | None) -> None:
        self._path = path
        self._records = records
        self._decode = decoder(schema)
        self._given = 0

    def __next__(self) -> dict[str, Any]:
        record = next(self._records)
        self._given += 1
        try:
            return self._decode(record)
        except ExampleError as error:
            raise type(error)(f"{self._path}: record {self._given - 1:,} of those read here: {error}") from None
