"""Play a plan in a new world with small constants, and clean up every trace of the world afterwards."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from asyncrec._shards.journal import tokens as life
from asyncrec.storage._local import storage as local

from . import seams
from .scheduler import EventLog
from .threads import Event
from .world import World

__all__ = ["Outcome", "run_plan", "small"]


_FAULTS = {
    "kill": "kills",
    "cancel": "cancellations",
    "power": "power cuts",
    "disk": "disks that fail",
    "full": "disks that are full",
    "down": "stores that are down",
    "stall": "processes that stand still",
}


@dataclass
class Outcome:
    """The result of a plan."""

    plan: dict[str, Any]
    complaints: list[str]
    events: EventLog = field(repr=False)
    steps: int
    operations: int
    kills: int
    faults: int
    tried: Counter[str]
    told: list[str] = field(default_factory=list, repr=False)

    @property
    def digest(self) -> str:
        """The digest of all events. Worlds with the same digest have run identically."""
        return self.events.digest()


def _tried(plan: dict[str, Any], answers: int) -> Counter[str]:
    """Count the kinds of operations and faults in the plan."""
    tried: Counter[str] = Counter({"a store's answers": answers})
    for process in plan["processes"]:
        for spec in process["operations"]:
            options = spec.get("options", {})
            what = spec.get("tool") or spec["kind"]
            if what == "sharded":
                what = (
                    "replacing" if options["mode"] == "replace" else "fixed" if "num_shards" in options else "rolling"
                )
                if "spool" in options:
                    tried["with a spool"] += 1
            tried[what] += 1
    tried.update(_FAULTS[fault["kind"]] for fault in plan["faults"])
    return tried


@contextmanager
def small(settings: dict[str, Any]) -> Iterator[None]:
    """Temporarily make asyncrec's constants small, including the default chunk size of local files."""
    storage: Any = local.LocalStorage.__init__.__kwdefaults__  # type: ignore[attr-defined]
    opening: Any = local.open_local.__wrapped__.__kwdefaults__  # type: ignore[attr-defined]
    before = storage["chunk_size"], opening["chunk_size"]
    storage["chunk_size"] = opening["chunk_size"] = settings["chunk"]
    try:
        with seams.knobs(settings["knobs"]):
            yield
    finally:
        storage["chunk_size"], opening["chunk_size"] = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Collect the garbage of dead processes without warnings, and only after the world has ended.

    Logging is also disabled, because there are many faults, and a log record keeps all objects of its error alive.
    """
    logger = logging.getLogger("asyncrec")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            while gc.collect():  # closing the coroutines of dead processes creates more garbage
                pass
    finally:
        sys.unraisablehook = hook
        logger.setLevel(level)
        if collects:
            gc.enable()


def run_plan(plan: dict[str, Any]) -> Outcome:
    """Run a plan. Call this within `seams.patched`."""
    with _quiet():
        Event.over = False
        life._swept.clear()  # forget the machines of the previous world
        world = World(plan)
        with small(plan["settings"]):
            world.play()
        outcome = Outcome(
            plan=plan,
            complaints=list(world.book.complaints),
            events=world.log,
            steps=world.loop.steps,
            operations=world.operations,
            kills=world.kills,
            faults=world.faults + world.bucket.faults,
            tried=_tried(plan, world.bucket.faults),
            told=world.book.told(),
        )
        Event.over = True
        del world  # so that it is collected while warnings are ignored
    return outcome
