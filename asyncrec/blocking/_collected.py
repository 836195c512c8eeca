"""`Collected` is what a blocking writer has accepted and its event loop has not yet taken."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from asyncrec._shards.writing.writer import Partition, ShardedWriter

logger = logging.getLogger("asyncrec.blocking")


class Collected:
    """Records that are on their way to ``writer``; a thread appends them, and the loop takes them from the front.

    It outlives the blocking writer that filled it, which may be dropped.

    Attributes:
        is_closed: whether appending is refused.
    """

    def __init__(self, writer: ShardedWriter, exit_timeout: float) -> None:
        self.records: deque[tuple[bytes, str | bytes | None, Partition | None]] = deque()
        self.is_closed = False
        self._writer = writer
        self._exit_timeout = exit_timeout
        self._turn: anyio.Lock | None = None  # made on the loop: a caller's trio would make a lock of its own kind

    async def hand_on(self) -> None:
        """Write the records. If cancelled, the first ones were written, and have been removed from `records`."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            write, records = self._writer.write, self.records
            while records:
                record, key, partition = records[0]
                await write(record, key=key, partition=partition)
                records.popleft()  # a write that was cancelled did not take its record

    async def hand_on_in_time(self) -> None:
        """Do the same as `hand_on`, within the time that the writer has for its exit.

        Raises:
            TimeoutError: the time was too short.
        """
        with anyio.fail_after(self._exit_timeout):
            await self.hand_on()

    async def rescue(self) -> None:
        """Write the records, once no caller is left to do so or to get an error: a failure is logged."""
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


# Hands on and flushes what was collected. False if that was nothing; `None`: not now, a thread is writing.
Flush: TypeAlias = Callable[[], Awaitable[bool | None]]

# The lock of a writer is held for microseconds, or by a thread that hands on: then it is looked at less and less often.
_FIRST_DELAY = 0.001


async def flush_in_time(flush: Callable[[], Flush | None], seconds: float) -> None:
    """Flush every ``seconds``, from the first record on, until nothing was collected meanwhile.

    So no record waits longer, an idle writer is left alone, and records carry no time of their own.
    ``flush`` is a `weakref.WeakMethod` of the writer, which can be dropped: nothing here keeps it.
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
