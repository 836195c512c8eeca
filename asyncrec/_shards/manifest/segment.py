"""`Segment`: an immutable part of a manifest, written by one commit and treated as untrusted input when it is read.

A segment has one line of JSON about its writer and one for each shard. It is created exclusively and never changed.

    {"version": 1, "writer": "6740...", "time": "2026-11-21T03:20:00.123456Z", "shards": 1,
     "remove": ["pages-00000-of-00004.tfrecord"], "removal": 3, "schema": {...} or null, "metadata": {...},
     "closed": false, "abandoned": false}
    {"path": "pages-6740...-000000.tfrecord", "records": 1024, "bytes": 53100, "crc32c": "90ab12cd",
     "end_crc32c": "12cd90ab", "compression": "GZIP",
     "index": {"path": "_index/...", "bytes": 20480, "crc32c": "...", "format": 1},
     "keys": {...} or null, "first": "...Z", "last": "...Z", "committed": "...Z"}

``end_crc32c`` is the checksum of the shard's last 4,096 bytes. It lets a reader notice, without reading all of the
shard, that a different shard now has its name. ``first`` is the time when the writer accepted the shard's first record,
and ``last`` the time when the shard was finished. A writer's closing segment (``"closed": true``) repeats all its
commits, so a reader needs one object per closed writer instead of one per commit. An abandoned job has a tombstone
(``"abandoned": true``) instead. It prevents further commits, and does not repeat the earlier ones. ``removal`` is the
place in the log of removals that the writer won in order to remove or replace shards. Paths are relative to the data
set's folder. ``flushed`` is the last number in the writer's flush log at that time, if it has one. ``progress`` and
``releases`` are the state of sources (`progress`), and are omitted if empty. Unknown members are kept.

``largest`` is the length of the shard's longest record. It is only present if that is more than 256 MiB, the length
that every reader accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.writing.write_batch import PAIR_BYTES, digest_bytes
from asyncrec._shards.manifest.names import check_relative
from asyncrec._shards.manifest.progress import Reached, members_of, progress_from_json, releases_from_json
from asyncrec.errors import ManifestError

# A closing segment of a million shards takes about 500 MB, so a larger object is not a segment.
MAX_SEGMENT_BYTES = 512 << 20

_VERSION = 1
_LEAST_FRAME = 16
_MOST_INFLATION = 1032
# The format that `format_time` writes.
_SORTS = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_CRC = re.compile(r"[0-9a-f]{8}")
# An index is text that DALI reads. A keys file has a 16-byte digest of each key, and in format 2 also of each content.
_FORMATS = {"index": (1,), "keys": (1, 2)}
# Few shards need this member, so it is optional.
_LARGEST = "largest"


def format_time(seconds: float) -> str:
    """Format a time in UTC, to the microsecond, as text that sorts chronologically."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: str) -> float:
    """Parse a time that `format_time` formatted. Return seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The index or the keys of a shard, as listed in the manifest.

    Attributes:
        path: the path, relative to the data set's folder.
        bytes, crc32c: the size and checksum of the object.
    """

    path: str
    bytes: int
    crc32c: int

    def to_json(self, *, format: int = 1) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.bytes, "crc32c": _hexadecimal(self.crc32c), "format": format}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """The entry of one shard in a manifest. ``path`` is relative to the data set's folder.

    In a manifest, the checksums and ``committed`` are always present. A shard that no manifest lists may lack them.
    """

    path: str
    records: int
    bytes: int
    crc32c: int | None
    compression: str
    index: Sidecar | None = None
    keys: Sidecar | None = None
    first: str | None = None
    last: str | None = None
    committed: str = ""
    end_crc32c: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def objects(self) -> tuple[str, ...]:
        """The paths of the shard, and of its index and keys if it has them."""
        return (self.path, *(sidecar.path for sidecar in (self.index, self.keys) if sidecar is not None))

    @property
    def key_bytes(self) -> int:
        """The number of digest bytes per record in the keys file: 16, 32 with content digests, or 0 without keys."""
        return 0 if self.keys is None else digest_bytes(self.keys.bytes, self.records)

    @property
    def max_record_bytes(self) -> int:
        """The limit for readers of the shard: the default limit, or the length of the longest record if greater."""
        largest = self.extra.get(_LARGEST)
        return max(MAX_RECORD_BYTES, largest) if isinstance(largest, int) else MAX_RECORD_BYTES

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "records": self.records,
            "bytes": self.bytes,
            "crc32c": _hexadecimal(self.crc32c),
            "end_crc32c": _hexadecimal(self.end_crc32c),
            "compression": self.compression,
            "index": None if self.index is None else self.index.to_json(),
            "keys": None if self.keys is None else self.keys.to_json(format=2 if self.key_bytes == PAIR_BYTES else 1),
            "first": self.first,
            "last": self.last,
            "committed": self.committed,
            **self.extra,
        }


