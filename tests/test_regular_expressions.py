"""Every regular expression takes time linear in its text, whatever the text: proved from its structure.

Python's engine tries one way through a pattern after the other. It takes more than linear time where a text has many:
exponentially many where a repeated part of it can be matched in two ways at the same place, a power of its length where
two repetitions can share it out between them (so can the search for a place to begin and a repetition that begins
there). Both are properties of the pattern's automaton (Weber and Seidl, "On the degree of ambiguity of finite
automata", 1991), and are looked for here in every pattern of the sources.

A pattern that cannot be read from the source (it is not put together of constants and `re.escape`) is an error too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from re import _constants as ops
from re import _parser
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    *sorted((ROOT / "asyncrec").rglob("*.py")),
    *sorted((ROOT / "plugins").glob("*/asyncrec_*/**/*.py")),
    *sorted((ROOT / "examples").rglob("*.py")),
]
AT_ONE_PLACE = {"match", "fullmatch"}
METHODS = AT_ONE_PLACE | {"search", "sub", "subn", "split", "findall", "finditer"}
# Repetitions up to a number are shortened, which changes no answer; beyond this one they pass for unlimited.
MOST_COPIES = 200
# One of each kind of character that a pattern can tell from others, besides those it names itself.
CHARACTERS = {*map(chr, range(256)), "\u0663", "\u2028", "\u017f", "\u212a", "\u4e2d", "\ud800", "\U0001f600"}


# -- the automaton ----------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """What a part of a pattern may begin and end with, and in how many ways (two stand for more)."""

    empty: int
    first: Counter[int]
    last: Counter[int]


class Automaton:
    """Glushkov's: a state for each character of the pattern, and edges to what may follow it, with their number."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        tree = _parser.parse(pattern, flags)
        self.states: list[frozenset[str]] = []
        self.edges: Counter[tuple[int, int]] = Counter()
        self.looks_around = False  # its end is more than the last character
        self._characters = CHARACTERS | {
            chr(code + near) for code in _codes(tree) for near in (-1, 0, 1) if 0 <= code + near < 0x110000
        }
        self.whole = self._part(tree, tree.state.flags)

    def _part(self, tree: Any, flags: int) -> Part:
        whole = Part(1, Counter(), Counter())
        for op, value in tree:
            whole = self._then(whole, self._one(op, value, flags))
        return whole

    def _one(self, op: Any, value: Any, flags: int) -> Part:
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY):
            at = len(self.states)
            self.states.append(frozenset(each for each in self._characters if _accepts(op, value, each, flags)))
            return Part(0, Counter([at]), Counter([at]))
        if op is ops.SUBPATTERN:
            _, added, removed, inner = value
            return self._part(inner, (flags | added) & ~removed)
        if op is ops.ATOMIC_GROUP:
            return self._part(value, flags)
        if op is ops.BRANCH:
            parts = [self._part(each, flags) for each in value[1]]
            first, last = sum((each.first for each in parts), Counter()), sum((each.last for each in parts), Counter())
            return Part(min(2, sum(each.empty for each in parts)), first, last)
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            return self._repeat(*value, flags)
        if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
            self.looks_around = True
            if op is not ops.AT and value[1].getwidth()[1] > MOST_COPIES:
                raise ValueError("it looks ahead, or behind, without limit")
            return Part(1, Counter(), Counter())
        raise ValueError(f"{op} cannot be judged")

    def _repeat(self, least: int, most: int, inner: Any, flags: int) -> Part:
        whole = Part(1, Counter(), Counter())
        endless = most > MOST_COPIES
        optional = 0 if endless else min(most - least, 3)
        for _ in range(min(least, 3) - (endless and least > 0)):
            whole = self._then(whole, self._part(inner, flags))
        if endless:
            loop = self._part(inner, flags)
            self._link(loop, loop)
            return self._then(whole, loop if least else loop._replace(empty=1))
        # x?x?x? in the form (x(x(x)?)?)?, in which each text has one way through.
        tails = [self._part(inner, flags) for _ in range(optional)]
        tail = Part(1, Counter(), Counter())
        for each in reversed(tails):
            tail = self._then(each, tail)._replace(empty=1)
        return self._then(whole, tail)

    def _then(self, one: Part, other: Part) -> Part:
        self._link(one, other)
        first, last = Counter(one.first), Counter(other.last)
        for state, ways in other.first.items():
            if one.empty:
                first[state] += ways * one.empty
        for state, ways in one.last.items():
            if other.empty:
                last[state] += ways * other.empty
        return Part(min(2, one.empty * other.empty), first, last)

    def _link(self, one: Part, other: Part) -> None:
        for state, ways in one.last.items():
            for following, more in other.first.items():
                self.edges[state, following] += ways * more


