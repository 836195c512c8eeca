"""An unchanged page is stored as a revisit, and gets its body from the page that it refers to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import pages
from asyncrec.errors import RecordKeyError

pytestmark = pytest.mark.anyio

URL = "http://a/"
ETAG = {"ETag": '"1"', "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT", "Content-Type": "text/html; charset=utf-8"}


def first(body: bytes = b"<p>one", *, date: str = "2026-11-22T00:00:00Z", **parts: Any) -> dict[str, Any]:
    return pages.page(**{"url": URL, "content": body, "status": 200, "headers": ETAG, "date": date} | parts)


def not_modified(before: Any, *, date: str = "2026-11-23T00:00:00Z", **parts: Any) -> dict[str, Any]:
    return pages.page(**{"url": URL, "status": 304, "reason": "Not Modified", "date": date} | parts, before=before)


async def write(path: Path, versions: Iterable[dict[str, Any]]) -> None:
    """Write each version in a commit of its own."""
    for page in versions:
        async with asyncrec.open_sharded_writer(path, schema=pages.PAGE, on_duplicate="write") as writer:
            await writer.write(page, key=pages.page_key(page))


async def the_revisit(dataset: asyncrec.Dataset, schema: asyncrec.Schema = pages.PAGE) -> dict[str, Any]:
    """Return the only revisit of a data set."""
    (page,) = [page async for page in dataset.examples(schema) if pages.is_revisit(page)]
    return page


def stored(page: dict[str, Any]) -> dict[str, Any]:
    return pages.PAGE.decode(pages.PAGE.encode(page))


async def test_304_is_revisit_of_stored_page() -> None:
    one = first()
    page = stored(not_modified(one))
    assert pages.is_revisit(page)
    assert not pages.is_revisit(one)
    assert (page["content"], page["status"], page["digest"]) == (b"", 304, one["digest"])
    assert (page["refers_to_url"], page["refers_to_date"]) == (URL, "2026-11-22T00:00:00Z")
    assert page["profile"] == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"


async def test_equal_body_becomes_revisit_but_changed_body_becomes_page() -> None:
    one = first()
    same, other = first(date="2026-11-23T00:00:00Z", before=one), first(b"<p>two", before=one)
    assert (same["type"], same["content"], same["digest"]) == ("revisit", b"", one["digest"])
    assert same["profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    assert not pages.is_revisit(other)
    assert other["content"] == b"<p>two"


async def test_revisit_of_revisit_refers_to_body() -> None:
    one = first()
    two = not_modified(one)
    three = first(date="2026-11-24T00:00:00Z", before=stored(two))
    four = not_modified(stored(three), date="2026-11-25T00:00:00Z")
    assert [each["refers_to_date"] for each in (two, three, four)] == ["2026-11-22T00:00:00Z"] * 3
    assert {each["digest"] for each in (one, two, three, four)} == {one["digest"]}


@pytest.mark.parametrize(
    ("parts", "before"),
    [
        ({"status": 304, "content": b""}, {"url": "http://b/"}),
        ({"status": 304, "content": b""}, {"final_url": "http://elsewhere/"}),
        ({"status": 304, "content": b""}, {"status": 404}),
        ({"status": 304, "content": b""}, {"method": "POST"}),
        ({"status": 304, "content": b""}, {"truncated": "disconnect"}),
        ({}, {"url": "http://b/"}),
        ({"method": "POST"}, {"method": "POST"}),
        ({"content": b""}, {"content": b""}),
        ({}, {"content": b"<p>forged", "digest": pages.payload_digest(b"<p>one")}),
        ({}, {"type": "revisit", "content": b"", "digest": pages.payload_digest(b"<p>one")}),
    ],
    ids=[
        "304 of another URL", "304 behind another redirect", "304 of an error", "304 of another method",
        "304 of a page that ended early",
        "an equal body of another URL", "a POST", "nothing", "equal digests of other bodies",
        "a revisit that refers to nothing",
    ],
)  # fmt: skip
async def test_page_without_retrievable_original_is_stored_with_body(
    parts: dict[str, Any], before: dict[str, Any]
) -> None:
    page = first(**parts, before=first(**before))
    assert page == first(**parts)
    assert not pages.is_revisit(page)


@pytest.mark.parametrize("before", [b"record", "http://a/", {}, 1])
async def test_before_argument_must_be_page(before: Any) -> None:
    with pytest.raises(TypeError, match="before must be a page"):
        first(before=before)


async def test_conditions_come_from_newest_version(tmp_path: Path) -> None:
    two = first(b"<p>two", date="2026-11-23T00:00:00Z", headers={"etag": 'W/"2"'})
    await write(tmp_path / "pages", [first(), two])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        known = await pages.conditions(dataset, URL)
        assert known == {"If-None-Match": 'W/"2"'}
        assert known.page == stored(two)
        other = await pages.conditions(dataset, "http://b/")
        assert (other, other.page) == ({}, None)
    none = await pages.conditions(None, URL)
    assert (none, none.page) == ({}, None)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, {"If-None-Match": '"1"', "If-Modified-Since": "Sun, 22 Nov 2026 10:00:00 GMT"}),
        ({"headers": {"Date": "Sun, 22 Nov 2026 10:00:00 GMT"}}, {}),
        ({"headers": {"ETag": '"\u00e9"', "Last-Modified": "x"}}, {"If-Modified-Since": "x"}),
        ({"headers": [(b"ETag", b'"\x01"')]}, {}),
        ({"status": 404}, {}),
        ({"truncated": "disconnect"}, {}),
        ({"truncated": "unspecified"}, {}),
        ({"max_bytes": 3}, {"If-None-Match": '"1"', "If-Modified-Since": "Sun, 22 Nov 2026 10:00:00 GMT"}),
    ],
)
async def test_conditions_use_only_trusted_validators(
    tmp_path: Path, parts: dict[str, Any], expected: dict[str, str]
) -> None:
    await write(tmp_path / "pages", [first(**parts)])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert await pages.conditions(dataset, URL) == expected


async def test_revisit_conditions_come_from_revisit_or_original(tmp_path: Path) -> None:
    one = first()
    two = not_modified(one)
    three = first(date="2026-11-24T00:00:00Z", headers={"ETag": '"3"'}, before=two)
    await write(tmp_path / "pages", [one, two])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert (await pages.conditions(dataset, URL))["If-None-Match"] == '"1"'
    await write(tmp_path / "pages", [three])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        known = await pages.conditions(dataset, URL)
        assert known == {"If-None-Match": '"3"'}
        assert known.page == stored(three)


async def test_conditions_are_empty_for_missing_body(tmp_path: Path) -> None:
    """A 304 would lead to another revisit without a body."""
    await write(tmp_path / "pages", [not_modified(first(), headers=ETAG)])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        known = await pages.conditions(dataset, URL)
        assert (known, known.page) == ({}, None)


async def test_resolved_page_equals_crawled_page(tmp_path: Path) -> None:
    one = first()
    whole = first(date="2026-11-23T00:00:00Z", headers={"ETag": '"new"', "Content-Type": "text/html"}, reason="Fine")
    same = pages.page(**{**_parts(whole), "before": one})
    assert pages.is_revisit(same)
    await write(tmp_path / "pages", [one, same])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        found = sorted([page async for page in dataset.examples()], key=lambda page: page["date"])
        assert await pages.resolve(dataset, found) == [stored(one), stored(whole)]
        assert await pages.resolve(dataset, found[1]) == stored(whole)
        assert await pages.resolve(dataset, []) == []


def _parts(page: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in page.items() if name not in ("digest", "content_type", "charset")}


async def test_resolved_304_has_original_status_and_newer_headers(tmp_path: Path) -> None:
    one = first(headers={**ETAG, "Cache-Control": "no-cache", "Content-Length": "6"}, reason="OK")
    sent = {"ETag": '"1b"', "Age": "5", "Content-Length": "0", "Connection": "close", "Content-Type": "none"}
    await write(tmp_path / "pages", [one, not_modified(one, headers=sent, ip="127.0.0.2")])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        page = await pages.resolve(dataset, await the_revisit(dataset))
    assert (page["status"], page["reason"], page["content"]) == (200, "OK", b"<p>one")
    assert (page["content_type"], page["charset"]) == ("text/html; charset=utf-8", "utf-8")
    assert (page["date"], page["ip"], page["type"]) == ("2026-11-23T00:00:00Z", "127.0.0.2", "response")
    assert page["headers"].split(b"\n") == [
        b"Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT", b"Content-Type: text/html; charset=utf-8",
        b"Cache-Control: no-cache", b"Content-Length: 6", b'ETag: "1b"', b"Age: 5",
    ]  # fmt: skip


async def test_revisit_resolves_to_right_version_among_many(tmp_path: Path) -> None:
    """There are more versions than are read at once; pairs of them have the same second."""
    versions = [first(b"%d" % number, date=f"2026-11-22T00:00:{number // 2:02}Z") for number in range(40)]
    revisits = [not_modified(versions[number]) for number in (0, 1, 17, 38, 39)]
    await write(tmp_path / "pages", [*versions, *revisits])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        found = await pages.resolve(dataset, revisits)
    assert [page["content"] for page in found] == [b"0", b"1", b"17", b"38", b"39"]


async def test_missing_body_error_names_original(tmp_path: Path) -> None:
    await write(tmp_path / "pages", [first(b"<p>two"), not_modified(first())])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        page = await the_revisit(dataset)
        with pytest.raises(RecordKeyError, match="has no body: it revisits http://a/ of 2026-11-22T00:00:00Z"):
            await pages.resolve(dataset, page)
        with pytest.raises(KeyError, match="open both as one by a pattern"):
            await pages.resolve(dataset, [page])


async def test_body_is_found_in_another_data_set_of_pattern(tmp_path: Path) -> None:
    one = first()
    await write(tmp_path / "pages-2026-11-22", [one])
    await write(tmp_path / "pages-2026-11-23", [not_modified(one)])
    async with asyncrec.open_dataset(tmp_path / "pages-2026-11-*") as dataset:
        assert (await pages.conditions(dataset, URL))["If-None-Match"] == '"1"'
        assert [page["content"] for page in await pages.resolve(dataset, [not_modified(one)])] == [b"<p>one"]


async def test_resolve_keeps_custom_features_and_reads_older_schemas(tmp_path: Path) -> None:
    former = {name: kind for name, kind in pages.PAGE.features.items() if not name.startswith(("refers_to", "profile"))}
    more = {**pages.PAGE.features, "section": asyncrec.FixedLen((), "str", default="")}
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=asyncrec.Schema(former)) as writer:
        one = first()
        await writer.write({name: value for name, value in one.items() if name in former}, key=URL)
    async with asyncrec.open_sharded_writer(
        tmp_path / "pages", schema=asyncrec.Schema(more), on_duplicate="write"
    ) as writer:
        await writer.write({**not_modified(one), "section": "news"}, key=URL)
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        page = await pages.resolve(dataset, await the_revisit(dataset, asyncrec.Schema(more)))
    assert (page["section"], page["content"]) == ("news", b"<p>one")


async def test_arguments_other_than_data_set_and_page_are_rejected(tmp_path: Path) -> None:
    await write(tmp_path / "pages", [first()])
    for other in ("crawl/pages", {}, tmp_path):
        with pytest.raises(TypeError, match=r"one that asyncrec\.open_dataset has opened"):
            await pages.conditions(other, URL)  # type: ignore[arg-type]  # deliberately wrong
        with pytest.raises(TypeError, match=r"one that asyncrec\.open_dataset has opened"):
            await pages.resolve(other, first())  # type: ignore[call-overload]  # as above
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        for page in (b"record", "record", [b"record"], None, 3, {"type": "revisit"}):
            with pytest.raises(TypeError, match="a page must be a dict"):
                await pages.resolve(dataset, page)  # type: ignore[call-overload]  # as above
        with pytest.raises(TypeError, match="a key must be a str or bytes"):
            await pages.conditions(dataset, 7)  # type: ignore[arg-type]  # as above
    for url in (URL, "http://b/"):
        with pytest.raises(anyio.ClosedResourceError):
            await pages.conditions(dataset, url)
    with pytest.raises(anyio.ClosedResourceError):
        await pages.resolve(dataset, first())
