"""`clock_of_loop` gives an event loop's clock to other threads, which have no loop to ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import anyio


def clock_of_loop() -> Callable[[], float]:
    """Return the clock of the running loop, for other threads, too: there it counts the time that has passed since."""
    home, ahead = threading.get_ident(), anyio.current_time() - time.monotonic()

    def now() -> float:
        if threading.get_ident() == home:
            with suppress(RuntimeError):  # the loop has ended
                return anyio.current_time()
        return time.monotonic() + ahead

    return now
