"""Every regular expression runs in time linear in the length of its input: this is proved from its structure.

Python's engine tries the possible ways to match a pattern one after another. If an input has many of them, it needs
more than linear time: exponential time if a repeated part of the pattern can match the same text in two ways, and
polynomial time if two repetitions can divide the same text between them. (A search and a repetition at its start can
divide text in the same way.) Both are properties of the pattern's automaton (Weber and Seidl, "On the degree of
ambiguity of finite automata", 1991), and every pattern in the sources is checked for them.

A pattern that cannot be determined from the source, because it is not built from constants and `re.escape`, also fails.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from re import _compiler, _parser
from re import _constants as ops
from typing import Any, NamedTuple

import pytest

from .parsed import Module, modules, parsed, paths

AT_ONE_PLACE = {"match", "fullmatch"}
METHODS = AT_ONE_PLACE | {"search", "sub", "subn", "split", "findall", "finditer"}
# Bounded repetitions are shortened, which does not affect the result; larger bounds than this count as unlimited.
MOST_COPIES = 200
# One character of each kind that a pattern can distinguish, in addition to those that the pattern itself contains.
CHARACTERS = {*map(chr, range(256)), "\u0663", "\u2028", "\u017f", "\u212a", "\u4e2d", "\ud800", "\U0001f600"}


class Part(NamedTuple):
    """The characters with which a part of a pattern may begin and end, and in how many ways (2 means two or more)."""

    empty: int
    first: Counter[int]
    last: Counter[int]


NOTHING = Part(1, Counter(), Counter())


class Automaton:
    """A Glushkov automaton: a state for each character of the pattern, and counted edges to its successors."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._tree = _parser.parse(pattern, flags)
        self.states: list[frozenset[str]] = []
        self.edges: Counter[tuple[int, int]] = Counter()
        self.looks_around = False  # whether a match depends on text beyond its last character
        near = {code + step for code in _codes(self._tree) for step in (-1, 0, 1)}
        self._characters = CHARACTERS | {chr(code) for code in near if 0 <= code < 0x110000}
        self.whole = self._part(self._tree, self._tree.state.flags)

    def _part(self, tree: Any, flags: int) -> Part:
        whole = NOTHING
        for op, value in tree:
            whole = self._then(whole, self._one(op, value, flags))
        return whole

    def _one(self, op: Any, value: Any, flags: int) -> Part:
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY):
            one = _compiler.compile(_parser.SubPattern(_parser.State(), [(op, value)]), flags)
            self.states.append(frozenset(filter(one.fullmatch, self._characters)))
            at = Counter([len(self.states) - 1])
            return Part(0, at, at)
        if op is ops.SUBPATTERN:
            return self._part(value[3], (flags | value[1]) & ~value[2])
        if op is ops.ATOMIC_GROUP:
            return self._part(value, flags)
        if op is ops.BRANCH:
            empty, first, last = zip(*(self._part(each, flags) for each in value[1]), strict=True)
            return Part(min(2, sum(empty)), sum(first, Counter()), sum(last, Counter()))
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            return self._repeat(*value, flags)
        if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
            self.looks_around = True
            if op is not ops.AT and value[1].getwidth()[1] > MOST_COPIES:
                raise ValueError("it looks ahead, or behind, without limit")
            return NOTHING
        raise ValueError(f"{op} cannot be judged")

    def _repeat(self, least: int, most: int, inner: Any, flags: int) -> Part:
        whole = tail = NOTHING
        endless = most > MOST_COPIES
        for _ in range(min(least, 3) - (endless and least > 0)):
            whole = self._then(whole, self._part(inner, flags))
        if endless:
            tail = self._part(inner, flags)
            self._link(tail, tail)
            return self._then(whole, tail if least else tail._replace(empty=1))
        # Build x?x?x? as (x(x(x)?)?)?, so that each text can match in only one way.
        for _ in range(min(most - least, 3)):
            tail = self._then(self._part(inner, flags), tail)._replace(empty=1)
        return self._then(whole, tail)

    def _then(self, one: Part, other: Part) -> Part:
        self._link(one, other)
        first = one.first + Counter({state: ways * one.empty for state, ways in other.first.items()})
        last = other.last + Counter({state: ways * other.empty for state, ways in one.last.items()})
        return Part(min(2, one.empty * other.empty), first, last)

    def _link(self, one: Part, other: Part) -> None:
        for state, ways in one.last.items():
            for following, more in other.first.items():
                self.edges[state, following] += ways * more


def _codes(tree: Any) -> Iterator[int]:
    """Yield every character code that a pattern contains."""
    if isinstance(tree, int) and not isinstance(tree, type(ops.LITERAL)):
        yield tree
    elif not isinstance(tree, str | type(None) | type(ops.LITERAL)):
        for each in tree:
            yield from _codes(each)


def reached(begin: Iterable[Any], steps: Callable[[Any], Iterable[Any]]) -> set[Any]:
    """Return everything that can be reached in one or more steps."""
    seen: set[Any] = set()
    todo = list(begin)
    while todo:
        new = set(steps(todo.pop())) - seen
        seen |= new
        todo += new
    return seen


