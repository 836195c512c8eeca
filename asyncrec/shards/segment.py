"""One commit of a data set: an immutable segment of its manifest, and how to read one without trusting it.

A segment is one JSON object, created exclusively, never changed:

    {"version": 1, "writer": "6740...", "time": "2026-11-21T03:20:00.123456Z",
     "add": [{"path": "pages-6740...-000000.tfrecord", "records": 1024, "bytes": 53100, "crc32c": "90ab12cd",
              "compression": "GZIP", "index": "_index/...", "keys": "_keys/..." or null,
              "first": "...Z", "last": "...Z", "committed": "...Z"}],
     "remove": ["pages-00000-of-00004.tfrecord"], "schema": {...} or null, "metadata": {...}, "closed": false}

``first`` is when the writer took the shard's first record, ``last`` when the shard ended. A writer's closing segment
(``"closed": true``) repeats everything it committed, so that a reader needs one object per closed writer, not one per
commit. Paths are relative to the data set's folder. Unknown members are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from asyncrec.errors import ManifestError

__all__ = ["MAX_SEGMENT_BYTES", "Segment", "ShardEntry", "format_time", "parse_segment", "parse_time"]

# A closing segment of a million shards has about 400 MB; what is larger than this is not ours.
MAX_SEGMENT_BYTES = 512 << 20

_VERSION = 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


def format_time(seconds: float) -> str:
    """UTC, to the microsecond, so that text sorts as time does."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard as the manifest has it. ``path``, ``index`` and ``keys`` are relative to the data set's folder."""

    path: str
    records: int
    bytes: int
    crc32c: int | None
    compression: str
    index: str | None = None
    keys: str | None = None
    first: str | None = None
    last: str | None = None
    committed: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "records": self.records,
            "bytes": self.bytes,
            "crc32c": None if self.crc32c is None else f"{self.crc32c:08x}",
            "compression": self.compression,
            "index": self.index,
            "keys": self.keys,
            "first": self.first,
            "last": self.last,
            "committed": self.committed,
            **self.extra,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What one commit added and removed."""

    writer: str
    time: str
    add: tuple[ShardEntry, ...] = ()
    remove: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The JSON text, UTF-8.

        Raises:
            TypeError: schema or metadata hold what JSON does not.
        """
        content = {
            "version": _VERSION,
            "writer": self.writer,
            "time": self.time,
            "add": [entry.to_json() for entry in self.add],
            "remove": list(self.remove),
            "schema": self.schema,
            "metadata": dict(self.metadata),
            "closed": self.closed,
            **self.extra,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def parse_segment(content: bytes, *, name: str) -> Segment:
    """Read one segment; ``name`` is for the errors.

    Raises:
        ManifestError: it is no JSON object, lacks what a segment has, is of a later version, or names a path that is
            absolute, has a scheme, or leads out of the folder.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{name}: not a manifest segment: {_first_line(error)}") from error
    if not isinstance(data, dict):
        raise ManifestError(f"{name}: not a manifest segment: a JSON {type(data).__name__}, where an object should be")
    version = data.pop("version", None)
    if version != _VERSION:
        raise ManifestError(
            f"{name}: version {version!r}, and this release reads version {_VERSION}; a newer asyncrec may read it"
        )
    take = _Taker(name, data)
    segment = Segment(
        writer=take("writer", str),
        time=_time(take("time", str), name),
        add=tuple(_parse_entry(entry, name) for entry in take("add", list, [])),
        remove=tuple(_relative(path, name) for path in take("remove", list, [])),
        schema=take("schema", dict, None),
        metadata=take("metadata", dict, {}),
        closed=take("closed", bool, False),
    )
    return replace(segment, extra=data)


class _Taker:
    """Takes members out of a decoded JSON object, of the type they must have; what is left is unknown and kept."""

    _REQUIRED = object()

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self._name = name
        self._data = data

    def __call__(self, member: str, kind: type, default: Any = _REQUIRED) -> Any:
        value = self._data.pop(member, default)
        if value is default and default is not self._REQUIRED:
            return value
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            problem = "is missing" if value is self._REQUIRED else f"is {str(value)[:40]!r}"
            raise ManifestError(f"{self._name}: {member!r} {problem}, where a {kind.__name__} should be")
        return value


def _parse_entry(data: Any, name: str) -> ShardEntry:
    if not isinstance(data, dict):
        raise ManifestError(f"{name}: 'add' holds {str(data)[:40]!r}, where an object should be")
    take = _Taker(name, data)
    crc = take("crc32c", str, None)
    index = take("index", str, None)
    keys = take("keys", str, None)
    first = take("first", str, None)
    last = take("last", str, None)
    entry = ShardEntry(
        path=_relative(take("path", str), name),
        records=_count(take("records", int), name),
        bytes=_count(take("bytes", int), name),
        crc32c=None if crc is None else _crc(crc, name),
        compression=take("compression", str, ""),
        index=None if index is None else _relative(index, name),
        keys=None if keys is None else _relative(keys, name),
        first=None if first is None else _time(first, name),
        last=None if last is None else _time(last, name),
        committed=_time(take("committed", str), name),
    )
    if entry.compression not in ("", "GZIP", "ZLIB"):
        raise ManifestError(f"{name}: {entry.path}: unknown compression {entry.compression[:40]!r}")
    return replace(entry, extra=data)


def _relative(path: Any, name: str) -> str:
    """A path that stays within the folder, or a ManifestError."""
    if (
        not isinstance(path, str)
        or not path
        or path.startswith(("/", "\\"))
        or "\0" in path
        or _SURROGATE.search(path)  # which no store can have in a name
        or _SCHEME.match(path)
        or any(part in ("", ".", "..") for part in path.replace("\\", "/").split("/"))
        or path[1:2] == ":"
    ):
        raise ManifestError(
            f"{name}: names {str(path)[:80]!r}; a path in a manifest is relative and stays in its folder"
        )
    return path


def _count(value: int, name: str) -> int:
    if not 0 <= value < 1 << 63:
        raise ManifestError(f"{name}: {value} is no count of records or bytes")
    return value


def _crc(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9a-f]{8}", text):
        raise ManifestError(f"{name}: crc32c {text[:20]!r} is not 8 hexadecimal digits")
    return int(text, 16)


def _time(text: str, name: str) -> str:
    """The time in the one form that sorts as text."""
    try:
        return format_time(parse_time(text))
    except (ValueError, OverflowError, OSError) as error:
        raise ManifestError(f"{name}: {text[:40]!r} is no time: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
