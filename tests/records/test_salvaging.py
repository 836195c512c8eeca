"""`open_reader(on_corrupt=...)`: all intact records are read, wherever they are, and losses are reported."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import encode_frames
from asyncrec._records.position import Position
from asyncrec._records.reading.reader import ReaderStats, open_reader_at
from asyncrec.errors import CorruptRecordError
from asyncrec.storage._base import ByteSource
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

RECORDS = [random.Random(n).randbytes(random.Random(n).randrange(1, 3000)) for n in range(400)]
BORDERS = [0]
for _record in RECORDS:
    BORDERS.append(BORDERS[-1] + len(_record) + 16)


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


def flipped(data: bytes, *places: int) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 0x10
    return bytes(changed)


async def stored(data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    await storage.put("x", data)
    return storage


async def read(storage: Any, **options: Any) -> tuple[list[bytes], list[Damage], ReaderStats]:
    async with asyncrec.open_reader("x", storage=storage, **options) as reader:
        found = [record async for record in reader]
        return found, reader.damage, reader.stats()


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("on_corrupt", ["raise", "skip", "stop"])
async def test_intact_file_is_read_identically_under_any_on_corrupt(compression: str, on_corrupt: str) -> None:
    pack: Any = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}[compression]
    found, damage, stats = await read(await stored(pack(framed(RECORDS))), on_corrupt=on_corrupt)
    assert (found, damage, stats.lost_ranges) == (RECORDS, [], 0)


@pytest.mark.parametrize("chunk_size", [1, 1000, 1 << 18])
async def test_skip_reads_past_damage_and_reports_loss(chunk_size: int) -> None:
    records, borders = (RECORDS[:5], BORDERS[:6]) if chunk_size == 1 else (RECORDS, BORDERS)
    storage = await stored(flipped(framed(records), borders[2] + 12))
    found, damage, stats = await read(storage, on_corrupt="skip", chunk_size=chunk_size)
    assert found == records[:2] + records[3:]
    assert damage == [Damage(borders[2], len(records[2]) + 16, "data", 2)]
    assert stats.records == len(records) - 1
    assert stats.bytes == borders[-1] - len(records[2]) - 16
    assert (stats.lost_ranges, stats.lost_bytes) == (1, len(records[2]) + 16)


async def test_record_with_only_header_damaged_is_returned() -> None:
    found, damage, _ = await read(await stored(flipped(framed(RECORDS), BORDERS[7] + 3)), on_corrupt="skip")
    assert found == RECORDS
    assert damage == [Damage(BORDERS[7], 12, "length", 7)]


async def test_torn_tail_is_reported_after_all_complete_records() -> None:
    data = framed(RECORDS)
    found, damage, _ = await read(await stored(data[:-1]), on_corrupt="skip")
    assert found == RECORDS[:-1]
    assert damage == [Damage(BORDERS[-2], len(data) - 1 - BORDERS[-2], "truncated", 399)]


async def test_stop_ends_file_at_damage() -> None:
    data = flipped(framed(RECORDS), BORDERS[7] + 3)
    found, damage, stats = await read(await stored(data), on_corrupt="stop")
    assert found == RECORDS[:7]
    assert damage == [Damage(BORDERS[7], len(data) - BORDERS[7], "length", 7)]
    assert stats.lost_ranges == 1


async def test_stop_abandons_compressed_file_from_damaged_member_on() -> None:
    members = [gzip.compress(framed(RECORDS[n : n + 100])) for n in range(0, 400, 100)]
    place = len(members[0]) + len(members[1]) // 2
    data = flipped(b"".join(members), place)
    found, damage, _ = await read(await stored(data), on_corrupt="stop")
    assert found == RECORDS[: len(found)]
    assert 100 <= len(found) < 200
    (lost,) = damage
    assert (lost.offset, lost.length) == (len(members[0]), len(data) - len(members[0]))


@pytest.mark.parametrize("block", [1000, 1 << 18])
async def test_every_record_of_intact_member_is_read(block: int) -> None:
    members = [gzip.compress(framed(RECORDS[n : n + 100]), mtime=0) for n in range(0, 400, 100)]
    place = len(members[0]) + len(members[1]) // 2
    found, damage, stats = await read(
        await stored(flipped(b"".join(members), place)), on_corrupt="skip", chunk_size=block
    )
    assert found[:100] == RECORDS[:100]
    assert found[-200:] == RECORDS[200:]
    assert found[100:-200] == [record for record in RECORDS[100:200] if record in found]  # up to the damage
    assert damage[-1].offset == len(members[0])
    assert damage[-1].length == len(members[1])
    assert damage[-1].reason == "compression"
    assert stats.records == len(found)


async def test_zlib_records_before_damage_are_read() -> None:
    data = zlib.compress(framed(RECORDS))
    found, damage, _ = await read(await stored(data[: len(data) // 2]), on_corrupt="skip")
    assert 150 < len(found) < 250
    assert found == RECORDS[: len(found)]
    assert damage[-1].reason == "truncated"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_file_kind_is_recognised_despite_damaged_beginning(pack: Any) -> None:
    """Garbage at the start hides whether the file is plain or GZIP, and may make it look like ZLIB."""
    data = b"\x78\x9c" + b"garbage" * 9 + pack(framed(RECORDS))
    found, damage, _ = await read(await stored(data), on_corrupt="skip")
    assert found == RECORDS
    assert (damage[0].offset, damage[0].length) == (0, 65)


async def test_non_tfrecord_file_has_no_records() -> None:
    found, damage, _ = await read(await stored(b"text\n" * 1000), on_corrupt="skip")
    assert found == []
    assert damage == [Damage(0, 5000, "length", 0)]


async def test_unknown_on_corrupt_value_is_rejected() -> None:
    with pytest.raises(ValueError, match='"raise", "skip" or "stop"'):
        async with asyncrec.open_reader("x", storage=MemoryStorage(), on_corrupt="ignore"):  # type: ignore[arg-type]  # deliberately wrong
            pass


async def test_damage_error_names_ways_to_continue() -> None:
    storage = await stored(flipped(framed(RECORDS), BORDERS[2] + 12))
    with pytest.raises(CorruptRecordError, match=r"on_corrupt='skip'.*asyncrec repair"):
        await asyncrec.read_records("x", storage=storage)


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_reading_resumes_at_any_record_after_damage(compression: str) -> None:
    """Interleaving relies on this: positions reported after damage lead to the same records."""
    if compression:
        members = [gzip.compress(framed(RECORDS[n : n + 40])) for n in range(0, 400, 40)]
        data = b"".join(members)
        for which in (2, 3, 7):
            data = flipped(data, sum(map(len, members[:which])) + len(members[which]) // 2)
    else:
        data = flipped(framed(RECORDS), BORDERS[2] + 12, BORDERS[50] + 100, BORDERS[51] + 9, BORDERS[51] + 1, -1)
    storage = await stored(data)
    expected = (await read(storage, on_corrupt="skip"))[0]
    reader = await open_reader_at(
        storage, "x", Position(0, 0, 0), path="x", on_corrupt="skip", chunk_size=5000, inflate_bytes=10_000
    )
    positions: list[Position] = []
    while batch := await reader.next_batch():
        positions += batch.positions(0, len(batch.records))
    await reader.aclose()
    assert [position.record for position in positions] == list(range(len(expected)))
    for position in positions[:: 7 if compression else 1]:
        reader = await open_reader_at(
            storage, "x", position, path="x", compression=compression, on_corrupt="skip"  # type: ignore[arg-type]  # one of them
        )  # fmt: skip
        batch = await reader.next_batch()
        assert batch is not None
        assert (batch.first, batch.records[0]) == (position.record, expected[position.record])
        await reader.aclose()


class Remote(MemoryStorage):
    """A remote store that flips a bit at each of the ``places`` the first time it sends that byte."""

    read_ahead = 1 << 16

    def __init__(self, *places: int) -> None:
        super().__init__()
        self.places = set(places)
        self.opened = 0

    @asynccontextmanager
    async def open_source(self, key: str, *, start: int = 0, **options: Any) -> AsyncIterator[ByteSource]:
        self.opened += 1
        async with super().open_source(key, start=start, **options) as source:
            receive, position = source.receive, start

            async def damaged(max_bytes: int) -> bytes:
                nonlocal position
                block = await receive(max_bytes)
                begin, position = position, position + len(block)
                for place in [place for place in self.places if begin <= place < position]:
                    self.places.remove(place)
                    block = flipped(block, place - begin)
                return block

            source.receive = damaged  # type: ignore[method-assign]  # a transmission error
            yield source


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_transit_damage_loses_no_record_after_damage_at_rest(compression: str) -> None:
    if compression:
        members = [gzip.compress(framed(RECORDS[n : n + 40])) for n in range(0, 400, 40)]
        at_rest = sum(map(len, members[:2])) + len(members[2]) // 2
        transit = (sum(map(len, members[:5])) + 1000, sum(map(len, members[:8])) + 1000)
        data = b"".join(members)
        untouched = RECORDS[:80] + RECORDS[120:]
    else:
        data = framed(RECORDS)
        at_rest, transit = BORDERS[10] + 12, (BORDERS[100] + 1, BORDERS[300] + 12)
        untouched = RECORDS[:10] + RECORDS[11:]
    storage = Remote(*transit)
    await storage.put("x", flipped(data, at_rest))
    found, damage, _ = await read(storage, on_corrupt="skip", chunk_size=4096)
    assert [record for record in found if record in untouched] == untouched
    assert len({lost.member_offset or lost.offset for lost in damage}) == 1
    assert not storage.places


async def test_reread_does_not_disturb_callers_cancel_scopes() -> None:
    """Reading a range again does not enter or exit any scope that encloses the caller's own."""
    storage = Remote(BORDERS[300] + 12)
    await storage.put("x", flipped(framed(RECORDS), BORDERS[10] + 12, BORDERS[200] + 12))
    async with asyncrec.open_reader("x", storage=storage, on_corrupt="skip", chunk_size=4096) as reader:
        async with anyio.create_task_group():
            found = [record async for record in reader]
    assert found == RECORDS[:10] + RECORDS[11:200] + RECORDS[201:]


