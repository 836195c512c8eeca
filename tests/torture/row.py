"""A row of the table of results. Each torture test returns one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The result of a test: ``what`` was tried ``tried`` times with ``seed``, and ``lost`` promises were broken."""

    what: str
    tried: int
    lost: int
    seed: int
