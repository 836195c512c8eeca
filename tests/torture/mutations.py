"""Files damaged at random by flips, cuts, insertions, swaps, zeroed pages, garbage in front, and false headers.

Every unit that is still intact in the damaged file must be salvaged, in order, and no record that was never in the file
may be returned. No file may take 5 seconds or much memory. By contract, a record whose header is at least half intact
extends as far as the header says if another record begins there, so the units within it may be lost.

For each round of the other tests, 200 files are mutated, all in this process, because the code does no I/O.
"""

from __future__ import annotations

import gzip
import random
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from asyncrec._framing.crc import length_of, masked_crc32c
from asyncrec._framing.damage import Damage, DamageLog
from asyncrec._framing.frames import encode_frames
from asyncrec._framing.salvage.frames import FrameSalvager
from asyncrec._framing.salvage.members import MemberSalvager

Row = sys.modules["torture_row"].Row

_MOST_SECONDS = 5
_MAX_RECORD = 1 << 20

# One file in this many is read with tracemalloc, which is several times slower.
_TRACED = 50
_MOST_MEMORY = 4 << 20

_Piece = tuple[int, int] | bytes  # a byte range of the original, or new bytes


def framed(records: list[bytes]) -> bytes:
    return b"".join(bytes(buffer) for buffer in encode_frames(records))


@dataclass
class Original:
    """A file before it is damaged. ``units`` are the frames or members that must be salvaged if they stay intact."""

    data: bytes
    units: list[tuple[int, int, list[bytes]]]
    known: set[bytes]


def draw_records(source: random.Random, most: int) -> tuple[list[bytes], set[bytes]]:
    """Return records, and all that may be salvaged, which are more because some records contain frames themselves."""
    records: list[bytes] = []
    known: set[bytes] = set()
    same = source.randrange(300) if source.random() < 0.2 else None  # equal sizes make ends coincide
    for _ in range(source.randrange(1, most)):
        kind = source.random()
        size = same if same is not None else source.choice((0, 1, 16, 100, 100, 300, 300, 2000))
        if kind < 0.1:
            inner = [source.randbytes(source.randrange(60)) for _ in range(source.randrange(1, 6))]
            known.update(inner)
            records.append(
                source.randbytes(source.randrange(20)) + framed(inner) + source.randbytes(source.randrange(9))
            )
        elif kind < 0.2:
            records.append(bytes(size))
        elif kind < 0.21:
            records.append(source.randbytes(40_000))
        else:
            records.append(source.randbytes(size))
    known.update(records)
    return records, known


def mutate(source: random.Random, original: Original) -> tuple[bytes, list[_Piece]]:
    pieces: list[_Piece] = [(0, len(original.data))]
    for _ in range(source.choice((1, 1, 1, 2, 3, 6))):
        source.choice(_MUTATIONS)(source, original, pieces)
    data = b"".join(piece if isinstance(piece, bytes) else original.data[piece[0] : piece[1]] for piece in pieces)
    return data, pieces


def _size(pieces: list[_Piece]) -> int:
    return sum(len(piece) if isinstance(piece, bytes) else piece[1] - piece[0] for piece in pieces)


def _split(pieces: list[_Piece], place: int) -> int:
    """Split the pieces at this byte, unless one begins there, and return the index of the piece that begins there."""
    for number, piece in enumerate(pieces):
        size = len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]
        if place == 0:
            return number
        if place < size:
            if isinstance(piece, bytes):
                pieces[number : number + 1] = [piece[:place], piece[place:]]
            else:
                pieces[number : number + 1] = [(piece[0], piece[0] + place), (piece[0] + place, piece[1])]
            return number + 1
        place -= size
    return len(pieces)


def _range(source: random.Random, pieces: list[_Piece], most: int) -> tuple[int, int]:
    size = _size(pieces)
    begin = source.randrange(size + 1)
    return begin, min(size, begin + source.randrange(1, source.choice((2, 20, most))))


def _replace(original: Original, pieces: list[_Piece], begin: int, end: int, change: Callable[[bytes], bytes]) -> None:
    first = _split(pieces, begin)
    last = _split(pieces, end)
    old = b"".join(
        piece if isinstance(piece, bytes) else original.data[piece[0] : piece[1]] for piece in pieces[first:last]
    )
    pieces[first:last] = [new] if (new := change(old)) else []


