"""Deleting a page moves its body to a remaining revisit with any key, or deletes all pages that share the body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentError, FormatError
from asyncrec.storage import Storage
from asyncrec.tools import Where

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

Found = list[tuple[str, str, bytes]]


def page(url: str, body: bytes, **more: Any) -> dict[str, Any]:
    return pages.page(f"http://{url}", body, **{"status": 200, "date": "2026-11-28T00:00:00Z", **more})


async def write(storage: Storage, written: Iterable[dict[str, Any]], **options: Any) -> None:
    given = {"schema": pages.PAGE, "key_feature": "url", "on_duplicate": "write", "seen": "digest"}
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, **{**given, "max_shard_records": 2, **options}
    ) as writer:
        for each in written:
            await writer.write(each)


async def stored(storage: Storage) -> Found:
    """Return each page's URL, the URL that it refers to, and its body."""
    found = []
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async for each in dataset.examples():
            whole = await pages.resolve(dataset, each)
            assert pages.PAGE.decode(await dataset.get_by_key(each["url"]))["url"] == each["url"]
            found.append((each["url"][7:], each["refers_to_url"][7:], whole["content"]))
    assert (await tools.verify("pages", storage=storage)).ok
    return sorted(found)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("compacted", [False, True])
async def test_body_moves_to_first_remaining_revisit(storage: Storage, compression: str, compacted: bool) -> None:
    for host in "abc":
        await write(storage, [page(f"{host}/{n}", b"%d" % n) for n in range(5)], compression=compression)
    if compacted:
        await tools.compact("pages", storage=storage, manifest_only=True)
    report = await tools.delete("pages", keys=["http://a/1", "http://a/2", "http://b/2"], storage=storage)
    assert (report.records, report.keys_found) == (3, 3)
    assert await stored(storage) == [
        ("a/0", "", b"0"),
        ("a/3", "", b"3"),
        ("a/4", "", b"4"),
        ("b/0", "a/0", b"0"),
        ("b/1", "", b"1"),
        ("b/3", "a/3", b"3"),
        ("b/4", "a/4", b"4"),
        ("c/0", "a/0", b"0"),
        ("c/1", "a/1", b"1"),
        ("c/2", "", b"2"),
        ("c/3", "a/3", b"3"),
        ("c/4", "a/4", b"4"),
    ]
    # The next deletion and the next writer find the moved body.
    await write(storage, [page("d/1", b"1")])
    await tools.delete("pages", keys=["http://b/1"], storage=storage)
    assert [each for each in await stored(storage) if each[2] == b"1"] == [("c/1", "", b"1"), ("d/1", "b/1", b"1")]


