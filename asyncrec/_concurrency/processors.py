"""`processors` says how many processors this process may use, and `computing` limits the threads that compute.

If each of sixteen shards inflates in a thread of its own, most turns of a thread end in a wait for the interpreter:
inflating releases the GIL, but cutting the records does not. On two processors that was 50,000 switches for 512 MiB,
and a sixth of the time.
"""

from __future__ import annotations

import os
import sys

import anyio
import anyio.lowlevel

# Beyond one for each processor: those that wait for the interpreter.
_WAITING = 2

_computing: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("asyncrec_computing")


def processors() -> int:
    """Return the number of processors that this process is bound to, or if the system does not bind, of the machine."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def computing() -> anyio.CapacityLimiter:
    """Return the limiter of this event loop for threads that compute and do not wait for anything: `processors` + 2."""
    limiter = _computing.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(processors() + _WAITING)
        _computing.set(limiter)
    return limiter
