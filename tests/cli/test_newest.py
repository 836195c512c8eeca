"""``--newest`` and ``--all-versions`` select versions of a page, on the command line and in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_data import Run
from test_terminal import Terminal
from warm_python import WarmPython

from asyncrec import FixedLen, Schema, blocking

SCHEMA = Schema({"url": FixedLen((), "str"), "date": FixedLen((), "str", default=""), "status": FixedLen((), "int64")})
URL = "http://a/"
VERSIONS = [
    (URL, "2026-11-02", 200),
    (URL, "2026-11-03", 404),
    (URL, "2026-11-01", 200),
    ("http://b/", "2026-11-01", 200),
]


@pytest.fixture
def crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write three versions of one page, each in a separate crawl, and a single version of another."""
    monkeypatch.chdir(tmp_path)
    for url, date, status in VERSIONS:
        with blocking.open_sharded_writer("pages", schema=SCHEMA, on_duplicate="write") as writer:
            writer.write({"url": url, "date": date, "status": status}, key=url)
    return "pages"


def dates(printed: str) -> list[str]:
    return [json.loads(line)["date"] for line in printed.splitlines()]


def test_cat_prints_newest_or_all_versions(run: Run, crawl: str) -> None:
    one = ("cat", crawl, "--json", "--key", URL)
    assert dates(run(*one).ok()) == ["2026-11-02"], "the one that was committed first"
    assert dates(run(*one, "--newest", "date").ok()) == ["2026-11-03"]
    assert dates(run(*one, "--newest", "status").ok()) == ["2026-11-03"]
    assert dates(run(*one, "--all-versions").ok()) == ["2026-11-02", "2026-11-03", "2026-11-01"]
    assert dates(run(*one, "--all-versions", "--newest", "date").ok()) == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert run("cat", crawl, "--key", URL, "--all-versions").ok().count("record ") == 3


def test_filter_drops_page_with_unavailable_newest_version(run: Run, crawl: str) -> None:
    run("filter", crawl, "ok", "--newest", "date", "--where", "status=200").ok()
    assert [json.loads(line)["url"] for line in run("cat", "ok", "--json").ok().splitlines()] == ["http://b/"]
    assert "2 of 4 records" in run("filter", crawl, "newest", "--newest", "date").ok()
    assert sorted(dates(run("cat", "newest", "--json").ok())) == ["2026-11-01", "2026-11-03"]


def test_compact_keeps_newest_version(run: Run, crawl: str) -> None:
    assert "without 2 duplicates" in run("compact", crawl, "--drop-duplicates", "--newest", "date").ok()
    assert sorted(dates(run("cat", crawl, "--json").ok())) == ["2026-11-01", "2026-11-03"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("compact", "--newest", "date"), 2, "add --drop-duplicates"),
        (("cat", "--newest", "date"), 2, "--newest and --all-versions need --key"),
        (("cat", "--all-versions"), 2, "--newest and --all-versions need --key"),
        (("cat", "--key", URL, "--newest", "dat"), 2, "no feature 'dat'; the features are date, status, url"),
        (("cat", "--key", "none", "--all-versions"), 5, "no record has the key 'none'"),
        (("filter", "out/pages", "--newest", "dat"), 2, "no feature 'dat'"),
    ],
)
def test_invalid_newest_option_is_explained(
    run: Run, crawl: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run(arguments[0], crawl, *arguments[1:])
    assert (result.code, result.out) == (code, "")
    assert said in result.err


def test_file_has_no_versions(run: Run, data: Path) -> None:
    for arguments in (("cat", "--key", "x", "--all-versions"), ("filter", "out/x", "--newest", "date")):
        result = run(arguments[0], "data/plain.tfrecord", *arguments[1:])
        assert result.code
        assert "only a data set has keys" in result.err


def test_terminal_shows_versions_in_order(warm: WarmPython, crawl: str, tmp_path: Path) -> None:
    shown = Terminal(warm, tmp_path, "cat", crawl, "--key", URL, "--all-versions", "--newest", "date")
    made = Terminal(warm, tmp_path, "filter", crawl, "now/pages", "--newest", "date")
    assert (shown.finish(), made.finish()) == (0, 0)
    places = [shown.text.index(f'"2026-11-{day}"') for day in ("01", "02", "03")]
    assert places == sorted(places)
    assert "2 of 4 records in 1 shard" in made.text
