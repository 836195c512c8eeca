"""`asyncrec._shards.manifest.checkpoint`: a checkpoint plus the later segments is equivalent to all the segments."""

from __future__ import annotations

import random
from dataclasses import astuple, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.listed import CoveredLogs
from asyncrec._shards.manifest.manifest import Manifest, manifest_of, merge_segments
from asyncrec._shards.manifest.merging import plus
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.errors import ManifestError

from .checkpoints import decoded, encoded, lines_of, made
from .histories import Named, expected, histories, seen_of


def told(manifest: Manifest) -> dict[str, Any]:
    found = {field.name: getattr(manifest, field.name) for field in fields(manifest) if field.name != "path"}
    writers = {writer: astuple(state) for writer, state in manifest.writers.items()}
    return {**found, "shards": tuple(manifest.shards), "writers": writers}


def read(history: History, named: list[Named]) -> History:
    """Merge segments in the way that a reader merges the segments it lists."""
    new = [(name, segment) for name, segment in named if name not in history.covered]
    well = {segment.writer for _, segment in new if segment.closed and not segment.abandoned} | history.closed_well
    seen = [segment for _, segment in new if segment.closed or segment.writer not in well]
    return plus(history, seen, names=[name for name, _ in new])


@pytest.mark.slow
@given(histories(), st.integers(0, 1 << 32).map(random.Random))
def test_segment_merge_is_independent_of_order_and_grouping(named: list[Named], rng: Any) -> None:
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
def test_checkpoint_chain_with_remaining_segments_yields_complete_manifest(
    named: list[Named], rng: Any, pieces: int
) -> None:
    """Each writer's segments arrive in the order they were made; checkpoints are made at random moments in between."""
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
            assert history.covered == CoveredLogs().plus(name for name, _ in arrived)
            assert not any(name in history.covered for name, _ in waiting)
            if rng.random() < 0.5:  # covered segments are deleted
                arrived = [each for each in arrived if not history.covered.may_go(each[0])]
                assert len({segment.writer for _, segment in arrived}) == len(arrived)  # one segment per log
                # From here on, only the checkpoint knows the deleted segments.
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
def test_checkpoint_contains_earlier_snapshots(named: list[Named]) -> None:
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


@pytest.mark.slow
def test_multi_line_checkpoint_decodes_from_any_pieces() -> None:
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


def test_gzip_and_json_read_checkpoint_line_by_line() -> None:
    history = made(10_000)
    lines = lines_of(encoded(history))
    assert [line["kind"] for line in lines] == ["checkpoint", "writers", "commits", *3 * ["shards"], "end"]
    shards = [line for line in lines if line["kind"] == "shards"]
    assert [len(line["path"]) for line in shards] == [4096, 4096, 1808]
    assert [path for line in shards for path in line["path"]] == list(history.shards.paths)
    assert [size for line in shards for size in line["bytes"]] == history.shards.numbers["bytes"].tolist()
    assert {line["live"] for line in shards} == {True}
    assert lines[-1]["rows"]["shards"] == 10_000


@pytest.mark.parametrize(
    ("records", "size", "compression"),
    [(2, 31, ""), (1 << 62, 1 << 62, ""), (1032 * 3, 47, "GZIP"), ((1 << 63) - 2, 1 << 40, "ZLIB")],
)
def test_checkpoint_with_impossible_record_count_is_rejected(records: int, size: int, compression: str) -> None:
    entry = ShardEntry(
        path="p", records=records, bytes=size, crc32c=0, end_crc32c=0, compression=compression, committed=format_time(0)
    )
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="the records do not fit in the bytes"):
        decoded(content)


@pytest.mark.slow
def test_rows_exceeding_line_limit_span_several_lines() -> None:
    noise = random.Random(1)
    values = [{"notes": noise.randbytes(3 << 20).hex()} for _ in range(4)]
    segments = [Segment(writer="w", time=format_time(n), metadata=value) for n, value in enumerate(values)]
    history = plus(History(), segments)
    content = encoded(history)
    assert [len(line["value"]) for line in lines_of(content) if line["kind"] == "values"] == [2, 2]
    assert list(decoded(content, 100).values) == list(history.values)
    large = plus(History(), [Segment(writer="w", time=format_time(0), metadata={"notes": "a" * (16 << 20)})])
    with pytest.raises(ManifestError, match="more than the limit of 16,777,216"):
        encoded(large)


def test_highly_compressible_metadata_round_trips() -> None:
    metadata = {"notes": "of much the same " * 1000}
    history = plus(History(), [Segment(writer="w", time=format_time(0), metadata=metadata)])
    assert manifest_of("pages", decoded(encoded(history))).metadata == metadata


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../b", "a//b", "a/", "./a", "s3://b/k", "c:x", "\\x", "a\\..\\b", ".", ".."]
)
def test_path_leading_out_of_folder_is_rejected(path: str) -> None:
    entry = ShardEntry(path=path, records=1, bytes=17, crc32c=0, end_crc32c=0, compression="", committed=format_time(0))
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="leads out"):
        decoded(content)
