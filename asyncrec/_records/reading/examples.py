"""Decode records one by one, as they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from asyncrec._concurrency.turns import Turns
from asyncrec._records.record_size import LARGE_EXAMPLE
from asyncrec.errors import ExampleError
from asyncrec.example._codec import decode_example
from asyncrec.example._schema import Schema


class Examples:
    """An async iterator over the decoded ``records``. If a step is cancelled, no record is lost.

    A step raises a DecodeError or SchemaError, which names the record, if a record cannot be decoded. The next step
    continues with the next record.
    """

    def __init__(self, path: str, records: AsyncIterator[bytes], schema: Schema | None) -> None:
        self._path = path
        self._records = records
        self._decode = decoder(schema)
        self._held: bytes | None = None
        self._given = 0
        self._turns = Turns()

    def __aiter__(self) -> Examples:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._held is None:
            self._held = await anext(self._records)
        record = self._held
        try:
            values = await self._turns.call(len(record) > LARGE_EXAMPLE, self._decode, record)
        except ExampleError as error:
            self._held = None
            self._given += 1
            raise type(error)(
                f"{self._path}: record {self._given - 1:,} (counted from where reading began): {error}"
            ) from None
        self._held = None
        self._given += 1
        return values


def decoder(schema: Schema | None) -> Callable[[bytes], dict[str, Any]]:
    """Return the function that decodes one record, with the schema if there is one."""
    return decode_example if schema is None else schema.decode
