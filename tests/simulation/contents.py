"""Read the contents of a world's disks and store from outside the world, with an independent implementation."""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from asyncrec._framing.crc import masked_crc32c

__all__ = ["FENCE", "Shard", "frames", "is_ended", "shards_of", "tree", "whole_frames"]


# The bytes that identify a fence in a flush log.
FENCE = b'"fence":true'


class Broken(Exception):
    """A file is damaged."""


@dataclass
class Shard:
    """A shard in a manifest: its records, the faults of its files, and the shards that were joined into it."""

    path: str
    records: list[bytes]
    keys: list[bytes] | None
    problems: list[str]
    joined: str = ""

    def parts(self) -> list[tuple[str, list[bytes]]]:
        """Return the name and the records of each shard that was joined into this one, or of this one itself."""
        found, at = [], 0
        start = self.path.partition("-")[0]
        for line in self.joined.splitlines():
            name, count, _ = line.split()
            found.append((f"{start}-{name}.tfrecord", self.records[at : at + int(count)]))
            at += int(count)
        return found or [(self.path, self.records)]


def tree(world: Any, folder: str) -> dict[str, bytes]:
    """Return the files below a machine's folder or a store's prefix, by their relative paths."""
    if folder.startswith("/"):
        found: dict[str, bytes] = {}

        def walk(node: Any, prefix: str) -> None:
            for name, below in sorted(node.names.items()):
                if below.folder:
                    walk(below, f"{prefix}{name}/")
                else:
                    found[prefix + name] = bytes(below.data)

        with contextlib.suppress(OSError):
            walk(world.machines[folder.split("/")[1]].find(folder), "")
        return found
    prefix = folder.partition("://")[2].partition("/")[2].rstrip("/") + "/"
    objects = world.bucket.objects
    return {key[len(prefix) :]: objects[key].data for key in sorted(objects) if key.startswith(prefix)}


def is_ended(world: Any, path: str, writer: str) -> bool:
    """Return whether a store's writer has ended, or another process has ended the writer's log or is about to."""
    folder, _, name = path.rpartition("/")
    mine = (f"_manifest/{name}/{writer}-", f"_flush/{name}/{writer}-")
    files = {key: data for key, data in tree(world, folder).items() if key.startswith(mine)}
    return any(FENCE in data or b'"closed":true' in data for data in files.values())


def whole_frames(data: bytes) -> list[bytes]:
    """Return the complete records of an uncompressed file whose end may be torn."""
    records, at = [], 0
    while (record := _frame(data, at)) is not None:
        records.append(record)
        at += 16 + len(record)
    return records


def _frame(data: bytes, at: int) -> bytes | None:
    head = data[at : at + 12]
    if len(head) < 12 or masked_crc32c(head[:8]) != struct.unpack("<I", head[8:])[0]:
        return None
    (size,) = struct.unpack("<Q", head[:8])
    record, tail = data[at + 12 : at + 12 + size], data[at + 12 + size : at + 16 + size]
    whole = len(tail) == 4 and masked_crc32c(record) == struct.unpack("<I", tail)[0]
    return record if whole else None


def frames(data: bytes, kind: str) -> list[bytes]:
    """Return the records of a file.

    Raises:
        Broken: the file is damaged or incomplete.
    """
    try:
        data = gzip.decompress(data) if kind == "GZIP" and data else zlib.decompress(data) if kind == "ZLIB" else data
    except (OSError, EOFError, zlib.error) as error:
        raise Broken(f"it does not decompress: {error}") from error
    records = whole_frames(data)
    if (end := sum(16 + len(record) for record in records)) != len(data):
        raise Broken(f"no whole record at {end}")
    return records


def shards_of(files: dict[str, bytes], manifest: Any) -> list[Shard]:
    """Return the shards of a manifest, with the faults found by comparing them with their entries."""
    shards = []
    for entry in manifest.shards:
        problems: list[str] = []
        records: list[bytes] = []
        keys = None
        data = files.get(entry.path)
        if data is None:
            problems.append(f"{entry.path} is in the manifest and not there")
        else:
            if len(data) != entry.bytes or (entry.crc32c is not None and crc32c(data) != entry.crc32c):
                problems.append(f"{entry.path} has other bytes than the manifest says")
            try:
                records = frames(data, entry.compression)
            except Broken as error:
                problems.append(f"{entry.path}: {error}")
            else:
                if len(records) != entry.records:
                    problems.append(f"{entry.path} has {len(records)} records, the manifest says {entry.records}")
        if entry.index is not None and entry.index.path not in files:
            problems.append(f"{entry.index.path} is in the manifest and not there")
        elif entry.index is not None and not _agrees(files[entry.index.path], records, entry.compression):
            problems.append(f"{entry.index.path} is not of these {len(records)} records")
        if entry.keys is not None:
            if entry.keys.path not in files:
                problems.append(f"{entry.keys.path} is in the manifest and not there")
            else:
                content = files[entry.keys.path]
                width = 32 if len(content) == 32 * len(records) else 16
                keys = [content[at : at + 16] for at in range(0, len(content), width)]
                if len(content) != width * len(records):
                    problems.append(f"{entry.keys.path} has {len(keys)} keys for {len(records)} records")
        shards.append(Shard(entry.path, records, keys, problems, entry.extra.get("joined", "")))
    return shards


def _agrees(index: bytes, records: list[bytes], kind: str) -> bool:
    """Return whether an index gives the correct length and, for uncompressed files, offset of each record."""
    lines = [line.split() for line in index.decode("ascii", "replace").splitlines()]
    if [line[1:2] for line in lines] != [[str(len(record) + 16)] for record in records]:
        return False
    at = 0
    for line, record in zip(lines, records, strict=True):
        if kind != "GZIP" and line[0] != str(at):
            return False
        at += len(record) + 16
    return True
