"""Reads a data set of asyncrec without asyncrec: written from docs/format.md alone, in the standard library of Python.

    python examples/independent_reader.py snapshot FOLDER/NAME         what the data set holds, as JSON
    python examples/independent_reader.py records FOLDER/NAME          each record in order, a line of JSON each
    python examples/independent_reader.py number FOLDER/NAME 0 17      records by their numbers, by way of the index
    python examples/independent_reader.py key FOLDER/NAME TEXT         records by their keys
    python examples/independent_reader.py file FILE [GZIP|ZLIB]        the records of one TFRecord file

It reads local folders, holds a shard in memory, and is slow, for its CRC-32C is Python. What the page says is to be
refused ends it with status 1, and a line that begins with "refused".
"""

import base64
import hashlib
import json
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

Json = dict[str, Any]
MOST_RECORD, MOST_SEGMENT = 256 << 20, 512 << 20
TABLE = list(range(256))
for _ in range(8):
    TABLE = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in TABLE]

# What each member of a JSON object has to be: of a type, or a text of a form. A path stays within the folder.
CRC, TIME = "[0-9a-f]{8}", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z"
PART = r"(?!\.{1,2}(?:[/\\]|\Z))[^/\\\0\ud800-\udfff]+"
PATH = rf"(?![A-Za-z][A-Za-z0-9+.-]*://)(?!.:){PART}(?:[/\\]{PART})*"
KINDS: Json = {"path": PATH, "records": int, "bytes": int, "crc32c": CRC, "end_crc32c": CRC, "committed": TIME}
KINDS |= {"compression": "|GZIP|ZLIB", "index": dict, "keys": dict, "writer": ".*", "time": TIME, "shards": int}
KINDS |= {"closed": bool, "abandoned": bool, "remove": list, "schema": dict, "metadata": dict}
ABSENT: Json = {"compression": "", "index": None, "keys": None, "schema": None, "metadata": {}}
ABSENT |= {"closed": False, "abandoned": False, "remove": []}
SHARD = ("path", "records", "bytes", "crc32c", "end_crc32c", "compression", "index", "keys", "committed")
HEAD = ("writer", "time", "closed", "abandoned", "remove", "schema", "metadata")


class Refused(ValueError):
    """What was asked for must not be read."""


def check(holds: object, reason: str) -> None:
    if not holds:
        raise Refused(reason)


def crc32c(data: bytes, *, mask: bool = False) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF if mask else crc


def inflate(data: bytes, compression: str, name: str) -> bytes:
    """The frames of a file, or of a GZIP file from a member on."""
    parts = [b"" if compression else data]
    while compression and data:
        stream = zlib.decompressobj(31 if compression == "GZIP" else 15)
        parts.append(stream.decompress(data))
        check(stream.eof, f"{name}: its compressed data is cut short")
        check(compression == "GZIP" or not stream.unused_data, f"{name}: data follows its ZLIB stream")
        data = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def frames(data: bytes, name: str, most: int = MOST_RECORD, at: int = 0) -> Iterator[bytes]:
    """The records whose frames begin at a byte, and behind it."""
    while at < len(data):
        check(len(data) >= at + 12, f"{name}: the frame at byte {at} is cut short")
        length, checksum = struct.unpack_from("<QI", data, at)
        check(crc32c(data[at : at + 8], mask=True) == checksum, f"{name}: the length at byte {at} is damaged")
        check(length <= most, f"{name}: the record at byte {at} has {length} bytes")
        record, end = data[at + 12 : at + 12 + length], at + 12 + length
        check(len(data) >= end + 4, f"{name}: the frame at byte {at} is cut short")
        (checksum,) = struct.unpack_from("<I", data, end)
        check(crc32c(record, mask=True) == checksum, f"{name}: the record at byte {at} is damaged")
        yield record
        at = end + 4


def is_kind(value: Any, kind: Any) -> bool:
    if isinstance(kind, str):
        return isinstance(value, str) and re.fullmatch(kind, value, re.DOTALL) is not None
    return type(value) is kind and (kind is not int or 0 <= value < 1 << 63)