async def test_page_with_moved_body_keeps_its_crawl_fields(storage: Storage) -> None:
    await write(storage, [page("a/", b"1", headers={"X": "a"})])
    await write(storage, [page("b/", b"1", headers={"X": "b"}, status=404, date="2026-11-30T00:00:00Z")])
    await tools.delete("pages", keys=["http://a/"], storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 1
        found = pages.PAGE.decode(await dataset.get(0))
    expected = pages.PAGE.decode(pages.PAGE.encode(page("b/", b"1", headers={"X": "b"}, status=404)))
    assert found == {**expected, "date": "2026-11-30T00:00:00Z"}


async def test_body_of_another_record_is_not_moved(storage: Storage) -> None:
    await write(storage, [page("a/", b"1")])
    await write(storage, [page("b/", b"1"), page("c/", b"1")], seen=lambda page: None)
    await write(storage, [page("d/", b"1")])
    before = await tools.delete("pages", keys=["http://b/"], storage=storage)
    assert [each.records for each in before.deletions] == [1]
    assert (await stored(storage))[-1] == ("d/", "a/", b"1")


@pytest.mark.parametrize("where", ["url contains a/", "type=response", "date<2026-11-29"])
async def test_conditions_orphaning_revisits_are_rejected(storage: Storage, where: str) -> None:
    await write(storage, [page("a/1", b"1"), page("b/1", b"1", date="2026-11-30T00:00:00Z")])
    await write(storage, [page("c/1", b"1", date="2026-11-30T00:00:00Z")])
    before = await stored(storage)
    with pytest.raises(ArgumentError, match="but not the revisits"):  # the body would move to a selected page
        await tools.delete("pages", where=[Where.parse(where)], storage=storage)
    assert await stored(storage) == before


@pytest.mark.parametrize("where", ["url contains b/", "type=response"])
async def test_conditions_selecting_moved_body_are_rejected(storage: Storage, where: str) -> None:
    await write(storage, [page("a/", b"1"), page("b/", b"1"), page("c/", b"1")])
    await tools.delete("pages", keys=["http://a/"], storage=storage)
    before = await stored(storage)
    assert before == [("b/", "", b"1"), ("c/", "a/", b"1")]
    with pytest.raises(ArgumentError, match=r"but not the revisits.*http://c/"):
        await tools.delete("pages", where=[Where.parse(where)], storage=storage)
    assert await stored(storage) == before


async def test_pattern_finds_moved_body(storage: Storage) -> None:
    for name in ("pages-1", "pages-2"):
        async with asyncrec.open_sharded_writer(
            name, schema=pages.PAGE, key_feature="url", seen="digest", storage=storage
        ) as writer:
            for host in "abc":
                await writer.write(page(f"{host}/{name}", name.encode()))
        await tools.delete(name, keys=[f"http://a/{name}"], storage=storage)
    async with asyncrec.open_dataset("pages-*", storage=storage) as dataset:
        found = [pages.PAGE.decode(await dataset.get(number)) for number in range(len(dataset))]
        whole = await pages.resolve(dataset, found)
    assert [each["content"] for each in whole] == [b"pages-1"] * 2 + [b"pages-2"] * 2


@pytest.mark.parametrize("key", ["a/1", "b/1", "c/1"])
async def test_all_pages_sharing_deleted_content_are_deleted(storage: Storage, key: str) -> None:
    for host in "abc":
        await write(storage, [page(f"{host}/{n}", b"%d" % n) for n in range(3)])
    counted = await tools.delete("pages", keys=[f"http://{key}"], content=True, dry_run=True, storage=storage)
    report = await tools.delete("pages", keys=[f"http://{key}"], content=True, storage=storage)
    assert (counted.records, report.records) == (3, 3)
    assert {body for _, _, body in await stored(storage)} == {b"0", b"2"}


async def test_body_matched_by_function_is_not_orphaned(storage: Storage) -> None:
    await write(storage, [page("a/", b"Hello"), page("b/", b"hello")], seen=lambda page: page["content"].lower())
    with pytest.raises(ArgumentError, match=r"cannot transfer it.*content=True"):
        await tools.delete("pages", keys=["http://a/"], storage=storage)
    assert len(await stored(storage)) == 2
    await tools.delete("pages", keys=["http://a/"], content=True, storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 0


async def test_shards_with_and_without_contents_coexist(storage: Storage) -> None:
    await write(storage, [page("a/", b"1"), page("b/", b"2")], seen=None)
    await write(storage, [page("c/", b"1"), page("d/", b"1")])
    await tools.delete("pages", keys=["http://a/", "http://c/"], storage=storage)
    assert await stored(storage) == [("b/", "", b"2"), ("d/", "", b"1")]


async def test_deleted_body_without_revisits_leaves_no_bytes(storage: Storage) -> None:
    await write(storage, [page("a/", b"secret" * 9), page("b/", b"secret" * 9), page("c/", b"other")])
    await tools.compact("pages", storage=storage, manifest_only=True)
    await tools.delete("pages", keys=["http://b/", "http://a/"], storage=storage)
    for key in [info.key async for info in storage.list_objects()]:
        assert b"secret" not in await storage.get(key)
    assert await stored(storage) == [("c/", "", b"other")]


async def test_many_bodies_move_in_pieces(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._bodies._PIECE_BYTES", 1)
    monkeypatch.setattr("asyncrec.tools._bodies._PIECE_SHARDS", 1)
    for host in "ab":
        await write(storage, [page(f"{host}/{n}", b"%d" % n) for n in range(6)])
    await tools.delete("pages", keys=[f"http://a/{n}" for n in range(6)], storage=storage)
    assert await stored(storage) == [(f"b/{n}", "", b"%d" % n) for n in range(6)]


async def test_damaged_page_stops_delete_with_error(storage: Storage) -> None:
    await write(storage, [page("a/", b"1" * 99)])
    await write(storage, [page("b/", b"1" * 99)])
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[0]
    content = bytearray(await storage.get(shard.path))
    content[60] ^= 1
    await storage.put(shard.path, bytes(content))
    with pytest.raises(FormatError):
        await tools.delete("pages", keys=["http://a/"], storage=storage)
    assert len((await asyncrec.read_manifest("pages", storage=storage)).shards) == 2
