"""`Collected`: the records that a blocking writer has accepted, but that its event loop has not yet written."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from asyncrec._shards.writing.writer import Partition, ShardedWriter

logger = logging.getLogger("asyncrec.blocking")


class Collected:
    """Records on their way to ``writer``. Threads append records, and the event loop writes them in order.

    This object outlives the blocking writer, which may be garbage-collected.

    Attributes:
        is_closed: whether the blocking writer rejects further records.
    """

    def __init__(self, writer: ShardedWriter, exit_timeout: float) -> None:
        self.records: deque[tuple[bytes, str | bytes | None, Partition | None]] = deque()
        self.is_closed = False
        self._writer = writer
        self._exit_timeout = exit_timeout
        self._turn: anyio.Lock | None = None  # created on the loop, because a caller under trio would get trio's lock

    async def hand_on(self) -> None:
        """Write the records in order. If cancelled, the records not yet written remain in `records`."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            write, records = self._writer.write, self.records
            while records:
                record, key, partition = records[0]
                await write(record, key=key, partition=partition)
                records.popleft()  # a cancelled write has not accepted its record

    async def hand_on_in_time(self) -> None:
        """Like `hand_on`, but limited by the writer's ``exit_timeout``.

        Raises:
            TimeoutError: the timeout has passed.
        """
        with anyio.fail_after(self._exit_timeout):
            await self.hand_on()

    async def rescue(self) -> None:
        """Write the records if there is no caller left to write them or to catch an error. A failure is logged."""
        self.is_closed = True
        try:
            await self.hand_on_in_time()
        except Exception as error:
            logger.warning(
                "%s: the writer was not closed, and %d records that it had buffered were lost: %s",
                self._writer.path,
                len(self.records),
                error,
                extra={"path": self._writer.path, "records": len(self.records)},
            )


# A function that writes and flushes the collected records. It returns `False` if there were no records, `None` if a
# thread was busy writing, and `True` otherwise.
Flush: TypeAlias = Callable[[], Awaitable[bool | None]]

# Seconds until the first retry if a thread holds the writer's lock, which usually lasts microseconds, but may last as
# long as a write. The intervals between further retries increase.
_FIRST_DELAY = 0.001


async def flush_in_time(flush: Callable[[], Flush | None], seconds: float) -> None:
    """Flush every ``seconds``, until a period passes without a record. The first record starts this timer.

    This way, no record waits longer than ``seconds``, an idle writer has no timer, and records need no timestamps.
    ``flush`` is a `weakref.WeakMethod` of the writer, so that the writer can be garbage-collected.
    """
    delay = seconds
    while True:
        await anyio.sleep(delay)
        there = flush()
        found = await there() if there is not None else False
        del there
        if found is False:
            return
        delay = seconds if found else min(_FIRST_DELAY if delay == seconds else 2 * delay, seconds)
