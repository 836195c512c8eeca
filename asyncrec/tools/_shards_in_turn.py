"""`ShardsInTurn` opens the shards of a selection one after another, and checks that each is the one in its manifest."""

from __future__ import annotations

from contextlib import AsyncExitStack

from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec.tools._parameters import Advance, Progress
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import ShardKeys, check_read, key_bytes_of


def has_keys(selection: Selection) -> bool:
    """Return whether any shard of the selection has keys."""
    return any(shard.entry is not None and shard.entry.keys is not None for shard in selection.shards)


class ShardsInTurn:
    """A base class of iterators that opens the shards of a selection one at a time, with keys if any shard has keys.

    If the iteration ends early, ``stack`` closes the open shard.
    """

    def __init__(
        self, selection: Selection, stack: AsyncExitStack, progress: Progress, *, keyed: bool | None = None
    ) -> None:
        self._selection = selection
        self._stack = stack
        self._advance = Advance(progress, selection.bytes)
        self._keyed = has_keys(selection) if keyed is None else keyed
        self._key_bytes = key_bytes_of(selection) if self._keyed else KEY_BYTES
        self._waiting = iter(selection.shards)
        self._shard: SelectedShard | None = None
        self._in_shard = 0  # the number of records returned from the shard
        self._keys: ShardKeys | None = None

    async def _open(self, shard: SelectedShard) -> None:
        """Open the records of a shard within the stack."""
        raise NotImplementedError

    async def _has_shard(self) -> bool:
        """Open the next shard unless a shard is open. Return `False` after the last shard."""
        if self._shard is None:
            self._shard = next(self._waiting, None)
            if self._shard is None:
                return False
            self._in_shard = 0
            if self._keyed:
                self._keys = await self._stack.enter_async_context(
                    ShardKeys(self._selection, self._shard, width=self._key_bytes)
                )
            await self._open(self._shard)
        return True

    async def _check_shard(self, checksum: int | None) -> None:
        """Check the current shard after it was read to its end. ``checksum`` and errors are as for `check_read`."""
        assert self._shard is not None, "a shard was read to its end"
        await check_read(self._selection.storage, self._shard, self._in_shard, checksum)

    async def _end_shard(self) -> None:
        assert self._shard is not None, "a shard was read to its end"
        await self._stack.aclose()
        self._advance(self._shard.size)
        self._shard = None
