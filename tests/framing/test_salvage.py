"""`FrameSalvager` recovers the intact records of a damaged stream, and reports the rest."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asyncrec._framing import search
from asyncrec._framing.crc import masked_crc32c
from asyncrec._framing.damage import Damage, DamageLog
from asyncrec._framing.frames import encode_frames
from asyncrec._framing.salvage.frames import FrameSalvager, Run
from asyncrec._framing.search import find_headers

RECORDS = [b"first", b"", b"x" * 300, random.Random(1).randbytes(70_000), b"z", b"last"]
BORDERS = [0, 21, 37, 353, 70_369, 70_386, 70_406]


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


def changed(data: bytes, *places: int) -> bytes:
    new = bytearray(data)
    for place in places:
        new[place] ^= 0x41
    return bytes(new)


def salvaged(data: bytes, step: int = 1 << 20, **options: object) -> tuple[list[bytes], list[Damage]]:
    log = DamageLog()
    salvager = FrameSalvager(log.add, **options)  # type: ignore[arg-type]  # handed on
    runs: list[Run] = []
    for begin in range(0, len(data), step):
        runs += salvager.feed(data[begin : begin + step])
    runs += salvager.finish()
    count = 0
    for run in runs:
        assert run.records
        assert run.first == count
        count += len(run.records)
        place = run.offset
        for record in run.records:  # the records are consecutive, and where the run says they are
            assert data[place + 12 : place + 12 + len(record)] == record
            place += len(record) + 16
    assert salvager.records == count
    return [record for run in runs for record in run.records], log.listed


@pytest.mark.parametrize("step", [1, 100, 1 << 20])
def test_undamaged_stream_is_returned_unchanged(step: int) -> None:
    records = RECORDS[:3] if step == 1 else RECORDS
    assert salvaged(framed(records), step) == (records, [])
    assert salvaged(b"") == ([], [])


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("place", [0, 5, 8, 11])
def test_record_with_half_damaged_header_is_returned(number: int, place: int) -> None:
    data = changed(framed(RECORDS), BORDERS[number] + place)
    assert salvaged(data) == (RECORDS, [Damage(BORDERS[number], 12, "length", number)])


@pytest.mark.parametrize("step", [64, 1 << 20])
@pytest.mark.parametrize("number", [0, 2, 3, 5])
def test_record_with_changed_data_is_only_loss(number: int, step: int) -> None:
    data = changed(framed(RECORDS), BORDERS[number] + 12)
    lost = Damage(BORDERS[number], BORDERS[number + 1] - BORDERS[number], "data", number)
    assert salvaged(data, step) == (RECORDS[:number] + RECORDS[number + 1 :], [lost])


@pytest.mark.parametrize("number", [0, 2, 3, 5])
def test_next_record_is_found_after_lost_header(number: int) -> None:
    data = changed(framed(RECORDS), *range(BORDERS[number], BORDERS[number] + 12))
    found, damage = salvaged(data)
    assert found == RECORDS[:number] + RECORDS[number + 1 :]
    assert damage == [Damage(BORDERS[number], BORDERS[number + 1] - BORDERS[number], "length", number)]


@settings(deadline=None)
@given(st.integers(0, 70_405), st.integers(1, 500))
def test_missing_bytes_lose_only_records_they_touch(place: int, size: int) -> None:
    # Exclude sizes of a few records: the damaged header would then point to another header and be trusted.
    assume(size not in {end - begin for begin in BORDERS for end in BORDERS} or place in BORDERS)
    data = framed(RECORDS)
    found, damage = salvaged(data[:place] + data[place + size :])
    whole = [
        record
        for record, begin, end in zip(RECORDS, BORDERS, BORDERS[1:], strict=False)
        if end <= place or begin >= place + size
    ]
    # The start of one header and the end of another may form a half-valid one: then one more record is found, intact.
    rest = iter(found)
    assert all(record in rest for record in whole)
    assert set(found) <= set(RECORDS)
    assert damage or place + size >= len(data) or {place, place + size} <= set(BORDERS)


@settings(deadline=None)
@given(st.integers(0, 6), st.binary(min_size=1, max_size=500))
def test_garbage_between_records_is_skipped(number: int, garbage: bytes) -> None:
    garbage = b"\xff" * 8 + garbage  # no length in it points to a header by chance
    data = framed(RECORDS[:number]) + garbage + framed(RECORDS[number:])
    found, damage = salvaged(data)
    assert [record for record in found if record in RECORDS] == RECORDS
    assert sum(each.length for each in damage if each.reason != "ambiguous") <= len(garbage)
    assert damage or found != RECORDS


def test_torn_tail_is_reported() -> None:
    for size in range(70_387, 70_405):
        assert salvaged(framed(RECORDS)[:size]) == (RECORDS[:-1], [Damage(70_386, size - 70_386, "truncated", 5)])


def test_record_beyond_limit_is_lost() -> None:
    found, damage = salvaged(framed(RECORDS), max_record_bytes=1000)
    assert found == RECORDS[:3] + RECORDS[4:]
    assert damage == [Damage(353, 70_016, "too_large", 3)]


def test_changed_data_is_returned_without_verification() -> None:
    found, damage = salvaged(changed(framed([b"abc", b"xyz"]), 13, 19), verify=False)
    assert found == [b"a#c", b"xyz"]
    assert damage == [Damage(19, 12, "length", 1)]


INNER = [b"one", b"two", b"three"]
NESTED = [b"before", b"front" + framed(INNER) + b"rest", b"after"]


class TestNestedFrames:
    def test_nested_record_with_damaged_data_is_lost_entirely(self) -> None:
        data = changed(framed(NESTED), 22 + 12)
        assert salvaged(data) == ([b"before", b"after"], [Damage(22, len(NESTED[1]) + 16, "data", 1)])

    def test_nested_record_survives_damaged_length(self) -> None:
        assert salvaged(changed(framed(NESTED), 22)) == (NESTED, [Damage(22, 12, "length", 1)])

    def test_inner_frames_replace_record_with_lost_header_as_ambiguous(self) -> None:
        found, damage = salvaged(changed(framed(NESTED), *range(22, 34)))
        assert found == [b"before", *INNER, b"after"]
        assert damage == [
            Damage(22, 12 + 5, "length", 1),
            Damage(39, len(framed(INNER)), "ambiguous", 1),
            Damage(39 + len(framed(INNER)), 4 + 4, "length", 4),
        ]

    def test_index_boundary_keeps_or_loses_entire_record(self) -> None:
        begins = [0, 22, 22 + 16 + len(NESTED[1])]
        found, damage = salvaged(changed(framed(NESTED), *range(22, 34)), boundaries=begins)
        assert (found, damage) == (NESTED, [Damage(22, 12, "length", 1)])
        found, damage = salvaged(changed(framed(NESTED), *range(22, 35)), boundaries=begins)
        assert found == [b"before", b"after"]
        assert damage == [Damage(22, begins[2] - begins[1], "length", 1)]

    def test_index_of_another_file_is_ignored(self) -> None:
        found, _ = salvaged(changed(framed(NESTED), *range(22, 34)), boundaries=[0, 23, 50, 77])
        assert found == [b"before", *INNER, b"after"]

    def test_records_beyond_largest_size_apart_are_not_ambiguous(self) -> None:
        records = [bytes([n]) * 200 for n in range(20)]
        data = framed(records)
        damaged = changed(data, *range(216, 228), *range(15 * 216, 15 * 216 + 12))
        assert salvaged(damaged)[1][1].reason == "ambiguous"
        assert [each.reason for each in salvaged(damaged, max_record_bytes=2000)[1]] == ["length", "length"]

    def test_oversized_record_is_ambiguous_to_its_stated_end(self) -> None:
        found, damage = salvaged(framed(NESTED), max_record_bytes=20)
        assert found == [b"before", *INNER, b"after"]
        assert damage == [
            Damage(22, 12 + 5, "too_large", 1),
            Damage(39, len(framed(INNER)), "ambiguous", 1),
            Damage(39 + len(framed(INNER)), 4 + 4, "length", 4),
        ]

    @pytest.mark.parametrize("limit", [20, 1 << 20])
    @pytest.mark.parametrize("whole", [1, 2, 3])
    @pytest.mark.parametrize("step", [7, 1 << 20])
    def test_torn_record_makes_its_inner_frames_ambiguous(self, whole: int, limit: int, step: int) -> None:
        inner = len(framed(INNER[:whole]))
        found, damage = salvaged(framed(NESTED)[: 39 + inner], step, max_record_bytes=limit)
        assert found == [b"before", *INNER[:whole]]
        reason = "too_large" if limit == 20 else "truncated"
        assert damage == [Damage(22, 17, reason, 1), Damage(39, inner, "ambiguous", 1)]

    def test_oversized_record_with_right_length_leaves_successors_certain(self) -> None:
        records = [b"before", bytes(300), *INNER]
        assert salvaged(framed(records), max_record_bytes=20) == (
            [b"before", *INNER],
            [Damage(22, 316, "too_large", 1)],
        )


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=60), st.integers(1, 400), st.integers(0, 3))
def test_intact_records_among_damaged_ones_are_salvaged(drawn: list[tuple[bytes, bool]], step: int, times: int) -> None:
    """There may be few or many, so that both the single and the bulk search are used."""
    drawn = drawn * 5**times
    stream = bytearray()
    for record, holds in drawn:
        stream += framed([record])
        stream[-1] ^= 0 if holds else 0x41
    found, damage = salvaged(bytes(stream), max(step, len(stream) // 50))
    assert found == [record for record, holds in drawn if holds]
    assert {each.reason for each in damage} <= {"data"}
    lost = sum(len(record) + 16 for record, holds in drawn if not holds)
    assert sum(each.length for each in damage) == lost or len(damage) == 1000


@pytest.mark.slow(but=["bad data]"])
@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(changed(framed([b""]), 13), id="bad data"),
        pytest.param(framed([b"x"]) + b"\xff", id="garbage behind each"),
        pytest.param(changed(framed([b"", b""]), 13) + b"\xff" * 12, id="bad data and bad headers"),
    ],
)
def test_dense_damage_is_scanned_only_a_few_times(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counted(data: bytes, most: int) -> list[tuple[int, int]]:
        nonlocal looked
        looked += len(data)
        return find_headers(data, most)

    monkeypatch.setattr(search, "find_headers", counted)
    data = unit * 20_000
    salvaged(data, 1 << 18)
    assert looked <= 4 * len(data)


def test_half_header_resolves_to_length_whose_data_verifies() -> None:
    """The length is changed to one that ends at a header inside the record."""
    record = b"a" * 50 + framed([b"inner"])
    data = bytearray(framed([record, b"next"]))
    data[:8] = struct.pack("<Q", 12 + 50 - 16)
    assert data[62:70] == struct.pack("<Q", 5)
    assert salvaged(bytes(data)) == ([record, b"next"], [Damage(0, 12, "length", 0)])


def test_interruption_loses_current_record_and_finds_next() -> None:
    log = DamageLog()
    salvager = FrameSalvager(log.add)
    (run,) = salvager.feed(framed([b"one", b"two"])[:-3])
    assert run.records == [b"one"]
    assert salvager.interrupt() == []
    assert not salvager.settled
    (run,) = salvager.feed(framed([b"three", b"four"])[5:])
    assert run.records == [b"four"]
    assert salvager.finish() == []
    assert log.listed == [Damage(35, 16, "compression", 1)]


def test_half_valid_header_is_trusted_up_to_16_mib() -> None:
    """After garbage whose checksum matches a length of 200 MB, the search does not wait for more data."""
    length = struct.pack("<Q", 200_000_000)
    data = b"\xff" * 8 + struct.pack("<I", masked_crc32c(length)) + framed(RECORDS)
    salvager = FrameSalvager(DamageLog().add)
    assert [record for run in salvager.feed(data) for record in run.records] == RECORDS


@settings(deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 100))
def test_random_bytes_never_crash_salvage_and_all_are_counted(data: bytes, step: int) -> None:
    found, damage = salvaged(data, step)
    lost = sum(each.length for each in damage if each.reason != "ambiguous")
    assert lost + sum(len(record) + 16 for record in found) == len(data)
