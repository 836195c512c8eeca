"""`compact` joins runs of small neighbouring shards, and rewrites nothing without need."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.manifest.segment import ShardEntry, Sidecar
from asyncrec.tools._joining import Piece, planned
from asyncrec.tools._selection import SelectedShard

LIMIT = 100
DATASET: Any = SimpleNamespace(name="pages")


def shard(number: int, size: int, *, compression: str = "", index: bool = True, name: str = "") -> SelectedShard:
    path = name or f"pages-a-{number:06d}.tfrecord"
    entry = ShardEntry(
        path=path,
        records=1,
        bytes=size,
        crc32c=0,
        compression=compression,
        index=Sidecar(path="x", bytes=1, crc32c=0) if index else None,
    )
    return SelectedShard(key=path, display_path=path, size=size, entry=entry, dataset=DATASET)


def sizes(pieces: list[Piece]) -> list[list[list[int]]]:
    return [[[each.size for each in group] for group in piece.groups] for piece in pieces]


def plan_of(*given: int, **options: Any) -> list[list[list[int]]]:
    shards = [shard(number, size) for number, size in enumerate(given)]
    return sizes(planned(shards, **{"max_bytes": LIMIT, "compression": None, **options}))


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        ([10] * 12, [[10] * 10, [10] * 2]),
        ([60, 60, 60], []),
        ([40, 40, 40, 40], [[40, 40], [40, 40]]),
        ([10, 60, 10], []),
        ([10, 10, 60, 10, 10], [[10, 10], [10, 10]]),
        ([10], []),
        ([], []),
        ([100, 200], []),
    ],
    ids=str,
)
def test_small_neighbouring_shards_are_joined(given: list[int], joined: list[list[int]]) -> None:
    assert [group for piece in plan_of(*given) for group in piece] == joined


@pytest.mark.parametrize(
    ("given", "joined"),
    [([20, 5, 5], [[5, 5]]), ([20, 10, 10], [[20, 10, 10]]), ([5, 5, 20], [[5, 5]]), ([20, 5], [])],
    ids=str,
)
def test_large_shard_is_not_rewritten_for_small_neighbours(given: list[int], joined: list[list[int]]) -> None:
    assert [group for piece in plan_of(*given) for group in piece] == joined


def test_shards_of_different_kinds_are_not_joined() -> None:
    shards = [
        *(shard(number, 10) for number in range(2)),
        *(shard(number, 10, compression="GZIP") for number in range(2, 5)),
        *(shard(number, 10, index=False) for number in range(5, 7)),
        shard(7, 10, name="elsewhere.tfrecord"),
        *(shard(number, 10) for number in range(8, 10)),
    ]
    pieces = planned(shards, max_bytes=LIMIT, compression=None)
    assert [len(piece.shards) for piece in pieces] == [2, 3, 2, 2]
    assert [piece.kind.compression for piece in pieces] == ["", "GZIP", "", ""]


def test_shards_with_different_compression_are_rewritten_at_any_size() -> None:
    shards = [shard(0, 80), shard(1, 80, compression="GZIP"), shard(2, 10), shard(3, 10, compression="GZIP")]
    assert sizes(planned(shards, max_bytes=LIMIT, compression="GZIP")) == [[[80], [10, 10]]]
    assert sizes(planned(shards, max_bytes=LIMIT, compression="")) == [[[80, 10, 10]]]


def test_joining_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_BYTES", 250)
    assert [len(piece) for piece in plan_of(*[10] * 60)] == [2, 2, 2]
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_SHARDS", 4)
    assert [[len(group) for group in piece] for piece in plan_of(*[10] * 12)] == [[4], [4], [4]]


SHARDS = st.lists(st.tuples(st.integers(0, 120), st.sampled_from(["", "", "", "GZIP"])), max_size=30)


@given(SHARDS, st.sampled_from([None, "", "GZIP"]))
def test_joining_plan_keeps_order_and_limit_and_is_idempotent(given: list[tuple[int, str]], target: str | None) -> None:
    shards = [shard(number, size, compression=kind) for number, (size, kind) in enumerate(given)]
    pieces = planned(shards, max_bytes=LIMIT, compression=target)
    joined = [each.key for piece in pieces for each in piece.shards]
    assert joined == sorted(set(joined))
    groups = {group[0].key: (piece.kind.compression, group) for piece in pieces for group in piece.groups}
    places = {each.key: number for number, each in enumerate(shards)}
    for kind, group in groups.values():
        assert [places[each.key] for each in group] == list(range(places[group[0].key], places[group[-1].key] + 1))
        assert len(group) == 1 or sum(each.size for each in group) <= LIMIT
        assert len(group) > 1 or kind != group[0].entry.compression  # type: ignore[union-attr]
    behind = []
    for each in shards:
        if each.key in groups:
            kind, group = groups[each.key]
            size = sum(part.size for part in group)
            assert each.entry is not None
            behind.append(replace(each, size=size, entry=replace(each.entry, compression=kind, bytes=size)))
        elif each.key not in joined:
            behind.append(each)
    assert target is not None or planned(behind, max_bytes=LIMIT, compression=None) == []
