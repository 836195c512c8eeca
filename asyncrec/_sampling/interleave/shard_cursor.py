"""`Cursor`: where one shard of a mix is being read, and the record batches of it that are at hand."""

from __future__ import annotations

from asyncrec._sampling.interleave.provenance import Held
from asyncrec._sampling.interleave.shard_feed import Feed
from asyncrec.records.position import Position

__all__ = ["Cursor"]

# A batch that comes early waits beside what is left of the one before: at most so much of it, that memory keeps its
# bound; and only where a batch is many blocks, since else every round would wait for a read of each shard.
_LEFT = 1 / 4
_MANY_BLOCKS = 8


class Cursor:
    """One shard. What it takes from its feed is a batch, the end or an error: the last two are kept until they are due.

    Attributes:
        start: where reading began.
        held, at, size: the batch, the index of its next record, and its length. At first there is none.
        coming: the batch behind it, where that was taken early.
    """

    __slots__ = ("_error", "_feed", "_over", "_source", "at", "coming", "held", "size", "start")

    def __init__(self, source: int, feed: Feed, start: Position) -> None:
        self._source = source
        self._feed = feed
        self.start = start
        self._over = False
        self._error: Exception | None = None
        self.held: Held | None = None
        self.coming: Held | None = None
        self.at = 0
        self.size = 0

    @property
    def ready(self) -> bool:
        """Whether there is a record, or `fill` would not wait."""
        return self.at < self.size or self.coming is not None or self._over or self._feed.ready

    @property
    def at_hand(self) -> int:
        """Records."""
        return self.size - self.at + (0 if self.coming is None else len(self.coming.batch.records))

    async def fill(self) -> bool:
        """The next batch, where the one held is used up; `False` at the end.

        Raises:
            Exception: the feed's, when what came before it is used up; and again at each later call.
        """
        if self.coming is None:
            await self._take()
        if self._error is not None:
            raise self._error
        if self.coming is None:
            return False
        self.held, self.coming = self.coming, None
        self.at, self.size = 0, len(self.held.batch.records)
        return True

    def wants(self, records: int, block_length: int) -> bool:
        """Whether it is worth it, and can be done without waiting for others, to `fetch` now to have so many."""
        left = self.size - self.at
        return (
            left < records
            and self.coming is None
            and not self._over
            and left <= self.size * _LEFT
            and self.size >= block_length * _MANY_BLOCKS
            and self._feed.ready
        )

    async def fetch(self) -> None:
        """Take the next batch early. An error is kept until it is due."""
        await self._take()

    def advance(self, count: int) -> None:
        """``count`` records at hand were taken."""
        self.at += count
        if self.at >= self.size and self.coming is not None:
            self.held, self.coming, self.at = self.coming, None, self.at - self.size
            self.size = len(self.held.batch.records)

    async def aclose(self) -> None:
        await self._feed.aclose()

    async def _take(self) -> None:
        if self._over:
            return
        try:
            batch = await self._feed.next_batch()
        except Exception as error:
            self._error, self._over = error, True
            return
        if batch is None:
            self._over = True
        else:
            self.coming = Held(self._source, batch)
