"""`asyncrec.tools.repair` copies the intact records to another file and reports what was lost."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import asyncrec
import asyncrec.tools
from asyncrec._framing.frames import encode_frames
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.testing._cancellation import cancel_at_every_checkpoint

pytestmark = pytest.mark.anyio

RECORDS = [random.Random(n).randbytes(random.Random(n).randrange(1, 3000)) for n in range(300)]


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


def damaged(data: bytes, place: int, size: int = 1) -> bytes:
    return data[:place] + bytes(byte ^ 0x55 for byte in data[place : place + size]) + data[place + size :]


async def test_repair_writes_intact_records_and_reports_lost_records(tmp_path: Path) -> None:
    begins = len(framed(RECORDS[:100]))
    (tmp_path / "bad").write_bytes(damaged(framed(RECORDS), begins + 20))
    report = await asyncrec.tools.repair(tmp_path / "bad", tmp_path / "good")
    expected = RECORDS[:100] + RECORDS[101:]
    assert (tmp_path / "good").read_bytes() == framed(expected)
    assert (tmp_path / "bad").read_bytes() == damaged(framed(RECORDS), begins + 20)
    assert (report.records, report.bytes) == (299, len(framed(expected)))
    assert not report.ok
    (lost,) = json.loads(json.dumps(report.to_json()))["damage"]
    assert lost == {
        "offset": begins,
        "length": len(RECORDS[100]) + 16,
        "reason": "data",
        "records_before": 100,
        "member_offset": None,
    }


async def test_repair_copies_intact_file_and_reports_no_damage(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(framed(RECORDS))
    report = await asyncrec.tools.repair(tmp_path / "x", tmp_path / "y")
    assert (report.ok, report.records, report.damage) == (True, 300, ())
    assert (tmp_path / "y").read_bytes() == framed(RECORDS)


@pytest.mark.parametrize(("compression", "pack"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
async def test_repaired_file_keeps_compression_of_source(
    compression: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes(pack(framed(RECORDS))[:-1000])
    report = await asyncrec.tools.repair(tmp_path / "bad", tmp_path / "good")
    assert report.compression == compression
    async with asyncrec.open_reader(tmp_path / "good") as reader:
        assert reader.compression == compression
        assert [record async for record in reader] == RECORDS[: report.records]
    assert 290 < report.records < 300


async def test_damaged_record_holding_frames_is_delimited_by_index(tmp_path: Path) -> None:
    """The record's header is damaged, so only the index has its length. Without it, the inner frames look valid."""
    records = [b"before", framed(RECORDS[:20]), b"after", b"last"]
    async with asyncrec.open_sharded_writer(tmp_path / "set", num_shards=1) as writer:
        await writer.write_many(records)
    (shard,) = await asyncrec.list_shards(tmp_path / "set")
    path = Path(shard)
    path.write_bytes(damaged(path.read_bytes(), len(framed(records[:1])), 13))
    report = await asyncrec.tools.repair(path, tmp_path / "with")
    assert await asyncrec.read_records(tmp_path / "with") == [b"before", b"after", b"last"]
    assert [(lost.offset, lost.length) for lost in report.damage] == [(22, len(records[1]) + 16)]
    index = next(tmp_path.glob("_index/*.index"))
    index.write_bytes(b"no index")
    report = await asyncrec.tools.repair(path, tmp_path / "without")
    assert await asyncrec.read_records(tmp_path / "without") == [b"before", *RECORDS[1:20], b"after", b"last"]
    assert report.ambiguous_ranges == 1


async def test_repair_copies_between_stores() -> None:
    source, target = MemoryStorage(), MemoryStorage()
    await source.put("x", framed(RECORDS)[:-1])
    report = await asyncrec.tools.repair("x", "x", storage=source, target_storage=target)
    assert report.records == 299
    assert await asyncrec.read_records("x", storage=target) == RECORDS[:-1]


async def test_repair_overwrites_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(framed(RECORDS)[:-1])
    (tmp_path / "there").write_bytes(b"something")
    with pytest.raises(ObjectExistsError):
        await asyncrec.tools.repair(tmp_path / "bad", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"something"
    await asyncrec.tools.repair(tmp_path / "bad", tmp_path / "there", overwrite=True)
    assert await asyncrec.read_records(tmp_path / "there") == RECORDS[:-1]
    with pytest.raises(ValueError, match="the target must be a different file"):
        await asyncrec.tools.repair(tmp_path / "bad", tmp_path / "bad", overwrite=True)
    with pytest.raises(ObjectNotFoundError):
        await asyncrec.tools.repair(tmp_path / "missing", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "there"]


@pytest.mark.parametrize("spelling", ["relative", "parent", "url", "linked folder", "link", "hard link", "prefix"])
async def test_repair_never_overwrites_source_under_another_path(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "folder" / "bad"
    bad.parent.mkdir()
    bad.write_bytes(framed(RECORDS)[:-1])
    monkeypatch.chdir(bad.parent)
    (tmp_path / "linked").symlink_to(bad.parent)
    (tmp_path / "link").symlink_to(bad)
    (tmp_path / "hard").hardlink_to(bad)
    target = {
        "relative": "bad",
        "parent": f"{bad.parent}/../folder/bad",
        "url": bad.as_uri(),
        "linked folder": tmp_path / "linked" / "bad",
        "link": tmp_path / "link",
        "hard link": tmp_path / "hard",
        "prefix": "bad",
    }[spelling]
    async with asyncrec.open_storage(bad.parent) as folder:
        with pytest.raises(ValueError, match="the target must be a different file"):
            await asyncrec.tools.repair(
                bad, target, overwrite=True, target_storage=folder if spelling == "prefix" else None
            )
    assert bad.read_bytes() == framed(RECORDS)[:-1]


async def test_repair_never_overwrites_source_in_other_storage() -> None:
    """One of the two open storages may be a part of the other."""
    whole = MemoryStorage()
    part = PrefixedStorage(whole, "a")
    await whole.put("a/x", framed(RECORDS)[:-1])
    with pytest.raises(ValueError, match="the target must be a different file"):
        await asyncrec.tools.repair("a/x", "x", overwrite=True, storage=whole, target_storage=part)
    await whole.put("a/y", framed(RECORDS)[:-1])
    report = await asyncrec.tools.repair("a/x", "y", overwrite=True, storage=whole, target_storage=part)
    assert report.records == 299


async def test_repair_cancelled_anywhere_leaves_no_target() -> None:
    source = MemoryStorage()
    await source.put("x", framed(RECORDS[:50])[:-1])
    finished: list[bool] = []
    target = MemoryStorage()

    async def attempt() -> None:
        await target.delete("y")
        finished.append(False)
        await asyncrec.tools.repair("x", "y", storage=source, target_storage=target)
        finished[-1] = True

    async def whole_or_not_there() -> None:
        left = [info.key async for info in target.list_objects()]
        if left or (finished and finished[-1]):
            assert left == ["y"]
            assert await asyncrec.read_records("y", storage=target) == RECORDS[:49]

    await cancel_at_every_checkpoint(attempt, after=whole_or_not_there)
    assert finished[-1]


async def test_progress_reports_number_of_saved_records() -> None:
    source = MemoryStorage()
    await source.put("x", framed(RECORDS))
    told: list[int] = []
    await asyncrec.tools.repair(
        "x", "y", storage=source, target_storage=source, progress=lambda done, _: told.append(done)
    )
    assert told == sorted(told)
    assert told[-1] == 300