def _codes(tree: Any) -> Iterator[int]:
    """Every character that a pattern names."""
    if isinstance(tree, int) and not isinstance(tree, type(ops.LITERAL)):
        yield tree
    elif not isinstance(tree, str | type(None) | type(ops.LITERAL)):
        for each in tree:
            yield from _codes(each)


def _accepts(op: Any, value: Any, character: str, flags: int) -> bool:
    if op is ops.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    forms = {character, character.lower(), character.upper()} if flags & re.IGNORECASE else {character}
    if op is ops.IN:
        negated = value[0][0] is ops.NEGATE
        return negated != any(_one_accepts(*each, form) for each in value for form in forms)
    return (op is ops.LITERAL) == any(_one_accepts(ops.LITERAL, value, form) for form in forms)


def _one_accepts(op: Any, value: Any, character: str) -> bool:
    if op is ops.NEGATE or len(character) != 1:  # "ß" in upper case
        return False
    if op is ops.LITERAL:
        return bool(ord(character) == value)
    if op is ops.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).rpartition("_")[2]]
    return re.match(rf"\{letter.upper() if '_NOT_' in str(value) else letter}", character) is not None


# -- its ambiguity ----------------------------------------------------------------------------------------------------


def growth(pattern: str | bytes, method: str, flags: int = 0) -> str:
    """``"linear"``, or what is known of the time that ``method`` may take."""
    automaton = Automaton(pattern, flags)
    states, edges = list(automaton.states), Counter(automaton.edges)
    # Once it has come to an end, a match succeeds, whatever comes: no other way is tried. Not where all has to match.
    ends = set() if method == "fullmatch" or automaton.looks_around else set(automaton.whole.last)
    if method not in AT_ONE_PLACE:
        search = len(states)
        states.append(frozenset().union(*states, CHARACTERS))
        edges[search, search] = 1
        for state in automaton.whole.first:
            edges[search, state] += automaton.whole.first[state]
    following: dict[int, list[int]] = {}
    for state, after in edges:
        following.setdefault(state, []).append(after)
    reached = {state: _reached(state, following) for state in range(len(states))}
    looping = [state for state in reached if state in reached[state]]

    def steps(now: tuple[int, ...], to: list[set[int]]) -> Iterator[tuple[int, ...]]:
        """All states go on by one character, the same for all, and each only to where it may get to its aim."""
        options = [[each for each in following.get(state, ()) if each in to[n]] for n, state in enumerate(now)]
        ways: list[tuple[tuple[int, ...], frozenset[str]]] = [((), frozenset().union(*states))]
        for choice in options:
            ways = [
                ((*taken, each), both) for taken, common in ways for each in choice if (both := common & states[each])
            ]
        yield from (taken for taken, _ in ways)

    # What leads to a state: only there it is worth going.
    towards = {state: {each for each in reached if each == state or state in reached[each]} for state in looping}
    for state in looping:
        todo, seen = [((state, state), False)], set()
        while todo:
            now, parted = todo.pop()
            for after in steps(now, [towards[state]] * 2):
                twice = any(edges[each] > 1 for each in zip(now, after, strict=True))
                found = (after, parted or twice or after[0] != after[1])
                if found == ((state, state), True):
                    return "exponential"
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
    for one in looping:
        for other in looping:
            if one == other or other not in reached[one] or other in ends:
                continue
            aims = [towards[one], towards[other], towards[other]]
            places, known = [(one, one, other)], set()
            while places:
                for place in steps(places.pop(), aims):
                    if place == (one, other, other):
                        return "polynomial"
                    if place not in known:
                        known.add(place)
                        places.append(place)
    return "linear"


def _reached(state: int, following: dict[int, list[int]]) -> set[int]:
    seen: set[int] = set()
    todo = [state]
    while todo:
        for after in following.get(todo.pop(), ()):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


# -- what is in the sources -------------------------------------------------------------------------------------------


