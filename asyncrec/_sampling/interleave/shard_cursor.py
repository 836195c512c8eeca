"""`ShardCursor` is the reading position in one shard of an interleave, with the shard's record batches in memory."""

from __future__ import annotations

from asyncrec._records.position import Position
from asyncrec._sampling.interleave.provenance import SourcedBatch
from asyncrec._sampling.interleave.shard_feed import ShardFeed

# A batch that is fetched early is held beside the rest of the current batch. That rest must be at most this fraction of
# the batch, so that memory stays bounded. A batch must also have many blocks, because otherwise every round would wait
# for a read of each shard.
_LEFT = 1 / 4
_MANY_BLOCKS = 8


class ShardCursor:
    """The reading position in one shard. An error, or the end of the feed, takes effect after the records before it.

    Attributes:
        start: the position at which reading began.
        current, index, size: the batch being read (`None` at first), the index of its next record, and its length.
        next: the following batch, if it was fetched early.
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
        """Whether a record is in memory, or `fill` would not wait."""
        return self.index < self.size or self.next is not None or self._ended or self._feed.ready

    @property
    def available(self) -> int:
        """The number of records that can be taken without fetching another batch."""
        return self.size - self.index + (0 if self.next is None else len(self.next.records))

    async def fill(self) -> bool:
        """Move to the next batch, once the current batch is used up. Return `False` at the end.

        Raises:
            Exception: the feed raised it, and the records before it are used up. Every later call raises it again.
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
        """Return whether to `fetch` now to have ``records`` records: a batch is missing, and `fetch` would not wait."""
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
        """Fetch the next batch early. An error is raised later, by `fill`."""
        await self._take()

    def advance(self, count: int) -> None:
        """Advance past ``count`` records that were taken."""
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
