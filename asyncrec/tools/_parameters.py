"""The parameters ``jobs=`` and ``progress=`` of many tools.

``jobs=`` is the number of shards or files that a tool processes at once. The heavy work on each is done in a worker
thread, in C code that releases the GIL, so each processor can work on a different shard. The results, output and errors
of a tool do not depend on the number of jobs, because `asyncrec._concurrency.map.side_by_side` preserves the order.
"""

from __future__ import annotations

from collections.abc import Callable

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.processors import processors
from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage._base import Storage

# The number of shards or files to process at once to hide the latency of a remote store.
_FAR = 8


def check_jobs(jobs: int | None) -> None:
    """Raise an error unless ``jobs`` is a positive integer or `None`.

    Raises:
        ValueError: ``jobs`` is less than 1.
        TypeError: ``jobs`` is not an integer.
    """
    if jobs is None:
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int):
        raise ArgumentTypeError(f"jobs must be an integer or None, not {type(jobs).__name__}")
    if jobs < 1:
        raise ArgumentValueError(f"jobs must be at least 1, or None for the number of processors, not {jobs}")


def at_once(jobs: int | None, storage: Storage, *, far: int = _FAR) -> int:
    """Return the number of shards or files to process at once.

    By default, this is the number of processors that this process may use, but at least ``far`` for a remote store.
    """
    return jobs or max(processors(), far if storage.read_ahead else 1)


def shard_bytes(max_shard_bytes: Size | None) -> int:
    """Return the maximum size of a shard in bytes. The default is 256 MiB.

    Raises:
        ValueError: the size is less than 1, or is not a size.
        TypeError: the size is neither a number nor text.
    """
    size = MAX_SHARD_BYTES if max_shard_bytes is None else byte_count(max_shard_bytes, "max_shard_bytes")
    if size < 1:
        raise ArgumentValueError(f"max_shard_bytes must be at least 1, not {size}")
    return size


Progress = Callable[[int, int | None], None]
"""A function that is called with the amount of work done and the total amount, or `None` if the total is unknown."""


class Advance:
    """A callable, ``advance(size)``, that adds ``size`` to the amount of work done and reports the sum."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def __call__(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)
