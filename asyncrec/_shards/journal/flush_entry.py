"""`FlushEntry`: an object that contains records flushed by a writer without a disk.

An entry is one small object of a writer's flush log, ``_flush/<set>/<writer>-000001.frames``. Its first line is JSON:

    {"version": 1, "writer": "6740...", "since": 1, "compression": "GZIP", "bytes": 4711, "crc32c": "90ab12cd",
     "sections": [{"shard": "pages-6740...-000003.tfrecord", "records": 12, "bytes": 5310, "keys": true,
                   "positions": {"topic/3": [4, 917]}}]}

The rest of the object contains, for each section, the digests of the keys and then the frames of the records. It is
compressed if the shards are. If ``keys`` is true, the section has a 16-byte digest for each record; if it is 2, the
section has 32 bytes per record, because it also includes a digest of each record's content. ``bytes`` and ``crc32c``
describe the bytes after the first line. ``since`` is the number of the first entry that this entry repeats; readers
ignore that entry and all later ones before this one. A shard's records follow the order of the entries. A frame that
does not fit continues in the next entry.

``positions`` maps each source to its turn and to the last position whose records were added since the shard's previous
section. It is absent if the records have no source. It is null if the records of one position continue in the next
section; such a section is only read if a later section contains the last of those records.

A *fence* consists of the first line only, with ``"fence": true`` and ``by``. It uses up the number that the writer
needs next, so a listing made afterwards shows everything that the writer will ever have flushed (docs/protocol.md). The
line is padded with spaces to `FENCE_BYTES`, so that its size in a listing distinguishes it from nearly all entries.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncrec._framing.compression.engines import compressobj
from asyncrec._framing.compression.options import CompressionOptions
from asyncrec._framing.crc import crc32c
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES, Positions
from asyncrec._shards.journal.positions_file import positions_in
from asyncrec.errors import ManifestError
from asyncrec.storage._base import Buffer

_VERSION = 1
# Compression must keep up with the writer. This is isal's fastest level, four times as fast as zlib's fastest level.
_PACKED = CompressionOptions(type="ZLIB", level=1)
# Smaller than one part of an upload to any store. Not all stores can create a larger object exclusively.
MOST_ENTRY = 4 << 20
# Longer than a line with the longest possible writer id and host name.
FENCE_BYTES = 1024
# The number of bytes that one section takes up in the first line, not counting the shard's name.
_SECTION_BYTES = 80
# The number of bytes that one position takes up in the first line, not counting the source's name.
_POSITION_BYTES = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Records of one shard, in order.

    Attributes:
        shard: the name of the shard for which the records were written.
        records: the number of records that end in this section. The section has one digest for each of them, or no
            digests.
        digests: the digests of the keys, or `None` if no record has a key.
        positions: the progress of the sources; `None` if the records of one position continue in the next section.
        frames: the bytes of the frames. The last frame may continue in the shard's next section.
        content: the total size of the frames and digests, in bytes; all of them are kept in memory.
        size: the size of the section in an uncompressed entry, including its description in the first line.
    """

    shard: str
    records: int
    digests: bytes | None
    frames: Sequence[Buffer]
    positions: Positions | None = field(default_factory=dict)
    content: int = field(init=False)
    size: int = field(init=False)

    @property
    def width(self) -> int:
        """The number of digest bytes per record."""
        return len(self.digests or b"") // self.records if self.records else KEY_BYTES

    def __post_init__(self) -> None:
        content = sum(map(len, self.frames)) + len(self.digests or b"")
        object.__setattr__(self, "content", content)
        line = 2 * len(self.shard.encode()) + _SECTION_BYTES + size_of_positions(self.positions)
        object.__setattr__(self, "size", content + line)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushEntry:
    """One object of a flush log.

    Attributes:
        writer: the id of the writer.
        since: the number of the first entry that this entry repeats, or its own number if it does not repeat any.
        sections: the records. A fence has no sections.
        fenced_by: the process that created this fence; ``""`` if the entry is not a fence.
    """

    writer: str
    since: int
    sections: tuple[Section, ...] = ()
    fenced_by: str = ""

    def encode(self, *, compression: str = "") -> bytes:
        """Encode the entry. Blocks for about 1 ms per megabyte, or about 3 ms if the entry is compressed."""
        parts = [part for each in self.sections for part in (each.digests or b"", *each.frames)]
        if compression:
            packer = compressobj(_PACKED)
            content = b"".join([*map(packer.compress, parts), packer.flush()])
        else:
            content = b"".join(parts)
        line: dict[str, Any] = {"version": _VERSION, "writer": self.writer, "since": self.since}
        if self.fenced_by:
            line |= {"fence": True, "by": self.fenced_by}
        line |= {
            "compression": compression,
            "bytes": len(content),
            "crc32c": f"{crc32c(content):08x}",
            "sections": [
                {
                    "shard": each.shard,
                    "records": each.records,
                    "bytes": sum(map(len, each.frames)),
                    "keys": each.digests is not None and (2 if each.width == PAIR_BYTES else True),
                    **({} if each.positions == {} else {"positions": each.positions}),
                }
                for each in self.sections
            ],
        }
        head = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()
        if self.fenced_by:
            head = head.ljust(FENCE_BYTES - 1)
        return head + b"\n" + content


