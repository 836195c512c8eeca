"""`ColumnParts`: rows of columns arrive in small parts, and become whole columns without being held twice.

Small parts are joined some at a time: only large arrays go back to the system when they are let go of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.texts import TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

_JOINED_AT_ONCE = 64


class ColumnParts:
    """The parts of a column of texts and of columns of numbers, in their order."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        """``kinds`` are the types of the columns of numbers, by name."""
        self._kinds = kinds
        self._small: list[tuple[TextColumn, dict[str, NDArray[Any]]]] = []
        self._texts: list[TextColumn] = []
        self._numbers: dict[str, list[NDArray[Any]]] = {name: [] for name in kinds}

    def add(self, texts: TextColumn, numbers: dict[str, NDArray[Any]]) -> None:
        """Add rows."""
        self._small.append((texts, numbers))
        if len(self._small) == _JOINED_AT_ONCE:
            self._join()

    def whole(self) -> tuple[TextColumn, dict[str, NDArray[Any]]]:
        """Return all rows. Once: what they were in is let go of, column by column."""
        self._join()
        texts = TextColumn.joined(self._texts) if self._texts else TextColumn.of(())
        self._texts.clear()
        numbers = {}
        for name, kind in self._kinds.items():
            parts = self._numbers.pop(name)
            numbers[name] = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, kind)])
        return texts, numbers

    def _join(self) -> None:
        if not self._small:
            return
        self._texts.append(TextColumn.joined([texts for texts, _ in self._small]))
        for name, parts in self._numbers.items():
            parts.append(np.concatenate([numbers[name] for _, numbers in self._small]))
        self._small.clear()
