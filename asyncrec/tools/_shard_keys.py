"""`ShardKeys` are the keys of one shard, read beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._shards.writing.keys import NO_KEY
from asyncrec.errors import DatasetError
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.tools._selection import SelectedShard, Selection

# Keys that nobody wants.
_PASSED_AT_ONCE = 1 << 16


class ShardKeys:
    """A context: the keys of a shard, in order; none where it has no file of them."""

    def __init__(self, selection: Selection, shard: SelectedShard) -> None:
        self._shard = shard
        sidecar = shard.entry.keys if shard.entry else None
        name = None if sidecar is None else sidecar.path
        self._taken = 0
        # Without a task: these files are small, and are read beside the shard itself.
        self._source = None if name is None else ResumingSource(selection.storage, shard.folder + name, read_ahead=0)

    async def __aenter__(self) -> ShardKeys:
        if self._source is not None:
            await self._source.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._source is not None:
            await self._source.__aexit__(*error)

    async def take(self, count: int) -> list[bytes]:
        data = await self.joined(count)
        return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]

    async def of(self, numbers: Sequence[int | None]) -> list[bytes]:
        """The keys of records with these numbers in the shard, ascending from call to call; none for `None`."""
        known = [number for number in numbers if number is not None]
        keys: dict[int, bytes] = {}
        if known:
            while (left := known[0] - self._taken) > 0:
                await self.joined(min(left, _PASSED_AT_ONCE))
            keys = dict(enumerate(await self.take(known[-1] + 1 - known[0]), known[0]))
        return [NO_KEY if number is None else keys[number] for number in numbers]

    async def joined(self, count: int) -> bytes:
        self._taken += count
        if self._source is None:
            return NO_KEY * count
        data = await receive_exactly(self._source, count * KEY_BYTES)
        if len(data) < count * KEY_BYTES:
            raise DatasetError(
                f"{self._shard.display_path}: its keys end before its records: 'asyncrec verify' says more"
            )
        return data
