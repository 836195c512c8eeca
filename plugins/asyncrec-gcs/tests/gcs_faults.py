"""What may go wrong with a request to the fake store, and plans of when it does.

Beside what may go wrong with every server of the tests (`serving.Fault`):

- ``forget-after``: as ``reset-after``, and the session, completed, is forgotten;
- ``partial``: of a PUT the first half is kept, in whole units, and 308 says so;
- ``partial-reset``: the same without an answer;
- ``corrupt``: the object is published with a flipped bit;
- ``expire``: the session is gone.
"""

from __future__ import annotations

from gcs_api import Api  # noqa: F401  # finds what follows
from serving import Fault, Plan, nothing, nth
from serving import chaos as common_chaos

__all__ = ["Fault", "Plan", "chaos", "nothing", "nth"]


def chaos(seed: int, *, stalls: float = 0.0) -> Plan:
    return common_chaos(seed, Fault("partial"), Fault("partial-reset"), stalls=stalls)