def members(line: Any, names: tuple[str, ...], where: str) -> Json:
    """The members of an object, each checked; of those that may be absent, or null, what that means."""
    check(isinstance(line, dict), f"{where}: not a JSON object")
    found = {name: line.get(name, ABSENT.get(name)) for name in names}
    for name, value in found.items():
        right = is_kind(value, KINDS[name]) or (value is None and ABSENT.get(name, value) is ABSENT.get(name, 0))
        check(right, f"{where}: {name!r} is {value!r:.80}")
    return found


def shard_of(line: Any, where: str) -> Json:
    """What a line says of a shard."""
    shard = members(line, SHARD, where)
    for kind in ("index", "keys"):
        if shard[kind] is not None:
            check(shard[kind].get("format", 1) == 1, f"{where}: {kind} of another format")
            shard[kind] = members(shard[kind], ("path", "bytes", "crc32c"), where)
    too_many = shard["records"] // (1032 if shard["compression"] else 1) > shard["bytes"] // 16
    check(not too_many, f"{where}: {shard['records']} records in {shard['bytes']} bytes")
    largest = line.get("largest")
    return shard | {"most": max(MOST_RECORD, largest if is_kind(largest, int) else 0)}


def commit_of(head: Any, lines: Iterable[Any], where: str) -> Json:
    """What a segment says, or a checkpoint of it."""
    commit = members(head, HEAD, where)
    check(all(is_kind(path, PATH) for path in commit["remove"]), f"{where}: a path could lead out of the folder")
    return commit | {"shards": [shard_of(line, where) | {"writer": commit["writer"]} for line in lines]}


def read_segment(place: str, name: str) -> Json:
    with open(os.path.join(place, name), "rb") as file:
        text = file.read(MOST_SEGMENT + 1)
    check(len(text) <= MOST_SEGMENT and text.endswith(b"\n"), f"{name}: too large, or cut off")
    head, *lines = map(json.loads, text.split(b"\n")[:-1])
    check(isinstance(head, dict) and head.get("version") == 2, f"{name}: not a segment of version 2")
    check(members(head, ("shards",), name)["shards"] == len(lines), f"{name}: it has more or fewer shards")
    return commit_of(head, lines, name)


def read_manifest(folder: str, name: str) -> list[Json]:
    """The commits that count, of the newest checkpoint and of the segments that it does not cover."""
    place = os.path.join(folder, "_manifest", name)
    names = sorted(os.listdir(place))
    commits, covered = read_checkpoint(place, name, names)
    new = [each for each in names if re.fullmatch(r"[^_~.].*\.jsonl", each) and not covered(each)]
    closing = [read_segment(place, each) for each in new if each.endswith("-closed.jsonl")]
    repeated = {each["writer"] for each in closing if not each["abandoned"]}
    commits = [each for each in commits if each["writer"] not in repeated] + closing
    well = {each["writer"] for each in commits if each["closed"] and not each["abandoned"]}
    single = [each for each in new if not each.endswith("-closed.jsonl") and each.rpartition("-")[0] not in well]
    commits += [read_segment(place, each) for each in single]
    check(not all(each["abandoned"] for each in commits), f"{name}: nothing was ever committed")
    return commits


def read_checkpoint(place: str, name: str, names: list[str]) -> tuple[list[Json], Callable[[str], bool]]:
    return [], lambda name: False


def snapshot_of(commits: list[Json]) -> list[Json]:
    """The shards that are in the data set, in order."""
    order = itemgetter("committed", "writer", "records", "bytes", "crc32c")
    added = sorted((shard for commit in commits for shard in commit["shards"]), key=order)
    last = {shard["path"]: shard for shard in added}
    removed = dict(sorted((path, commit["time"]) for commit in commits for path in commit["remove"]))
    return [last[path] for path in sorted(last, key=str.encode) if removed.get(path, "") <= last[path]["committed"]]


