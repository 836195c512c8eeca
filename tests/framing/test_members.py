"""`MemberSalvager` recovers the records of every intact GZIP member, and those before the fault in damaged ones."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec._framing.damage import Damage, DamageLog
from asyncrec._framing.frames import encode_frames
from asyncrec._framing.salvage.frames import Run
from asyncrec._framing.salvage.members import MemberSalvager, recognise

GROUPS = [
    [random.Random(100 * n + m).randbytes(random.Random(m).randrange(200)) + b"text " * m for m in range(1, 15)]
    for n in range(6)
]
MEMBERS = [gzip.compress(b"".join(encode_frames(group)), mtime=0) for group in GROUPS]
BEGINS = [sum(map(len, MEMBERS[:n])) for n in range(7)]
DATA = b"".join(MEMBERS)


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


def records_of(*numbers: int) -> list[bytes]:
    return [record for number in numbers for record in GROUPS[number]]


def salvaged(
    data: bytes, block: int = 1 << 18, type: str = "GZIP", **options: int
) -> tuple[list[bytes], list[Damage], list[tuple[int, int]]]:
    log = DamageLog()
    salvager = MemberSalvager(type, log, start=0, size=len(data), **options)
    found: list[bytes] = []
    members: list[tuple[int, int]] = []
    while not salvager.ended:
        runs, wants_input = salvager.read(10_000)
        members += [member for member in salvager.members if member not in members]
        found += [record for run in runs for record in run.records]
        if wants_input:
            salvager.feed(data[salvager.position : salvager.position + block])
    return found, log.listed, members


@pytest.mark.parametrize("block", [1, 100, 1 << 18])
def test_intact_members_are_returned_unchanged(block: int) -> None:
    found, damage, members = salvaged(DATA, block)
    assert (found, damage) == (records_of(*range(6)), [])
    assert members == [(14 * n, begin) for n, begin in enumerate(BEGINS[:6])]


@pytest.mark.parametrize("block", [50, 1 << 18])
@pytest.mark.parametrize("number", range(6))
def test_damaged_member_loses_no_other_member(number: int, block: int) -> None:
    data = changed(DATA, BEGINS[number] + len(MEMBERS[number]) // 2)
    found, damage, _ = salvaged(data, block)
    before, after = records_of(*range(number)), records_of(*range(number + 1, 6))
    assert found[: len(before)] == before
    assert found[len(found) - len(after) :] == after
    own = found[len(before) : len(found) - len(after)]
    assert own == [record for record in GROUPS[number] if record in own]
    assert len(own) >= 2  # those before the fault in its middle
    last = damage[-1]
    assert (last.offset, last.length, last.reason) == (BEGINS[number], len(MEMBERS[number]), "compression")


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 100))
def test_wrong_checksum_at_member_end_loses_no_record(number: int, seed: int) -> None:
    place = BEGINS[number + 1] - 1 - random.Random(seed).randrange(8)
    found, damage, _ = salvaged(changed(DATA, place))
    assert found == records_of(*range(6))
    assert [(each.offset, each.length) for each in damage] == [(BEGINS[number], len(MEMBERS[number]))]


@settings(deadline=None)
@given(st.integers(0, len(DATA)), st.integers(1, 800))
def test_missing_bytes_lose_only_records_of_their_members(place: int, size: int) -> None:
    found, _, _ = salvaged(DATA[:place] + DATA[place + size :])
    wanted = records_of(*(n for n in range(6) if BEGINS[n + 1] <= place or BEGINS[n] >= place + size))
    rest = iter(found)
    assert all(record in rest for record in wanted)


def test_garbage_around_members_is_reported_in_file_bytes() -> None:
    garbage = b"\x1f\x8b\x08 is not all that it takes"
    data = garbage + MEMBERS[0] + garbage + MEMBERS[1] + garbage
    found, damage, _ = salvaged(data)
    assert found == records_of(0, 1)
    second = len(garbage) + len(MEMBERS[0])
    assert [(each.offset, each.length, each.records_before) for each in damage] == [
        (0, len(garbage), 0),
        (second, len(garbage), 14),
        (len(data) - len(garbage), len(garbage), 28),
    ]


def test_file_cut_within_member_yields_records_before_cut() -> None:
    found, damage, _ = salvaged(DATA[:-20])
    assert records_of(*range(6))[: len(found)] == found
    assert len(found) > 75
    assert damage == [Damage(BEGINS[5], len(MEMBERS[5]) - 20, "truncated", len(found))]


def test_record_across_two_members_is_lost_with_either() -> None:
    """This happens in files that were compressed in blocks of equal size, as by bgzip."""
    records = [random.Random(n).randbytes(1000) for n in range(10)]
    stream = framed(records)
    members = [gzip.compress(stream[at : at + 1500], mtime=0) for at in range(0, len(stream), 1500)]
    assert salvaged(b"".join(members))[:2] == (records, [])
    members[2] = changed(members[2], 11)  # the length field of its only block
    found, damage, _ = salvaged(b"".join(members))
    assert found == records[:2] + records[5:]  # without the records in bytes 3000 to 4500
    begins = len(members[0]) + len(members[1])
    assert Damage(begins, len(members[2]), "compression", 2) in damage
    after = begins + len(members[2])
    assert damage[-1] == Damage(0, 5 * 1016 - 4500, "compression", 2, after)


def test_frame_damage_is_located_within_its_member() -> None:
    bad = changed(framed([b"one", b"two", b"three"]), 19 + 12)
    data = MEMBERS[0] + gzip.compress(bad) + MEMBERS[1]
    found, damage, _ = salvaged(data)
    assert found == [*GROUPS[0], b"one", b"three", *GROUPS[1]]
    assert damage == [Damage(19, 19, "data", 15, len(MEMBERS[0]))]


@pytest.mark.parametrize("level", [0, 6])
def test_zlib_records_before_fault_are_salvaged(level: int) -> None:
    records = records_of(0, 1, 2)
    packed = zlib.compress(framed(records), level)
    for cut in (len(packed) // 2, len(packed) - 1, len(packed) - 4):
        found, damage, _ = salvaged(packed[:cut], type="ZLIB")
        assert found == records[: len(found)]
        assert len(found) >= (42 if cut > len(packed) - 5 else 15)
        assert damage[-1].reason == "truncated"
    found, damage, _ = salvaged(changed(packed, len(packed) - 1), type="ZLIB")
    assert found == records
    assert damage[-1].reason == "compression"
    found, damage, _ = salvaged(packed + b"more", type="ZLIB")
    assert found == records
    assert damage == [Damage(len(packed), 4, "compression", 42)]


def test_salvage_from_any_member_finds_same_records() -> None:
    data = changed(changed(DATA, BEGINS[1] + 100), BEGINS[3] + 100)
    found, _, members = salvaged(data)
    for record, byte in members:
        log = DamageLog()
        salvager = MemberSalvager("GZIP", log, start=byte, size=len(data), records=record)
        again: list[Run] = []
        while not salvager.ended:
            runs, wants_input = salvager.read(1 << 20)
            again += runs
            if wants_input:
                salvager.feed(data[salvager.position : salvager.position + 1000])
        assert [each for run in again for each in run.records] == found[record:]
        assert again[0].first == record


def test_file_kind_follows_from_its_first_recognisable_part() -> None:
    random_records = [random.Random(n).randbytes(500) for n in range(5)]
    stored = gzip.compress(framed(random_records), 0)  # with level 0, the frames are stored uncompressed
    assert recognise(b"garbage" + framed(random_records)) == ""
    assert recognise(b"garbage" + stored) == "GZIP"
    assert recognise(b"garbage" + framed([b"first", stored, b"last"])) == ""
    assert recognise(b"garbage") is None


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["GZIP", "ZLIB"]))
def test_random_bytes_never_crash_member_salvage(data: bytes, type: str) -> None:
    front = b"\x1f\x8b\x08\x00" if type == "GZIP" else b"\x78\x9c"
    for content in (data, front + data):
        assert salvaged(content, 20, type)[0] == []
