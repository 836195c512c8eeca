"""A theme in which two hosts share a folder but not its locks."""

from __future__ import annotations

from .bystanders import bystanders
from .cast import SIZES, writer
from .operations import Drawing, theme

__all__: list[str] = []


@theme("shared folder", 1.0)
def shared_folder(drawing: Drawing) -> None:
    """Draw hosts that do not see each other's locks. A writer that is silent for long counts as dead, but continues."""
    rng = drawing.rng
    drawing.plan["settings"]["shared"] = True
    path = drawing.target(local=True)
    if rng.random() < 0.8:  # the writers are silent, as if stopped or blocked
        drawing.plan["settings"]["knobs"]["asyncrec._shards.writing.telling:STATUS_SECONDS"] = 1e9
    for _ in range(rng.choice((1, 1, 2))):
        spec = writer(drawing, path, fixed=rng.random() < 0.25)
        for actions in spec["tasks"]:
            pause = ["sleep", rng.choice((10.0, 150.0, 400.0, 1000.0))]
            actions.insert(rng.randrange(len(actions) + 1), pause)
            actions += [
                pause,
                ["write", rng.choice(SIZES), None, {}],
                ["flush", None],
                ["sleep", rng.choice((0.0, 100.0))],
            ]
        drawing.process(spec, start=rng.random(), safe=rng.random() < 0.4)
    for _ in range(rng.choice((1, 2, 3))):
        other = writer(drawing, path, fixed=rng.random() < 0.2) if rng.random() < 0.3 else None
        start = rng.choice((20.0, 300.0, 900.0)) * (0.5 + rng.random())
        drawing.process(other or {"kind": "recover", "path": path}, start=start)
    bystanders(drawing, path)
