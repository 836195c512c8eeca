"""Sort positions are unique, keep groups together, and follow the original order or a seeded random one."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.tools._sorting import Order, Sorter

LABELS = st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["a", "b"]), st.none()), max_size=60)


def records(labels: list[object]) -> list[bytes]:
    return [
        asyncrec.encode_example({"n": n} | ({} if label is None else {"label": label}))
        for n, label in enumerate(labels)
    ]


@given(LABELS, st.booleans(), st.integers(0, 3), st.sampled_from([0, 1, 1000]))
def test_groups_are_contiguous_and_keep_order(labels: list[object], shuffle: bool, seed: int, total: int) -> None:
    """``total`` may be wrong: it only affects how far apart the positions are."""
    order = Order(shuffle=shuffle, seed=seed, group_by="label", total=total)
    places = [order.place(number, order.group(record)) for number, record in enumerate(records(labels))]
    assert all(len(place) == 16 for place in places)
    assert len(set(places)) == len(places)
    numbers = sorted(range(len(places)), key=places.__getitem__)
    groups = [(label, list(members)) for label, members in groupby(numbers, key=lambda number: labels[number])]
    assert len(groups) == len(set(labels))
    if not shuffle:
        assert [label for label, _ in groups] == list(dict.fromkeys(labels))
        assert all(members == sorted(members) for _, members in groups)


def test_groups_beyond_remembered_count_stay_contiguous() -> None:
    order = Order(shuffle=False, seed=0, group_by="label", total=140_000)
    numbered = [(number * 2_654_435_761 % 70_000, number) for number in range(140_000)]
    places = sorted((order.place(number, group.to_bytes(8, "big")), group) for group, number in numbered)
    # A digest's first five bytes distinguish groups; these digests differ only in their last three.
    remembered = [group for place, group in places if not place.startswith(b"\xff\xff\xff")]
    assert len([1 for _ in groupby(remembered)]) == len(set(remembered)) > 65_000


@given(st.lists(st.binary(max_size=50), max_size=80), st.integers(1, 2000), st.sampled_from([0, 16, 32]))
def test_sorter_keeps_records_and_keys_together(data: list[bytes], memory_limit: int, key_bytes: int) -> None:
    order = Order(shuffle=True, seed=1, group_by=None, total=0)
    sorter = Sorter(order, key_bytes=key_bytes, memory_limit=memory_limit, temporary_folder=None)
    try:
        keys = [number.to_bytes(key_bytes, "big") for number in range(len(data) * bool(key_bytes))]
        sorter.add(KeyedBatch(data, keys if key_bytes else None))
        pairs = []
        for batch in sorter.batches():
            assert (batch.keys is not None) == bool(key_bytes)
            pairs += list(zip(batch.records, batch.keys or [b""] * len(batch.records), strict=True))
    finally:
        sorter.close()
    assert sorted(pairs) == sorted(zip(data, keys if key_bytes else [b""] * len(data), strict=True))