def noting(largest: int) -> dict[str, int]:
    """Return the optional members for a shard whose longest record has this length; empty if all readers accept it."""
    return {_LARGEST: largest} if largest > MAX_RECORD_BYTES else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A commit: the shards that it added and removed, and the state of its writer."""

    writer: str
    time: str
    add: tuple[ShardEntry, ...] = ()
    remove: tuple[str, ...] = ()
    removal: int | None = None
    schema: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    abandoned: bool = False
    flushed: int = 0
    progress: Mapping[str, Reached] = field(default_factory=dict)
    releases: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the JSON lines, in UTF-8.

        Raises:
            TypeError: the schema or the metadata cannot be encoded as JSON.
        """
        head = {
            "version": _VERSION,
            "writer": self.writer,
            "time": self.time,
            "shards": len(self.add),
            "remove": list(self.remove),
            "removal": self.removal,
            "schema": self.schema,
            "metadata": dict(self.metadata),
            "closed": self.closed,
            "abandoned": self.abandoned,
            **({"flushed": self.flushed} if self.flushed else {}),
            **members_of(self.progress, self.releases),
            **self.extra,
        }
        lines = (head, *(entry.to_json() for entry in self.add))
        return b"".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for line in lines)


def parse_segment(content: bytes, *, name: str) -> Segment:
    """Parse one segment. ``name`` is used in errors. Call this in a worker thread: it takes about 20 us per shard.

    Raises:
        ManifestError: the content is not JSON, lacks a member of a segment, or has an unsupported version; or a path in
            it is absolute, has a scheme, or leads out of the folder.
    """
    head, _, rest = content.partition(b"\n")
    data = _object(head, name)
    version = data.pop("version", None)
    if type(version) is not int or version != _VERSION:
        raise ManifestError(
            f"{name}: the manifest segment has version {version!r}, but this release reads only version {_VERSION}; "
            "use a newer release of asyncrec"
        )
    take = _Taker(name, data)
    lines = rest.splitlines()
    count = _count(take("shards", int), name)
    if count != len(lines) or not content.endswith(b"\n"):
        raise ManifestError(
            f"{name}: the manifest segment is truncated: it has only {len(lines):,} of {count:,} shards"
        )
    return Segment(
        writer=take("writer", str),
        time=_time(take("time", str), name),
        add=tuple(_parse_entry(_object(line, name), name) for line in lines),
        remove=tuple(_relative(path, name) for path in take("remove", list, [])),
        removal=None if (place := take("removal", int, None)) is None else _count(place, name),
        schema=take("schema", dict, None),
        metadata=take("metadata", dict, {}),
        closed=take("closed", bool, False),
        abandoned=take("abandoned", bool, False),
        flushed=_count(take("flushed", int, 0), name),
        progress=progress_from_json(take("progress", dict, {}), name),
        releases=releases_from_json(take("releases", dict, {}), name),
        extra=data,  # the members that were not parsed
    )


