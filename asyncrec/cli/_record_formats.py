"""`Printer` prints records for ``head`` and ``cat``: decoded, or as JSON lines, hex, text or raw bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asyncrec.cli._output import clean, entry, plural, print_json, say
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._head import FoundRecord

FORMATS = ("auto", "example", "json", "hex", "text", "raw")

# How much of a value the human-readable formats show. The other formats show complete values.
_MOST_VALUES = 8
_MOST_CHARACTERS = 200
_HEX_BYTES = 256


class Printer:
    """Prints records to stdout.

    Args:
        schema: the schema of the data set, which determines the order of the features, which of them are shown as text,
            and which of them are lists in JSON even with a single value.
        only: the requested features. Raw, text and hex show the values of a single feature instead of the record.
        whole: whether to show hex in full.

    Raises:
        UsageError: the format is unknown, cannot be shown on a terminal, or cannot show several features.
    """

    def __init__(
        self, format: str, *, schema: Mapping[str, Any] | None, only: Collection[str] | None, whole: bool
    ) -> None:
        if format not in FORMATS:
            raise UsageError(f"--format must be one of {', '.join(FORMATS)}, not {format!r}")
        if format == "raw" and sys.stdout.isatty():
            raise UsageError(
                "raw records can contain control characters for the terminal; redirect the output to a file or a "
                "program"
            )
        self._feature = None
        if only is not None and format in ("raw", "text", "hex"):
            if len(only) > 1:
                raise UsageError(f"--format {format} shows a single feature; pass --feature once, or use --format json")
            (self._feature,) = only
        self._format = format
        self._schema = schema
        self._only = only
        self._whole = whole
        self._features: set[str] = set()  # the features found in the records, if ``only`` is passed

    def show(self, found: FoundRecord) -> None:
        """Print one record."""
        if self._only is not None:
            self._features |= _features_of(found.data)
        if self._feature is not None:
            self._of_feature(found, self._feature)
        elif self._format == "raw":
            sys.stdout.buffer.write(found.data)
        elif self._format == "json":
            self._json(found)
        elif self._format == "hex":
            _hex(found, self._whole)
        elif self._format == "text":
            say(clean(found.data.decode("utf-8", "backslashreplace"), line=True))
        else:
            self._decoded(found)

    def _of_feature(self, found: FoundRecord, name: str) -> None:
        """Print the values of one feature: raw bytes unchanged, text with one value on each line, hex with a title."""
        for value in _values_of(found.data, name):
            if isinstance(value, bytes):
                if self._format == "raw":
                    sys.stdout.buffer.write(value)
                elif self._format == "hex":
                    _hex(replace(found, data=value), self._whole)
                else:
                    say(clean(value.decode("utf-8", "backslashreplace"), line=True))
            elif self._format == "text":
                say(str(value))
            else:
                raise UsageError(f"the feature {name!r} holds numbers; use --format text or json")

    def end(self, path: str) -> None:
        """Check, after the last record, that the requested features exist.

        Raises:
            ValueError: some records have features, but no record has a requested feature.
        """
        for name in sorted(self._only or ()):
            if self._features and name not in self._features:
                from asyncrec.example._by_name import unknown_feature

                raise unknown_feature(name, self._features, path)

    def _json(self, found: FoundRecord) -> None:
        from asyncrec.tools._json_values import lists_of, to_json

        print_json(to_json(found.data, lists=lists_of(self._schema), only=self._only))

    def _decoded(self, found: FoundRecord) -> None:
        from asyncrec.errors import DecodeError
        from asyncrec.example._codec import decode_sequence_example

        _title(found)
        try:
            context, lists = decode_sequence_example(found.data)
        except DecodeError:
            if self._format == "example":
                raise
            context, lists = {}, {}
        if not context and not lists:
            say(f"  {_quoted(found.data)}")
        order = {name: at for at, name in enumerate(self._known())}
        names = sorted(context, key=lambda name: (order.get(name, len(order)), name))
        empty = [name for name in names if self._format == "auto" and self._only is None and _is_empty(context[name])]
        shown = [name for name in names if name not in empty]
        rows = [(name, *_described(context[name], self._is_text(name))) for name in shown]
        for name, steps in sorted(lists.items()):
            first = _described(steps[0], False) if steps else ("", "")
            rows.append((name, f"{len(steps)} steps of {first[0]}", first[1]))
        rows = [row for row in rows if self._only is None or row[0] in self._only]
        widest = max((len(clean(row[0], line=True)) for row in rows), default=0)
        kinds = max((len(row[1]) for row in rows), default=0)
        for name, kind, value in rows:
            entry([(name, widest), (kind, kinds)], value, indent=2)
        if empty:
            say(f"  {plural(len(empty), 'empty feature')} not shown; --format example shows all")

    def _known(self) -> Mapping[str, Any]:
        """Return the features of the schema in their order."""
        features = (self._schema or {}).get("features")
        return features if isinstance(features, Mapping) else {}

    def _is_text(self, name: str) -> bool:
        said = self._known().get(name)
        return isinstance(said, Mapping) and said.get("dtype") == "str"


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not any(value)


def _features_of(record: bytes) -> set[str]:
    from asyncrec.errors import DecodeError
    from asyncrec.example._codec import decode_sequence_example

    try:
        context, lists = decode_sequence_example(record)
    except DecodeError:
        return set()
    return {*context, *lists}


def _values_of(record: bytes, name: str) -> list[Any]:
    """Return the values of a feature, or of all steps of a feature list, or an empty list if the record has neither."""
    from asyncrec.errors import DecodeError
    from asyncrec.example._codec import decode_sequence_example

    try:
        context, lists = decode_sequence_example(record)
    except DecodeError:
        return []
    steps = [context[name]] if name in context else lists.get(name, [])
    return [value for step in steps for value in (step if isinstance(step, list) else step.tolist())]


def _hex(found: FoundRecord, whole: bool) -> None:
    _title(found)
    data = found.data if whole else found.data[:_HEX_BYTES]
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        say(f"  {at:08x}  {row.hex(' ').ljust(47)}  {text}")
    if len(data) < len(found.data):
        say(f"  ... {len(found.data) - len(data):,} more bytes")


def _title(found: FoundRecord) -> None:
    say(f"record {found.number:,} (in {clean(found.path, line=True)}), {plural(len(found.data), 'byte')}", "title")


def _described(value: Any, is_text: bool) -> tuple[str, str]:
    """Return the type and the values of a feature as human-readable text."""
    if isinstance(value, list):
        kind, texts = "str" if is_text else "bytes", [_quoted(each) for each in value[:_MOST_VALUES]]
    else:
        kind, texts = str(value.dtype), [str(each) for each in value[:_MOST_VALUES]]
    if len(value) != 1:
        kind += f"[{len(value)}]"
    return kind, " ".join(texts) + (" ..." if len(value) > _MOST_VALUES else "")


def _quoted(data: bytes) -> str:
    """Return bytes as quoted text if possible, otherwise as hex. Truncate long values and append their length."""
    try:
        # Truncation may split a character, so ignore an incomplete character at the end.
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
