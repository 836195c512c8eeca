"""`Acknowledgements` knows which level each write has reached, and lets callers wait for a level.

A ticket covers one write and all earlier ones. It has reached a level when no queue contains any of these writes below
that level. The minimum over all queues is therefore enough, and nothing has to be counted for each record.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import anyio

from asyncrec._records.writing.write_queue import WriteQueue, copy_for_reraise
from asyncrec._records.writing.writer import Level
from asyncrec._shards.writing.job import Job
from asyncrec.errors import TransientStorageError

_log = logging.getLogger("asyncrec.shards")

# If a caller waits longer than this for a commit, a warning is logged, because probably nothing will cause the commit.
_LONG_WAIT_SECONDS = 30


class Acknowledgements:
    """The levels that the writes of one writer have reached.

    Attributes:
        ended: whether no more records will be committed.
    """

    def __init__(self, path: str, queues: Sequence[WriteQueue]) -> None:
        self._path = path
        self._queues = queues
        self._changed = anyio.Event()
        self._error: BaseException | None = None
        self.ended = False

    @property
    def error(self) -> BaseException | None:
        """The error of the first object writer or uploader that failed."""
        if self._error is None:
            self._error = self._queues[0].error  # after a fork, only the queues have it
        return self._error

    def failed(self, error: BaseException) -> None:
        """Record the first error of an object writer or uploader. A later error replaces a cancellation."""
        if self._error is None or (isinstance(error, Exception) and not isinstance(self._error, Exception)):
            self._error = error

    def check(self) -> None:
        """Raise the error of a failed shard, if there is one. Each caller gets its own copy."""
        if (error := self.error) is not None:
            raise copy_for_reraise(error)

    def raise_failure(self) -> None:
        """Raise the original error of a failed shard, if there is one, when the writer exits.

        If the shard was only cancelled together with the writer, raise ClosedResourceError instead.
        """
        if (error := self.error) is not None:
            raise error if isinstance(error, Exception) else copy_for_reraise(error)

    def changed(self) -> None:
        """Wake the tasks in `wait` after a shard has made progress or failed."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def level_of(self, ticket: int, *, require: Level = "buffered") -> Level:
        """Return the level that every write up to the ticket has reached.

        Raises:
            TransientStorageError: the level is lower than ``require``.
        """
        if ticket < self.first_uncommitted:
            return "committed"
        if ticket <= self.last_spooled:
            return "spooled"
        if require == "buffered":
            return "buffered"
        raise TransientStorageError(
            f"{self._path}: the store did not answer, so the records from ticket {self.last_spooled + 1} on are not "
            "safe yet; they stay in memory, and the next flush sends them again"
        )

    @property
    def first_uncommitted(self) -> int:
        """The first uncommitted ticket, or a value greater than `sys.maxsize` if all are committed."""
        uncommitted = [first for queue in self._queues if (first := queue.levels.first_uncommitted) is not None]
        return min(uncommitted, default=sys.maxsize + 1)

    @property
    def last_spooled(self) -> int:
        """The last ticket that, like all earlier ones, is spooled or committed; `sys.maxsize` if all tickets are."""
        unspooled = [first for queue in self._queues if (first := queue.levels.first_unspooled) is not None]
        return min(unspooled) - 1 if unspooled else sys.maxsize

    async def committed(self, ticket: int) -> None:
        """Wait until every write up to the ticket is committed.

        Raises:
            ClosedResourceError: the writer ended first.
            Exception: a shard failed.
        """
        for queue in self._queues:
            # Wait for one queue after another, because checking all queues after each change would take quadratic time.
            while (first := queue.levels.first_uncommitted) is not None and first <= ticket:
                self.check()
                if self.ended:
                    raise anyio.ClosedResourceError(
                        f"{self._path}: the writer ended before ticket {ticket} was committed"
                    )
                with anyio.move_on_after(_LONG_WAIT_SECONDS) as scope:
                    await self.wait()
                if scope.cancelled_caught:
                    _log.warning(
                        "%s: still waiting after %d s for ticket %d to be committed; call commit(), or set "
                        "max_shard_seconds",
                        self._path,
                        _LONG_WAIT_SECONDS,
                        ticket,
                        extra={"path": self._path, "ticket": ticket, "seconds": _LONG_WAIT_SECONDS},
                    )


def unreachable(job: Job, level: str) -> str:
    """Return the reason why flushing cannot reach a level."""
    if level not in ("spooled", "committed"):
        return f"the level must be 'buffered', 'spooled' or 'committed', not {level!r}"
    if level == "committed":
        return "flush does not commit; call commit(), or leave the context"
    if job.header.kind == "whole":
        return f"a writer that replaces a data set publishes everything or nothing, so it cannot reach {level!r}"
    remedy = "do not pass flush_seconds=None, or pass spool=" if job.header.kind == "rolling" else "pass spool="
    return f"{level!r} requires a local disk, and {job.staging_folder.root} is not on one; {remedy}"
