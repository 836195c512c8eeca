"""A single record is printed like any other, whether it was found by number or by key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_data import Run

from asyncrec import FixedLen, Schema, VarLen, blocking

SCHEMA = Schema({"url": FixedLen((), "str"), "body": FixedLen((), "bytes"), "tags": VarLen("str")})


@pytest.fixture
def stored(tmp_path: Path) -> str:
    path = str(tmp_path / "pages")
    with blocking.open_sharded_writer(path, max_shard_records=10, schema=SCHEMA) as writer:
        writer.write({"url": "http://a/", "body": b"<p>", "tags": ["x"]}, key="http://a/")
    return path


def _features(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("by", [("--key", "http://a/"), ("--record", "0"), ("--record", "-1")])
def test_cat_shows_schema_text_as_str(run: Run, stored: str, by: tuple[str, str]) -> None:
    found = _features(run("cat", stored, *by).ok())
    assert found == _features(run("head", stored).ok())
    assert found == [["url", "str", '"http://a/"'], ["body", "bytes", '"<p>"'], ["tags", "str", '"x"']]


@pytest.mark.parametrize("by", [("--key", "http://a/"), ("--record", "0")])
def test_cat_shows_schema_list_as_list(run: Run, stored: str, by: tuple[str, str]) -> None:
    shown = json.loads(run("cat", stored, "--json", *by).ok())
    assert shown["tags"] == ["x"]
    assert shown == json.loads(run("cat", stored, "--json").ok())


@pytest.mark.parametrize("by", [("--key", "http://a/"), ("--record", "0")])
def test_cat_names_unknown_feature(run: Run, stored: str, by: tuple[str, str]) -> None:
    result = run("cat", stored, "--feature", "ulr", *by)
    assert result.code
    assert "ulr" in result.err


def test_cat_prints_single_feature_in_each_format(run: Run, stored: str) -> None:
    assert run("cat", stored, "--key", "http://a/", "--feature", "body", "--format", "raw").ok() == "<p>"
    assert run("cat", stored, "--key", "http://a/", "--feature", "body", "--format", "text").ok() == "<p>\n"
    assert "3c 70 3e" in run("cat", stored, "--feature", "body", "--format", "hex").ok()
    assert "once" in run("cat", stored, "--feature", "body", "--feature", "tags", "--format", "raw").err
    assert "no feature 'bdy'" in run("cat", stored, "--feature", "bdy", "--format", "text").err


def test_cat_exits_with_5_for_missing_key(run: Run, stored: str) -> None:
    result = run("cat", stored, "--key", "http://b/")
    assert (result.code, result.out) == (5, "")
    assert "no record has the key 'http://b/'" in result.err
    assert run("cat", stored, "--record", "7").code == 2