def _flip(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    size = _size(pieces)
    if size:
        at = source.randrange(size)
        _replace(original, pieces, at, at + 1, lambda old: bytes([old[0] ^ 1 << source.randrange(8)]))


def _cut(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    _replace(original, pieces, *_range(source, pieces, 3000), lambda old: b"")


def _cut_off(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    size = _size(pieces)
    _replace(original, pieces, source.randrange(size + 1), size, lambda old: b"")


def _insert(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    if source.random() < 0.5:
        new = source.randbytes(source.randrange(1, 200))
    else:  # bytes of the file itself
        begin = source.randrange(len(original.data) + 1)
        new = original.data[begin : begin + source.randrange(1, 500)]
    at = source.randrange(_size(pieces) + 1)
    _replace(original, pieces, at, at, lambda old: new)


def _swap(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    places = sorted(source.randrange(_size(pieces) + 1) for _ in range(4))
    a, b, c, d = (_split(pieces, place) for place in places)
    # Each split changes the numbers of later pieces, so determine the numbers again after all splits.
    a, b, c, d = (_split(pieces, place) for place in places)
    pieces[a:d] = [*pieces[c:d], *pieces[b:c], *pieces[a:b]]


def _zero(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    size = _size(pieces)
    page = source.choice((64, 512, 4096))
    begin = source.randrange(size + 1) // page * page
    _replace(original, pieces, begin, min(begin + page, size), lambda old: bytes(len(old)))


def _garbage_in_front(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    front = source.choice((source.randbytes(source.randrange(1, 100)), b"\x1f\x8b\x08\x00" * 5, b"\x78\x9c", bytes(20)))
    _replace(original, pieces, 0, 0, lambda old: front)


def _lie(source: random.Random, original: Original, pieces: list[_Piece]) -> None:
    """Write a header with a valid checksum but a wrong length, at the start of a record or anywhere else."""
    size = _size(pieces)
    starts = [begin for begin, _, _ in original.units if begin + 12 <= size]
    at = source.choice(starts) if starts and source.random() < 0.7 else source.randrange(size + 1)
    length = struct.pack("<Q", source.choice((0, source.randrange(400), source.randrange(100_000), 2**20, 2**63)))
    header = length + struct.pack("<I", masked_crc32c(length))
    original.known.add(length)  # after a header for 8 bytes, this header is also a record with its checksum
    _replace(original, pieces, at, min(at + 12, size), lambda old: header)


_MUTATIONS = [_flip, _flip, _cut, _cut_off, _insert, _swap, _zero, _garbage_in_front, _lie]


def untouched(original: Original, pieces: list[_Piece]) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield the units that are intact in the mutated file, with their positions in it."""
    # Join pieces that are adjacent both in the original and in the mutated file.
    joined: list[_Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else b""
        if not isinstance(piece, bytes) and not isinstance(last, bytes) and last[1] == piece[0]:
            joined[-1] = (last[0], piece[1])
        else:
            joined.append(piece)
    place = 0
    for piece in joined:
        if isinstance(piece, bytes):
            place += len(piece)
            continue
        for begin, end, records in original.units:
            if piece[0] <= begin and end <= piece[1]:
                yield place + begin - piece[0], place + end - piece[0], records
        place += piece[1] - piece[0]


def claimed(data: bytes) -> list[tuple[int, int]]:
    """Return the ranges that damaged records may claim: from a header that is at least half intact to the record's end.

    A header counts only where a record may begin: at the start of the file or at the end of a frame.
    """
    places = {0}
    frames = set()
    at = -1
    while (at := data.find(b"\0\0\0\0", at + 5) - 4) >= 0:  # the upper half of a length
        if _header_holds(data, at):
            end = at + 16 + int.from_bytes(data[at : at + 8], "little")
            if end <= len(data):
                places.add(end)
                if masked_crc32c(data[at + 12 : end - 4]) == int.from_bytes(data[end - 4 : end], "little"):
                    frames.add(at)
    found = []
    waiting = list(places)
    while waiting:
        at = waiting.pop()
        if at in frames or at + 12 > len(data):
            continue
        lengths = {int.from_bytes(data[at : at + 8], "little")}
        if not _header_holds(data, at):
            lengths.add(length_of(int.from_bytes(data[at + 8 : at + 12], "little")))
        for length in lengths:
            end = at + length + 16
            if length <= _MAX_RECORD and (end == len(data) or _header_holds(data, end)):
                found.append((at, end))
                if end not in places:
                    places.add(end)
                    waiting.append(end)
    return found


def _header_holds(data: bytes, at: int) -> bool:
    return at + 12 <= len(data) and masked_crc32c(data[at : at + 8]) == int.from_bytes(data[at + 8 : at + 12], "little")


def holds_in_order(found: list[bytes], wanted: list[bytes]) -> bool:
    rest = iter(found)
    return all(record in rest for record in wanted)


def salvage_plain(data: bytes, block: int) -> tuple[list[bytes], DamageLog]:
    log = DamageLog()
    salvager = FrameSalvager(log.add, max_record_bytes=_MAX_RECORD)
    found: list[bytes] = []
    for begin in range(0, len(data), block):
        for run in salvager.feed(data[begin : begin + block]):
            found += run.records
    for run in salvager.finish():
        found += run.records
    return found, log


def salvage_members(type: str, data: bytes, block: int) -> tuple[list[bytes], DamageLog]:
    log = DamageLog()
    salvager = MemberSalvager(type, log, start=0, size=len(data), max_record_bytes=_MAX_RECORD)
    found: list[bytes] = []
    while not salvager.ended:
        runs, wants_input = salvager.read(1 << 20)
        for run in runs:
            found += run.records
        if wants_input:
            salvager.feed(data[salvager.position : salvager.position + block])
    return found, log


def plain_problems(seed: int) -> list[str]:
    source = random.Random(seed)
    records, known = draw_records(source, 16)
    place, units = 0, []
    for record in records:
        units.append((place, place + len(record) + 16, [record]))
        place += len(record) + 16
    original = Original(framed(records), units, known)
    data, pieces = mutate(source, original)
    found, log = measured(
        seed, lambda: salvage_plain(data, source.choice((7 if len(data) < 5000 else 500, 64, 1000, 1 << 20)))
    )
    claims = claimed(data)
    wanted = [
        unit_records[0]
        for begin, end, unit_records in untouched(original, pieces)
        if not any(at <= begin < claim and (at, claim) != (begin, end) for at, claim in claims)
    ]
    problems = [] if holds_in_order(found, wanted) else ["a record that stands untouched was not found"]
    if data == original.data and (found != records or log.listed):
        problems.append("a file without damage was read wrong")
    if any(record not in known for record in found):
        problems.append("a record was found that never was in it")
    if sum(map(len, found)) + 16 * len(found) + log.lost_bytes < len(data):
        problems.append("bytes are neither records nor reported as lost")
    return problems


def gzip_problems(seed: int) -> list[str]:
    source = random.Random(seed)
    data, units, known = b"", [], set()
    for _ in range(source.randrange(1, 6)):
        records, some = draw_records(source, 6)
        member = gzip.compress(framed(records), source.choice((0, 1, 6)), mtime=0)
        units.append((len(data), len(data) + len(member), records))
        data += member
        known |= some
    original = Original(data, units, known)
    data, pieces = mutate(source, original)
    found, log = measured(
        seed, lambda: salvage_members("GZIP", data, source.choice((100 if len(data) < 5000 else 500, 1000, 1 << 20)))
    )
    wanted = [record for _, _, records in untouched(original, pieces) for record in records]
    problems = [] if holds_in_order(found, wanted) else ["a record of a member that stands untouched was not found"]
    if any(record not in known for record in found):
        problems.append("a record was found that never was in it")
    if not log.listed and gzip.decompress(data) != framed(found):  # equal if only entire members are missing
        problems.append("damage was not reported")
    return problems


def zlib_problems(seed: int) -> list[str]:
    source = random.Random(seed)
    records, known = draw_records(source, 16)
    packed = zlib.compress(framed(records), source.choice((0, 1, 6)))
    original = Original(packed, [], known)
    data, _ = mutate(source, original)
    found, log = measured(
        seed, lambda: salvage_members("ZLIB", data, source.choice((100 if len(data) < 5000 else 500, 1000, 1 << 20)))
    )
    same = next(
        (at for at, pair in enumerate(zip(data, packed, strict=False)) if pair[0] != pair[1]),
        min(len(data), len(packed)),
    )
    # The length of the data before the first change, minus the longest match whose bits may extend into the change.
    before = max(len(zlib.decompressobj().decompress(packed[:same])) - 300, 0)
    wanted = []
    for record in records:
        before -= len(record) + 16
        if before < 0:
            break
        wanted.append(record)
    problems = [] if found[: len(wanted)] == wanted else ["a record before the damage was not found"]
    if any(record not in known for record in found):
        problems.append("a record was found that never was in it")
    if data and data != packed and found != records and not log.listed:  # an empty file is not damaged
        problems.append("damage was not reported")
    return problems


def nested_problems(seed: int) -> list[str]:
    """Damage a record that contains frames: its data, half of its header, or the entire header."""
    source = random.Random(seed)
    before, after = ([source.randbytes(source.randrange(300)) for _ in range(source.randrange(1, 5))] for _ in range(2))
    inner = [source.randbytes(source.randrange(60)) for _ in range(source.randrange(1, 30))]
    outer = framed(inner) + source.randbytes(source.randrange(5))
    data = bytearray(framed([*before, outer, *after]))
    begin = len(framed(before))
    where = source.choice(("data", "length", "checksum", "header"))
    first, last = {"data": (12, 12 + len(outer)), "length": (0, 8), "checksum": (8, 12), "header": (0, 12)}[where]
    changed = range(begin + first, begin + last) if where == "header" else [begin + source.randrange(first, last)]
    for at in changed:
        data[at] ^= source.randrange(1, 256)
    found, log = measured(seed, lambda: salvage_plain(bytes(data), source.choice((7, 1000, 1 << 20))))
    others = before + after
    if where == "data":
        return [] if found == others else ["a record whose header is whole was replaced by its contents"]
    if where in ("length", "checksum"):
        return [] if found == [*before, outer, *after] else ["a record with half a header was not found"]
    doubtful = [damage for damage in log.listed if damage.reason == "ambiguous"]
    if found == [*before, outer, *after]:  # the changes left one half intact
        return []
    if found != [*before, *inner, *after]:
        return ["records beside one without a header were not found"]
    return [] if _covers(doubtful, begin + 12, len(framed(inner))) else ["its contents were not reported as ambiguous"]


def _covers(doubtful: list[Damage], begin: int, length: int) -> bool:
    return any(each.offset <= begin and begin + length <= each.offset + each.length for each in doubtful)


def measured(seed: int, job: Callable[[], tuple[list[bytes], DamageLog]]) -> tuple[list[bytes], DamageLog]:
    """Return the job's result. Raise an error if it took too much time or memory."""
    traced = seed % _TRACED == 0
    if traced:
        tracemalloc.start()
    begun = time.process_time()  # not wall time, which includes other processes
    try:
        found, log = job()
        if time.process_time() - begun > _MOST_SECONDS:
            raise TimeoutError(f"it took {time.process_time() - begun:.1f} seconds")
        if traced and (peak := tracemalloc.get_traced_memory()[1]) > _MOST_MEMORY:
            raise MemoryError(f"it took {peak:,} bytes")
    finally:
        if traced:
            tracemalloc.stop()
    return found, log


def tortured(what: str, seed: int, tries: int, problems_of: Callable[[int], list[str]]) -> Row:
    lost = 0
    for number in range(tries):
        each = seed * 1_000_003 + number
        try:
            problems = problems_of(each)
        except Exception as error:
            problems = [repr(error)]
        if problems:
            lost += 1
            if lost <= 5:
                print(f"{what}, {problems_of.__name__}({each}): {'; '.join(problems)}", flush=True)
    return Row(what, tries, lost, seed)


def plain(seed: int, rounds: int) -> Row:
    return tortured("a plain file damaged at random, salvaged", seed, 120 * rounds, plain_problems)


def members(seed: int, rounds: int) -> Row:
    return tortured("a GZIP file damaged at random, salvaged", seed, 40 * rounds, gzip_problems)


def stream(seed: int, rounds: int) -> Row:
    return tortured("a ZLIB file damaged at random, salvaged", seed, 20 * rounds, zlib_problems)


def nested(seed: int, rounds: int) -> Row:
    return tortured("a record that holds frames, damaged", seed, 20 * rounds, nested_problems)


ROUNDS = [plain, members, stream, nested]
