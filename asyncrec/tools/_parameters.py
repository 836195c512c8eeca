"""``jobs=`` and ``progress=``, which many tools take.

``jobs=`` is how many pieces of its work, shards or files, a tool processes at once.

The heavy work of a piece is done in worker threads, in C that releases the GIL, so that one piece can run on each
processor. What a tool returns, writes and raises does not depend on the number:
`asyncrec._concurrency.map.side_by_side` keeps the order.
"""

from __future__ import annotations

from collections.abc import Callable

from asyncrec._concurrency.processors import processors
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage._base import Storage

# Enough to hide the delays of a store that is far away.
_FAR = 8


def check_jobs(jobs: int | None) -> None:
    """Raise unless ``jobs`` is a positive integer or `None`.

    Raises:
        ValueError: it is less than 1.
        TypeError: it is not an integer.
    """
    if jobs is None:
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int):
        raise ArgumentTypeError(f"jobs must be an integer or None, not {type(jobs).__name__}")
    if jobs < 1:
        raise ArgumentValueError(f"jobs must be at least 1, or None for the number of processors, not {jobs}")


def at_once(jobs: int | None, storage: Storage, *, far: int = _FAR) -> int:
    """Return how many pieces to process at once: ``jobs``, or by default the number of processors that this process may
    use.

    For a remote store the default is at least ``far``.
    """
    return jobs or max(processors(), far if storage.read_ahead else 1)


Progress = Callable[[int, int | None], None]
"""A function that is called with what is done and what there is in all; `None` if that is not known."""


class Advance:
    """A function that adds to the work done, and reports it: ``advance(size)``."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def __call__(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)