def content_of(folder: str, entry: Json) -> bytes:
    """The bytes of a shard or of a sidecar, if they are what the manifest says."""
    with open(os.path.join(folder, entry["path"]), "rb") as file:
        data = file.read(entry["bytes"] + 1)
    right = len(data) == entry["bytes"] and f"{crc32c(data):08x}" == entry["crc32c"]
    check(right, f"{entry['path']}: its size or its checksum is not what the manifest says")
    return data


def records_of(folder: str, shard: Json) -> list[bytes]:
    data = inflate(content_of(folder, shard), shard["compression"], shard["path"])
    records = [*frames(data, shard["path"], shard["most"])]
    check(len(records) == shard["records"], f"{shard['path']}: {len(records)} records; {shard['records']} are listed")
    return records


def keys_of(folder: str, shard: Json) -> list[bytes]:
    data = content_of(folder, shard["keys"]) if shard["keys"] else bytes(16 * shard["records"])
    check(len(data) == 16 * shard["records"], f"{shard['path']}: its keys are not 16 bytes for each record")
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def record_at(folder: str, shard: Json, number: int) -> bytes:
    """One record, by as little of its shard as its index allows."""
    try:
        offset, size, *member = map(int, content_of(folder, shard["index"] or {}).splitlines()[number].split())
    except (OSError, LookupError, ValueError):  # no index, or one that does not fit
        return records_of(folder, shard)[number]
    with open(os.path.join(folder, shard["path"]), "rb") as file:
        file.seek(max(shard["bytes"] - 4096, 0))
        right = f"{crc32c(file.read()):08x}" == shard["end_crc32c"] and file.tell() == shard["bytes"]
        check(right, f"{shard['path']}: its size or its end is not what the manifest says")
        file.seek(member[0] if member else 0 if shard["compression"] else offset)
        data = inflate(file.read() if shard["compression"] else file.read(size), shard["compression"], shard["path"])
    return next(frames(data, shard["path"], shard["most"], offset if shard["compression"] else 0))


def described(commits: list[Json], shards: list[Json]) -> Json:
    identity, schema, metadata = 0, None, Json()
    for shard in shards:
        text = f"{shard['path']}\0{shard['records']}\0{shard['bytes']}\0{int(shard['crc32c'], 16)}"
        identity ^= int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
    owners = {shard["writer"] for shard in shards}
    for commit in sorted(commits, key=itemgetter("time", "writer")):
        metadata |= commit["metadata"]
        schema = commit["schema"] if commit["schema"] and commit["writer"] in owners else schema
    return {"id": f"{identity:032x}", "schema": schema, "metadata": metadata, "shards": shards}


def main(command: str, path: str, *rest: str) -> None:
    def tell(record: bytes, **more: Any) -> None:
        print(json.dumps(more | {"record": base64.b64encode(record).decode()}))

    if command == "file":
        with open(path, "rb") as file:
            for record in frames(inflate(file.read(), "".join(rest), path), path):
                tell(record)
        return
    folder, name = os.path.split(path)
    commits = read_manifest(folder, name)
    shards = snapshot_of(commits)
    if command == "snapshot":
        print(json.dumps(described(commits, shards)))
    elif command == "records":
        for shard in shards:
            for record, key in zip(records_of(folder, shard), keys_of(folder, shard), strict=True):
                tell(record, shard=shard["path"], key=key.hex() if any(key) else None)
    elif command == "number":
        places = [(shard, number) for shard in shards for number in range(shard["records"])]
        for text in rest:
            tell(record_at(folder, *places[int(text)]))
    elif command == "key":
        found: dict[bytes, Any] = {}
        for shard in sorted(shards, key=lambda shard: shard["committed"]):
            for number, key in enumerate(keys_of(folder, shard)):
                found.setdefault(key, (shard, number))
        for text in rest:
            tell(record_at(folder, *found[hashlib.blake2b(text.encode(), digest_size=16).digest()]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, LookupError, OSError, RecursionError, zlib.error) as error:
        sys.exit(f"refused: {error}")
