"""A tool reports its progress by these: the type of its ``progress=``, and a sum of what is done."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""A function that is called with what is done and what there is in all; `None` where that is not known."""


class Advance:
    """A function that adds to what is done, and says so: ``advance(size)``."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def __call__(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)
