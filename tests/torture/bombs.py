"""Small malicious files that try to exhaust memory or time. Each is read with limits on memory and CPU time.

The time limit, which is many times longer than a slow machine needs, detects hangs rather than slowdowns.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

import asyncrec
from asyncrec._framing.crc import crc32c, mask, masked_crc32c
from asyncrec._framing.frames import encode_frames
from asyncrec.errors import FormatError, ManifestError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage

Row = sys.modules["torture_row"].Row

_MIB = 1 << 20
_MOST_SECONDS = 120
BAD_MEMBERS = 5000

Problems = list[str]


def framed(records: list[bytes]) -> bytes:
    return b"".join(bytes(buffer) for buffer in encode_frames(records))


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


async def read(storage: Storage, **options: Any) -> tuple[int, int, FormatError | None]:
    """Read ``x``, and return the number of records, the number of damaged ranges, and the error, if any."""
    count = 0
    async with asyncrec.open_reader("x", storage=storage, **options) as reader:
        try:
            async for records in reader.batches():
                count += len(records)
        except FormatError as error:
            return count, len(reader.damage), error
        return count, len(reader.damage), None


async def refused(storage: Storage) -> Problems:
    """Check that the second record, which is too large, raises an error, and that "skip" reads the record after it."""
    count, _, error = await read(storage)
    problems = [] if count == 1 and error is not None else ["it was not refused"]
    count, _, error = await read(storage, on_corrupt="skip")
    return problems if (count, error) == (2, None) else [*problems, f"{count} records of the 2 beside it were read"]


async def all_read(storage: Storage) -> Problems:
    """Check that the only intact record, the last one, is read."""
    count, _, _ = await read(storage, on_corrupt="skip")
    return [] if count == 1 else [f"{count} records were read, and one is whole"]


async def all_members_read(storage: Storage) -> Problems:
    count, _, _ = await read(storage, on_corrupt="skip", compression="GZIP")
    return [] if count == 1 else [f"{count} records were read, and one is whole"]


async def all_of_bad_members_read(storage: Storage) -> Problems:
    count, _, _ = await read(storage, on_corrupt="skip", compression="GZIP")
    return [] if count == BAD_MEMBERS + 1 else [f"{count} records of {BAD_MEMBERS + 1:,} were read"]


def zeros_in_gzip(size: int) -> bytes:
    """Return a GZIP file of a record of ``size`` zeros between two short ones, compressed to a thousandth of that."""
    block = bytes(_MIB)
    stream = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [stream.compress(framed([b"before"]) + header(size))]
    crc = 0
    for _ in range(size // _MIB):
        parts.append(stream.compress(block))
        crc = crc32c(block, crc)
    parts.append(stream.compress(struct.pack("<I", mask(crc)) + framed([b"after"])))
    parts.append(stream.flush())
    return b"".join(parts)


def a_length_of_2_to_the_63() -> bytes:
    return framed([b"before"]) + header(1 << 63) + b"x" * 100 + framed([b"after"])


def empty_members() -> bytes:
    return gzip.compress(b"", mtime=0) * 1_000_000 + gzip.compress(framed([b"last"]))


def members_that_are_none() -> bytes:
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00\x00" * (_MIB // 11) + gzip.compress(framed([b"last"]))


def members_that_end_badly() -> bytes:
    """Return GZIP members with wrong checksums that each decompress to a record, followed by an intact member."""
    member = gzip.compress(framed([b"one"]), mtime=0)
    return (member[:-8] + bytes(8)) * BAD_MEMBERS + gzip.compress(framed([b"last"]))


def lying_headers(size: int, claim: int) -> bytes:
    """Return headers, each claiming bytes that do exist. Checking every claim separately would take too long."""
    return b"".join((header(claim) * (size // 12), bytes(claim + _MIB), framed([b"last"])))


def headers_of_many_claims() -> bytes:
    return b"".join(header(100 + n % 60_000) for n in range(_MIB // 12)) + framed([b"last"])


def nothing_but_damage() -> bytes:
    """Return records of which only the last one has a correct checksum."""
    frame = bytearray(framed([b"x" * 20]))
    frame[-1] ^= 1
    return bytes(frame) * 30_000 + framed([b"last"])


def zeros_that_promise_more() -> bytes:
    """Return a GZIP file of one record of 64 MiB, which ends early."""
    compressor = zlib.compressobj(9, wbits=31)
    pieces = [compressor.compress(header(64 * _MIB)), *(compressor.compress(bytes(_MIB)) for _ in range(63))]
    return b"".join(pieces) + compressor.flush()


async def nothing_read(storage: Storage) -> Problems:
    count, ranges, _ = await read(storage, on_corrupt="skip")
    return [] if (count, ranges) == (0, 1) else [f"{count} records, {ranges} ranges"]


def damage_everywhere() -> bytes:
    """Return records with a stray byte after each one."""
    return (framed([b"x"]) + b"\xff") * (_MIB // 18)


async def all_between_read(storage: Storage) -> Problems:
    count, _, _ = await read(storage, on_corrupt="skip")
    return [] if count == _MIB // 18 else [f"{count:,} records of {_MIB // 18:,} were read"]


async def manifests(storage: Storage) -> Problems:
    """Check that nonsense, deep nesting, and names that lead out of the folder all raise ManifestError."""
    entry = {"path": "p-0.tfrecord", "records": 1, "bytes": 20, "crc32c": "00000000", "end_crc32c": "00000000",
             "compression": "", "index": None, "keys": None, "first": None, "last": None,
             "committed": "2026-11-21T00:00:00.000000Z"}  # fmt: skip

    def segment(**changes: object) -> bytes:
        head = {"version": 1, "writer": "w", "time": "2026-11-21T00:00:00.000000Z", "shards": 1, "remove": [],
                "removal": None, "schema": None, "metadata": {}, "closed": False, "abandoned": False}  # fmt: skip
        return b"".join(json.dumps(line).encode() + b"\n" for line in (head, {**entry, **changes}))

    def named(member: str, name: str) -> bytes:
        sidecar = {"path": name, "bytes": 2, "crc32c": "00000000", "format": 1}
        return segment(**{member: name if member == "path" else sidecar})

    await storage.put("_manifest/p/w-000001.jsonl", named("index", "_index/p-0.tfrecord.index"))
    assert (await asyncrec.read_manifest("p", storage=storage)).records == 1, "below, each is refused for its own fault"
    contents = {
        "10 MB of nonsense": b"nonsense, " * 1_000_000,
        "10 MB of a number": b"1" * 10_000_000,
        "10 MB of a string": b'"' + b"a" * 10_000_000 + b'"',
        "a million arrays": b"[" * 1_000_000,
        "a million objects": b'{"a":' * 1_000_000,
        "a million arrays, closed": b"[" * 1_000_000 + b"]" * 1_000_000,
        "bytes that are no text": b"\xff\xfe" * 1000,
        "a negative count": segment(records=-1),
        "an endless count": segment(records=float("inf")),
        "a count as text": segment(records="many"),
        **{
            f"the {member} {name}": named(member, name)
            for name in ("../p", "a/../../p", "/etc/passwd", "s3://bucket/p", "C:\\p", "", ".", "a\0b")
            for member in ("path", "index", "keys")
            if name or member == "path"
        },
    }
    problems = []
    for what, content in contents.items():
        await storage.put("_manifest/p/w-000001.jsonl", content)
        try:
            await asyncrec.read_manifest("p", storage=storage)
        except ManifestError:
            continue
        except Exception as error:
            problems.append(f"{what}: {error!r}")
        else:
            problems.append(f"{what} was taken for a manifest")
    return problems


@dataclass(frozen=True)
class Bomb:
    """A file, the check to run on it, and the memory that the check may use in addition to the file.

    ``slow`` is whether the check takes seconds, even if only because its allocations are traced.
    """

    what: str
    content: Callable[[], bytes]
    check: Callable[[Storage], Awaitable[Problems]]
    most_memory: int
    slow: bool = False


BOMBS = [
    Bomb("GZIP of one record of 1 GiB of zeros", lambda: zeros_in_gzip(1024 * _MIB), refused, 24 * _MIB, slow=True),
    Bomb("GZIP of one record of 260 MiB of zeros", lambda: zeros_in_gzip(260 * _MIB), refused, 24 * _MIB),
    Bomb("a length of 2 ** 63", a_length_of_2_to_the_63, refused, 4 * _MIB),
    Bomb("a million empty GZIP members", empty_members, all_members_read, 8 * _MIB, slow=True),
    Bomb("a megabyte of beginnings of GZIP members", members_that_are_none, all_members_read, 8 * _MIB),
    Bomb(
        "5,000 GZIP members with wrong checksums", members_that_end_badly, all_of_bad_members_read, 8 * _MIB, slow=True
    ),
    # The reader must wait for all 64 MiB of a claimed record, and keeps two copies if the bytes are not a record.
    Bomb(
        "a megabyte of headers that claim 64 MiB each",
        lambda: lying_headers(_MIB, 64 * _MIB),
        all_read,
        160 * _MIB,
        slow=True,
    ),
    Bomb("64 KiB of headers that claim 4 MiB each", lambda: lying_headers(64 << 10, 4 * _MIB), all_read, 40 * _MIB),
    Bomb("a megabyte of headers that claim up to 60 KB each", headers_of_many_claims, all_read, 16 * _MIB, slow=True),
    Bomb("30,000 records with wrong checksums", nothing_but_damage, all_read, 16 * _MIB, slow=True),
    Bomb("GZIP of a record of 64 MiB that ends before", zeros_that_promise_more, nothing_read, 96 * _MIB),
    Bomb("a megabyte with damage every 18 bytes", damage_everywhere, all_between_read, 32 * _MIB, slow=True),
    Bomb("manifests of nonsense, of depth, and out of their folder", bytes, manifests, 160 * _MIB),
]


def detonate(bomb: Bomb) -> Problems:
    async def run() -> Problems:
        storage = MemoryStorage()
        await storage.put("x", bomb.content())
        tracemalloc.start()
        begun = time.process_time()
        try:
            problems = await bomb.check(storage)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if time.process_time() - begun > _MOST_SECONDS:
            problems.append(f"it took {time.process_time() - begun:.0f} seconds")
        if peak > bomb.most_memory:
            problems.append(f"it took {peak / _MIB:.1f} MiB of memory, and {bomb.most_memory / _MIB:.0f} are its cap")
        return problems

    try:
        problems = anyio.run(run)
    except Exception as error:
        problems = [repr(error)]
    return [f"{bomb.what}: {problem}" for problem in problems]


def bombs(seed: int, rounds: int) -> Row:
    """Run each bomb once. ``rounds`` is ignored, because nothing here is random."""
    lost = 0
    for bomb in BOMBS:
        if problems := detonate(bomb):
            lost += 1
            print(*problems, sep="\n", flush=True)
    return Row("small files that ask for much memory, time or trust", len(BOMBS), lost, seed)


ROUNDS = [bombs]
