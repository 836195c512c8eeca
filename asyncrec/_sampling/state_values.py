"""`StateValues` reads a state's values, and checks their types and ranges. No other code reads the JSON of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

# Larger than any count in a data set, but small enough that the sum of two such numbers fits in int64.
_MOST = (1 << 62) - 1


class StateValues:
    """The values of a state, or of a part of a state.

    Every method except `plain` raises ValueError for a value that `state_dict` never returns.

    Raises:
        TypeError: the state is not a mapping.
    """

    def __init__(self, state: Any) -> None:
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(f"a state must be the dict that state_dict returned, not {state!r:.80}")
        self._state = state

    def __contains__(self, name: str) -> bool:
        return name in self._state

    def part(self, name: str) -> StateValues:
        """Return the values of a part of the state."""
        found = self._state.get(name)
        if not isinstance(found, Mapping):
            raise self._error(name, "an object")
        return StateValues(found)

    def whole(self, name: str, *, least: int | None = 0, most: int | None = _MOST) -> int:
        """Return a whole number from ``least`` to ``most``; `None` means no limit."""
        found = self._state.get(name)
        if isinstance(found, int) and _is_whole(found, least, most):
            return found
        to = " on" if most in (None, _MOST) else f" to {most}"
        raise self._error(name, "a whole number" + ("" if least is None else f" from {least}{to}"))

    def flag(self, name: str) -> bool:
        """Return a boolean value."""
        found = self._state.get(name)
        if not isinstance(found, bool):
            raise self._error(name, "true or false")
        return found

    def wholes(self, name: str, *, below: int | None = None) -> list[int]:
        """Return a list of whole numbers, each at least 0 and less than ``below``."""
        return [number for (number,) in self._rows(name, [[each] for each in self._list(name)], (below,))]

    def optional_wholes(self, name: str, *, below: int) -> list[int | None]:
        """Return a list whose items are `None`, or whole numbers from 0 to ``below - 1``."""
        found = self._list(name)
        self._rows(name, [[each] for each in found if each is not None], (below,))
        return found

    def rows(self, name: str, *below: int | None) -> list[list[int]]:
        """Return a list of rows of whole numbers, each at least 0 and below the limit of its column."""
        return self._rows(name, self._list(name), below)

    def each(self, name: str, fits: Callable[[Any], bool], wanted: str) -> list[Any]:
        """Return a list of values, all of which ``fits`` accepts. ``wanted`` describes such values, for the message."""
        found = self._list(name)
        if not all(map(fits, found)):
            raise self._error(name, wanted)
        return found

    def digest(self, name: str, *, position: int) -> str | None:
        """Return a digest of the records that the position refers to, or `None` if it is missing.

        It may be missing only at position 0, because a state may be taken before its object is entered.
        """
        found = self._state.get(name)
        if not isinstance(found, str) and (found is not None or position):
            raise self._error(name, "text")
        return found

    def plain(self, name: str) -> Any:
        """Return a value without checking it, for a comparison, or `None` if it is missing."""
        return self._state.get(name)

    def _list(self, name: str) -> list[Any]:
        found = self._state.get(name)
        if not isinstance(found, list | tuple):
            raise self._error(name, "a list")
        return list(found)

    def _rows(self, name: str, rows: list[Any], below: tuple[int | None, ...]) -> list[list[int]]:
        limits = [_MOST if limit is None else limit - 1 for limit in below]
        for row in rows:
            fits = isinstance(row, list | tuple) and len(row) == len(limits)
            if not fits or not all(_is_whole(each, 0, most) for each, most in zip(row, limits, strict=True)):
                raise self._error(name, "whole numbers within the limits of this stream")
        return rows

    def _error(self, name: str, wanted: str) -> ArgumentValueError:
        return ArgumentValueError(
            f"the state has {name}={self._state.get(name)!r:.80}, but {name} must be {wanted}: the state is damaged "
            "or belongs to another object"
        )


def _is_whole(value: Any, least: int | None, most: int | None) -> bool:
    return type(value) is int and (least is None or value >= least) and (most is None or value <= most)
