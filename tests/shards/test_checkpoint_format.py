"""`asyncrec._shards.manifest.checkpoint`: a checkpoint and the segments it does not cover say what all segments say."""

from __future__ import annotations

import gzip
import io
import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.manifest.checkpoint import CheckpointDecoder, encode_checkpoint
from asyncrec._shards.manifest.covered import CoveredNames
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.manifest import Manifest, manifest_of, merge_segments
from asyncrec._shards.manifest.merging import plus
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.errors import ManifestError

from .histories import Named, expected, histories, seen_of


def told(manifest: Manifest) -> dict[str, Any]:
    found = {field.name: getattr(manifest, field.name) for field in fields(manifest) if field.name != "path"}
    writers = {writer: astuple(state) for writer, state in manifest.writers.items()}
    return {**found, "shards": tuple(manifest.shards), "writers": writers}


def encoded(history: History, number: int = 1) -> bytes:
    return b"".join(encode_checkpoint(history, name="pages", number=number, time=format_time(0)))


def decoded(content: bytes, pieces: int = 1) -> History:
    decoder = CheckpointDecoder("checkpoint")
    size = max(1, -(-len(content) // pieces))
    for at in range(0, len(content), size):
        decoder.feed(content[at : at + size])
    return decoder.finish()


def read(history: History, named: list[Named]) -> History:
    """As a reader does with the segments that it lists."""
    new = [(name, segment) for name, segment in named if name not in history.covered]
    well = {segment.writer for _, segment in new if segment.closed and not segment.abandoned} | history.closed_well
    seen = [segment for _, segment in new if segment.closed or segment.writer not in well]
    fences = [name for name, segment in new if segment.abandoned and not segment.closed]
    return plus(history, seen, names=[name for name, _ in new], fences=fences)


@pytest.mark.slow
@given(histories(), st.integers(0, 1 << 32).map(random.Random))
def test_segments_in_any_order_and_any_groups_say_what_they_say_one_by_one(named: list[Named], rng: Any) -> None:
    segments = seen_of(named)
    rng.shuffle(segments)
    assert told(merge_segments("pages", segments)) == expected(segments)
    history = History()
    while segments:
        some = rng.randint(1, len(segments))
        history, segments = plus(history, segments[:some]), segments[some:]
    assert told(manifest_of("pages", history)) == expected(seen_of(named))


@pytest.mark.slow
@given(histories(), st.integers(0, 1 << 32).map(random.Random), st.integers(1, 40))
def test_a_chain_of_checkpoints_and_the_remaining_segments_give_the_manifest_of_all(
    named: list[Named], rng: Any, pieces: int
) -> None:
    """A segment comes when its writer has made it; checkpoints are made at any moments between."""
    history = History()
    arrived: list[Named] = []
    waiting = list(named)
    while waiting:
        writer = rng.choice(waiting)[1].writer
        arrived.append(waiting.pop(next(i for i, each in enumerate(waiting) if each[1].writer == writer)))
        if rng.random() < 0.3:
            merged = read(history, arrived)
            assert told(manifest_of("pages", merged)) == expected(seen_of(arrived))
            history = decoded(encoded(merged), pieces)
            assert encoded(history) == encoded(merged)
            assert all(name in history.covered for name, _ in arrived)
            assert history.covered == CoveredNames().plus((name for name, _ in arrived), history.covered.fences)
            assert not any(name in history.covered for name, _ in waiting)
            if rng.random() < 0.5:  # what may go is gone
                arrived = [each for each in arrived if not history.covered.may_go(each[0])]
                assert all(segment.closed or segment.abandoned or ".jsonl" not in name for name, segment in arrived)
                # From here on the rest is known by the checkpoint alone.
                assert told(manifest_of("pages", read(history, arrived))) == told(manifest_of("pages", history))
                break
    whole = read(history, named)
    assert told(manifest_of("pages", whole)) == expected(seen_of(named))
    for path in {entry.path for _, segment in named for entry in segment.add}:
        assert whole.lists(path)
    for segment in seen_of(named):
        assert all(map(whole.removes, segment.remove))
        assert all(whole.rows_naming(key) for entry in segment.add for key in entry.objects)
    assert not whole.rows_naming("_index/none.index")


@pytest.mark.slow
@given(histories())
def test_earlier_snapshots_are_found_in_a_checkpoint(named: list[Named]) -> None:
    segments = seen_of(named)
    history = decoded(encoded(plus(History(), segments)))
    for second in range(0, 21, 3):
        wanted = expected(segments, until=format_time(second))
        at = manifest_of("pages", history, at=datetime.fromtimestamp(second, UTC))
        assert told(at) == wanted
        if second > 12 and wanted["shards"]:
            found = manifest_of("pages", history, at=wanted["id"])
            assert found.id == wanted["id"]
            assert [shard.path for shard in found.shards] == [shard.path for shard in wanted["shards"]]


def made(count: int) -> History:
    """A history of so many shards."""
    entries = [
        ShardEntry(
            path=f"p-w-{n:06d}.tfrecord",
            records=n,
            bytes=n * 17,
            crc32c=n * 31,
            end_crc32c=0,
            compression="",
            committed=format_time(n),
        )
        for n in range(count)
    ]
    return plus(History(), [Segment(writer="w", time=format_time(count), add=tuple(entries), closed=True)])


@pytest.mark.slow
def test_a_checkpoint_of_several_lines_is_read_in_any_pieces() -> None:
    history = made(10_000)
    content = encoded(history)
    for pieces in (1, 7, 1000):
        again = decoded(content, pieces)
        assert told(manifest_of("p", again)) == told(manifest_of("p", history))
    assert len(content) < 40 * 10_000
    shards = manifest_of("p", decoded(content)).shards
    assert (shards[-1].path, shards[3:5][1].records, len(shards)) == ("p-w-009999.tfrecord", 4, 10_000)
    assert shards.names("p-w-000017.tfrecord")
    assert not shards.names("p-w-000017")


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """As `zcat` and `jq` read it."""
    with gzip.open(io.BytesIO(content), "rt", encoding="ascii") as file:
        return [json.loads(line) for line in file]


def members_of(lines: list[Any]) -> bytes:
    """Lines as a checkpoint has them, each in a member of its own."""
    return b"".join(member(json.dumps(line, separators=(",", ":")).encode() + b"\n") for line in lines)


def member(line: bytes, level: int = 6) -> bytes:
    return gzip.compress(line, level, mtime=0)


def test_gzip_and_json_read_a_checkpoint_line_by_line() -> None:
    history = made(10_000)
    lines = lines_of(encoded(history))
    assert [line["kind"] for line in lines] == ["checkpoint", "writers", "commits", *3 * ["shards"], "end"]
    shards = [line for line in lines if line["kind"] == "shards"]
    assert [len(line["path"]) for line in shards] == [4096, 4096, 1808]
    assert [path for line in shards for path in line["path"]] == list(history.shards.paths)
    assert [size for line in shards for size in line["bytes"]] == history.shards.numbers["bytes"].tolist()
    assert {line["live"] for line in shards} == {True}
    assert lines[-1]["rows"]["shards"] == 10_000


@pytest.mark.slow
def test_every_byte_cut_or_changed_is_told_or_harmless() -> None:
    content = encoded(made(20))
    assert encoded(decoded(content)) == content
    for at in range(len(content)):
        with pytest.raises(ManifestError, match=r"^checkpoint: "):
            decoded(content[:at])
        damaged = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        with suppress(ManifestError):  # but for a time, a system and a hint in the header of each member
            assert encoded(decoded(damaged)) == content


def test_damage_in_a_long_checkpoint_names_its_line() -> None:
    content = bytearray(encoded(made(5000)))
    content[len(content) // 2] ^= 4
    with pytest.raises(ManifestError, match=r"^checkpoint: line 4: .*damaged"):
        decoded(bytes(content))


@pytest.mark.parametrize("more", [b"more", b"\0", b"\x1f", member(b"{}\n"), encoded(made(1))])
def test_nothing_may_come_behind_the_end(more: bytes) -> None:
    with pytest.raises(ManifestError):
        decoded(encoded(made(3)) + more)


def test_what_is_not_a_checkpoint_is_refused() -> None:
    content = encoded(made(1))
    for other in (b"x" * 100_000, member(b"a line\n"), member(b'{"version":2}\n'), member(b"\xff\n"), content[20:]):
        with pytest.raises(ManifestError, match=r"^checkpoint: line 1: "):
            decoded(other)
    head, *rest = lines_of(content)
    with pytest.raises(ManifestError, match="newer asyncrec"):
        decoded(members_of([head | {"format": 2}, *rest]))
    with pytest.raises(ManifestError, match="first line"):
        decoded(members_of([*rest, head]))


def without(line: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in line.items() if each != name}


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a bool for a number": ("records", lambda line: line | {"records": [True, 1, 2]}),
    "a constant bool": ("records", lambda line: line | {"records": True}),
    "a float": ("bytes", lambda line: line | {"bytes": [0, 17.0, 34]}),
    "a text": ("crc32c", lambda line: line | {"crc32c": "7"}),
    "no number": ("records", lambda line: line | {"records": None}),
    "a number for a bool": ("live", lambda line: line | {"live": 1}),
    "too large for its type": ("crc32c", lambda line: line | {"crc32c": [0, 1 << 32, 0]}),
    "too large for any": ("bytes", lambda line: line | {"bytes": [1 << 80, 0, 0]}),
    "negative": ("records", lambda line: line | {"records": -1}),
    "a time that is none": ("committed", lambda line: line | {"committed": 1 << 62}),
    "a commit that is not there": ("commit", lambda line: line | {"commit": 1}),
    "a value that is not there": ("extra", lambda line: line | {"extra": 0}),
    "a name that is not there": ("index", lambda line: line | {"index": 0}),
    "a compression that is none": ("range", lambda line: line | {"flags": 3}),
    "a row too few": ("records", lambda line: line | {"records": [0, 1]}),
    "a row too many": ("records", lambda line: line | {"records": [0, 1, 2, 3]}),
    "no rows": ("0 rows", lambda line: line | {"path": []}),
    "a path for all": ("0 rows", lambda line: line | {"path": "p"}),
    "a path that is a number": ("path", lambda line: line | {"path": ["a", "b", 1]}),
    "paths out of order": ("order", lambda line: line | {"path": ["a", "c", "b"]}),
    "a path with a NUL": ("NUL", lambda line: line | {"path": ["a", "b", "c\0d"]}),
    "a path that UTF-8 cannot hold": ("UTF-8", lambda line: line | {"path": ["a", "b", "c\ud800"]}),
    "a path without letters": ("leads out", lambda line: line | {"path": ["", "b", "c"]}),
    "a column too few": ("columns", lambda line: without(line, "keys")),
    "a column too many": ("columns", lambda line: line | {"more": 1}),
    "a kind that is none": ("place", lambda line: line | {"kind": "more"}),
    "a kind that is not a text": ("place", lambda line: line | {"kind": []}),
    "no kind": ("place", lambda line: without(line, "kind")),
    "a kind out of order": ("place", lambda line: {"kind": "writers", "writer": ["w"]}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_line_that_is_wrong_is_refused_with_its_number(what: str) -> None:
    said, change = WRONG[what]
    lines = lines_of(encoded(made(3)))
    assert lines[3]["kind"] == "shards"
    decoded(members_of(lines))
    lines[3] = change(lines[3])
    with pytest.raises(ManifestError, match=rf"^checkpoint: line 4: .*{said}"):
        decoded(members_of(lines))


@pytest.mark.parametrize("number", range(1, 6))
def test_a_line_that_is_missing_or_there_twice_is_told(number: int) -> None:
    lines = lines_of(encoded(made(4100)))
    for others in (lines[:number] + lines[number + 1 :], lines[: number + 1] + lines[number:]):
        with pytest.raises(ManifestError):
            decoded(members_of(others))


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"writers","writer":["w"]}',
        b'{"kind":"writers","writer":["w"]}\n\n',
        b'{"kind":"writers",\n"writer":["w"]}\n',
        b'{"kind":"writers","writer":["w"]}}\n',
        b'{"kind":"writers","kind":"writers","writer":["w"]}\n',
        b'{"kind":"writers","writer":["w"],}\n',
        b'{"kind":"writers","writer"["w"]}\n',
        b'{"kind":"writers",1:["w"]}\n',
        b'["kind","writers"]\n',
        b'{"kind":"writers","writer":["w"\n',
        b"{\n",
        b"\n",
    ],
)
def test_a_member_that_is_not_one_line_of_json_is_refused(line: bytes) -> None:
    head, _, *rest = lines_of(encoded(made(3)))
    with pytest.raises(ManifestError, match=r"^checkpoint: line 2: "):
        decoded(members_of([head]) + member(line, 0) + members_of(rest))


@pytest.mark.parametrize(
    ("records", "size", "compression"),
    [(2, 31, ""), (1 << 62, 1 << 62, ""), (1032 * 3, 47, "GZIP"), ((1 << 63) - 2, 1 << 40, "ZLIB")],
)
def test_a_checkpoint_that_counts_more_than_fits_is_refused(records: int, size: int, compression: str) -> None:
    entry = ShardEntry(
        path="p", records=records, bytes=size, crc32c=0, end_crc32c=0, compression=compression, committed=format_time(0)
    )
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="more records than there are bytes"):
        decoded(content)