class Found(NamedTuple):
    where: str
    pattern: str | bytes
    flags: int
    methods: frozenset[str]


def patterns_of(source: str, where: str) -> Iterator[Found]:
    if not re.search(r"\bre\b", source):
        return  # most have none, and every process of the tests looks: parsed, all of them take a second or two
    tree = ast.parse(source)
    used: dict[str, set[str]] = {}  # the methods called of each name
    names: dict[int, str] = {}  # of what is assigned to one
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            used.setdefault(node.value.id, set()).add(node.attr)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[id(node.value)] = node.targets[0].id
        if isinstance(node, ast.ImportFrom | ast.Import):
            hidden = isinstance(node, ast.ImportFrom) and node.module == "re"
            hidden |= any(each.name == "re" and each.asname for each in node.names)
            assert not hidden, f"{where}: write `import re`, so that its patterns are found"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        function = node.func.attr
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "re" or function == "escape":
            continue
        place = f"{where}:{node.lineno}"
        given = [each.value for each in node.keywords if each.arg == "flags"]
        at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(function, 2)
        given += node.args[at : at + 1]
        flags = eval(compile(ast.Expression(given[0]), place, "eval"), {"re": re}) if given else 0  # ours
        methods = {function} if function != "compile" else used.get(names.get(id(node), ""), {"search"})
        yield Found(place, _constant(node.args[0], place), int(flags), frozenset(methods))


def _constant(node: ast.expr, place: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _constant(node.left, place) + _constant(node.right, place)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "escape":
        return "pages-0"  # a name, for any
    raise AssertionError(f"{place}: a pattern that is not put together of constants and re.escape cannot be judged")


ALL = [found for path in SOURCES for found in patterns_of(path.read_text(), str(path.relative_to(ROOT)))]


@pytest.mark.parametrize("found", ALL, ids=lambda found: found.where)
def test_a_pattern_takes_linear_time(found: Found) -> None:
    for method in found.methods:
        assert growth(found.pattern, method, found.flags) == "linear", f"{method} of {found.pattern!r}"


def test_all_patterns_are_found() -> None:
    call = re.compile(r"\bre\.(?:compile|match|fullmatch|search|subn?|split|findall|finditer)\(")
    assert len(ALL) == sum(len(call.findall(path.read_text())) for path in SOURCES) > 40


@pytest.mark.parametrize(
    ("pattern", "method", "expected"),
    [
        (r"(a+)+$", "match", "exponential"),
        (r"(a*)*b", "match", "exponential"),
        (r"(a|a)*b", "match", "exponential"),
        (r"(a|ab|b)*c", "fullmatch", "exponential"),
        (r"(?:[a-z]+\s?)+!", "match", "exponential"),
        (r"(?i:(ka|\u212aa)*)!", "match", "exponential"),
        (r"(a{1,500}){1,500}b", "match", "exponential"),
        (r"(?s)\s*(<!--.*?-->\s*)*<html\b", "match", "exponential"),
        (r"a*a*b", "match", "polynomial"),
        (r".*,.*,x", "fullmatch", "polynomial"),
        (r"\d+(\.\d+)?\d*", "fullmatch", "polynomial"),
        (r"\s+$", "search", "polynomial"),
        (r"[^\r\n]*\n|[^\r\n]+", "finditer", "polynomial"),
        (r"[?&][^=\s]*key[^=\s]*=", "sub", "polynomial"),
        (r"\s+$", "match", "linear"),
        (r"(a+b)+$", "match", "linear"),
        (r"a*b*c*", "fullmatch", "linear"),
        (r"[a-z]+", "findall", "linear"),
        (r"[?&]([^=?&\s]*)=([^&\s]*)", "sub", "linear"),
        (r"\d{5,}-of-\d{5,}", "fullmatch", "linear"),
        (r"[A-Z][a-z]{0,63}-\d{6,}", "fullmatch", "linear"),
        (rb"WARC/1\.[01]\r\n", "search", "linear"),
    ],
)
def test_the_proof_itself_tells_them_apart(pattern: str | bytes, method: str, expected: str) -> None:
    assert growth(pattern, method) == expected


@pytest.mark.parametrize("pattern", [r"(a+)\1", r"(?=a*b)a*", r"(?!\d+/)x"])
def test_what_the_proof_cannot_judge_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"judged|without limit"):
        growth(pattern, "match")
