"""Text and JSON for a terminal or a pipe.

What comes out of records, names and messages may hold anything, escape sequences among it. So no control character of
theirs is ever written: `clean` is applied to all text, and JSON is ASCII. (``cat --format raw`` alone writes bytes as
they are, and refuses a terminal.)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["clean", "human_bytes", "pairs", "print_json", "say", "table"]

# C0 but for the line feed, DEL, C1; line and paragraph separators, marks that turn the direction of writing, the byte
# order mark, and halves of surrogate pairs, which no encoding takes.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_NAMED = {"\t": "\\t", "\r": "\\r", "\n": "\\n"}


def clean(text: str, *, line: bool = False) -> str:
    """``text`` with what a terminal would act on written as an escape; with ``line`` line feeds as well."""
    if line:
        text = text.replace("\n", "\\n")
    text = _UNSAFE.sub(_escape, text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say(text: str = "") -> None:
    """A line, or several, on stdout."""
    sys.stdout.write(clean(text) + "\n")


def print_json(value: Any) -> None:
    """One JSON value on a line of its own, ASCII only."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n")


def pairs(values: Mapping[str, object]) -> None:
    """Names and values in two columns; what is `None` is left out."""
    given = {name: value for name, value in values.items() if value is not None}
    width = max(map(len, given), default=0)
    for name, value in given.items():
        first, *rest = str(value).split("\n")
        say(f"{name.ljust(width)}  {first}")
        for line in rest:
            say(f"{' ' * width}  {line}")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as what stands in them; those of numbers are aligned to the right."""
    given = [list(row) for row in rows]
    cells = [[clean(_cell(value), line=True) for value in row] for row in given]
    widths = [max(len(title), *(len(row[at]) for row in cells), 0) for at, title in enumerate(header)]
    right = [bool(given) and all(isinstance(row[at], int | float) for row in given) for at in range(len(header))]

    def show(row: Sequence[str]) -> None:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        say("  ".join(padded).rstrip())

    show(header)
    for row in cells:
        show(row)


def human_bytes(size: int) -> str:
    """``1.5 MiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes any size")


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
