"""Registries of the operations that processes can perform, and of the themes that draw casts of processes.

To add an operation, write a function in `writing`, `tooling` or `reading` that is decorated with
``@operation("name")``, and whose parameters are the world, the process and the operation's part of the plan. Then let
a theme draw it, such as one in `cast`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["OPERATIONS", "THEMES", "WEIGHTS", "Drawing", "operation", "theme"]

Body = Callable[[Any, Any, dict[str, Any]], Awaitable[None]]

OPERATIONS: dict[str, Body] = {}
THEMES: dict[str, Callable[[Drawing], None]] = {}
WEIGHTS: dict[str, float] = {}


def operation(name: str) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        OPERATIONS[name] = body
        return body

    return register


def theme(name: str, weight: float = 1.0) -> Callable[[Callable[[Drawing], None]], Callable[[Drawing], None]]:
    def register(draw: Callable[[Drawing], None]) -> Callable[[Drawing], None]:
        THEMES[name] = draw
        WEIGHTS[name] = weight
        return draw

    return register


class Drawing:
    """A plan that is being drawn.

    Attributes:
        steady: whether the store never fails.
        faults: the faults drawn by themes, in addition to those drawn for all processes.
    """

    def __init__(self, rng: random.Random, plan: dict[str, Any], holes: frozenset[str]) -> None:
        self.rng = rng
        self.plan = plan
        self._holes = holes
        self._targets = 0
        self.steady = False
        self.faults: list[dict[str, Any]] = []

    def theme(self, name: str) -> None:
        THEMES[name](self)

    def may(self, hole: str) -> bool:
        """Return whether this plan may include the known hole with this name."""
        return hole not in self._holes

    def spared(self, hole: str) -> bool:
        """Return whether the next process must survive and succeed, because its failure would hit a known hole."""
        spared = not self.may(hole)
        self.steady = self.steady or spared
        return spared

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def target(self, *, local: bool, machine: str = "m0", name: str = "pages") -> str:
        """Return a path for a data set that no other theme uses."""
        self._targets += 1
        return f"/{machine}/d{self._targets}/{name}" if local else f"sim://bucket/d{self._targets}/{name}"

    def process(
        self, *specs: dict[str, Any], machine: str = "m0", start: float | None = None, safe: bool = False
    ) -> dict[str, Any]:
        """Draw a process. If it is ``safe``, it is not killed or cancelled individually."""
        if start is None:
            start = self.rng.choice((0.0, 0.0, self.rng.random(), 10 * self.rng.random(), 2000 * self.rng.random()))
        process = {"machine": machine, "start": start, "operations": list(specs), "safe": safe}
        self.plan["processes"].append(process)
        return process

    def later(self) -> float:
        return self.rng.choice((5.0, 60.0, 1000.0, 5000.0, 100_000.0)) * (0.5 + self.rng.random())
