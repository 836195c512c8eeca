"""`ShardCursor` is the reading position in one shard of an interleave, with the record batches of it that are in
memory.
"""

from __future__ import annotations

from asyncrec._records.position import Position
from asyncrec._sampling.interleave.provenance import SourcedBatch
from asyncrec._sampling.interleave.shard_feed import ShardFeed

# A batch that comes early waits beside what is left of the one before: at most this fraction of
# it, so that memory keeps its bound; and only if a batch is many blocks, since otherwise every round would wait
# for a read of each shard.
_LEFT = 1 / 4
_MANY_BLOCKS = 8


class ShardCursor:
    """The reading position in one shard. The end of its feed, or an error, waits until the records before are taken.

    Attributes:
        start: the position at which reading began.
        current, index, size: the batch being read, the index of its next record, and its length. None at first.
        next: the batch after it, if that was fetched early.
    """

    __slots__ = ("_ended", "_error", "_feed", "_shard", "current", "index", "next", "size", "start")

    def __init__(self, shard: int, feed: ShardFeed, start: Position) -> None:
        self._shard = shard
        self._feed = feed
        self.start = start
        self._ended = False
        self._error: Exception | None = None
        self.current: SourcedBatch | None = None
        self.next: SourcedBatch | None = None
        self.index = 0
        self.size = 0

    @property
    def ready(self) -> bool:
        """Whether there is a record, or `fill` would not wait."""
        return self.index < self.size or self.next is not None or self._ended or self._feed.ready

    @property
    def available(self) -> int:
        """How many records can be taken without another batch."""
        return self.size - self.index + (0 if self.next is None else len(self.next.records))

    async def fill(self) -> bool:
        """Move to the next batch, once the current one is used up; `False` at the end.

        Raises:
            Exception: the feed's, once what came before it is used up; and again at each later call.
        """
        if self.next is None:
            await self._take()
        if self._error is not None:
            raise self._error
        if self.next is None:
            return False
        self.current, self.next = self.next, None
        self.index, self.size = 0, len(self.current.records)
        return True

    def wants(self, records: int, block_length: int) -> bool:
        """Return whether to `fetch` now in order to have ``records``: it helps, and would not wait."""
        left = self.size - self.index
        return (
            left < records
            and self.next is None
            and not self._ended
            and left <= self.size * _LEFT
            and self.size >= block_length * _MANY_BLOCKS
            and self._feed.ready
        )

    async def fetch(self) -> None:
        """Take the next batch early. An error is kept until it is due."""
        await self._take()

    def advance(self, count: int) -> None:
        """Move past ``count`` records that were taken."""
        self.index += count
        if self.index >= self.size and self.next is not None:
            self.current, self.next, self.index = self.next, None, self.index - self.size
            self.size = len(self.current.records)

    async def aclose(self) -> None:
        await self._feed.aclose()

    async def _take(self) -> None:
        if self._ended:
            return
        try:
            batches = await self._feed.next_batches()
        except Exception as error:
            self._error, self._ended = error, True
            return
        if batches:
            self.next = SourcedBatch.of(self._shard, batches)
        else:
            self._ended = True
