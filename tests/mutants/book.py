"""What came of each mutant, kept so that a run goes on where the last one stopped; and which mutants are equivalent.

A result holds for one source and one change. A mutant that survived is tried again when the tests have changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from .changes import Change

__all__ = ["Book", "Equivalents", "Result"]


@dataclass
class Result:
    outcome: str  # "killed", "survived", "untested"
    by: str = ""  # the test that failed, or what took too long
    asked: int = 0  # how many tests
    seconds: float = 0.0
    tests: str = ""  # the hash of all tests, for what survived
    near: bool = False  # only its group's own tests were asked
    whole: bool = False  # the whole suite was asked


class Book:
    def __init__(self, place: Path, tests: str) -> None:
        self._file, self._tests = place / "results.jsonl", tests
        self._kept: dict[str, Result] = {}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # it was ended while it wrote
                    continue
                key = entry.pop("key")
                self._kept[key] = Result(**entry)

    @staticmethod
    def key(module: Path, source: bytes, change: Change) -> str:
        told = b"\0".join((str(module).encode(), source, str((change.start, change.end, change.new)).encode()))
        return hashlib.sha256(told).hexdigest()[:24]

    def find(self, key: str, *, any_tests: bool = False) -> Result | None:
        result = self._kept.get(key)
        if result is not None and result.outcome != "killed" and result.tests != self._tests and not any_tests:
            return None
        return result

    def add(self, key: str, result: Result) -> None:
        result.tests = self._tests
        self._kept[key] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({"key": key, **asdict(result)}) + "\n")


class Equivalents:
    """``equivalent.txt``: a line ``module: kind: change``, below it the line of the source, then the reason.

    The module is known by its name alone, and the place by what the line says, so that both may move.
    """

    def __init__(self, text: str) -> None:
        self._known: dict[tuple[str, str, str], str] = {}
        for entry in text.split("\n\n"):
            lines = [line.strip() for line in entry.splitlines() if line.strip() and not line.startswith("#")]
            if len(lines) >= 3:
                name, _, change = lines[0].partition(": ")
                self._known[name, change, lines[1]] = " ".join(lines[2:])

    def reason(self, module: Path, change: Change) -> str | None:
        told = str(change).partition(": ")[2].rstrip()
        return self._known.get((module.name, told, change.quoted))

    @staticmethod
    def entry(module: Path, change: Change) -> str:
        return f"{module.name}: {str(change).partition(': ')[2]}\n    {change.quoted}\n    "
