"""Data sets with repeated keys, and a plain Python model of the newest version of each key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import asyncrec
from asyncrec import tools
from asyncrec.storage import Storage

__all__ = ["Page", "Site", "number_of"]


@dataclass(frozen=True)
class Page:
    """A record to write: its key, if any, and the value that determines which version is newer, if any."""

    key: str | None
    date: Any


@dataclass
class Site:
    """A data set and its records in the order of commits; each record contains its number in that order.

    Attributes:
        records: the pages.
    """

    storage: Storage
    records: list[Page] = field(default_factory=list)

    async def commit(self, pages: list[Page], writer: str, *, per_shard: int = 3, compression: str = "") -> None:
        """Write pages with a separate writer, and commit them."""
        async with asyncrec.open_sharded_writer(
            "pages", storage=self.storage, writer_id=writer, max_shard_records=per_shard, on_duplicate="write",
            compression=compression,
        ) as opened:  # fmt: skip
            await self.write(opened, pages)

    async def write(self, writer: asyncrec.ShardedWriter, pages: list[Page]) -> None:
        """Write pages; the caller commits them before writing any others."""
        for page in pages:
            dated = {} if page.date is None else {"date": page.date}
            await writer.write(asyncrec.encode_example({"n": len(self.records), **dated}), key=page.key)
            self.records.append(page)

    async def compact(self) -> None:
        """Make a checkpoint, which includes runs of the keys."""
        await tools.compact("pages", manifest_only=True, storage=self.storage)

    def history(self, key: str) -> list[int]:
        """Return the numbers of the records with a key, in the order of commits."""
        return [number for number, page in enumerate(self.records) if page.key == key]

    def dated(self, key: str) -> list[int]:
        """Return the numbers from oldest to newest: undated records are oldest; of equal dates, the last is newest."""
        return sorted(self.history(key), key=lambda number: (self._date(number) is not None, self._date(number) or 0))

    def newest(self) -> set[int]:
        """Return the numbers of all records that are the newest version of their key, or have no key."""
        keys = {page.key for page in self.records if page.key is not None}
        alone = {number for number, page in enumerate(self.records) if page.key is None}
        return alone | {self.dated(key)[-1] for key in keys}

    def _date(self, number: int) -> Any:
        return self.records[number].date


def number_of(record: bytes) -> int:
    """Return a record's number in the order of commits."""
    return int(asyncrec.decode_example(record)["n"][0])
