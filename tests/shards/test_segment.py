"""`asyncrec._shards.manifest.segment`: one commit, encoded, and parsed without trusting its content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar, format_time, parse_segment, parse_time
from asyncrec.errors import ManifestError

TIME = "2026-11-21T03:20:00.000001Z"


def entry(path: str = "pages-a-000000.tfrecord", **changes: Any) -> ShardEntry:
    fields: dict[str, Any] = {
        "records": 3,
        "bytes": 60,
        "crc32c": 0x0ABC,
        "end_crc32c": 7,
        "compression": "GZIP",
        "committed": TIME,
    }
    return ShardEntry(path=path, **{**fields, **changes})


def segment_json(*, add: Any = (), **changes: Any) -> bytes:
    """Return the JSON lines of a segment: one for the head, and one for each shard."""
    shards = {"shards": len(add)} if isinstance(add, list | tuple) else {"shards": 1}
    head = {"version": 1, "writer": "a", "time": TIME, **shards, "remove": [], "closed": False, **changes}
    lines = [head, *(add if isinstance(add, list | tuple) else [add])]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def entry_json(**changes: Any) -> dict[str, Any]:
    return {**entry().to_json(), **changes}


def test_segment_survives_encoding_and_parsing() -> None:
    segment = Segment(
        writer="a",
        time=TIME,
        add=(
            entry(index=Sidecar(path="_index/x.index", bytes=7, crc32c=9), keys=None, first=TIME, last=TIME),
            entry("ö b.tfrecord"),
        ),
        remove=("old.tfrecord",),
        removal=3,
        schema={"label": {"kind": "fixed"}},
        metadata={"crawl": "ä"},
        closed=True,
        progress={"topic/3": (2, 917), "forgotten": (3, -1), "ö": (1, 2**63 - 1)},
        releases={"topic/3": 2},
    )
    assert parse_segment(segment.encode(), name="x") == segment


def test_unknown_members_are_kept() -> None:
    segment = parse_segment(segment_json(later={"x": 1}, add=[entry_json(colour="red")]), name="x")
    assert segment.extra == {"later": {"x": 1}}
    assert segment.add[0].extra == {"colour": "red"}
    head, shard = map(json.loads, segment.encode().splitlines())
    assert head["later"] == {"x": 1}
    assert shard["colour"] == "red"


def test_truncated_segment_raises() -> None:
    whole = segment_json(add=[entry_json(), entry_json(path="b.tfrecord")])
    for end in range(len(whole) - 1):
        with pytest.raises(ManifestError):
            parse_segment(whole[:end], name="x")


@pytest.mark.parametrize(
    "path",
    [
        "../x", "a/../b", "/etc/passwd", "s3://b/x", "file:///x", "", ".", "a//b", "a\\..\\b", "\\x", "C:x", "a\0b",
        "a\ud800",
    ],
)  # fmt: skip
@pytest.mark.parametrize("member", ["path", "index", "keys"])
def test_path_leading_out_of_folder_is_rejected(path: str, member: str) -> None:
    named: Any = path if member == "path" else {"path": path, "bytes": 7, "crc32c": "0000abcd", "format": 1}
    with pytest.raises(ManifestError, match="x: the manifest has the path"):
        parse_segment(segment_json(add=[entry_json(**{member: named})]), name="x")


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
        segment_json(shards=2),
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
        segment_json(add=[entry_json(index=7)]),
        segment_json(add=[entry_json(keys={"path": "x", "format": 2})]),
        segment_json(add=[entry_json(keys={"path": "x", "format": 1, "bytes": -1})]),
        segment_json(add=[[]]),
        segment_json(version=True),
        segment_json(add=[entry_json(index="_index/x.index")]),
        segment_json(add=[entry_json(crc32c=None)]),
        segment_json(add=[entry_json(end_crc32c=None)]),
        # More records than can fit: a frame takes 16 bytes, and Deflate expands one byte to at most 1,032.
        segment_json(add=[entry_json(records=4, bytes=63, compression="")]),
        segment_json(add=[entry_json(records=10**10, bytes=1790, compression="")]),
        segment_json(add=[entry_json(records=1032 * 4, bytes=63)]),
        segment_json(add=[entry_json(records=(1 << 63) - 1, bytes=1 << 40, compression="ZLIB")]),
    ],
    ids=range(37),
)
def test_malformed_segment_raises_error_naming_segment(content: bytes) -> None:
    with pytest.raises(ManifestError, match=r"^_manifest/pages/a-000000\.json: ") as caught:
        parse_segment(content, name="_manifest/pages/a-000000.json")
    assert len(str(caught.value)) < 500


def test_newer_segment_version_error_suggests_newer_release() -> None:
    with pytest.raises(
        ManifestError, match="x: the manifest segment has version 2, but this release reads only version 1; use a"
    ):
        parse_segment(segment_json(version=2), name="x")


def test_formatted_times_sort_as_text() -> None:
    times = [0.0, 1.5, 1.500001, 2e9]
    texts = [format_time(time) for time in times]
    assert texts == sorted(texts)
    assert [parse_time(text) for text in texts] == times


@pytest.mark.parametrize("time", [TIME, "1969-12-31T23:59:59.999999Z", "9000-01-01T00:00:00.123457Z"])
def test_segment_time_in_canonical_form_is_kept(time: str) -> None:
    assert parse_segment(segment_json(time=time), name="x").time == time


@pytest.mark.parametrize(
    "time", ["2026-11-21T03:20:00.000001+00:00", "2026-11-21T04:20:00.000001+01:00", "20261121T032000.000001Z"]
)
def test_segment_time_in_other_form_is_normalized(time: str) -> None:
    assert parse_segment(segment_json(time=time), name="x").time == TIME


@pytest.mark.parametrize("time", ["2026-13-21T03:20:00.000001Z", "2026-11-31T03:20:00.000001Z", "\u0662026-11-21"])
def test_invalid_segment_time_is_rejected(time: str) -> None:
    with pytest.raises(ManifestError, match="is not a valid time"):
        parse_segment(segment_json(time=time), name="x")


def test_segment_without_sources_omits_progress_and_releases() -> None:
    content = Segment(writer="a", time=TIME).encode()
    assert b"progress" not in content
    assert b"releases" not in content
    assert parse_segment(content, name="x").progress == {}


def test_progress_consists_of_turn_and_position() -> None:
    segment = parse_segment(segment_json(progress={"topic/3": [2, 917]}, releases={"topic/4": 5}), name="x")
    assert segment.progress == {"topic/3": (2, 917)}
    assert segment.releases == {"topic/4": 5}


@pytest.mark.parametrize(
    "progress",
    [
        None,
        [],
        {"s": 917},
        {"s": [1]},
        {"s": [1, 2, 3]},
        {"s": [0, 2]},
        {"s": [1, -2]},
        {"s": [1, 2**63]},
        {"s": [2**63, 1]},
        {"s": [True, 1]},
        {"s": [1, False]},
        {"s": [1, 2.0]},
        {"s": ["1", 2]},
        {"": [1, 2]},
        {"a\n": [1, 2]},
        {"a\x7f": [1, 2]},
        {"a\x85": [1, 2]},
        {"\ud800": [1, 2]},
        {"a" * 513: [1, 2]},
        {"ö" * 257: [1, 2]},
        {str(source): [1, 2] for source in range(100_001)},
    ],
    ids=lambda value: str(value)[:20],
)
def test_out_of_range_progress_is_rejected(progress: object) -> None:
    with pytest.raises(ManifestError, match="progress"):
        parse_segment(segment_json(progress=progress), name="x")


@pytest.mark.parametrize("releases", [None, [], {"s": 0}, {"s": True}, {"s": [1, 2]}, {"s": 2**63}, {"": 1}])
def test_out_of_range_releases_are_rejected(releases: object) -> None:
    with pytest.raises(ManifestError, match="release"):
        parse_segment(segment_json(releases=releases), name="x")


def test_progress_within_limits_is_accepted() -> None:
    progress = {"ö" * 256: [1, 0], **{str(source): [2**63 - 1, 2**63 - 1] for source in range(99_999)}}
    assert len(parse_segment(segment_json(progress=progress), name="x").progress) == 100_000
