"""A 304 resolves to the version that it confirms, even if the body is stored with a version that differs from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import pages

pytestmark = pytest.mark.anyio

URL = "http://a/"
BODY = b"<p>caf\xe9"
OLD = {"Content-Type": "text/html; charset=utf-8", "ETag": '"1"', "Set-Cookie": "old=1"}
NEW = {"Content-Type": "text/html; charset=latin-1", "ETag": '"2"'}


async def write(path: Path, page: dict[str, Any], **options: Any) -> None:
    async with asyncrec.open_sharded_writer(path, schema=pages.PAGE, on_duplicate="write", **options) as writer:
        await writer.write(page, key=pages.page_key(page))


async def known(path: Path, url: str = URL) -> Any:
    async with asyncrec.open_dataset(path) as dataset:
        return await pages.conditions(dataset, url)


async def newest(path: Path, url: str = URL) -> dict[str, Any]:
    async with asyncrec.open_dataset(path) as dataset:
        return await pages.resolve(dataset, (await pages.conditions(dataset, url)).page)


@pytest.mark.parametrize("status", [200, 404])
async def test_304_resolves_to_version_with_same_body(tmp_path: Path, status: int) -> None:
    one = pages.page(URL, BODY, status=status, reason="Old", headers=OLD)
    two = pages.page(URL, BODY, status=200, reason="OK", headers=NEW, encoding="x", before=one)
    path = tmp_path / "pages"
    await write(path, one)
    await write(path, two)
    for age in ("1", "2"):
        asked = await known(path)
        assert asked["If-None-Match"] == '"2"'
        three = pages.page(URL, status=304, reason="Not Modified", headers={"Age": age}, before=asked.page)
        assert pages.is_revisit(three)
        assert three["profile"].endswith("/server-not-modified")
        await write(path, three)
        page = await newest(path)
        assert (page["status"], page["reason"], page["content"]) == (200, "OK", BODY)
        assert (page["content_type"], page["charset"], page["encoding"]) == (NEW["Content-Type"], "latin-1", "x")
        assert page["headers"] == b'Content-Type: text/html; charset=latin-1\nETag: "2"\nAge: %s' % age.encode()


async def test_304_never_has_headers_of_another_url(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    await write(path, pages.page("http://b/", BODY, status=404, headers=OLD), seen="digest")
    await write(path, pages.page(URL, BODY, status=200, headers=NEW), seen="digest")
    asked = await known(path)
    assert pages.is_revisit(asked.page)
    await write(path, pages.page(URL, status=304, headers={"ETag": '"2"'}, before=asked.page), seen="digest")
    page = await newest(path)
    assert (page["url"], page["status"], page["content"]) == (URL, 200, BODY)
    assert page["headers"] == b'Content-Type: text/html; charset=latin-1\nETag: "2"'


async def test_conditions_never_come_from_another_response(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    one = pages.page(URL, BODY, status=200, headers=OLD)
    await write(path, one)
    await write(path, pages.page(URL, BODY, status=200, before=one))
    assert await known(path) == {}
    await write(path, pages.page(URL, BODY, status=404, headers=NEW, before=one))
    assert await known(path) == {}