BOMBS = {
    "empty objects": b'{"kind":"values","value":[' + b"{}," * 4095 + b"{}]}\n",
    "arrays": b'{"kind":"values","value":[' + b"[]," * 1_000_000 + b"[]]}\n",
    "depth": b'{"kind":"values","value":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}\n",
    "numbers": b'{"kind":"commits","writer":[' + b"0," * 1_000_000 + b"0]}\n",
    "one text": b'{"kind":"writers","writer":["' + b"w" * 4_000_000 + b'"]}\n',
    "17 MiB": b" " * (17 << 20),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_line_takes_no_more_than_it_weighs(what: str) -> None:
    content = members_of([lines_of(encoded(made(1)))[0]]) + member(BOMBS[what], 9)
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError, match=r"^checkpoint: line 2: .*(expand to more|more than 16,777,216 bytes)"):
            decoded(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(BOMBS[what]) + (1 << 20)


def test_a_line_of_more_rows_than_are_written_is_refused() -> None:
    head = lines_of(encoded(made(1)))[0]
    rng = random.Random(1)
    writers = [f"{rng.getrandbits(32):08x}" for _ in range(4097)]
    with pytest.raises(ManifestError, match="cut off"):
        decoded(members_of([head, {"kind": "writers", "writer": writers[:4096]}]))
    with pytest.raises(ManifestError, match="line 2: 4,097 rows"):
        decoded(members_of([head, {"kind": "writers", "writer": writers}]))


@pytest.mark.slow
def test_rows_that_take_more_than_a_line_may_are_in_several() -> None:
    noise = random.Random(1)
    values = [{"notes": noise.randbytes(3 << 20).hex()} for _ in range(4)]
    segments = [Segment(writer="w", time=format_time(n), metadata=value) for n, value in enumerate(values)]
    history = plus(History(), segments)
    content = encoded(history)
    assert [len(line["value"]) for line in lines_of(content) if line["kind"] == "values"] == [2, 2]
    assert list(decoded(content, 100).values) == list(history.values)
    large = plus(History(), [Segment(writer="w", time=format_time(0), metadata={"notes": "a" * (16 << 20)})])
    with pytest.raises(ManifestError, match="16,777,216 are read"):
        encoded(large)


def test_json_that_deflates_well_is_read_again() -> None:
    metadata = {"notes": "of much the same " * 1000}
    history = plus(History(), [Segment(writer="w", time=format_time(0), metadata=metadata)])
    assert manifest_of("pages", decoded(encoded(history))).metadata == metadata


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../b", "a//b", "a/", "./a", "s3://b/k", "c:x", "\\x", "a\\..\\b", ".", ".."]
)
def test_a_path_that_leads_out_of_the_folder_is_refused(path: str) -> None:
    entry = ShardEntry(path=path, records=1, bytes=17, crc32c=0, end_crc32c=0, compression="", committed=format_time(0))
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="leads out"):
        decoded(content)
