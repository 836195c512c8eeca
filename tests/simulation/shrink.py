"""Shrink a failing plan to fewer processes, faults, actions and settings, as long as the same promise is broken."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from .playing import Outcome, run_plan

__all__ = ["promise_of", "shrink"]

_CALM = {
    "shuffles": False,
    "stopping": 0.0,
    "failing": 0.0,
    "late": False,
    "lax": False,
    "damaging": 0.0,
    "whole seconds": False,
    "checksums": True,
    "short": 0.0,
    "skews": False,
    "memory": False,
    "links": True,
}


def promise_of(outcome: Outcome) -> str:
    """Return the first broken promise, or ``""`` if all were kept."""
    return outcome.complaints[0].partition(":")[0] if outcome.complaints else ""


def shrink(plan: dict[str, Any], promise: str, *, runs: int = 300) -> Outcome:
    """Return the result of the smallest failing plan that was found within ``runs`` runs."""
    best = run_plan(plan)
    left = runs

    def breaks(smaller: dict[str, Any]) -> bool:
        nonlocal best, left
        left -= 1
        outcome = run_plan(smaller)
        if any(complaint.startswith(promise + ":") for complaint in outcome.complaints):
            best = outcome
            return True
        return False

    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(best.plan):
            if left <= 0:
                break
            if breaks(smaller):
                progress = True
                break
    return best


def _smaller(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the plan with one piece removed at a time, starting with the largest pieces."""
    for number in range(len(plan["processes"])):
        smaller = copy.deepcopy(plan)
        # Keep the process without operations, so that the process numbers in faults stay valid.
        if smaller["processes"][number]["operations"]:
            smaller["processes"][number]["operations"] = []
            yield smaller
    yield from _without(plan, lambda plan: plan["faults"])
    for name, calm in _CALM.items():
        if plan["settings"].get(name) != calm:
            smaller = copy.deepcopy(plan)
            smaller["settings"][name] = calm
            yield smaller
    if plan["settings"]["knobs"]:
        smaller = copy.deepcopy(plan)
        smaller["settings"]["knobs"] = {}
        yield smaller
    for p, process in enumerate(plan["processes"]):
        for o, spec in enumerate(process["operations"]):
            for t in range(len(spec.get("tasks", ()))):

                def actions(plan: dict[str, Any], p: int = p, o: int = o, t: int = t) -> list[Any]:
                    found: list[Any] = plan["processes"][p]["operations"][o]["tasks"][t]
                    return found

                yield from _without(plan, actions)


def _without(plan: dict[str, Any], part: Callable[[dict[str, Any]], list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the plan without the entire list, then without each half, each quarter, and finally each item."""
    size = len(part(plan))
    piece = size
    while piece:
        for begin in range(0, size, piece):
            smaller = copy.deepcopy(plan)
            del part(smaller)[begin : begin + piece]
            yield smaller
        piece = piece // 2