def growth(pattern: str | bytes, method: str, flags: int = 0) -> str:
    """Return ``"linear"``, or how the running time of ``method`` grows with the length of the input."""
    automaton = Automaton(pattern, flags)
    states, edges = automaton.states, automaton.edges
    # Once a match has reached an end state, it succeeds without trying other ways, unless all of the text has to match.
    ends = set() if method == "fullmatch" or automaton.looks_around else set(automaton.whole.last)
    if method not in AT_ONE_PLACE:
        edges[len(states), len(states)] = 1
        edges.update({(len(states), state): ways for state, ways in automaton.whole.first.items()})
        states.append(frozenset().union(*states, CHARACTERS))
    following: dict[int, list[int]] = {state: [] for state in range(len(states))}
    for state, after in edges:
        following[state].append(after)
    behind = {state: reached([state], following.__getitem__) for state in following}
    looping = [state for state in following if state in behind[state]]
    # For each looping state, the states from which it can be reached; other states need not be explored.
    towards = {state: {each for each in following if each == state or state in behind[each]} for state in looping}

    def steps(now: tuple[int, ...], aims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Advance every state by one and the same character, but only to states from which its aim can be reached."""
        ways: list[tuple[tuple[int, ...], frozenset[str]]] = [((), frozenset().union(*states))]
        for state, aim in zip(now, aims, strict=True):
            choice = towards[aim].intersection(following[state])
            ways = [((*way, to), both) for way, common in ways for to in choice if (both := common & states[to])]
        return (way for way, _ in ways)

    def parting(now: tuple[int, int, bool], aim: int) -> Iterator[tuple[int, int, bool]]:
        for one, other in steps(now[:2], (aim, aim)):
            twice = edges[now[0], one] > 1 or edges[now[1], other] > 1
            yield one, other, now[2] or twice or one != other

    for state in looping:
        if (state, state, True) in reached([(state, state, False)], lambda now, aim=state: parting(now, aim)):
            return "exponential"
    for one in looping:
        for other in (behind[one] - ends - {one}).intersection(looping):
            aims = (one, other, other)
            if aims in reached([(one, one, other)], lambda now, aims=aims: steps(now, aims)):
                return "polynomial"
    return "linear"


def patterns_of(module: Module) -> Iterator[tuple[str, str | bytes, int, set[str]]]:
    """Yield each pattern with its place, its flags, and the methods that are called on it."""
    if not re.search(r"\bre\b", module.text):
        return
    used: dict[str, set[str]] = {}  # the methods called on each name
    names: dict[ast.AST, str] = {}  # the name to which each value is assigned
    for node in module.nodes:
        match node:
            case ast.Attribute(value=ast.Name(name), attr=method) if method in METHODS:
                used.setdefault(name, set()).add(method)
            case ast.Assign(targets=[ast.Name(name), *_], value=value):
                names[value] = name
            case ast.ImportFrom(module="re") | ast.Import(names=[ast.alias("re", str())]):
                raise AssertionError(f"{module.name}: write `import re`, so that its patterns are found")
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr=method)) if method != "escape":
                place = f"{module.name}:{node.lineno}"
                at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(method, 2)
                given = [*(each.value for each in node.keywords if each.arg == "flags"), *node.args[at : at + 1]]
                flags = eval(ast.unparse(given[0]), {"re": re}) if given else 0  # safe: the text is from our own source
                methods = {method} if method != "compile" else used.get(names.get(node, ""), {"search"})
                yield place, _constant(node.args[0], place), int(flags), methods


def _constant(node: ast.expr, place: str) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.BinOp(left, ast.Add(), right):
            return _constant(left, place) + _constant(right, place)
        case ast.Call(func=ast.Attribute(attr="escape")):
            return "pages-0"  # stands for any escaped name
    raise AssertionError(f"{place}: a pattern that is not put together of constants and re.escape cannot be judged")


@cache
def sources() -> list[Module]:
    # independent_reader.py builds its patterns at run time, and only reads its own user's files.
    examples = [path for path in paths("examples/**/*.py") if path.name != "independent_reader.py"]
    return [*modules(), *(parsed(path.read_text("utf-8"), path.name) for path in examples)]


def test_every_regular_expression_takes_linear_time() -> None:
    found = [each for module in sources() for each in patterns_of(module)]
    slow = {
        (place, method): grows
        for place, pattern, flags, methods in found
        for method in methods
        if (grows := growth(pattern, method, flags)) != "linear"
    }
    assert slow == {}
    call = re.compile(r"\bre\.(?:compile|match|fullmatch|search|subn?|split|findall|finditer)\(")
    assert len(found) == sum(len(call.findall(module.text)) for module in sources()) > 40


KNOWN = r"""
exponential match      (a+)+$ (a*)*b (a|a)*b (?:[a-z]+\s?)+! (?i:(ka|\u212aa)*)! (a{1,500}){1,500}b
exponential match      (?s)\s*(<!--.*?-->\s*)*<html\b
exponential fullmatch  (a|ab|b)*c
polynomial  match      a*a*b
polynomial  fullmatch  .*,.*,x \d+(\.\d+)?\d*
polynomial  search     \s+$
polynomial  finditer   [^\r\n]*\n|[^\r\n]+
polynomial  sub        [?&][^=\s]*key[^=\s]*=
linear      match      \s+$ (a+b)+$
linear      fullmatch  a*b*c* \d{5,}-of-\d{5,} [A-Z][a-z]{0,63}-\d{6,}
linear      findall    [a-z]+
linear      sub        [?&]([^=?&\s]*)=([^&\s]*)
linear      search     WARC/1\.[01]\r\n
"""


def test_growth_check_distinguishes_known_patterns() -> None:
    for expected, method, *patterns in map(str.split, KNOWN.strip().splitlines()):
        assert {pattern: growth(pattern, method) for pattern in patterns} == dict.fromkeys(patterns, expected)


@pytest.mark.parametrize("pattern", [r"(a+)\1", r"(?=a*b)a*", r"(?!\d+/)x"])
def test_growth_proof_rejects_undecidable_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"judged|without limit"):
        growth(pattern, "match")
