"""What one torture reports: a row of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """``what`` was tried ``tried`` times with ``seed``; ``lost`` counts every promise that was broken, 0 if none."""

    what: str
    tried: int
    lost: int
    seed: int