def size_of_positions(positions: Positions | None) -> int:
    """Return the maximum number of bytes that these positions can take up in the first line of an entry."""
    return sum(2 * len(source.encode()) + _POSITION_BYTES for source in positions or ())


def parse_flush_entry(data: bytes, *, name: str) -> FlushEntry:
    """Parse an entry. ``name`` is used in error messages. Blocks.

    Raises:
        ManifestError: the entry is damaged, or has an unsupported version.
    """
    line, newline, content = data.partition(b"\n")
    try:
        head = json.loads(line)
        version, writer, since = head["version"], head["writer"], head["since"]
        if type(version) is not int or version != _VERSION:
            raise ManifestError(
                f"{name}: the flush entry has version {version!r}, but this release reads only version {_VERSION}; "
                "use a newer release of asyncrec"
            )
        fenced_by = head["by"] if head.get("fence") is True else ""
        described = [(each["shard"], each["records"], each["bytes"], each["keys"]) for each in head["sections"]]
        positions = [positions_in(each.get("positions", {})) for each in head["sections"]]
        sound = (
            isinstance(writer, str)
            and isinstance(fenced_by, str)
            and newline
            and all(
                type(each) is int and each >= 0 for each in (since, *(n for _, k, b, _ in described for n in (k, b)))
            )
            and all(isinstance(shard, str) and str(keys) in ("False", "True", "2") for shard, _, _, keys in described)
            and (len(content), f"{crc32c(content):08x}") == (head["bytes"], head["crc32c"])
        )
        size = sum(KEY_BYTES * records * keys + length for _, records, length, keys in described)
        sound = sound and size <= 4 * MOST_ENTRY  # no writer creates a larger one, and parsing it could exhaust memory
        if head["compression"] and sound:
            content = zlib.decompressobj().decompress(content, size + 1)
        if not sound or len(content) != size:
            raise ManifestError(f"{name}: the flush entry is damaged: its content does not match its first line")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise ManifestError(f"{name}: the flush entry is damaged: {str(error)[:80]}") from error
    sections, at = [], 0
    view = memoryview(content)
    for (shard, records, length, keys), own in zip(described, positions, strict=True):
        digests = bytes(view[at : at + KEY_BYTES * records * keys]) if keys else None
        at += KEY_BYTES * records * keys
        frames = (view[at : at + length],)
        sections.append(Section(shard=shard, records=records, digests=digests, frames=frames, positions=own))
        at += length
    return FlushEntry(writer=writer, since=since, sections=tuple(sections), fenced_by=fenced_by)
