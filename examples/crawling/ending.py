"""Stop a run early: Ctrl-C and SIGTERM cancel a scope in which cancellation is safe."""

from __future__ import annotations

import signal

import anyio
from anyio.abc import TaskStatus


class Ending:
    """The first signal cancels the current scope, so that the contexts around it end cleanly. The second cancels all.

    ``await task_group.start(ending.listen, task_group.cancel_scope)`` starts listening.

    Attributes:
        signal: the first signal received.
        at_once: whether a second signal ended the run immediately.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.at_once = False
        self._scope = anyio.CancelScope()

    def scope(self) -> anyio.CancelScope:
        """A new current scope for the first signal to cancel. It is already cancelled if that signal has arrived."""
        self._scope = anyio.CancelScope()
        if self.signal is not None:
            self._scope.cancel()
        return self._scope

    async def listen(self, everything: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        """Wait for signals until cancelled. A third Ctrl-C reaches Python's own handler, which ends the process."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    self.at_once = True
                    everything.cancel()
                    return
                self.signal = signal.Signals(number)
                self._scope.cancel()
