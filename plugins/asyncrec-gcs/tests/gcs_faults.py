"""What may go wrong with a request to the fake store, and plans of when it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Fault", "Plan", "chaos", "nothing", "nth"]


@dataclass(frozen=True)
class Fault:
    """What happens to a request. ``how`` is one of:

    - ``status``, ``reset``: answered so, or cut off, without effect;
    - ``status-after``, ``reset-after``: the same after its effect;
    - ``forget-after``: as ``reset-after``, and the session, completed, is forgotten;
    - ``stall``: never answered;
    - ``truncate``: cut off in the middle of the answer's body;
    - ``partial``: of a PUT the first half is kept, in whole units, and 308 says so;
    - ``partial-reset``: the same without an answer;
    - ``corrupt``: the object is published with a flipped bit;
    - ``expire``: the session is gone;
    - ``page``: without effect, a page of HTML and a status that says all is well;
    - ``answer``: without effect, whatever `FakeGcs.page` is.
    """

    how: str
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    words: str = "chaos"


Plan = Callable[[str, int], Fault | None]


def nothing(kind: str, n: int) -> Fault | None:
    return None


def nth(n: int, fault: Fault, kind: str = "") -> Plan:
    """The ``n``-th request (of a kind, counted from 1) has a fault, once."""
    count = 0

    def plan(this: str, _: int) -> Fault | None:
        nonlocal count
        count += this.startswith(kind)
        return fault if count == n and this.startswith(kind) else None

    return plan


def chaos(seed: int, *, stalls: float = 0.0) -> Plan:
    """5% of 5xx before and after the effect, 10% throttled, and each of the others now and then.

    ``stalls`` is the chance of a request that is never answered: it takes as long as the client is patient.
    """
    draw = random.Random(seed)
    faults = (
        [Fault("status", 503)] * 3 + [Fault("status-after", 500)] * 2
        + [Fault("status", 429, {"Retry-After": "0"}, "SlowDown")] * 10
        + [Fault("reset"), Fault("reset-after"), Fault("truncate"), Fault("partial"), Fault("partial-reset")] * 2
    )  # fmt: skip

    def plan(kind: str, n: int) -> Fault | None:
        x = draw.random()
        if x > 1 - stalls:
            return Fault("stall")
        return faults[int(x * 100)] if x * 100 < len(faults) else None

    return plan
