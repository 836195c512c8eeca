"""`asyncrec.shards.segment`: one commit, written and read without trust."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asyncrec.errors import ManifestError
from asyncrec.shards.segment import Segment, ShardEntry, format_time, parse_segment, parse_time

TIME = "2026-11-21T03:20:00.000001Z"


def entry(path: str = "pages-a-000000.tfrecord", **changes: Any) -> ShardEntry:
    fields: dict[str, Any] = {"records": 3, "bytes": 60, "crc32c": 0x0ABC, "compression": "GZIP", "committed": TIME}
    return ShardEntry(path=path, **{**fields, **changes})


def segment_json(**changes: Any) -> bytes:
    content = {"version": 1, "writer": "a", "time": TIME, "add": [], "remove": [], "closed": False, **changes}
    return json.dumps(content).encode()


def entry_json(**changes: Any) -> dict[str, Any]:
    return {**entry().to_json(), **changes}


def test_what_is_encoded_is_parsed_again() -> None:
    segment = Segment(
        writer="a",
        time=TIME,
        add=(entry(index="_index/x.index", keys=None, first=TIME, last=TIME), entry("ö b.tfrecord", crc32c=None)),
        remove=("old.tfrecord",),
        schema={"label": {"kind": "fixed"}},
        metadata={"crawl": "ä"},
        closed=True,
    )
    assert parse_segment(segment.encode(), name="x") == segment


def test_unknown_members_are_kept() -> None:
    segment = parse_segment(segment_json(later={"x": 1}, add=[entry_json(colour="red")]), name="x")
    assert segment.extra == {"later": {"x": 1}}
    assert segment.add[0].extra == {"colour": "red"}
    assert json.loads(segment.encode())["later"] == {"x": 1}
    assert json.loads(segment.encode())["add"][0]["colour"] == "red"


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../b",
        "/etc/passwd",
        "s3://b/x",
        "file:///x",
        "",
        ".",
        "a//b",
        "a\\..\\b",
        "\\x",
        "C:x",
        "a\0b",
        "a\ud800",
    ],
)
@pytest.mark.parametrize("member", ["path", "index", "keys"])
def test_a_path_that_leaves_the_folder_is_refused(path: str, member: str) -> None:
    with pytest.raises(ManifestError, match="relative and stay"):
        parse_segment(segment_json(add=[entry_json(**{member: path})]), name="x")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[1, 2]",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"x" * 10_000_000,
        segment_json(version=2),
        segment_json(version=None),
        segment_json(writer=7),
        segment_json(add={}),
        segment_json(add=[7]),
        segment_json(remove=["../x"]),
        segment_json(remove=[3]),
        segment_json(time="yesterday"),
        segment_json(closed="no"),
        segment_json(metadata=[1]),
        segment_json(add=[entry_json(records=-1)]),
        segment_json(add=[entry_json(records=True)]),
        segment_json(add=[entry_json(bytes="7")]),
        segment_json(add=[entry_json(crc32c="xyz")]),
        segment_json(add=[entry_json(compression="ZSTD")]),
        segment_json(add=[entry_json(committed=None)]),
        segment_json(add=[{"path": "x"}]),
    ],
    ids=range(25),
)
def test_what_is_no_segment_is_an_error_that_names_it(content: bytes) -> None:
    with pytest.raises(ManifestError, match=r"^_manifest/pages/a-000000\.json: ") as caught:
        parse_segment(content, name="_manifest/pages/a-000000.json")
    assert len(str(caught.value)) < 500


def test_a_later_version_says_what_would_read_it() -> None:
    with pytest.raises(ManifestError, match="a newer asyncrec"):
        parse_segment(segment_json(version=2), name="x")


def test_times_sort_as_text() -> None:
    times = [0.0, 1.5, 1.500001, 2e9]
    texts = [format_time(time) for time in times]
    assert texts == sorted(texts)
    assert [parse_time(text) for text in texts] == times
