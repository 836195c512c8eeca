"""A page whose body was seen before, under any key, is stored as a revisit of the page with that body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentError, ExampleError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local.storage import LocalStorage

from .keyed_store import Far
from .seeing import Stored, opened, page, stored, write

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["disk", "store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "crawl") if request.param == "disk" else MemoryStorage()


async def test_equal_body_becomes_revisit_under_any_key(storage: Storage) -> None:
    await write(storage, [page("a/", b"1"), page("b/", b"1"), page("a/", b"1"), page("c/", b"2")])
    assert await stored(storage) == [
        Stored("a/", "", b"1"),
        Stored("a/", "a/", b"1"),
        Stored("b/", "a/", b"1"),
        Stored("c/", "", b"2"),
    ]


async def test_revisit_has_standard_web_archive_fields(storage: Storage) -> None:
    await write(storage, [page("a/", b"1", headers={"X": "a"}), page("b/", b"1", headers={"X": "b"}, status=404)])
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        found = pages.PAGE.decode(await dataset.get_by_key("http://b/"))
        whole = await pages.resolve(dataset, found)
    assert (found["content"], found["type"], found["status"]) == (b"", "revisit", 404)
    assert (found["refers_to_url"], found["refers_to_date"]) == ("http://a/", "2026-11-28T00:00:00Z")
    assert found["profile"].endswith("identical-payload-digest")
    assert found["digest"] == pages.payload_digest(b"1")
    assert (whole["content"], whole["status"], whole["headers"]) == (b"1", 404, b"X: b")


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("compacted", [False, True])
async def test_writer_knows_bodies_of_earlier_writers(storage: Storage, compression: str, compacted: bool) -> None:
    for name in "abc":
        await write(storage, [page(f"{name}/{n}", b"%d" % n) for n in range(5)], compression=compression)
        if compacted:
            await tools.compact("pages", storage=storage, manifest_only=True)
    assert [each for each in await stored(storage) if each.refers_to] == [
        Stored(f"{name}/{n}", f"a/{n}", b"%d" % n) for name in "bc" for n in range(5)
    ]


async def test_writer_reads_runs_instead_of_keys_files() -> None:
    storage = Far()
    await write(storage, [page(f"a/{n}", b"%d" % n) for n in range(40)], max_shard_records=2)
    await tools.compact("pages", storage=storage, manifest_only=True)
    storage.asked.clear()
    await write(storage, [page("b/7", b"7")])
    assert [key for key in storage.asked if key.startswith("_keys/")] == []
    assert Stored("b/7", "a/7", b"7") in await stored(storage)


async def test_write_many_stores_pages_like_single_writes(storage: Storage) -> None:
    await write(storage, [page("a/", b"1")])
    async with opened(storage) as writer:
        assert await writer.write_many([page(f"b/{n}", b"%d" % (n % 3)) for n in range(600)]) == 600
        assert await writer.write_many(pages.PAGE.encode(page(f"c/{n}", b"2")) for n in range(3)) == 603
    found = await stored(storage)
    assert len(found) == 604
    assert sorted(each.url for each in found if not each.refers_to) == ["a/", "b/0", "b/2"]
    assert all(each.body is not None for each in found)


async def test_concurrent_tasks_store_one_body_once(storage: Storage) -> None:
    """The body is large and encoded in a thread, so all tasks have looked it up before the first page is stored."""
    async with opened(storage) as writer, anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(writer.write, page(f"{number}/", b"same" * 300_000))
    found = await stored(storage)
    assert [each.body for each in found] == [b"same" * 300_000] * 8
    assert len([each for each in found if not each.refers_to]) == 1


async def test_two_concurrent_writers_lose_no_bodies(storage: Storage) -> None:
    async with opened(storage) as one, opened(storage) as other:
        await one.write(page("a/", b"1"))
        await other.write(page("b/", b"1"))
        await one.write(page("c/", b"1"))
    assert [each.body for each in await stored(storage)] == [b"1"] * 3
    await write(storage, [page("d/", b"1")])
    assert (await stored(storage))[-1].refers_to in ("a/", "b/")


async def test_seen_function_decides_equality_of_bodies(storage: Storage) -> None:
    def without_case(page: Any) -> bytes | None:
        return page["content"].lower() if len(page["content"]) > 1 else None

    written = [page("a/", b"Hello"), page("b/", b"hello"), page("c/", b"x"), page("d/", b"x")]
    await write(storage, written, seen=without_case)
    await write(storage, [page("e/", b"HELLO")], seen=without_case)
    assert await stored(storage) == [
        Stored("a/", "", b"Hello"),
        Stored("b/", "a/", b"Hello"),
        Stored("c/", "", b"x"),
        Stored("d/", "", b"x"),
        Stored("e/", "a/", b"Hello"),
    ]


async def test_page_without_findable_body_is_stored_with_body(storage: Storage) -> None:
    written = [page("a/", b""), page("b/", b""), page("c/", b"1", method="POST"), page("d/", b"1", method="POST")]
    async with opened(storage, key_feature=None) as writer:
        for each in written:
            await writer.write(each, key=each["url"])
        for each in (page("e/", b"2"), page("f/", b"2")):
            await writer.write(each, key=f"another key than {each['url']}")
    assert [each for each in await stored(storage, keyed=False) if each.refers_to] == []


async def test_page_written_as_revisit_stays_revisit(storage: Storage) -> None:
    first = page("a/", b"1")
    await write(storage, [first, page("a/", b"", status=304, before=first), page("b/", b"1")])
    assert [each.refers_to for each in await stored(storage)] == ["", "a/", "a/"]


async def test_known_key_is_skipped_before_comparing_body(storage: Storage) -> None:
    async with opened(storage, on_duplicate="skip") as writer:
        assert await writer.write(page("a/", b"1")) == 1
        assert await writer.write(page("a/", b"2")) == 1
        assert await writer.write(page("b/", b"2")) == 2
        assert writer.stats().duplicates == 1
    assert [each.refers_to for each in await stored(storage)] == ["", ""]


async def test_body_under_forged_digest_is_stored() -> None:
    storage = MemoryStorage()
    await write(storage, [page("a/", b"1")])
    await write(storage, [{**page("b/", b"2"), "digest": pages.payload_digest(b"1")}])
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert pages.PAGE.decode(await dataset.get_by_key("http://b/"))["content"] == b"2"


@pytest.mark.parametrize("known", [1, 1 << 15])
async def test_forged_digest_within_one_writer_loses_no_bodies(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec._shards.writing.known_contents._MOST_NEW", known)
    storage = MemoryStorage()
    forged = {**page("b/", b"2"), "digest": pages.payload_digest(b"1")}
    await write(storage, [page("a/", b"1"), page("x/", b"3"), forged, page("c/", b"1")])
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        found = {each["url"]: await pages.resolve(dataset, each) async for each in dataset.examples()}
    assert {url[7:]: each["content"] for url, each in found.items()} == {"a/": b"1", "b/": b"2", "c/": b"1", "x/": b"3"}


@pytest.mark.parametrize(("first", "second"), [("response", "resource"), ("resource", "response")])
async def test_page_of_different_type_is_stored_with_body(storage: Storage, first: str, second: str) -> None:
    written = [{**page("a/", b"1"), "type": first}, {**page("b/", b"1"), "type": second}]
    await write(storage, written)
    assert await decoded(storage) == list(map(whole, written))


async def test_page_with_status_304_and_body_keeps_body(storage: Storage) -> None:
    written = [page("a/", b"1", headers={"X": "1"}), {**page("b/", b"1", headers={"X": "2"}), "status": 304}]
    await write(storage, written)
    assert await decoded(storage) == list(map(whole, written))


def whole(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page with the defaults filled in."""
    return pages.PAGE.decode(pages.PAGE.encode(page))


