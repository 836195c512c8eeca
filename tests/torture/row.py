"""A row of the table of results, which each torture test returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The result of trying ``what`` ``tried`` times with ``seed``. ``lost`` is the number of broken promises."""

    what: str
    tried: int
    lost: int
    seed: int
