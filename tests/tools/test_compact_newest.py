"""Compacting by a feature keeps the newest record of each key, in any commit order and despite other compactions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from met_storage import MetStorage

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, FormatError
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio

Version = tuple[str | None, int | None]


def record(number: int, date: int | None) -> bytes:
    return asyncrec.encode_example({"n": number, **({} if date is None else {"date": date})})


async def write(storage: Storage, writer: str, versions: list[Version], first: int = 0) -> None:
    """Write one record per version, numbered from ``first``."""
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_records=2, on_duplicate="write", writer_id=writer
    ) as opened:
        for number, (key, date) in enumerate(versions, first):
            await opened.write(record(number, date), key=key)


async def compact(storage: Storage, **options: Any) -> tools.CompactReport:
    return await tools.compact("pages", storage=storage, **{"drop_duplicates": True, "newest": "date", **options})


async def numbers(storage: Storage) -> list[int]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return [int(asyncrec.decode_example(each)["n"][0]) async for each in dataset]


async def test_newest_version_keeps_its_position(storage: Storage) -> None:
    await write(storage, "b", [("x", 5), (None, 1), ("y", 1), ("z", 7)])
    await write(storage, "a", [("x", 3), ("y", 2), (None, 1), ("z", 7)], 4)
    report = await compact(storage, dry_run=True)
    assert report.duplicates == 3
    report = await compact(storage)
    assert (report.duplicates, report.records) == (3, 5)
    assert await numbers(storage) == [5, 6, 7, 0, 1]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("y") == record(5, 2)
    assert (await compact(storage)).commits == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([*"xyz", None]), st.sampled_from([None, 1, 2, 3])), min_size=1, max_size=5),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([60, 200, 1 << 20]),
)
async def test_compaction_keeps_versions_returned_by_newest_readers(
    anyio_backend: str, commits: list[list[Version]], size: int
) -> None:
    storage = MemoryStorage()
    total = 0
    for at, versions in enumerate(commits):
        await write(storage, f"w{9 - at}", versions, total)
        total += len(versions)
    dated = any(date is not None for versions in commits for _, date in versions)
    if not dated:
        await write(storage, "dated", [("x", 1), ("x", 1)], total)
    if not any(key for versions in commits for key, _ in versions):
        await write(storage, "keyed", [("x", 1), ("x", 1)], total)
    try:
        async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:
            wanted = [int(asyncrec.decode_example(each)["n"][0]) async for each in dataset]
    except ArgumentValueError:  # none of the records that matter has a date
        with pytest.raises(ArgumentValueError):
            await compact(storage, max_shard_bytes=size)
        return
    await compact(storage, max_shard_bytes=size)
    assert await numbers(storage) == wanted
    assert (await compact(storage, max_shard_bytes=size)).duplicates == 0


@pytest.mark.parametrize(("newest", "others"), [("date", None), (None, "date"), ("date", "n")], ids=str)
async def test_concurrent_compaction_rules_keep_version_of_each_key(
    monkeypatch: pytest.MonkeyPatch, newest: str | None, others: str | None
) -> None:
    """One compaction has already made its plan when the other commits, so records it meant to keep may be gone."""
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_SHARDS", 1)
    storage = MemoryStorage()
    await write(storage, "a", [("x", 2), ("y", 1)])
    await write(storage, "b", [("y", 2), ("x", 1)], 2)
    await write(storage, "c", [("z", 1), ("z", 1)], 4)
    met = False

    async def meet(operation: str, key: str) -> None:
        nonlocal met
        if "_removal-" in key and not met:
            met = True
            await compact(storage, newest=others, max_shard_bytes=1)

    await compact(MetStorage(storage, before=meet), newest=newest, max_shard_bytes=1)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert [len(await dataset.history(key)) for key in "xyz"] == [1, 1, 1]


async def test_keys_without_repeats_need_no_feature(storage: Storage) -> None:
    await write(storage, "a", [("x", None), (None, None), ("y", None)])
    assert (await compact(storage)).records == 3


async def test_records_without_keys_are_joined(storage: Storage) -> None:
    await write(storage, "a", [(None, 1)] * 4)
    report = await compact(storage)
    assert (report.joined, report.records) == (2, 4)


async def test_invalid_input_is_rejected_without_changes(storage: Storage) -> None:
    await write(storage, "a", [("x", 1), ("x", 2)])
    before = {info.key async for info in storage.list_objects()}
    for options, error, message in (
        ({"drop_duplicates": False}, ArgumentValueError, "newest chooses the record"),
        ({"newest": ""}, ArgumentValueError, "newest is empty"),
        ({"newest": 3}, ArgumentTypeError, "newest must be"),
        ({"newest": "dote"}, ArgumentValueError, "dote"),
        ({"manifest_only": True}, ArgumentValueError, "cannot be combined"),
    ):
        with pytest.raises(error, match=message):
            await compact(storage, **options)
    assert {info.key async for info in storage.list_objects()} == before


async def test_damaged_version_stops_compaction(storage: Storage) -> None:
    """The damaged record might be the newest version."""
    await write(storage, "a", [("x", 1), ("y", 1), ("x", 2), ("z", 1)])
    path = (await asyncrec.read_manifest("pages", storage=storage)).shards[0].path
    content = bytearray(await storage.get(path))
    content[20] ^= 1
    await storage.put(path, bytes(content))
    with pytest.raises(FormatError):
        await compact(storage)
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 4


async def test_page_with_body_of_revisit_is_kept(storage: Storage) -> None:
    first = pages.page("http://a/", b"body", status=200, date="2026-11-01T00:00:00Z")
    again = pages.page("http://a/", b"", status=304, date="2026-11-02T00:00:00Z", before=first)
    other = [pages.page("http://b/", b"b", status=200, date=f"2026-11-0{day}T00:00:00Z") for day in (2, 1)]
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, schema=pages.PAGE, key_feature="url", on_duplicate="write", max_shard_records=2
    ) as writer:
        for page in (first, *other):
            await writer.write(page)
    assert (await compact(storage)).duplicates == 1
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, schema=pages.PAGE, key_feature="url", on_duplicate="write"
    ) as writer:
        await writer.write(again)
    with pytest.raises(ArgumentValueError, match=r"such as http://a/ of 2026-11-02T00:00:00Z; nothing was joined"):
        await compact(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 3
