"""Reads a data set without asyncrec. Written from docs/format*.md, with Python's standard library alone.

    python independent_reader.py snapshot FOLDER/NAME         the contents of the data set, as JSON
    python independent_reader.py records FOLDER/NAME          all records in order, one line of JSON each
    python independent_reader.py number FOLDER/NAME 0 17      records by number, with the index
    python independent_reader.py key FOLDER/NAME TEXT         records by key

It reads local folders. If the format requires a refusal, it prints "refused: REASON" and exits with 1.
"""

import hashlib
import json
import re
import sys
import zlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
MOST_RECORD, MOST_SEGMENT, COUNT = 256 << 20, 512 << 20, range(1 << 63)
TABLE = list(range(256))
for _ in range(8):
    TABLE = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in TABLE]
# Valid values of each member: a regular expression, a range, an object or a type; in a tuple, with the default.
CRC, TIME = "[0-9a-f]{8}", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z"
PART = r"(?!\.{1,2}(?:[/\\]|\Z))[^/\\\0\ud800-\udfff]+"
PATH = rf"(?![A-Za-z][A-Za-z0-9+.-]*://)(?!.:){PART}(?:[/\\]{PART})*"  # stays within the folder
SIDECAR: Json = {"path": PATH, "bytes": COUNT, "crc32c": CRC, "format": (range(1, 2), 1)}
SHARD: Json = {"path": PATH, "records": COUNT, "bytes": COUNT, "crc32c": CRC, "end_crc32c": CRC, "committed": TIME}
SHARD |= {"compression": ("|GZIP|ZLIB", ""), "since": (f"|{TIME}", ""), "largest": (COUNT, 0), "index": (SIDECAR, None)}
SHARD |= {"keys": (SIDECAR | {"format": (range(1, 3), 1)}, None), "joined": (rf"(?:[^ ]+ [0-9]+ {TIME}\n)*", "")}
HEAD: Json = {"writer": ".*", "time": TIME, "closed": (bool, False), "abandoned": (bool, False), "remove": (list, [])}
HEAD |= {"schema": (dict, None), "metadata": (dict, {})}