def _object(text: bytes, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{name}: the file is not a valid manifest segment: {_first_line(error)}") from error
    if not isinstance(data, dict):
        raise ManifestError(
            f"{name}: the file is not a valid manifest segment: it contains a JSON {type(data).__name__}, not an object"
        )
    return data


class _Taker:
    """A parser that checks members of a decoded JSON object and removes them from it, so that unknown ones are left."""

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
            raise ManifestError(f"{self._name}: the member {member!r} {problem}; it must be of type {kind.__name__}")
        return value


def _parse_entry(data: dict[str, Any], name: str) -> ShardEntry:
    take = _Taker(name, data)
    first = take("first", str, None)
    last = take("last", str, None)
    entry = ShardEntry(
        path=_relative(take("path", str), name),
        records=_count(take("records", int), name),
        bytes=_count(take("bytes", int), name),
        crc32c=_crc(take("crc32c", str), name),
        end_crc32c=_crc(take("end_crc32c", str), name),
        compression=take("compression", str, ""),
        index=_sidecar(data.pop("index", None), "index", name),
        keys=_sidecar(data.pop("keys", None), "keys", name),
        first=None if first is None else _time(first, name),
        last=None if last is None else _time(last, name),
        committed=_time(take("committed", str), name),
        extra=data,  # the members that were not parsed
    )
    if entry.compression not in ("", "GZIP", "ZLIB"):
        raise ManifestError(
            f"{name}: {entry.path}: the compression {entry.compression[:40]!r} is unknown; use a newer release of "
            "asyncrec"
        )
    if is_too_many(entry.records, entry.bytes, compressed=bool(entry.compression)):
        raise ManifestError(
            f"{name}: {entry.path}: {entry.records:,} records do not fit in {entry.bytes:,} bytes; the manifest is "
            "damaged"
        )
    return entry


def is_too_many(records: Any, size: Any, *, compressed: bool) -> Any:
    """Return whether ``records`` records cannot fit in ``size`` stored bytes. Accepts numbers or arrays of numbers.

    Memory for all records is allocated before the shard is read, so a small file must not claim a large count. A frame
    takes at least 16 bytes, and two bits of Deflate data expand to at most 258 bytes.
    """
    return records // (_MOST_INFLATION if compressed else 1) > size // _LEAST_FRAME


def _sidecar(data: Any, kind: str, name: str) -> Sidecar | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise ManifestError(f"{name}: the member {kind!r} is {str(data)[:40]!r}; it must be an object")
    take = _Taker(name, data)
    if (found := take("format", int, 1)) not in _FORMATS[kind]:
        raise ManifestError(
            f"{name}: the member {kind} has format {found}, which this release does not read; use a newer one"
        )
    return Sidecar(
        path=_relative(take("path", str), name),
        bytes=_count(take("bytes", int), name),
        crc32c=_crc(take("crc32c", str), name),
    )


def _relative(path: Any, name: str) -> str:
    """Return the path, or raise ManifestError if it is invalid."""
    if not isinstance(path, str):
        raise ManifestError(f"{name}: the manifest has the path {str(path)[:80]!r}; a path must be text")
    try:
        check_relative(path)
    except ValueError as error:
        raise ManifestError(f"{name}: the manifest has the path {error}") from error
    return path


def _hexadecimal(crc32c: int | None) -> str | None:
    return None if crc32c is None else f"{crc32c:08x}"


def _count(value: int, name: str) -> int:
    if not 0 <= value < 1 << 63:
        raise ManifestError(f"{name}: {value} is not a valid number of records or bytes; the manifest is damaged")
    return value


def _crc(text: str, name: str) -> int:
    if not _CRC.fullmatch(text):
        raise ManifestError(f"{name}: crc32c {text[:20]!r} is not 8 hexadecimal digits")
    return int(text, 16)


def _time(text: str, name: str) -> str:
    """Return the time ``text``, converted to the format of `format_time`."""
    try:
        seconds = parse_time(text)
        return text if _SORTS.fullmatch(text) else format_time(seconds)
    except (ValueError, OverflowError, OSError) as error:
        raise ManifestError(f"{name}: {text[:40]!r} is not a valid time: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
