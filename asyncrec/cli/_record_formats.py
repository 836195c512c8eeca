"""Showing records, for ``head`` and ``cat``: decoded, as JSON lines, hex or text; raw only where no terminal reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from asyncrec.cli._output import clean, print_json, say
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._head import FoundRecord

__all__ = ["FORMATS", "printer"]

FORMATS = ("auto", "example", "json", "hex", "text", "raw")

# Of one value, for people; the other formats show all of it.
_MOST_VALUES = 8
_MOST_CHARACTERS = 200
_HEX_BYTES = 256


def printer(
    format: str, *, lists: Collection[str], only: Collection[str] | None, whole: bool
) -> Callable[[FoundRecord], None]:
    """What writes one record to stdout.

    Args:
        lists: features that are lists in JSON whatever their length.
        only: the features asked for.
        whole: show hex in full length.
    """
    if format not in FORMATS:
        raise UsageError(f"--format is one of {', '.join(FORMATS)}, not {format!r}")
    if format == "raw":
        if sys.stdout.isatty():
            raise UsageError("raw records may hold what a terminal acts on: send them to a file or a program")
        return _raw
    if format == "json":
        return lambda found: _json(found, lists, only)
    if format == "hex":
        return lambda found: _hex(found, whole)
    if format == "text":
        return _text
    return lambda found: _decoded(found, only, required=format == "example")


def _raw(found: FoundRecord) -> None:
    sys.stdout.buffer.write(found.data)


def _json(found: FoundRecord, lists: Collection[str], only: Collection[str] | None) -> None:
    from asyncrec.tools._json_values import to_json

    print_json(to_json(found.data, lists=lists, only=only))


def _text(found: FoundRecord) -> None:
    say(clean(found.data.decode("utf-8", "backslashreplace"), line=True))


def _hex(found: FoundRecord, whole: bool) -> None:
    _title(found)
    data = found.data if whole else found.data[:_HEX_BYTES]
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        say(f"  {at:08x}  {row.hex(' ').ljust(47)}  {text}")
    if len(data) < len(found.data):
        say(f"  ... {len(found.data) - len(data):,} more bytes")


def _decoded(found: FoundRecord, only: Collection[str] | None, *, required: bool) -> None:
    from asyncrec.errors import DecodeError
    from asyncrec.example._codec import decode_sequence_example

    _title(found)
    try:
        context, lists = decode_sequence_example(found.data)
    except DecodeError:
        if required:
            raise
        context, lists = {}, {}
    rows = [(name, *_described(value)) for name, value in sorted(context.items()) if only is None or name in only]
    for name, steps in sorted(lists.items()):
        if only is None or name in only:
            first = _described(steps[0]) if steps else ("", "")
            rows.append((name, f"{len(steps)} steps of {first[0]}", first[1]))
    if not context and not lists:
        say(f"  {_quoted(found.data)}")
    names = max((len(clean(row[0], line=True)) for row in rows), default=0)
    kinds = max((len(row[1]) for row in rows), default=0)
    for name, kind, value in rows:
        say(f"  {clean(name, line=True).ljust(names)}  {kind.ljust(kinds)}  {value}")


def _title(found: FoundRecord) -> None:
    say(f"record {found.number:,} of {clean(found.path, line=True)}, {len(found.data):,} bytes")


def _described(value: Any) -> tuple[str, str]:
    """The type and the values of a feature, for people."""
    if isinstance(value, list):
        kind, texts = "bytes", [_quoted(each) for each in value[:_MOST_VALUES]]
    else:
        kind, texts = str(value.dtype), [str(each) for each in value[:_MOST_VALUES]]
    if len(value) != 1:
        kind += f"[{len(value)}]"
    return kind, " ".join(texts) + (" ..." if len(value) > _MOST_VALUES else "")


def _quoted(data: bytes) -> str:
    """Text in quotation marks where it is text, else hex; cut, with its length."""
    try:
        # A cut may fall into a character: what is left of it is dropped.
        text = data[: 4 * _MOST_CHARACTERS].decode("utf-8", "strict" if len(data) <= 4 * _MOST_CHARACTERS else "ignore")
    except UnicodeDecodeError:
        text = ""
    if data and (not text or "\0" in text or (len(data) > 4 * _MOST_CHARACTERS and "\ufffd" in text)):
        digits = data[: _MOST_CHARACTERS // 4].hex()
        return f"0x{digits}" + (f"... ({len(data):,} bytes)" if len(data) > _MOST_CHARACTERS // 4 else "")
    cut = text[:_MOST_CHARACTERS]
    quoted = clean(json.dumps(cut, ensure_ascii=False))
    return (
        quoted if len(cut) == len(text) and len(data) <= 4 * _MOST_CHARACTERS else f"{quoted}... ({len(data):,} bytes)"
    )