def check(holds: object, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def inflate(data: bytes, compression: str, name: str) -> bytes:
    parts = [b"" if compression else data]
    while compression and data:
        stream = zlib.decompressobj(31 if compression == "GZIP" else 15)
        parts.append(stream.decompress(data))
        check(stream.eof and (compression == "GZIP" or not stream.unused_data), f"{name}: it is cut off, or goes on")
        data = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def records_in(data: bytes, name: str, largest: int = 0) -> list[bytes]:
    at, records = 0, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        for begin, end in ((at, at + 8), (at + 12, at + 12 + length)):
            crc = crc32c(data[begin:end])
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            check(masked.to_bytes(4, "little") == data[end : end + 4], f"{name}: damaged or cut off at byte {begin}")
            check(length <= max(MOST_RECORD, largest), f"{name}: the record at byte {at} has {length} bytes")
        records.append(data[at + 12 : end])
        at = end + 4
    return records


def members(line: Any, kinds: Json, where: str) -> Json:
    check(isinstance(line, dict), f"{where}: not a JSON object")
    found = Json()
    for name, kind in kinds.items():
        kind, *absent = kind if isinstance(kind, tuple) else [kind]
        value = found[name] = line.get(name, *absent)
        right = type(value) is kind or (value is None and absent == [None])
        if isinstance(kind, str):
            right = isinstance(value, str) and re.fullmatch(kind, value, re.DOTALL) is not None
        elif isinstance(kind, range):
            right = type(value) is int and value in kind
        elif isinstance(kind, dict) and value is not None:
            found[name], right = members(value, kind, where), True
        check(right, f"{where}: {name!r} is {value!r:.80}")
    return found


def commit_of(head: Any, lines: list[Any], where: str) -> Json:
    commit = members(head, HEAD, where)
    for path in commit["remove"]:
        members({"path": path}, {"path": PATH}, where)
    shards = commit["shards"] = [members(line, SHARD, where) | {"writer": commit["writer"]} for line in lines]
    for shard in shards:
        too_many = shard["records"] // (1032 if shard["compression"] else 1) > shard["bytes"] // 16
        check(not too_many, f"{where}: {shard['records']} records in {shard['bytes']} bytes")
    return commit


def read_segment(path: Path) -> Json:
    text = path.read_bytes()
    check(len(text) <= MOST_SEGMENT and text.endswith(b"\n"), f"{path}: too large, or cut off")
    head, *lines = map(json.loads, text.split(b"\n")[:-1])
    members(head, {"version": range(1, 2), "shards": range(len(lines), len(lines) + 1)}, str(path))
    return commit_of(head, lines, str(path))


def read_checkpoint(place: Path, number: int) -> tuple[list[Json], dict[str, int]]:
    name = json.loads((place / f"~checkpoint-{number:06d}.json").read_bytes())["checkpoint"]
    check(re.fullmatch(rf"~checkpoint-{number:06d}~[A-Za-z0-9]{{1,64}}\.jsonl\.gz", name), f"{name}: of another number")
    top, *lines, end = map(json.loads, inflate((place / name).read_bytes(), "GZIP", name).splitlines())
    members(top, {"kind": "checkpoint", "version": range(1, 2), "number": range(number, number + 1)}, name)
    check(end["kind"] == "end", f"{name}: not a whole checkpoint")
    tables: dict[str, dict[int, Json]] = {kind: {} for kind in end["rows"]}
    for line in lines:
        table, first = tables[line.pop("kind")], next(iter(line.values()))
        columns = [column if isinstance(column, list) else [column] * len(first) for column in line.values()]
        table |= enumerate((dict(zip(line, row, strict=True)) for row in zip(*columns, strict=True)), len(table))
    check({kind: len(table) for kind, table in tables.items()} == end["rows"], f"{name}: it lacks rows")
    for row in [*tables["commits"].values(), *tables["shards"].values()]:
        time = datetime(1970, 1, 1) + timedelta(microseconds=row["time" if "time" in row else "committed"])
        row["time"] = time.isoformat(timespec="microseconds") + "Z"
    values = {number: row["value"] for number, row in tables["values"].items()} | {-1: None}
    for row in tables["commits"].values():
        row |= {"writer": tables["writers"][row["writer"]]["writer"], "closed": row["flags"] & 1 > 0, "remove": []}
        row |= {"abandoned": row["flags"] & 2 > 0, "schema": values[row["schema"]], "shards": []}
        row["metadata"] = values[row["metadata"]] or {}
    for row in tables["removed"].values():
        tables["commits"][row["commit"]]["remove"].append(row["path"])
    for row in tables["shards"].values():
        head, shard = tables["commits"][row["commit"]], (values[row["extra"]] or {}) | row
        shard |= {"crc32c": f"{row['crc32c']:08x}", "end_crc32c": f"{row['end_crc32c']:08x}", "committed": row["time"]}
        for kind in ("index", "keys"):
            how, ours = row[kind], re.sub("(-[^-]*-of-[^-]*)$", rf"-{head['writer']}\1", row["path"])
            path = ours if how == -3 else row["path"]
            path = tables["names"][how]["path"] if how >= 0 else f"_{kind}/{path}.{kind}"
            told = {"path": path, "bytes": row[f"{kind}_bytes"], "crc32c": f"{row[f'{kind}_crc32c']:08x}"}
            shard[kind] = None if how == -1 else told
        head["shards"].append(shard | {"compression": ("", "GZIP", "ZLIB")[row["flags"] & 3]})
    covered = {row["writer"]: row["last"] for row in tables["logs"].values()}
    return [commit_of(head, head["shards"], name) for head in tables["commits"].values()], covered


def read_manifest(folder: Path, name: str) -> list[Json]:
    place = folder / "_manifest" / name
    names = sorted(each.name for each in place.iterdir())
    numbers = [int(each[12:-5]) for each in names if re.fullmatch(r"~checkpoint-[0-9]{6,18}\.json", each)]
    commits, covered = read_checkpoint(place, max(numbers)) if numbers else ([], dict[str, int]())
    found = [re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_]*)-([0-9]{6,18})\.jsonl", each) for each in names]
    for log in sorted({each[1] for each in found if each} - {each["writer"] for each in commits if each["closed"]}):
        numbers = [int(each[2]) for each in found if each and each[1] == log]
        new = range(covered.get(log, 0) + 1, max(numbers) + 1)
        check(set(new).issubset(numbers), f"{name}: the log {log} has a gap")
        read = [read_segment(place / f"{log}-{number:06d}.jsonl") for number in new]
        check(not any(each["closed"] for each in read[:-1]), f"{name}: the log {log} goes on behind its end")
        well = bool(read) and read[-1]["closed"] and not read[-1]["abandoned"]  # then it repeats the others
        commits = [each for each in commits if each["writer"] != log or not well] + read[-1 if well else 0 :]
    check(any(each["shards"] or each["closed"] > each["abandoned"] for each in commits), f"{name}: nothing committed")
    return commits


