"""`clock_of_loop` makes an event loop's clock readable from other threads, which have no loop to ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import anyio


def clock_of_loop() -> Callable[[], float]:
    """Return a function that reads the running loop's clock from any thread.

    In other threads, or after the loop has ended, it adds the time passed since this call.
    """
    home, ahead = threading.get_ident(), anyio.current_time() - time.monotonic()

    def now() -> float:
        if threading.get_ident() == home:
            with suppress(RuntimeError):  # the loop has ended
                return anyio.current_time()
        return time.monotonic() + ahead

    return now
