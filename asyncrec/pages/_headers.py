"""Convert a page's headers to lines of ``Name: value``, and look up the value of a header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Headers: TypeAlias = "bytes | str | Mapping[Any, Any] | Iterable[tuple[Any, Any]]"


def header_lines(headers: Headers) -> bytes:
    """Return headers in the form in which a page stores them: lines of ``Name: value``, separated by line feeds."""
    if isinstance(headers, str | bytes):
        return b"\n".join(_encoded(headers).strip().splitlines())
    pairs: Iterable[tuple[Any, Any]] = headers.items() if isinstance(headers, Mapping) else headers
    flat: list[tuple[bytes, bytes]] = []
    for name, value in pairs:
        said = name if type(name) is bytes else _encoded(name)
        if isinstance(value, list | tuple):
            flat += [(said, each if type(each) is bytes else _encoded(each)) for each in value]
        else:
            flat.append((said, value if type(value) is bytes else _encoded(value)))
    lines = b"\n".join([name + b": " + value for name, value in flat])
    if lines.count(b"\n") >= len(flat) or b"\r" in lines:
        # A line break within a name or a value would start another header.
        return b"\n".join([_one_line(name) + b": " + _one_line(value) for name, value in flat])
    return lines


def _one_line(text: bytes) -> bytes:
    return b" ".join(text.splitlines())


def _encoded(text: Any) -> bytes:
    if isinstance(text, bytes):
        return text
    return str(text).encode("utf-8", "surrogateescape")


def header_of(lines: bytes, name: bytes) -> str:
    """Return the value of the first header named ``name`` (in lower case), or ``""`` if no header has this name."""
    for line in lines.split(b"\n"):
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip().decode("utf-8", "replace")
    return ""


def charset_of(content_type: str) -> str:
    """Return the charset of a Content-Type in lower case, or ``""`` if it has no charset."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return ""