async def decoded(storage: Storage) -> list[dict[str, Any]]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return sorted([each async for each in dataset.examples()], key=lambda each: str(each["url"]))


async def test_revisit_in_another_shard_waits_for_durable_body() -> None:
    storage = MemoryStorage()  # its flush reaches no level
    async with opened(storage, open_shards=2, flush_seconds=None) as writer:
        await writer.write(page("a/", b"1"), partition=0)
        other = next(each for each in range(1, 99) if _shard_of(each) != _shard_of(0))
        await writer.write(page("b/", b"1"), partition=other)
        await writer.commit()
        await writer.write(page("c/", b"1"), partition=0)
        await writer.write(page("d/", b"1"), partition=other)
    assert [bool(each.refers_to) for each in await stored(storage)] == [False, False, True, True]


def _shard_of(partition: int) -> int:
    from asyncrec._shards.writing.keys import partition_of

    return partition_of(partition, 2)


async def test_rejected_record_leaves_no_known_body(storage: Storage) -> None:
    async with opened(storage, max_record_bytes=2000) as writer:
        with pytest.raises(ArgumentError, match="max_record_bytes"):
            await writer.write(page("a/", b"1" * 3000))
        with pytest.raises(ExampleError):
            await writer.write({**page("b/", b"2"), "status": "none"})
        with anyio.CancelScope() as scope:
            scope.cancel()
            await writer.write_many([page("c/", b"3")] * 300)
        for each in (page("d/", b"2"), page("e/", b"3")):
            await writer.write(each)
    assert Stored("d/", "", b"2") in await stored(storage)
    assert all(each.body is not None for each in await stored(storage))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seen": 3}, "a feature's name or a function, not int"),
        ({"seen": "nothing"}, "the schema has no feature 'nothing'"),
        ({"schema": None, "key_feature": None}, "the writer has no schema"),
        (
            {"schema": {"url": asyncrec.FixedLen((), "str"), "digest": asyncrec.FixedLen((), "str")}},
            "no feature 'date'",
        ),
        ({"num_shards": 3}, "for rolling shards"),
        ({"mode": "replace"}, "for rolling shards"),
    ],
    ids=str,
)
async def test_writer_without_revisits_rejects_seen_on_opening(options: dict[str, Any], message: str) -> None:
    storage = MemoryStorage()
    with pytest.raises(ArgumentError, match=message):
        async with opened(storage, **options):
            pass
    assert [info.key async for info in storage.list_objects()] == []


