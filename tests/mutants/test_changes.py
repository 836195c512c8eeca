"""What `make mutants` changes, how it knows a mutant again, and what it draws."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest

from . import run, targets
from .book import Book, Equivalents, Result
from .changes import WEIGHTS, Change, apply, changes_of, compiles
from .reach import Reach

SOURCE = b'''"""A module of 1 idea."""
import logging

_LIMIT = 10  # \xc3\xa9

class Box:
    """It holds 2 things."""

    size: int = 3

    async def put(self, item: "int | None", *, late: bool = False) -> bool:
        """Put it in."""
        if item is None or item < 0:
            raise ValueError(f"{item} is less than 0: give 1")
        try:
            await self._store(item, wait=True)
        except OSError:
            self.failed += 1
            logging.warning("failed %d", 7)
        finally:
            self.done = not late
        async with self._lock:
            return len(self.items) + 1 <= _LIMIT
'''


def made(source: bytes = SOURCE) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for change in changes_of(source):
        found.setdefault(change.kind, set()).add(f"{change.old} -> {change.new}")
    return found


def test_each_kind_of_change_is_made_where_it_can_be() -> None:
    found = made()
    assert found["negate"] == {
        "item is None or item < 0 -> not (item is None or item < 0)",
        "not late -> bool(late)",
    }
    assert found["compare"] == {"is -> is not", "< -> <=", "<= -> <"}
    assert found["and/or"] == {"or -> and"}
    assert found["operand"] == {"item is None -> False", "item < 0 -> False"}
    assert {each.partition(" -> ")[0].partition("(")[0] for each in found["drop"]} == {
        "raise ValueError",
        "await self._store",
        "self.failed += 1",
        "self.done = not late",
    }
    assert found["argument"] == {"wait=True -> "}
    assert found["flag"] == {"True -> False", "False -> True"}
    assert found["arithmetic"] == {"+ -> -"}
    assert {each.rpartition(" -> ")[2] for each in found["unguard"]} == {
        "raise",
        '__import__("contextlib").nullcontext()',
    }
    assert found["return"] == {"len(self.items) + 1 <= _LIMIT -> not (len(self.items) + 1 <= _LIMIT)"}
    assert "10 -> (10 + 1)" in found["number"]
    assert set(found) <= set(WEIGHTS)


def test_nothing_is_changed_in_what_only_people_read() -> None:
    for change in changes_of(SOURCE):
        assert "logging" not in change.old or change.kind == "unguard", change
        assert change.old not in ("1 idea", "2", "7")
        assert change.kind in ("drop", "unguard") or "ValueError" not in change.quoted
        assert compiles(SOURCE, change)
        tree = ast.parse(apply(SOURCE, change))
        assert ast.get_docstring(tree) == "A module of 1 idea."


def test_a_change_is_one_place_and_no_two_are_the_same() -> None:
    results = [apply(SOURCE, change) for change in changes_of(SOURCE)]
    assert len(set(results)) == len(results)
    assert SOURCE not in results


def test_a_mutant_is_known_again_when_lines_come_and_go_above_it() -> None:
    names = [change.name for change in changes_of(SOURCE)]
    assert len(set(names)) == len(names)
    assert [change.name for change in changes_of(b"# one\n# two\n" + SOURCE)] == names


def test_an_equivalent_is_known_by_its_module_and_line_wherever_they_stand() -> None:
    change = next(change for change in changes_of(SOURCE) if change.kind == "flag")
    known = Equivalents("# a comment\n\n" + Equivalents.entry(Path("a/box.py"), change) + "nobody asks.\n    At all.\n")
    assert known.reason(Path("elsewhere/box.py"), change) == "nobody asks. At all."
    assert known.reason(Path("a/other.py"), change) is None
    moved = Change(**{**change.__dict__, "line": 99, "start": 0})
    assert known.reason(Path("a/box.py"), moved) is not None


def test_the_list_of_equivalents_has_a_reason_for_each_and_names_what_there_is() -> None:
    text = (Path(__file__).parent / "equivalent.txt").read_text()
    known = Equivalents(text)
    entries = [entry for entry in text.split("\n\n") if not entry.startswith("#")]
    met = set()
    for group in targets.GROUPS:
        for module in targets.modules_of(group, run.ROOT):
            if module.name in text:
                for change in changes_of((run.ROOT / module).read_bytes()):
                    if reason := known.reason(module, change):
                        met.add((module.name, str(change).partition(": ")[2], change.quoted))
                        assert len(reason) > 10
    assert len(met) >= len(entries), "an entry that no mutant has any more is to be taken away"


def test_a_sample_is_the_same_for_a_seed_and_a_larger_one_holds_it() -> None:
    few = [mutant.key for mutant in run.draw(3, 20, "records", "")]
    assert few == [mutant.key for mutant in run.draw(3, 20, "records", "")]
    assert set(few) < {mutant.key for mutant in run.draw(3, 40, "records", "")}
    assert set(few) != {mutant.key for mutant in run.draw(4, 20, "records", "")}


def test_every_group_has_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for group in targets.GROUPS:
        assert targets.modules_of(group, run.ROOT)
        own = run.own_tests(group.name)
        assert own
        assert set(own) <= set(run.near_tests(run.ROOT)), "what is asked first is not asked again behind"
    with pytest.raises(SystemExit, match="no such module"):
        targets.modules_of(targets.Group("none", ("asyncrec/nowhere/*.py",), 1), run.ROOT)


def test_a_line_that_runs_on_import_is_everybodys_and_processes_are_asked_of_their_module(tmp_path: Path) -> None:
    """Only the first test of a process is seen to run it; and of one that starts others nothing is seen."""
    source = b"LIMIT = 1\n\n\ndef f():\n    return LIMIT\n"
    reach = Reach(tmp_path, tmp_path / "reach")
    now = hashlib.sha256(source).hexdigest()[:16]
    tests = {
        "t/test_a.py::first": {"m/box.py": f"{0b11010:x}"},
        "t/test_a.py::other": {"m/box.py": f"{1 << 5:x}"},
        "t/test_box.py::starts_a_process": {},
        "t/test_z.py::starts_a_process": {},
    }
    reach.load({"tests": tests, "seconds": dict.fromkeys(tests, 0.1), "sources": {"m/box.py": now}})
    asked = {line: set(reach.tests_of(Path("m/box.py"), source, line, line)) for line in (1, 5)}
    assert asked == {
        1: {"t/test_a.py::first", "t/test_a.py::other", "t/test_box.py::starts_a_process"},
        5: {"t/test_a.py::other", "t/test_box.py::starts_a_process"},
    }


def test_where_the_tree_lies_does_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "mutants"
    (root / "tests/mutants").mkdir(parents=True)
    (root / "tests/test_a.py").write_text("")
    (root / "tests/mutants/test_b.py").write_text("")
    assert run.all_tests(root) == [Path("tests/test_a.py")]
    before = run.hash_of_tests(root)
    (root / "tests/mutants/test_b.py").write_text("pass")
    assert run.hash_of_tests(root) == before
    (root / "tests/test_a.py").write_text("pass")
    assert run.hash_of_tests(root) != before


def test_processes_are_asked_of_every_module_of_their_plugin(tmp_path: Path) -> None:
    """Scrapy's crawls are processes, and whatever a module of its plugin does shows there alone."""
    reach = Reach(tmp_path, tmp_path / "reach")
    own, others = "plugins/asyncrec-x/tests/test_crawls.py::one", "plugins/asyncrec-y/tests/test_crawls.py::one"
    reach.load({"tests": {own: {}, others: {}}, "seconds": {own: 1.0, others: 1.0}, "sources": {}})
    assert reach.tests_of(Path("plugins/asyncrec-x/asyncrec_x/_store.py"), b"x = 1\n", 1, 1) == [own]


def test_what_was_killed_is_remembered_and_what_survived_is_asked_again_of_other_tests(tmp_path: Path) -> None:
    book = Book(tmp_path, "these tests")
    book.add("one", Result("killed", by="a test"))
    book.add("two", Result("survived"))
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"key": "thr')
    again = Book(tmp_path, "these tests")
    assert [result is not None and result.outcome for result in map(again.find, ("one", "two", "three"))] == [
        "killed",
        "survived",
        False,
    ]
    other = Book(tmp_path, "other tests")
    assert other.find("one") is not None
    assert other.find("two") is None
    assert other.find("two", any_tests=True) is not None
