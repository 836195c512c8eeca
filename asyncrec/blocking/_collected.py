"""`Collected` holds the records that a blocking writer has accepted and its event loop has not yet written."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from asyncrec._shards.writing.writer import Partition, ShardedWriter

logger = logging.getLogger("asyncrec.blocking")


class Collected:
    """Records in transit to ``writer``. Threads append them, and the loop writes them from the front.

    It outlives the blocking writer that filled it, which may be garbage-collected.

    Attributes:
        is_closed: whether the blocking writer rejects further records.
    """

    def __init__(self, writer: ShardedWriter, exit_timeout: float) -> None:
        self.records: deque[tuple[bytes, str | bytes | None, Partition | None]] = deque()
        self.is_closed = False
        self._writer = writer
        self._exit_timeout = exit_timeout
        self._turn: anyio.Lock | None = None  # created on the loop: under a caller's trio, it would be a trio lock

    async def hand_on(self) -> None:
        """Write the records. If cancelled, the first ones have been written and removed from `records`."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            write, records = self._writer.write, self.records
            while records:
                record, key, partition = records[0]
                await write(record, key=key, partition=partition)
                records.popleft()  # a cancelled write has not accepted its record

    async def hand_on_in_time(self) -> None:
        """Do the same as `hand_on`, within the time that the writer has for its exit.

        Raises:
            TimeoutError: the time ran out.
        """
        with anyio.fail_after(self._exit_timeout):
            await self.hand_on()

    async def rescue(self) -> None:
        """Write the records when no caller is left to write them or to get an error. A failure is logged."""
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


# Writes and flushes the collected records. Returns False if there were none, and `None` if a thread is writing.
Flush: TypeAlias = Callable[[], Awaitable[bool | None]]

# A writer's lock is held for microseconds, or by a thread that is writing; then it is polled at growing intervals.
_FIRST_DELAY = 0.001


async def flush_in_time(flush: Callable[[], Flush | None], seconds: float) -> None:
    """Flush every ``seconds``, starting at the first record, until a period passes without a record.

    So no record waits longer, an idle writer costs nothing, and records carry no time of their own. ``flush`` is a
    `weakref.WeakMethod` of the writer, so that the writer can be garbage-collected.
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
