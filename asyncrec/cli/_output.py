"""Functions that print text and JSON to a terminal or a pipe.

On a terminal, lines are wrapped to its width (at least 40 columns), and coloured unless NO_COLOR is set. In a file or a
pipe, lines are neither wrapped nor coloured.

Records, names and messages may contain any characters, including escape sequences. To keep control characters from
reaching the terminal, all text is passed through `clean`, and JSON is ASCII. Only ``cat --format raw`` writes bytes
unchanged, and it refuses to write to a terminal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Literal

from asyncrec.errors import StorageError

Style = Literal["", "title", "name", "good", "bad"]

# The SGR parameters for bold, cyan, green and bold red.
_STYLES = {"title": "1", "name": "36", "good": "32", "bad": "1;31"}
# The minimum width in columns. A terminal that reports a smaller width is treated as this wide.
_NARROWEST = 40

# Control characters (C0 except the line feed, DEL and C1), line and paragraph separators, marks that change the
# direction of text, the byte order mark, and surrogates, which cannot be encoded.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_NAMED = {"\t": "\\t", "\r": "\\r", "\n": "\\n"}


def clean(text: str, *, line: bool = False) -> str:
    """Return ``text`` with its control characters escaped. With ``line``, line feeds are also escaped."""
    if line:
        text = text.replace("\n", "\\n")
    text = _UNSAFE.sub(_escape, text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def write(text: str) -> None:
    """Write ``text`` to stdout.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
        StorageError: the text cannot be written, for example because the disk is full.
    """
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"standard output: {error.strerror}") from error


def say(text: str = "", style: Style = "") -> None:
    """Print one or more lines on stdout, wrapped to the terminal's width."""
    width = _width()
    for line in clean(text).split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        for piece in _fitted(line.lstrip(" "), width, indent, indent):
            write(_styled(piece, style) + "\n")


def print_json(value: Any) -> None:
    """Print a JSON value on a line of its own, in ASCII."""
    write(json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n")


def pairs(values: Mapping[str, object]) -> None:
    """Print names and values in two columns. Names with the value `None` are omitted."""
    given = {name: value for name, value in values.items() if value is not None}
    width = max(map(len, given), default=0)
    for name, value in given.items():
        entry([(name, width)], str(value))


def entry(columns: Sequence[tuple[str, int]], text: str, indent: int = 0) -> None:
    """Print names, each padded to its width, followed by ``text``, with its later lines indented to match."""
    head = " " * indent + "".join(f"{clean(name, line=True).ljust(size)}  " for name, size in columns)
    width = _width()
    below = " " * (len(head) if width is None or 2 * len(head) <= width else indent + 4)
    first, *rest = clean(text).split("\n")
    lines = [
        *_fitted(first, width, head, below),
        *(piece for line in rest for piece in _fitted(line, width, below, below)),
    ]
    write(_styled(lines[0][: len(head)], "name") + lines[0][len(head) :] + "\n")
    for line in lines[1:]:
        write(line + "\n")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as their longest cells. Columns of numbers are right-aligned.

    If the terminal is too narrow, each row is printed as several lines with one value each.
    """
    given = [list(row) for row in rows]
    cells = [[clean(_cell(value), line=True) for value in row] for row in given]
    widths = [max(len(title), *(len(row[at]) for row in cells), 0) for at, title in enumerate(header)]
    right = [bool(given) and all(isinstance(row[at], int | float) for row in given) for at in range(len(header))]
    width = _width()
    if cells and width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        _stack(header, cells)
        return

    def show(row: Sequence[str], style: Style = "") -> None:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        write(_styled("  ".join(padded).rstrip(), style) + "\n")

    show(header, "title")
    for row in cells:
        show(row)


def plural(count: int, what: str) -> str:
    """Return a count with its noun, such as ``1 record`` or ``2,000 records``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def human_bytes(size: int) -> str:
    """Return a size with a unit, such as ``1.5 MiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes any size")


def _width() -> int | None:
    """Return the width of the terminal in columns; `None` if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def _styled(text: str, style: Style) -> str:
    """Return clean text in a style, or unchanged if stdout is not a terminal or colours are disabled."""
    if not style or not text or not sys.stdout.isatty():
        return text
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _fitted(line: str, width: int | None, head: str, below: str) -> list[str]:
    """Return ``head`` and ``line``, wrapped between words if too long. Paths are kept whole, so they can be copied."""
    whole = (head + line).rstrip()
    if width is None or len(whole) <= width:
        return [whole]
    pieces = wrap(
        line, width, initial_indent=head, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )
    return pieces or [whole]


def _stack(header: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    names = max(len(title) for title in header[1:]) if len(header) > 1 else 0
    for number, row in enumerate(cells):
        if number:
            write("\n")
        say(row[0], "title")
        for title, cell in zip(header[1:], row[1:], strict=True):
            if cell:
                entry([(title, names)], cell, indent=2)


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
