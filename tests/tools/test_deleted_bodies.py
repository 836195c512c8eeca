"""Deleting records never leaves a revisit without its body."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentError
from asyncrec.tools import Where

pytestmark = pytest.mark.anyio


def versions(url: str, *changes: bytes) -> list[dict[str, Any]]:
    """Return one version of a page per day; an empty body makes the version a revisit."""
    made: list[dict[str, Any]] = []
    for day, body in enumerate(changes, 1):
        date, before = f"2026-11-{day:02}T00:00:00Z", made[-1] if made else None
        made.append(pages.page(url, body, status=200 if body else 304, date=date, before=before))
    return made


# With the second and the third, only reading a record shows whether it is a page.
SCHEMAS = [pages.PAGE, asyncrec.Schema(pages.PAGE.features, allow_extra=True), None]
of_any_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=["pages", "pages and more", "no schema"])


async def write(path: Path, versions: Iterable[dict[str, Any]], *, schema: asyncrec.Schema | None = pages.PAGE) -> None:
    async with asyncrec.open_sharded_writer(path, schema=schema, on_duplicate="write", max_shard_records=3) as writer:
        for page in versions:
            await writer.write(pages.PAGE.encode(page), key=page["url"])


async def stored(path: Path) -> list[tuple[str, str, str, bytes]]:
    async with asyncrec.open_dataset(path) as dataset:
        found = [pages.PAGE.decode(record) async for record in dataset]
        whole = await pages.resolve(dataset, found)
    return sorted(
        (one["url"], one["date"][8:10], one["type"], other["content"]) for one, other in zip(found, whole, strict=True)
    )


async def test_deletion_by_key_removes_bodies_and_their_revisits(tmp_path: Path) -> None:
    await write(tmp_path / "pages", versions("http://a/", b"1", b"", b"2", b"") + versions("http://b/", b"1", b""))
    report = await tools.delete(tmp_path / "pages", keys=["http://a/"])
    assert report.records == 4
    assert await stored(tmp_path / "pages") == [
        ("http://b/", "01", "response", b"1"),
        ("http://b/", "02", "revisit", b"1"),
    ]


@of_any_schema
@pytest.mark.parametrize("dry_run", [True, False])
async def test_condition_deleting_only_needed_body_is_rejected(
    tmp_path: Path, dry_run: bool, schema: asyncrec.Schema | None
) -> None:
    pages_of_both = versions("http://a/", b"1", b"", b"2") + versions("http://b/", b"1", b"2")
    await write(tmp_path / "pages", pages_of_both, schema=schema)
    before = await stored(tmp_path / "pages")
    with pytest.raises(
        ArgumentError, match=r"refer to them, such as http://a/ of 2026-11-02T00:00:00Z; nothing was deleted"
    ):
        await tools.delete(tmp_path / "pages", where=[Where("date", "2026-11-02", "<")], dry_run=dry_run)
    assert await stored(tmp_path / "pages") == before


@of_any_schema
@pytest.mark.parametrize(("by", "keep"), [("key", "last"), ("feature:url", "last"), ("key", "newest-by=date")])
async def test_dedupe_dropping_needed_body_is_rejected(
    tmp_path: Path, by: str, keep: str, schema: asyncrec.Schema | None
) -> None:
    pages_of_both = versions("http://a/", b"1", b"2") + versions("http://b/", b"1", b"")
    await write(tmp_path / "pages", pages_of_both, schema=schema)
    with pytest.raises(ArgumentError, match=r"revisits.* http://b/ of 2026-11-02T00:00:00Z; nothing was written"):
        await tools.dedupe(tmp_path / "pages", tmp_path / "new", by=by, keep=keep)
    assert sorted(each.name for each in tmp_path.iterdir() if "new" in each.name) == []
    await tools.dedupe(tmp_path / "pages", tmp_path / "new", by=by)
    assert await stored(tmp_path / "new") == [
        ("http://a/", "01", "response", b"1"),
        ("http://b/", "01", "response", b"1"),
    ]


@of_any_schema
async def test_compaction_dropping_needed_body_is_rejected(tmp_path: Path, schema: asyncrec.Schema | None) -> None:
    await write(tmp_path / "pages", versions("http://a/", b"1", b"2") + versions("http://b/", b"1", b""), schema=schema)
    before = await stored(tmp_path / "pages")
    with pytest.raises(ArgumentError, match=r"revisits.* http://b/ of 2026-11-02T00:00:00Z; nothing was joined"):
        await tools.compact(tmp_path / "pages", drop_duplicates=True, newest="date")
    assert await stored(tmp_path / "pages") == before


async def test_dedupe_of_loose_files_keeps_needed_bodies(tmp_path: Path) -> None:
    records = [pages.PAGE.encode(page) for page in versions("http://a/", b"1", b"")]
    await asyncrec.write_records(tmp_path / "pages.tfrecord", records)
    with pytest.raises(ArgumentError, match=r"revisits.* http://a/ of 2026-11-02T00:00:00Z; nothing was written"):
        await tools.dedupe(tmp_path / "pages.tfrecord", tmp_path / "new", by="feature:url", keep="last")


async def test_dedupe_by_content_keeps_bodies(tmp_path: Path) -> None:
    for _ in range(2):
        await write(tmp_path / "pages", versions("http://a/", b"1", b"", b"2"))
    await tools.dedupe(tmp_path / "pages", tmp_path / "new", keep="last")
    assert [each[3] for each in await stored(tmp_path / "new")] == [b"1", b"1", b"2"]


async def test_condition_deleting_revisits_or_both_is_accepted(tmp_path: Path) -> None:
    await write(
        tmp_path / "pages", versions("http://a/", b"1", b"", b"2", b"") + versions("http://b/", b"1", b"", b"2")
    )
    assert (await tools.delete(tmp_path / "pages", where=[Where("date", "2026-11-04", ">=")])).records == 1
    assert (await tools.delete(tmp_path / "pages", where=[Where("date", "2026-11-03", "<")])).records == 4
    assert await stored(tmp_path / "pages") == [
        ("http://a/", "03", "response", b"2"),
        ("http://b/", "03", "response", b"2"),
    ]


async def test_body_without_revisits_may_be_deleted(tmp_path: Path) -> None:
    one, two = (pages.page("http://a/", b"1", status=200, date=f"2026-11-0{day}T00:00:00Z") for day in (1, 2))
    three = pages.page("http://a/", status=304, date="2026-11-03T00:00:00Z", before=one)
    await write(tmp_path / "pages", [one, two, three])
    assert (await tools.delete(tmp_path / "pages", where=[Where("date", "2026-11-02", "<")])).records == 1
    assert [each[2:] for each in await stored(tmp_path / "pages")] == [("response", b"1"), ("revisit", b"1")]


@of_any_schema
async def test_records_other_than_pages_are_ignored(tmp_path: Path, schema: asyncrec.Schema | None) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=schema, validate="none") as writer:
        for record in (
            b"not an example",
            asyncrec.encode_example({"url": "http://b/", "type": 3}),
            pages.PAGE.encode(pages.page("http://a/", b"1")),
        ):
            await writer.write(record)
    assert (await tools.delete(tmp_path / "pages", where=[Where("url", "http://a/")])).records == 1
