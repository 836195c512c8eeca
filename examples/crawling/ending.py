"""Ending a run before its time: Ctrl-C and SIGTERM become cancellation, in the place where it does no harm."""

from __future__ import annotations

import signal

import anyio
from anyio.abc import TaskStatus


class Ending:
    """The first signal cancels the scope in use, so that the contexts around it end cleanly; the second everything.

    ``await task_group.start(ending.listen, task_group.cancel_scope)`` begins to listen.

    Attributes:
        signal: the first that came.
        at_once: a second came, and nothing was waited for.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.at_once = False
        self._scope = anyio.CancelScope()

    def scope(self) -> anyio.CancelScope:
        """The scope that the first signal cancels from now on; cancelled already if the signal has come."""
        self._scope = anyio.CancelScope()
        if self.signal is not None:
            self._scope.cancel()
        return self._scope

    async def listen(self, everything: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        """Wait for signals until cancelled. A third Ctrl-C finds Python's own handler: it ends the process."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    self.at_once = True
                    everything.cancel()
                    return
                self.signal = signal.Signals(number)
                self._scope.cancel()
