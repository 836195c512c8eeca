"""The mutants of a source: one small change each, found in its syntax tree and made in its text.

Nothing is changed in what only people or type checkers read: docstrings, annotations, messages of errors and of the
log, ``__repr__``, protocols, assertions.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["WEIGHTS", "Change", "apply", "changes_of", "compiles"]

# How often each kind is drawn. What is dropped or negated breaks promises more often than what is off by one.
WEIGHTS = {
    "drop": 3.0,
    "negate": 3.0,
    "unguard": 3.0,
    "compare": 2.0,
    "and/or": 2.0,
    "operand": 2.0,
    "return": 2.0,
    "flag": 1.5,
    "jump": 1.5,
    "argument": 1.0,
    "number": 1.0,
    "arithmetic": 1.0,
}

_COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_COUNTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "*", ast.BitAnd: "|"}
_GUARDS = ("CancelScope", "shield", "lock", "Lock", "limiter", "suppress")
_SPEAKS = ("logging", "log", "_log", "_path_log", "logger", "_logger", "warnings")


@dataclass(frozen=True)
class Change:
    """``start:end`` of the source's bytes becomes ``new``; ``line`` is where that begins."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str
    quoted: str  # the line as it stands, stripped: what a list of mutants knows it by
    number: int = 0  # of those that are alike in all of that but the place

    @property
    def name(self) -> str:
        """The same when lines above it come and go."""
        told = "\0".join((self.kind, self.quoted, self.old, self.new, str(self.number)))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        def short(text: str) -> str:
            return " ".join(text.split())[:90]

        return f"{self.line}: {self.kind}: {short(self.old)}  ->  {short(self.new)}"


def apply(source: bytes, change: Change) -> bytes:
    return source[: change.start] + change.new.encode() + source[change.end :]


def changes_of(source: bytes) -> list[Change]:
    """All mutants, each place and text once. Whether one `compiles` is asked of those that are drawn."""
    walker = _Walker(source)
    walker.visit(ast.parse(source))
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for change in {(each.start, each.end, each.new): each for each in walker.found}.values():
        alike = (change.kind, change.quoted, change.old, change.new)
        seen[alike] = seen.get(alike, -1) + 1
        kept.append(replace(change, number=seen[alike]))
    return kept


def compiles(source: bytes, change: Change) -> bool:
    try:
        compile(apply(source, change), "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


def _names(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def _is_error(call: ast.Call) -> bool:
    name = next(_names(call.func), "")
    return isinstance(call.func, ast.Name) and name.endswith(("Error", "Exit", "Refused", "Warning"))


def _speaks(call: ast.Call) -> bool:
    first = call.func
    if isinstance(first, ast.Attribute) and first.attr == "add_note":
        return True
    while isinstance(first, ast.Attribute):
        first = first.value
    return isinstance(first, ast.Name) and first.id in _SPEAKS


class _Walker(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.found: list[Change] = []
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._begins[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._begins[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _add(self, kind: str, start: int, end: int, new: str, line: int) -> None:
        old = self._source[start:end].decode()
        quoted = self._lines[line - 1].decode().strip()
        self.found.append(Change(kind, line, start, end, old, new, quoted))

    def _swap(self, kind: str, node: ast.AST, new: str) -> None:
        self._add(kind, *self._span(node), new, node.lineno)  # type: ignore[attr-defined]

    def _between(self, kind: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """An operator, which the tree gives no place to."""
        start, end = self._span(left)[1], self._span(right)[0]
        text = self._source[start:end].decode()
        at = text.find(old)
        if at >= 0:
            begins = start + len(text[:at].encode())
            line = left.end_lineno + text[:at].count("\n")  # type: ignore[attr-defined]
            self._add(kind, begins, begins + len(old.encode()), new, line)

    # What nobody obeys is passed over.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Protocol" in tuple(_names(base)) for base in node.bases):
            return
        self._body(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__") or any("overload" in tuple(_names(d)) for d in node.decorator_list):
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._body(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text:
                self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass  # texts, and names of files that other tests spell out

    # What is changed.

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        called = value.value if isinstance(value, ast.Await) else value
        if isinstance(called, ast.Call) and _speaks(called):
            return
        if isinstance(value, ast.Call | ast.Await):
            self._swap("drop", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._swap("drop", node, "pass")  # and nothing inside: messages

    def visit_Delete(self, node: ast.Delete) -> None:
        self._swap("drop", node, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._swap("drop", node, "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Name) and (target.id == "__all__" or target.id.startswith("__")):
            return
        if isinstance(target, ast.Attribute | ast.Subscript):
            self._swap("drop", node, "pass")
        self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:
        self._swap("jump", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._swap("jump", node, "break")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._swap("drop", node, "pass")
            return
        # False and None are one to whoever asks, and a flag is swapped as it is.
        if not (
            isinstance(node.value, ast.Constant) and (node.value.value is None or isinstance(node.value.value, bool))
        ):
            other = f"not ({self._text(node.value)})" if _is_bool(node.value) else "None"
            self._swap("return", node.value, other)
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in tuple(_names(node.test)):
            return
        self._swap("negate", node.test, f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._swap("negate", node.test, f"(not ({self._text(node.test)}))")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._swap("negate", node.test, f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._swap("negate", test, f"(not ({self._text(test)}))")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old = _spelt(operator)
            self._between("compare", left, right, old, _COMPARED[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("and/or", left, right, old, new)
        neutral = "True" if old == "and" else "False"
        for value in node.values:
            self._swap("operand", value, neutral)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._swap("negate", node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = _COUNTED.get(type(node.op))
        if new and not any(isinstance(each, ast.JoinedStr) for each in (node.left, node.right)):
            old = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&"}
            self._between("arithmetic", node.left, node.right, old[type(node.op)], new)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._swap("flag", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._swap("number", node, f"({self._text(node)} + 1)")
            if node.value:
                self._swap("number", node, f"({self._text(node)} - 1)")

    def visit_Call(self, node: ast.Call) -> None:
        if _speaks(node) or _is_error(node):
            return
        for argument in node.keywords:
            if argument.arg is not None:
                start, end = self._span(argument)
                after = self._source[end:].lstrip()
                if after.startswith(b","):
                    end = self._source.index(b",", end) + 1
                self._add("argument", start, end, "", argument.lineno)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
            other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
            self._swap("arithmetic", node.func, other)
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            self._block("unguard", node.finalbody, "pass")
        for handler in node.handlers:
            first = handler.body[0]
            if not (isinstance(first, ast.Raise) and first.exc is None):
                self._block("unguard", handler.body, "raise")
        if node.orelse:
            self._block("unguard", node.orelse, "pass")
        self.generic_visit(node)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # noqa: N815

    def _block(self, kind: str, body: list[ast.stmt], new: str) -> None:
        self._add(kind, self._span(body[0])[0], self._span(body[-1])[1], new, body[0].lineno)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            context = item.context_expr
            called = context.func if isinstance(context, ast.Call) else context
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if item.optional_vars is None and name.lstrip("_").endswith(_GUARDS):
                self._swap("unguard", context, '__import__("contextlib").nullcontext()')
        self.generic_visit(node)

    visit_AsyncWith = visit_With  # type: ignore[assignment]  # noqa: N815


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _spelt(operator: ast.cmpop) -> str:
    return {
        ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
        ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    }[type(operator)]  # fmt: skip
