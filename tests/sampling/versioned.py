"""Data sets whose keys come again and again, and what plain Python says is the newest version of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import asyncrec
from asyncrec import tools
from asyncrec.storage import Storage

__all__ = ["Page", "Site", "number_of"]


@dataclass(frozen=True)
class Page:
    """What is written: a key, if it has one, and a value to be newer by, if it has one."""

    key: str | None
    date: Any


@dataclass
class Site:
    """A data set, and what was written to it, in the order of commits; the numbers in the records are places in that.

    Attributes:
        records: the pages.
    """

    storage: Storage
    records: list[Page] = field(default_factory=list)

    async def commit(self, pages: list[Page], writer: str, *, per_shard: int = 3, compression: str = "") -> None:
        """Write pages by a writer of its own."""
        async with asyncrec.open_sharded_writer(
            "pages", storage=self.storage, writer_id=writer, max_shard_records=per_shard, on_duplicate="write",
            compression=compression,
        ) as opened:  # fmt: skip
            await self.write(opened, pages)

    async def write(self, writer: asyncrec.ShardedWriter, pages: list[Page]) -> None:
        """Write pages, which are to be committed before any others are written."""
        for page in pages:
            dated = {} if page.date is None else {"date": page.date}
            await writer.write(asyncrec.encode_example({"n": len(self.records), **dated}), key=page.key)
            self.records.append(page)

    async def compact(self) -> None:
        """Make a checkpoint, which has runs of the keys."""
        await tools.compact("pages", manifest_only=True, storage=self.storage)

    def history(self, key: str) -> list[int]:
        """The numbers of the records with a key, as they were committed."""
        return [number for number, page in enumerate(self.records) if page.key == key]

    def dated(self, key: str) -> list[int]:
        """The same from the oldest to the newest: without a date is the oldest, of equals the last is the newest."""
        return sorted(self.history(key), key=lambda number: (self._date(number) is not None, self._date(number) or 0))

    def newest(self) -> set[int]:
        """The numbers of all that are the newest."""
        keys = {page.key for page in self.records if page.key is not None}
        alone = {number for number, page in enumerate(self.records) if page.key is None}
        return alone | {self.dated(key)[-1] for key in keys}

    def _date(self, number: int) -> Any:
        return self.records[number].date


def number_of(record: bytes) -> int:
    """The place of a record in the order of commits."""
    return int(asyncrec.decode_example(record)["n"][0])
