"""The counts of a sharded writer, and `writer_totals`, which sums those of all writers in this process, for metrics."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from weakref import WeakMethod

from asyncrec._concurrency.forks import on_fork


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedWriterStats:
    """The counts of a sharded writer at one moment.

    Attributes:
        records, bytes: the records accepted so far, and the bytes of their frames before compression.
        duplicates: the number of records dropped because their key had already been written.
        committed_records, committed_bytes, committed_shards: the counts in the manifest; bytes as stored.
        buffered_bytes: the bytes now held for queues and stores. Together with ``reserved_bytes`` (a chunk for each
            open shard, and the like), they exceed ``memory_limit`` if a single record, or all records of one position
            together, are larger. They also exceed it for a moment if records fill the memory when a shard opens and
            reserves its chunk. Then no record is accepted until there is room again.
        oldest_uncommitted_seconds: how long the oldest uncommitted record has been waiting.
        oldest_buffered_seconds: the same for the oldest record that would be lost if the process were killed.
        callers_waiting: the number of callers that now wait for room.
        seconds_waiting: how long all callers together have waited for room.
        seconds_compressing, seconds_storing: the times of all finished shards together.
        spool_bytes: the bytes of the shards in the spool, including open shards.
        upload_retries: how often a step of an upload from the spool failed and was retried.
    """

    records: int
    bytes: int
    duplicates: int
    committed_records: int
    committed_bytes: int
    committed_shards: int
    buffered_bytes: int
    reserved_bytes: int
    memory_limit: int
    oldest_uncommitted_seconds: float
    oldest_buffered_seconds: float
    callers_waiting: int
    seconds_waiting: float
    seconds_compressing: float
    seconds_storing: float
    spool_bytes: int
    upload_retries: int


# Counts that only grow, so the totals keep them after a writer has ended.
_GROWING = (
    "records",
    "bytes",
    "duplicates",
    "committed_records",
    "committed_bytes",
    "committed_shards",
    "seconds_waiting",
    "seconds_compressing",
    "seconds_storing",
    "upload_retries",
)
_OLDEST = ("oldest_uncommitted_seconds", "oldest_buffered_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterTotals(ShardedWriterStats):
    """The counts of all sharded writers of this process together, each as in `ShardedWriterStats`.

    Counts that only grow, such as those of accepted and committed records, include writers that have ended. The others
    cover open writers only. An age is the maximum over the writers.

    Attributes:
        writers: the number of open writers.
    """

    writers: int


class _Writers:
    """The sharded writers of this process. They may be added, removed and counted from any thread.

    The references to writers are weak: if a writer's event loop stops, the writer never exits its context, and should
    be garbage-collected together with its owner.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[object, WeakMethod[Callable[[], ShardedWriterStats]]] = {}
        self._last: deque[tuple[object, ShardedWriterStats]] = deque()
        self._ended: dict[str, float] = dict.fromkeys(_GROWING, 0)
        on_fork(self)

    def forked(self) -> None:
        self.__init__()  # type: ignore[misc]  # this replaces the lock, too: a parent's thread may have held it

    @contextmanager
    def counted(self, stats: Callable[[], ShardedWriterStats]) -> Iterator[None]:
        """Include the writer that has the method ``stats`` in the totals until the context exits."""
        key = object()
        with self._lock:
            self._settle()
            self._open[key] = WeakMethod(stats)
        try:
            yield
        finally:
            # Do not take the lock here, because the garbage collector may run this while the same thread holds the
            # lock.
            if key in self._open:  # otherwise this process was forked, and its parent has the writer
                self._last.append((key, stats()))

    def totals(self) -> WriterTotals:
        with self._lock:
            asked = {key: stats for key, method in self._open.items() if (stats := method()) is not None}
            self._settle()
            found = [stats() for key, stats in asked.items() if key in self._open]
            sums = dict(self._ended)
        for name in (each.name for each in fields(ShardedWriterStats)):
            values = [getattr(each, name) for each in found]
            sums[name] = max(values, default=0.0) if name in _OLDEST else sums.get(name, 0) + sum(values)
        return WriterTotals(writers=len(found), **sums)  # type: ignore[arg-type]

    def _settle(self) -> None:
        """Add the growing counts of ended writers to the totals. The caller must hold the lock."""
        while self._last:
            key, last = self._last.popleft()
            if self._open.pop(key, None) is not None:
                for name in _GROWING:
                    self._ended[name] += getattr(last, name)


_WRITERS = _Writers()

counted = _WRITERS.counted


def writer_totals() -> WriterTotals:
    """Return the sums of the counts of this process's sharded writers. This may be called from any thread."""
    return _WRITERS.totals()
