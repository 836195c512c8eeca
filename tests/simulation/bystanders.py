"""Processes that recover, verify, clean up or compact a data set while other processes write to it."""

from __future__ import annotations

from typing import Any

from .operations import Drawing

__all__ = ["bystanders", "compactor", "elsewhere"]


def bystanders(drawing: Drawing, path: str, *, spool: str | None = None) -> None:
    """Draw processes that recover, verify, clean up and merge manifests while other processes write."""
    rng = drawing.rng
    machine = path.split("/")[1] if path.startswith("/") else "m0"
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        start = rng.choice((rng.random() * 10, drawing.later()))
        what: dict[str, Any] = {"kind": "recover", "path": path}
        if spool is not None and rng.random() < 0.5:
            what.update(path=spool, to=path)
        if rng.random() < 0.2:
            what.update(gives_up=rng.choice(("dead", "any")), target=path, says_dead=rng.random() < 0.5)
        if rng.random() < 0.3:
            options: dict[str, Any] = rng.choice(({}, {"delete": True}, {"delete": True}, {"adopt": True}))
            if rng.random() < 0.6:  # the objects of a job that has not ended are kept at any age
                options = {**options, "min_age": rng.choice((0.0, 60.0))}
            what = {"kind": "verify", "path": path, "options": options}
        if rng.random() < 0.2 and drawing.may("uploads --remove"):
            what = {"kind": "uploads", "path": (spool or path).rpartition("/")[0] + "/"}
            start = 90_000.0 * (1 + rng.random())  # the tool removes only objects older than a day
        drawing.process(
            what, machine=machine if what["path"].startswith("/") else elsewhere(drawing, path), start=start
        )
    if rng.random() < 0.35:
        for _ in range(rng.choice((1, 1, 2, 3))):
            compactor(drawing, path, machine)


def compactor(drawing: Drawing, path: str, machine: str) -> None:
    """Draw a process that merges the manifest repeatedly, either at once or late enough to delete merged segments."""
    rng = drawing.rng
    pauses = [rng.choice((0.0, 1.0, 61.0, 61.0, 700.0)) for _ in range(rng.randint(1, 6))]
    spec = {"kind": "compact", "path": path, "grace": rng.choice((60.0, 60.0, 600.0)), "pauses": pauses}
    where = machine if path.startswith("/") else elsewhere(drawing, path)
    drawing.process(spec, machine=where, start=rng.choice((rng.random() * 10, 100 * rng.random(), drawing.later())))


def elsewhere(drawing: Drawing, path: str, spool: str | None = None) -> str:
    """Draw a machine for a process. If the process works on a store, it may be any machine."""
    return "m1" if not path.startswith("/") and spool is None and drawing.chance(0.25) else "m0"
