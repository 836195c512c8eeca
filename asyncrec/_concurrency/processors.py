"""`processors` counts the processors this process may use; `computing` limits the threads that compute.

If each of sixteen shards is decompressed in its own thread, most thread switches end with a thread waiting for the GIL,
because decompression releases the GIL but splitting the output into records does not. On two processors, reading
512 MiB took 50,000 switches, which wasted a sixth of the time.
"""

from __future__ import annotations

import os
import sys

import anyio
import anyio.lowlevel

# The number of extra threads beyond one per processor, because some threads are waiting for the GIL.
_WAITING = 2

_computing: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("asyncrec_computing")


def processors() -> int:
    """Return the number of processors that this process may use, or that the machine has if no limit is known."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def computing() -> anyio.CapacityLimiter:
    """Return this event loop's limiter for threads that compute without waiting. It admits ``processors() + 2``."""
    limiter = _computing.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(processors() + _WAITING)
        _computing.set(limiter)
    return limiter