async def test_page_without_key_or_with_source_is_rejected(storage: Storage) -> None:
    async with opened(storage, key_feature=None) as writer:
        with pytest.raises(ArgumentError, match="a page has no key"):
            await writer.write(page("a/", b"1"))
        with pytest.raises(ArgumentError, match="takes no source="):
            await writer.write(page("a/", b"1"), key="http://a/", source="queue", position=1)
        with pytest.raises(ArgumentError, match="source="):
            await writer.write_many([page("a/", b"1")], source="queue", position=1)
    async with opened(storage, seen=lambda page: 3) as writer:
        with pytest.raises(ArgumentError, match="seen must return str, bytes or None, not int"):
            await writer.write(page("a/", b"1"))


async def test_seen_option_uses_schema_of_data_set(storage: Storage) -> None:
    await write(storage, [page("a/", b"1")])
    async with opened(storage, schema=None, key_feature=None) as writer:
        await writer.write(page("b/", b"1"), key="http://b/")
    assert (await stored(storage))[1] == Stored("b/", "a/", b"1")


async def test_encoded_page_keeps_bytes_and_unknown_features(storage: Storage) -> None:
    schema = asyncrec.Schema(pages.PAGE.features, allow_extra=True)
    first, second = (schema.encode({**page(f"{host}/", b"1"), "more": [1, 2]}) for host in "ab")
    async with opened(storage, schema=schema) as writer:
        await writer.write(first)
        await writer.write(second)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("http://a/") == first
        assert asyncrec.decode_example(await dataset.get_by_key("http://b/"))["more"].tolist() == [1, 2]
    await tools.delete("pages", keys=["http://a/"], storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        found, expected = (asyncrec.decode_example(each) for each in (await dataset.get(0), second))
    assert {name: list(found[name]) for name in expected} == {name: list(each) for name, each in expected.items()}


async def test_discarded_body_leaves_no_committed_revisit(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError):
        async with opened(storage, open_shards=2, max_shard_bytes=20_000, on_error="discard") as writer:
            await writer.write(page("a/", b"1"))
            await writer.flush()
            for name, body in (("b/", b"1"), ("c/", b"c"), ("d/", b"d" * 30_000), ("e/", b"e"), ("f/", b"f")):
                await writer.write(page(name, body))
            while not writer.stats().committed_records:  # until the full shard is committed
                await anyio.lowlevel.checkpoint()
            raise ZeroDivisionError
    assert all(each.body is not None for each in await stored(storage))
