"""`Bar` shows the progress of a command on stderr, if stderr is a terminal and rich is installed."""

from __future__ import annotations

import sys
import time
from typing import Any

# The minimum time between two updates, because more frequent updates would not be visible.
_SECONDS_BETWEEN = 0.1


class Bar:
    """A context manager that can be passed to a tool as ``progress``."""

    def __init__(self, what: str, *, of_bytes: bool = True, show: bool = True) -> None:
        self._what = what
        self._of_bytes = of_bytes
        self._show = show and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._shown_at = 0.0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, done: int, total: int | None) -> None:
        if not self._show or (now := time.monotonic()) - self._shown_at < _SECONDS_BETWEEN:
            return
        self._shown_at = now
        if self._bar is None and not self._start():
            return
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> bool:
        try:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TransferSpeedColumn,
            )
        except ImportError:
            self._show = False
            return False
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
        columns += [DownloadColumn(), TransferSpeedColumn()] if self._of_bytes else [MofNCompleteColumn()]
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=None)
        self._bar.start()
        return True
