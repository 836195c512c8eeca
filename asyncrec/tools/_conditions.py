"""`Where` is a condition on records, such as ``label=3`` or ``text contains cat``. `Conditions` combines several.

A condition on a feature that no record has, or with a value that the feature cannot have, raises an error rather than
selecting nothing. If a schema lists the features, the error is raised at once; otherwise, it is raised when a record
shows the mismatch, or after the last record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast, get_args

import numpy as np

from asyncrec.errors import ArgumentValueError, DecodeError
from asyncrec.example._by_name import MOST_NAMED, unknown_feature, values_of
from asyncrec.example._by_name import features_of as features_of  # re-exported for the tools that take conditions
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw, parse_example

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]

_SIGN = re.compile(r"\s(?P<word>in|contains|<=|>=|!=|=|<|>)\s|(?P<sign><=|>=|!=|=|<|>)")
_HOLDS = {NONE: "nothing", BYTES: "text", FLOAT: "numbers", INT64: "whole numbers"}


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on records, which holds if the operator holds between ``value`` and one of the feature's values.

    The value is a number for int64 and float features, and text for bytes features, which are compared byte by byte.
    ``in`` expects values separated by commas; ``contains`` searches for text within text; ``!=`` holds whenever ``=``
    does not. No other operator holds for a record that lacks the feature or is not an Example.
    """

    feature: str
    value: str
    operator: Operator = "="

    def __post_init__(self) -> None:
        if self.operator not in get_args(Operator):
            raise ArgumentValueError(
                f"{self.operator!r} is not an operator; the operators are {' '.join(get_args(Operator))}"
            )

    @classmethod
    def parse(cls, text: str) -> Where:
        """Parse ``label=3``, ``lang!=en``, ``score>=0.5``, ``label in 1,2`` or ``text contains cat``.

        Raises:
            ValueError: the text is not a condition.
        """
        match = _SIGN.search(text)
        feature = text[: match.start()].strip() if match else ""
        if not match or not feature:
            raise ArgumentValueError(
                f"{text!r} is not a condition; write FEATURE=VALUE (or != < <= > >=), 'FEATURE in A,B' or 'FEATURE "
                "contains TEXT'"
            )
        value = text[match.end() :]
        return cls(feature, value.lstrip() if match["word"] else value, cast(Operator, match["word"] or match["sign"]))

    def __str__(self) -> str:
        return f"{self.feature} {self.operator} {self.value}"

    def holds(self, record: bytes) -> bool:
        """Return whether the condition holds for a record.

        Raises:
            ValueError: the feature cannot have such a value.
        """
        try:
            return self.holds_for(parse_example(record))
        except DecodeError:
            return self.operator == "!="

    def holds_for(self, features: Mapping[str, Raw]) -> bool:
        """Return whether the condition holds for a record with these features."""
        kind, payload = features.get(self.feature, (NONE, b""))
        if kind == NONE:
            return self.operator == "!="
        return self._test(kind)(values_of(kind, payload)) == (self.operator != "!=")

    def check(self, kind: int) -> None:
        """Check that a feature of this kind can have the value of the condition.

        Raises:
            ValueError: the feature cannot have this value.
        """
        self._test(kind)

    def _test(self, kind: int) -> Callable[[Sequence[Any]], bool]:
        return _test(self.feature, self.operator, self.value, kind)


class Conditions:
    """A set of conditions that must all hold. It also collects the names of the features that the records have.

    Args:
        features: the wire type of each feature in the schema, by name; `None` if there is no schema.
        path: the path of the records, for error messages.

    Attributes:
        known: whether the schema lists all features.

    Raises:
        ValueError: the schema has no such feature, or the feature cannot have this value.
    """

    def __init__(self, where: Sequence[Where], features: Mapping[str, int] | None, path: str) -> None:
        self._where = where
        self._path = path
        self.known = features is not None
        self._seen: dict[str, None] = {}
        self._records = 0
        for each in where if features is not None else ():
            assert features is not None, "the loop is empty without features"
            if each.feature not in features:
                raise unknown_feature(each.feature, features, path)
            each.check(features[each.feature])

    def chosen(self, records: Sequence[bytes]) -> list[int]:
        """Return the positions of the records that meet all conditions. Blocks, because each record is parsed.

        Raises:
            ValueError: a feature cannot have the value of a condition, or no record up to now has had any features.
        """
        found = []
        for at, record in enumerate(records):
            try:
                features = parse_example(record)
            except DecodeError:
                features = {}
            if not self.known and len(self._seen) < MOST_NAMED:
                self._seen |= dict.fromkeys(features)
            elif not self.known:
                self._seen |= {each.feature: None for each in self._where if each.feature in features}
            if all(each.holds_for(features) for each in self._where):
                found.append(at)
        self._records += len(records)
        if not self.known and not self._seen and records:
            raise ArgumentValueError(
                f"{self._path}: the first {self._records:,} records are not Examples, so they have no features to "
                "select by"
            )
        return found

    def end(self) -> None:
        """Check, after the last record, that the feature of each condition was found.

        Raises:
            ValueError: there were records, but none had the feature named in a condition.
        """
        if self.known or not self._records:
            return
        for each in self._where:
            if each.feature not in self._seen:
                raise unknown_feature(each.feature, self._seen, self._path)


@lru_cache(maxsize=256)
def _test(feature: str, operator: Operator, text: str, kind: int) -> Callable[[Sequence[Any]], bool]:
    """Return a function that tests a feature's values. For ``!=``, it tests ``=``; the caller negates that."""
    if operator == "contains":
        if kind != BYTES:
            raise ArgumentValueError(
                f"'{feature} contains {text}': the feature {feature!r} holds {_HOLDS[kind]}, but 'contains' works "
                "only on text; use = != < <= > >= or in"
            )
        part = _bytes(text)
        return lambda values: any(part in each for each in values)
    if operator == "in":
        wanted = frozenset(_value(feature, part.strip(), kind, exact=True) for part in text.split(","))
        return lambda values: not wanted.isdisjoint(values)
    if operator in ("=", "!="):
        only = _value(feature, text, kind, exact=True)
        return lambda values: only in values
    limit = _value(feature, text, kind, exact=False)
    if operator == "<":
        return lambda values: any(each < limit for each in values)
    if operator == "<=":
        return lambda values: any(each <= limit for each in values)
    if operator == ">":
        return lambda values: any(each > limit for each in values)
    return lambda values: any(each >= limit for each in values)


def _value(feature: str, text: str, kind: int, *, exact: bool) -> Any:
    """Parse the text of a condition as a value of a feature of this kind.

    Raises:
        ValueError: the text cannot be parsed as such a value.
    """
    if kind == BYTES:
        return _bytes(text)
    try:
        if kind == INT64 and exact:
            return int(text)
        number = float(text)
        if kind == INT64:
            return int(text) if text.strip().lstrip("+-").isdigit() else number
        with np.errstate(over="ignore"):  # a value beyond the range of float32 becomes infinite, as it does in a file
            return float(np.float32(number))
    except ValueError:
        raise ArgumentValueError(
            f"the feature {feature!r} holds {_HOLDS[kind]}, but {text!r} cannot be parsed as one"
        ) from None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # this is how Python decodes invalid UTF-8 in command lines
