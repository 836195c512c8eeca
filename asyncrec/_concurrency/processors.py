"""`processors` says how many processors this process may use."""

from __future__ import annotations

import os
import sys


def processors() -> int:
    """Count them: those it is bound to, where the system binds, and not all that the machine has."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