async def test_heavily_damaged_remote_object_is_reread_only_limited_times() -> None:
    storage = Remote()
    await storage.put("x", flipped(framed(RECORDS), *(border + 12 for border in BORDERS[1:-1:2])))
    found, _, stats = await read(storage, on_corrupt="skip")
    assert found == RECORDS[::2]
    assert stats.lost_ranges == 200
    assert storage.opened < 80


async def test_damage_list_is_limited_but_counts_are_not() -> None:
    records = [b"%d" % n for n in range(5000)]
    data = bytearray(framed(records))
    place = 0
    for n, record in enumerate(records):
        if n % 2:
            data[place + 12] ^= 1
        place += len(record) + 16
    found, damage, stats = await read(await stored(bytes(data)), on_corrupt="skip")
    assert found == records[::2]
    assert len(damage) == 1000
    assert stats.lost_ranges == 2500
    assert stats.lost_bytes == sum(len(record) + 16 for record in records[1::2])


async def test_broken_connection_is_resumed_during_salvage() -> None:
    places = [border + 12 for border in BORDERS[1:-1:40]]
    flaky = FlakyStorage(await stored(flipped(framed(RECORDS), *places)), {2: Fault("error"), 7: Fault("short")})
    found, _, stats = await read(flaky, on_corrupt="skip", chunk_size=4096)
    assert len(found) == 400 - len(places)
    assert stats.retries == 2


