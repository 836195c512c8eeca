"""`open_records` reads all records that a path names, from the first on, or those that meet conditions."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.reader import RecordReader
from asyncrec.errors import ArgumentValueError, DecodeError
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, INT64, NONE, parse_example
from asyncrec.storage._base import Storage
from asyncrec.tools._selection import SelectedShard, Selection, selected
from asyncrec.tools._shard_reading import open_shard

__all__ = ["FoundRecord", "RecordStream", "Where", "open_records"]

_WHERE = re.compile(r"(?P<feature>[^=!]+)(?P<sign>!?=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record: of which shard, its number there, counted from 0, and its bytes."""

    path: str
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on records: it holds for those of which a feature has a value among its values, or has it not.

    A number stands for int64 and float features, text for bytes ones. A record without the feature, or that is no
    Example, has not.
    """

    feature: str
    value: str
    equal: bool = True

    @classmethod
    def parse(cls, text: str) -> Where:
        """``label=3``, ``lang!=en``.

        Raises:
            ValueError: it is neither.
        """
        match = _WHERE.fullmatch(text)
        if not match:
            raise ArgumentValueError(f"{text!r} is no condition: write FEATURE=VALUE or FEATURE!=VALUE")
        return cls(match["feature"], match["value"], match["sign"] == "=")

    def holds(self, record: bytes) -> bool:
        return self._has(record) == self.equal

    def _has(self, record: bytes) -> bool:
        try:
            kind, payload = parse_example(record).get(self.feature, (NONE, b""))
            if kind == NONE:
                return False
            if kind == BYTES:
                return self.value.encode() in payload
            assert isinstance(payload, bytes), "a list comes with BYTES only"
            if kind == INT64:
                return int(self.value) in int64_values(payload)
            return bool((np.frombuffer(payload, "<f4") == np.float32(self.value)).any())
        except (DecodeError, ValueError):
            return False


class RecordStream:
    """A single pass over records, made by `open_records`.

    ``async for records in stream``: lists, none empty, of one shard each.
    """

    def __init__(self, selection: Selection, where: Sequence[Where], stack: AsyncExitStack) -> None:
        self.selection = selection
        self._where = where
        self._shards = iter(selection.shards)
        self._stack = stack
        self._shard: SelectedShard | None = None  # being read
        self._next: SelectedShard | None = None  # being opened
        self._read: list[FoundRecord] | None = None  # the last batch, until it was looked through
        self._reader: RecordReader

    def __aiter__(self) -> RecordStream:
        return self

    async def __anext__(self) -> list[FoundRecord]:
        while True:
            if self._shard is None:
                self._next = self._next or next(self._shards, None)
                if self._next is None:
                    raise StopAsyncIteration
                self._reader = await self._stack.enter_async_context(open_shard(self.selection, self._next))
                self._shard, self._next = self._next, None
            if self._read is None:
                batch = await self._reader.next_batch()
                if batch is None:
                    self._shard = None
                    await self._stack.aclose()
                    continue
                path = self._shard.display_path
                self._read = [FoundRecord(path, number, data) for number, data in enumerate(batch.records, batch.first)]
            found = await in_thread(self._chosen, self._read) if self._where else self._read
            self._read = None
            if found:
                return found

    def _chosen(self, records: list[FoundRecord]) -> list[FoundRecord]:
        """Those that meet the conditions. Blocks: each is parsed."""
        return [each for each in records if all(where.holds(each.data) for where in self._where)]


@asynccontextmanager
async def open_records(
    path: str | os.PathLike[str],
    *,
    where: Sequence[Where] = (),
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[RecordStream]:
    """All records of a file, a folder, a pattern or a data set, in order, or those for which all of ``where`` holds.

    Raises:
        ObjectNotFoundError, StoragePermissionError: on opening.
        FormatError: while reading, after all records before the damage were given out.
    """
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        async with AsyncExitStack() as stack:
            yield RecordStream(selection, where, stack)
