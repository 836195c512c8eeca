"""Other formats, for `asyncrec.tools.convert`: each reads one file as records, and some write one.

A reader is a context that gives an iterator over `Converted`. What is bad in a file is told, and reading goes on behind
it where that can be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["BadMember", "Converted", "format_of"]

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson.gz": "jsonl",
    ".parquet": "parquet",
    ".warc": "warc",
    ".warc.gz": "warc",
}


_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class BadMember:
    """What could not be converted: ``where`` is the line, the row or the byte of the file."""

    path: str
    where: str
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > _MOST_REASON:  # it may show what was found, of any size
            object.__setattr__(self, "reason", f"{self.reason[:_MOST_REASON]}…")

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "where": self.where, "reason": self.reason}


@dataclass(slots=True)
class Converted:
    """The next records of a file, and what was bad between them. ``passed`` counts members that are not wanted."""

    records: list[bytes] = field(default_factory=list)
    bad: list[BadMember] = field(default_factory=list)
    passed: int = 0


def format_of(name: str) -> str:
    """The format that a name's suffix says: ``jsonl``, ``parquet``, ``warc``; any other is ``tfrecord``."""
    lower = name.lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if lower.endswith(suffix)), "tfrecord")
