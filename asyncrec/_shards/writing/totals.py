"""What a sharded writer counts, and `writer_totals`: the sums over all writers of this process, for metrics."""

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
        records, bytes: taken so far; bytes of frames, before compression.
        duplicates: how many were dropped, because their key had been written.
        committed_records, committed_bytes, committed_shards: those in the manifest; bytes as stored.
        buffered_bytes: held for queues and stores now; with ``reserved_bytes`` (a chunk for each open shard) never more
            than ``memory_limit``, unless a single record is larger.
        oldest_uncommitted_seconds: how long the oldest record that is not committed has been waiting.
        oldest_buffered_seconds: the same for the oldest record on no disk and in no store, which a kill would lose.
        callers_waiting: how many callers wait for room now.
        seconds_waiting: how long all callers together have waited for room.
        seconds_compressing, seconds_storing: of all finished shards together.
        spool_bytes: of the shards in the spool, open ones included.
        upload_retries: how often a step of an upload from the spool failed and was tried again.
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


# What only grows: it stays when a writer ends.
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
    """The counts of all sharded writers of this process together, as `ShardedWriterStats` has them for one.

    What was taken, committed and waited includes writers that have ended; what is held now is that of open writers. An
    age is the greatest one.

    Attributes:
        writers: how many are open now.
    """

    writers: int


class _Writers:
    """The writers of this process. They come and go, and are asked, on any thread.

    They are not kept alive by this: a writer whose event loop ended beneath it never leaves its context, and is
    collected with its owner.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[object, WeakMethod[Callable[[], ShardedWriterStats]]] = {}
        self._last: deque[tuple[object, ShardedWriterStats]] = deque()
        self._ended: dict[str, float] = dict.fromkeys(_GROWING, 0)
        on_fork(self)

    def forked(self) -> None:
        self.__init__()  # type: ignore[misc]  # the lock, too: a thread of the parent may have held it

    @contextmanager
    def counted(self, stats: Callable[[], ShardedWriterStats]) -> Iterator[None]:
        """Count the writer whose method ``stats`` is, for as long as the context lasts."""
        key = object()
        with self._lock:
            self._settle()
            self._open[key] = WeakMethod(stats)
        try:
            yield
        finally:
            # No lock: it may be the collector that ends a writer, in the midst of what holds the lock.
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
        """Keep the growing counts of writers that have ended. The lock is held."""
        while self._last:
            key, last = self._last.popleft()
            if self._open.pop(key, None) is not None:  # else it was the parent's, before a fork
                for name in _GROWING:
                    self._ended[name] += getattr(last, name)


_WRITERS = _Writers()

counted = _WRITERS.counted


def writer_totals() -> WriterTotals:
    """Return the sums of the counts of this process's sharded writers. It may be called on any thread."""
    return _WRITERS.totals()