async def test_abandoned_reader_closes_files_after_damage(tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(flipped(framed(RECORDS), BORDERS[2] + 12))
    before = len(os.listdir("/proc/self/fd"))
    async with asyncrec.open_reader(tmp_path / "x", on_corrupt="skip") as reader:
        for _ in range(5):
            await anext(reader)
        assert len(reader.damage) == 1
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("store", [MemoryStorage, Remote])
@pytest.mark.parametrize("limit", [20, 1 << 20])
async def test_contents_of_torn_record_are_ambiguous_in_every_store(store: type[MemoryStorage], limit: int) -> None:
    """After each damage, a remote object is read normally again, but the records must still count as ambiguous."""
    inner = framed([b"one", b"two"])
    outer = framed([b"before", inner + bytes(100)])
    storage = store()
    await storage.put("x", outer[: 22 + 12 + len(inner)])
    async with asyncrec.open_reader("x", storage=storage, on_corrupt="skip", max_record_bytes=limit) as reader:
        assert [record async for record in reader] == [b"before", b"one", b"two"]
        assert reader.stats().ambiguous_ranges == 1


@pytest.mark.parametrize("told", ["", "GZIP"])
async def test_stated_compression_overrides_file_appearance(told: str) -> None:
    """The kind of file is only detected if the caller does not state it."""
    records = [b"%d" % (n % 7) * 300 for n in range(400)]
    other = framed(records) if told else gzip.compress(framed(records))
    storage = await stored(b"garbage" * 9 + other)
    async with asyncrec.open_reader("x", storage=storage, on_corrupt="skip", compression=told) as reader:
        assert [record async for record in reader] == []
        assert reader.compression == told
        assert sum(lost.length for lost in reader.damage) == 63 + len(other)


async def test_file_start_does_not_decide_compression_of_its_middle() -> None:
    front = gzip.compress(framed(RECORDS[:100]))
    storage = await stored(front + flipped(framed(RECORDS), 12))
    found, damage, _ = await read(storage, on_corrupt="skip", start_offset=len(front))
    assert found == RECORDS[1:]
    assert damage == [Damage(len(front), len(RECORDS[0]) + 16, "data", 0)]


async def test_damage_after_intact_records_does_not_reread_file_start() -> None:
    """The first record has already shown what kind of file it is."""
    storage = Remote()
    await storage.put("x", flipped(framed(RECORDS), BORDERS[300] + 12))
    starts: list[int] = []
    opening = storage.open_source

    def opened(key: str, **options: Any) -> Any:
        starts.append(options.get("start", 0))
        return opening(key, **options)

    storage.open_source = opened  # type: ignore[method-assign]  # to watch the requests
    found, _, _ = await read(storage, on_corrupt="skip", chunk_size=4096)
    assert len(found) == 399
    assert starts[0] == 0
    assert all(start >= BORDERS[299] for start in starts[1:])


@pytest.mark.parametrize(
    ("place", "reason"), [(BORDERS[7] + 3, "length"), (BORDERS[7] + 12, "data"), (None, "truncated")]
)
async def test_stop_reports_reason_for_ending_file(place: int | None, reason: str) -> None:
    data = framed(RECORDS)
    data = data[: BORDERS[8] - 1] if place is None else flipped(data, place)
    found, damage, _ = await read(await stored(data), on_corrupt="stop")
    assert found == RECORDS[:7]
    assert damage == [Damage(BORDERS[7], len(data) - BORDERS[7], reason, 7)]  # type: ignore[arg-type]  # one of them


async def test_stop_ends_at_oversized_record_or_damaged_member() -> None:
    found, damage, _ = await read(
        await stored(framed([b"a", bytes(200), b"b"])), on_corrupt="stop", max_record_bytes=100
    )
    assert found == [b"a"]
    assert damage == [Damage(17, 216 + 17, "too_large", 1)]
    members = [gzip.compress(framed(part), mtime=0) for part in (RECORDS[:50], RECORDS[50:])]
    found, damage, _ = await read(await stored(flipped(b"".join(members), len(members[0]) + 2)), on_corrupt="stop")
    assert found == RECORDS[:50]
    assert damage == [Damage(len(members[0]), len(members[1]), "compression", 50)]


async def test_positions_and_counts_after_damage_cover_returned_records() -> None:
    """This holds from any start position, and skipped bytes are not counted twice."""
    storage = await stored(flipped(framed(RECORDS), BORDERS[10] + 12))
    reader = await open_reader_at(storage, "x", Position(BORDERS[5], 2, 7), path="x", on_corrupt="skip")
    found: list[bytes] = []
    while batch := await reader.next_batch():
        assert batch.first == 7 + len(found)
        found += batch.records
    assert found == RECORDS[7:10] + RECORDS[11:]
    assert reader.stats().bytes == sum(len(record) + 16 for record in found)
    assert reader.stats().records == 7 + len(found)
    await reader.aclose()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_record_limit_applies_after_damage(pack: Any) -> None:
    """The limit applies to salvaging as it does to an intact file, and the records after a longer one are read."""
    data = pack(flipped(framed([b"one", b"two", bytes(300), b"three"]), 19 + 12))
    found, damage, _ = await read(await stored(data), on_corrupt="skip", max_record_bytes=100)
    assert found == [b"one", b"three"]
    assert {lost.reason for lost in damage} <= {"data", "too_large"}
    found, _, _ = await read(await stored(data), on_corrupt="skip", max_record_bytes=300)
    assert found == [b"one", bytes(300), b"three"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_unverified_read_returns_flipped_payloads_after_damage(pack: Any) -> None:
    data = flipped(framed([b"one", b"two", b"three", b"four"]), 19 + 3, 38 + 12)
    found, _, _ = await read(await stored(pack(data)), on_corrupt="skip", verify=False)
    assert b"four" in found
    assert bytes([b"t"[0] ^ 0x10]) + b"hree" in found
    found, _, _ = await read(await stored(pack(data)), on_corrupt="skip")
    assert b"four" in found
    assert bytes([b"t"[0] ^ 0x10]) + b"hree" not in found


@pytest.mark.parametrize("how", ["stop", "skip"])
@pytest.mark.parametrize("byte", [0, 1, 2])
async def test_damage_at_member_start_keeps_previous_member(how: str, byte: int) -> None:
    members = [gzip.compress(framed(RECORDS[n : n + 4])) for n in range(0, 40, 4)]
    begin = sum(map(len, members[:3]))
    found, damage, stats = await read(
        await stored(flipped(b"".join(members), begin + byte)), compression="GZIP", on_corrupt=how
    )
    assert found == (RECORDS[:12] if how == "stop" else RECORDS[:12] + RECORDS[16:40])
    assert [each.offset for each in damage] == [begin]
    assert stats.lost_bytes == sum(map(len, members[3:] if how == "stop" else members[3:4]))


async def test_skipped_damage_warns_once_per_file(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a file that is not a TFRecord file would silently appear to be empty."""
    torn = flipped(flipped(framed(RECORDS), BORDERS[7] + 13), BORDERS[2] + 13)
    for data, said in ((torn, "damaged at record 2"), (b"text\n" * 1000, "check that this is a TFRecord file")):
        caplog.clear()
        await read(await stored(data), on_corrupt="skip")
        (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
        assert said in line.getMessage()
    caplog.clear()
    await read(await stored(framed(RECORDS)), on_corrupt="skip")
    assert not caplog.records
