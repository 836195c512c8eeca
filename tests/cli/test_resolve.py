"""``cat --resolve`` prints revisits with the bodies that they refer to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_data import Run

from asyncrec import FixedLen, Schema, blocking, encode_example, pages

URL = "http://a/"
SCHEMA = Schema({**pages.PAGE.features, "section": FixedLen((), "str", default="")})


@pytest.fixture
def crawled(tmp_path: Path) -> str:
    path = str(tmp_path / "pages")
    one = pages.page(URL, b"<p>one", status=200, headers={"Content-Type": "text/html"}, date="2026-11-22T00:00:00Z")
    two = pages.page(URL, status=304, date="2026-11-23T00:00:00Z", before=one)
    with blocking.open_sharded_writer(path, schema=SCHEMA, on_duplicate="write") as writer:
        for page in ({**one, "section": "news"}, {**two, "section": "sport"}, pages.page("http://b/", b"b")):
            writer.write(page, key=page["url"])
    return path


@pytest.mark.parametrize("by", [(), ("--where", "url=http://a/"), ("--limit", "2")])
def test_resolve_combines_original_body_with_revisit_features(run: Run, crawled: str, by: tuple[str, ...]) -> None:
    shown = [json.loads(line) for line in run("cat", crawled, "--resolve", "--json", *by).ok().splitlines()]
    assert [page["content"] for page in shown][:2] == ["<p>one", "<p>one"]
    assert [page["section"] for page in shown][:2] == ["news", "sport"]
    assert [page["date"] for page in shown][:2] == ["2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"]


def test_resolve_option_restores_body_of_single_record(run: Run, crawled: str) -> None:
    options = ("--record", "1", "--feature", "content", "--format", "raw")
    assert run("cat", crawled, *options).ok() == ""
    assert run("cat", crawled, "--resolve", *options).ok() == "<p>one"


def test_missing_revisit_body_exits_with_5(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "pages")
    with blocking.open_sharded_writer(path, schema=pages.PAGE, key_feature="url") as writer:
        writer.write(pages.page(URL, status=304, before=pages.page(URL, b"x", status=200)))
    for by in ((), ("--record", "0")):
        result = run("cat", path, "--resolve", *by)
        assert (result.code, result.out) == (5, "")
        assert f"the page {URL} of" in result.err


def test_resolve_rejects_records_without_pages(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "others")
    with blocking.open_sharded_writer(path) as writer:
        writer.write(encode_example({"label": 1}))
    result = run("cat", path, "--resolve")
    assert result.code
    assert "url" in result.err
    result = run("cat", "-", "--resolve")
    assert result.code == 2
    assert "in a data set" in result.err