def snapshot_of(commits: list[Json]) -> list[Json]:
    by = ("committed", "writer", "records", "bytes", "crc32c")
    added = [shard for commit in commits for shard in commit["shards"]]
    last = {shard["path"]: shard for shard in sorted(added, key=lambda shard: [shard[key] for key in by])}
    removed = dict(sorted((path, commit["time"]) for commit in commits for path in commit["remove"]))
    return [last[path] for path in sorted(last, key=str.encode) if removed.get(path, "") <= last[path]["committed"]]


def content_of(folder: Path, entry: Json) -> bytes:
    data = Path(folder, entry["path"]).read_bytes()
    check(len(data) == entry["bytes"] and f"{crc32c(data):08x}" == entry["crc32c"], f"{entry['path']}: not as listed")
    return data


def records_of(folder: Path, shard: Json) -> list[bytes]:
    data = inflate(content_of(folder, shard), shard["compression"], shard["path"])
    records = records_in(data, shard["path"], shard["largest"])
    check(len(records) == shard["records"], f"{shard['path']}: {len(records)} records; {shard['records']} are listed")
    return records


def keys_of(folder: Path, shard: Json) -> list[bytes]:
    data = content_of(folder, shard["keys"]) if shard["keys"] else bytes(16 * shard["records"])
    width = 32 if len(data) == 32 * shard["records"] > 0 else 16  # 32 with digests of contents, ignored here
    check(len(data) == width * shard["records"], f"{shard['path']}: its keys are not 16 or 32 bytes for each record")
    return [data[at : at + 16] for at in range(0, len(data), width)]


def record_at(folder: Path, shard: Json, number: int) -> bytes:
    try:
        offset, size, *member = map(int, content_of(folder, shard["index"] or {}).splitlines()[number].split())
    except (OSError, LookupError, ValueError):  # no index, or one that does not match the shard
        return records_of(folder, shard)[number]
    with Path(folder, shard["path"]).open("rb") as file:
        file.seek(max(shard["bytes"] - 4096, 0))
        right = f"{crc32c(file.read()):08x}" == shard["end_crc32c"] and file.tell() == shard["bytes"]
        check(right, f"{shard['path']}: its size or its end is not what the manifest says")
        start, offset = ((*member, 0)[0], offset) if shard["compression"] else (offset, 0)
        file.seek(start)
        data = inflate(file.read(), shard["compression"], shard["path"])[offset : offset + size]
    return records_in(data, shard["path"], shard["largest"])[0]


def times_of(shard: Json) -> list[str]:
    """When each record was committed. The records of a joined shard come from several earlier shards."""
    parts = [line.split(" ") for line in shard["joined"].splitlines()]
    if sum(int(count) for _, count, _ in parts) != shard["records"]:
        parts = [["", shard["records"], shard["since"] or shard["committed"]]]
    return [time for _, count, time in parts for _ in range(int(count))]


def described(commits: list[Json], shards: list[Json]) -> Json:
    identity, schema, metadata = 0, None, Json()
    for shard in shards:
        text = f"{shard['path']}\0{shard['records']}\0{shard['bytes']}\0{int(shard['crc32c'], 16)}"
        identity ^= int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
    owners = {shard["writer"] for shard in shards}
    for commit in sorted(commits, key=lambda commit: (commit["time"], commit["writer"])):
        metadata |= commit["metadata"]
        schema = commit["schema"] if commit["schema"] and commit["writer"] in owners else schema
    return {"id": f"{identity:032x}", "schema": schema, "metadata": metadata, "shards": shards}


def main(command: str, path: Path, *rest: str) -> None:
    folder, commits, told = path.parent, read_manifest(path.parent, path.name), []
    shards = snapshot_of(commits)
    places = [(shard, number) for shard in shards for number in range(shard["records"])]
    if command == "snapshot":
        told = [described(commits, shards)]
    elif command == "number":
        told = [{"record": record_at(folder, *places[int(text)])} for text in rest]
    elif command == "records":
        for shard in shards:
            for record, key in zip(records_of(folder, shard), keys_of(folder, shard), strict=True):
                told.append({"shard": shard["path"], "key": key.hex() if any(key) else None, "record": record})
    elif command == "key":
        keys = [pair for shard in shards for pair in zip(keys_of(folder, shard), times_of(shard), strict=True)]
        for digest in [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in rest]:
            found = min((time, at) for at, (key, time) in enumerate(keys) if key == digest)
            told.append({"record": record_at(folder, *places[found[1]])})
    sys.stdout.writelines(json.dumps(line, default=bytes.hex) + "\n" for line in told)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError, zlib.error) as error:
        sys.exit(f"refused: {error}")
