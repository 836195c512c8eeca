"""`Progress` shows a progress bar on a terminal if rich is installed. Any thread may advance the bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

# The minimum time between updates. Nothing faster is visible, and drawing the bar takes as long as processing a hundred
# examples.
_SECONDS_BETWEEN = 0.1


class Progress:
    """A context manager that shows a progress bar.

    Args:
        what: the label of the bar.
        total: the number of items, or `None` if it is not known.
        show: whether to show the bar. With `True`, entering the context raises ImportError if rich is not installed.
            `None` shows the bar if stderr is a terminal and rich is installed.
    """

    def __init__(self, what: str, total: int | None, *, show: bool | None) -> None:
        self._what = what
        self._total = total
        self._show = sys.stderr.isatty() if show is None else show
        self._required = show is True
        self._bar: Any = None
        self._task: Any = None
        self._count = 0
        self._shown_at = 0.0

    def __enter__(self) -> Progress:
        if not self._show:
            return self
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            if self._required:
                raise
            return self
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self._bar = Bar(*columns, console=console, transient=console.is_terminal)
        self._task = self._bar.add_task(self._what, total=self._total)
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._count)
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        if self._bar is None:
            return
        self._count += count
        if (now := time.monotonic()) - self._shown_at >= _SECONDS_BETWEEN:
            self._shown_at = now
            self._bar.update(self._task, completed=self._count)

    def counted(self, batches: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
        """Yield the batches unchanged. After each batch, advance the bar by the number of its items."""
        for batch in batches:
            yield batch
            self.advance(len(batch))
