"""`asyncrec._shards.manifest.manifest`: how segments are merged into a snapshot."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from asyncrec._shards.manifest.manifest import merge_segments
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.errors import ManifestError


def entry(path: str, second: int, *, crc32c: int = 0) -> ShardEntry:
    return ShardEntry(
        path=path, records=10, bytes=500, crc32c=crc32c, end_crc32c=0, compression="", committed=format_time(second)
    )


def commit(writer: str, second: int, *paths: str, remove: tuple[str, ...] = (), **fields: object) -> Segment:
    added = tuple(entry(path, second) for path in paths)
    return Segment(writer=writer, time=format_time(second), add=added, remove=remove, **fields)  # type: ignore[arg-type]  # a test's shorthand


def test_manifest_is_independent_of_segment_order() -> None:
    segments = [commit("a", 1, "x"), commit("b", 2, "y"), commit("a", 3, "z", closed=True)]
    manifests = []
    for seed in range(6):
        random.Random(seed).shuffle(segments)
        manifests.append(merge_segments("pages", segments))
    assert [shard.path for shard in manifests[0].shards] == ["x", "y", "z"]
    assert (manifests[0].records, manifests[0].bytes) == (30, 1500)
    assert all(manifest == manifests[0] for manifest in manifests)
    assert {writer: state.closed for writer, state in manifests[0].writers.items()} == {"a": True, "b": False}
    assert manifests[0].writers["a"].records == 20


def test_shards_repeated_in_closing_segment_count_once() -> None:
    first = commit("a", 1, "x")
    closing = Segment(writer="a", time=format_time(5), add=first.add, closed=True)
    assert (
        merge_segments("p", [first, closing]).id == merge_segments("p", [closing]).id == merge_segments("p", [first]).id
    )


def test_replacement_removes_old_shard_and_adds_same_name() -> None:
    old = commit("a", 1, "train-0", "train-1")
    new = Segment(writer="b", time=format_time(2), add=(entry("train-0", 2, crc32c=7),), remove=("train-0", "train-1"))
    manifest = merge_segments("train", [new, old])
    assert [(shard.path, shard.crc32c) for shard in manifest.shards] == [("train-0", 7)]
    assert manifest.writers["a"].shards == 0


def test_closing_segment_does_not_restore_removed_shards() -> None:
    first = commit("a", 1, "x")
    replaced = commit("b", 2, "y", remove=("x",))
    closing = Segment(writer="a", time=format_time(3), add=first.add, closed=True)
    assert [shard.path for shard in merge_segments("p", [first, replaced, closing]).shards] == ["y"]


def test_manifest_id_selects_earlier_snapshots() -> None:
    segments = [commit("a", 1, "x"), commit("a", 2, "y"), commit("a", 3, "z", remove=("x",))]
    ids = [merge_segments("p", segments[:n]).id for n in (1, 2, 3)]
    assert len(set(ids)) == 3
    for n, snapshot in enumerate(ids, 1):
        earlier = merge_segments("p", segments, at=snapshot)
        assert earlier.id == snapshot
        assert earlier.shards == merge_segments("p", segments[:n]).shards
    moment = datetime.fromtimestamp(2.5, UTC)
    assert [shard.path for shard in merge_segments("p", segments, at=moment).shards] == ["x", "y"]
    assert merge_segments("p", segments, at=datetime.fromtimestamp(0, UTC)).shards == ()
    with pytest.raises(
        ManifestError, match="p: the data set has no snapshot with the id 00000000000000000000000000000001; the"
    ):
        merge_segments("p", segments, at="0" * 31 + "1")


def test_conflicting_schemas_are_reported_and_latest_is_used() -> None:
    segments = [
        commit("a", 1, "x", schema={"v": 1}, metadata={"k": 1, "only": "a"}),
        commit("b", 2, "y", schema={"v": 2}, metadata={"k": 2}),
        commit("c", 3, "z", schema={"v": 2}),
    ]
    manifest = merge_segments("p", segments)
    assert manifest.schema == {"v": 2}
    assert manifest.metadata == {"k": 2, "only": "a"}
    (conflict,) = manifest.conflicts
    assert conflict.startswith("writer b used a different schema than the writers before it: ")


@pytest.mark.parametrize("field", ["records", "bytes"])
def test_impossible_record_or_byte_totals_raise_manifest_error(field: str) -> None:
    """Each shard may be that large, but together they exceed the largest number that Python's len() can return."""
    parts = [replace(commit("a", 1, name), add=(replace(entry(name, 1), **{field: 1 << 62}),)) for name in ("x", "y")]
    assert getattr(merge_segments("p", parts[:1]), field) == 1 << 62
    with pytest.raises(
        ManifestError, match="p: the shards add up to 9223372036854775808 records or bytes, which is impossible;"
    ):
        merge_segments("p", parts)
