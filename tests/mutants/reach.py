"""Which tests reach which line, and how long each takes: collected once for each file of tests, and kept.

A file is collected anew when it changes. What its lines were is looked up in the source as it was then, so that a
module may change in the meantime.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import inside
from .scratch import Scratch

__all__ = ["Reach"]

_SECONDS = 900.0  # for one file of tests, while it is traced,


class Reach:
    def __init__(self, root: Path, place: Path) -> None:
        self._root, self._place = root, place
        self._sources = place / "sources"
        self._sources.mkdir(parents=True, exist_ok=True)
        self.seconds: dict[str, float] = {}
        self.twins: dict[str, str] = {}
        self._lines: dict[str, list[tuple[str, int, str]]] = {}  # module -> (test, its lines as bits, source's hash)
        self._unseen: list[str] = []  # tests that start processes, whose lines nobody sees
        self._maps: dict[tuple[str, str], dict[int, int]] = {}

    def collect(self, scratch: Scratch, files: Iterable[Path], packages: list[str]) -> None:
        for file in files:
            kept = self._kept(file)
            self.load(json.loads(kept.read_text()) if kept.exists() else self._run(scratch, file, packages, kept))

    def _kept(self, file: Path) -> Path:
        told = hashlib.sha256(str(file).encode() + b"\0" + (self._root / file).read_bytes()).hexdigest()[:16]
        return self._place / f"{file.stem}-{told}.json"

    def _run(self, scratch: Scratch, file: Path, packages: list[str], kept: Path) -> dict[str, Any]:
        target = kept.with_suffix(".new")
        print(f"  which lines {file} reaches", file=sys.stderr, flush=True)
        # What a test that was stopped leaves open is no fault of it.
        lenient = ["-o", "timeout=0", "-p", "no:unraisableexception", "-p", "no:threadexception"]
        ran = scratch.pytest(
            [*lenient, str(file)], lambda: inside.Reaching(scratch.tree, packages, target), seconds=_SECONDS
        ).wait()
        if not target.exists() or ran.status not in (0, 1, 5):  # all passed, some failed, or there is none
            raise SystemExit(f"{file} could not be collected:\n{ran.said}")
        reached, stopped = json.loads(target.read_text())
        ran.failed = [test for test in ran.failed if test not in stopped]
        if ran.failed:
            print(f"  fails without a mutant, and is not asked: {ran.failed}", file=sys.stderr, flush=True)
        hashes = {}
        for name in sorted({name for lines in reached.values() for name in lines}):
            source = (scratch.tree / name).read_bytes()
            hashes[name] = hashlib.sha256(source).hexdigest()[:16]
            (self._sources / hashes[name]).write_bytes(source)
        tests = {test: reached.get(test, {}) for test in ran.passed if test not in ran.failed}
        told = {"tests": tests, "seconds": ran.passed, "sources": hashes}
        if not ran.failed:  # else it is tried again by the next run, until somebody has found out why
            kept.write_text(json.dumps(told))
        target.unlink()
        target.with_suffix(".coverage").unlink(missing_ok=True)
        return told

    def load(self, told: dict[str, Any]) -> None:
        """Take in what was collected for a file of tests."""
        for test, modules in told["tests"].items():
            self.seconds[test] = told["seconds"][test]
            before, bracket, parameters = test.partition("[")
            if "asyncio" in parameters:
                self.twins[test] = before + bracket + parameters.replace("asyncio", "trio")
                self.seconds[self.twins[test]] = self.seconds[test]
            if not modules:
                self._unseen.append(test)
            for name, bits in modules.items():
                self._lines.setdefault(name, []).append((test, int(bits, 16), told["sources"][name]))

    def tests_of(self, module: Path, source: bytes, first: int, last: int) -> list[str]:
        """Those that reach one of these lines; of lines that run on import, all that use the module.

        The quickest of each file come first, and more of those from the file that mirrors the module. Of that, and of
        the module's plugin, those that start processes are asked, too.
        """
        name = str(module)
        now = hashlib.sha256(source).hexdigest()[:16]
        found, users = [], []
        on_import = not _in_functions(source).issuperset(range(first, last + 1))
        for test, bits, then in self._lines.get(name, []):
            users.append(test)
            lines = range(first, last + 1)
            if then != now:
                moved = self._moved(then, now, source)
                lines = [moved[line] for line in lines if line in moved]  # type: ignore[assignment]
            if any(bits >> line & 1 for line in lines):
                found.append(test)
        # The first test of a process to import a module is seen to reach such a line, and the others only use it.
        asked = users if on_import or not found else found
        asked = asked + [test for test in self._unseen if _mirrors(test, module) or _is_of_plugin(test, module)]
        quickest = sorted(asked, key=lambda test: self.seconds[test])
        places: dict[str, int] = {}
        turns: dict[str, float] = {}
        for test in quickest:
            file = test.partition("::")[0]
            places[file] = places.get(file, 0) + 1
            near = f"/{module.parent.name}/" in file
            turns[test] = places[file] / (8 if _mirrors(test, module) else 3 if near else 1)
        return sorted(quickest, key=lambda test: (turns[test], self.seconds[test]))

    def _moved(self, then: str, now: str, source: bytes) -> dict[int, int]:
        """Lines as they are now -> as they were; of a changed stretch, all of its lines are taken for one."""
        if (then, now) not in self._maps:
            old = (self._sources / then).read_bytes().splitlines()
            match = difflib.SequenceMatcher(None, old, source.splitlines(), autojunk=False)
            lines: dict[int, int] = {}
            for tag, old_begin, old_end, begin, end in match.get_opcodes():
                for line in range(begin, end):
                    at = old_begin + (line - begin if tag == "equal" else 0)
                    lines[line + 1] = min(at, max(old_begin, old_end - 1)) + 1
            self._maps[then, now] = lines
        return self._maps[then, now]


def _mirrors(test: str, module: Path) -> bool:
    return test.partition("::")[0].endswith((f"/test_{module.stem}.py", f"_{module.stem}.py"))


def _is_of_plugin(test: str, module: Path) -> bool:
    return module.parts[0] == "plugins" and Path(test).parts[:2] == module.parts[:2]


def _in_functions(source: bytes) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines.update(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Lambda):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines
