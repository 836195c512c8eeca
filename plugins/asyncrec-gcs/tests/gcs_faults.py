"""The faults of requests to the fake store, and plans that decide when they occur.

In addition to the faults of every test server (`serving.Fault`), there are:

- ``forget-after``: like ``reset-after``, and the completed session is forgotten;
- ``partial``: the first half of a PUT is kept, in whole units, and a 308 reports it;
- ``partial-reset``: the same without a response;
- ``corrupt``: the object is published with a flipped bit;
- ``expire``: the session is gone.
"""

from __future__ import annotations

from gcs_api import Api  # noqa: F401  # for the imports below
from serving import Fault, Plan, nothing, nth
from serving import chaos as common_chaos

__all__ = ["Fault", "Plan", "chaos", "nothing", "nth"]


def chaos(seed: int, *, stalls: float = 0.0) -> Plan:
    return common_chaos(seed, Fault("partial"), Fault("partial-reset"), stalls=stalls)
