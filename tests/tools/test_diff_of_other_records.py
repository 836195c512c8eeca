"""`diff` misses no difference between records when some or all of them are not Examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio

DATED = [asyncrec.encode_example({"date": n, "url": "a"}) for n in range(2)]


async def compared(
    storage: Storage, first: Sequence[bytes], second: Sequence[bytes], *, keyed: bool = False
) -> tools.DiffReport:
    """Return a diff that ignores the feature ``date``, after adding to each side a record that has it."""
    for name, records in (("a", [*first, DATED[0]]), ("b", [*second, DATED[1]])):
        async with asyncrec.open_sharded_writer(name, storage=storage, max_shard_records=3) as writer:
            for number, record in enumerate(records):
                await writer.write(record, **({"key": f"key {number}"} if keyed else {}))
    return await tools.diff("a", "b", ignore=["date"], storage=storage)


def sequence(date: int, *steps: int) -> bytes:
    return asyncrec.encode_sequence_example({"date": date, "id": 1}, {"f": [[step] for step in steps]})


EVENTS = [b"\x09" + bytes([n] * 8) + b"\x10\x01" for n in range(2)]  # messages whose fields are not those of Examples


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"\xff\xffone", b"\xff\xfftwo"),
        (sequence(1, 1, 2), sequence(1, 1, 3)),
        (sequence(1, 1, 2), sequence(1, 12)),
        (sequence(1, 1), asyncrec.encode_example({"date": 1, "id": 1})),
        (asyncrec.encode_sequence_example({}, {"f": [[1]]}), asyncrec.encode_sequence_example({}, {"f": [[2]]})),
        (EVENTS[0], EVENTS[1]),
        (DATED[0] + b"\x18\x01", DATED[0] + b"\x18\x02"),
        (b"", b"x"),
    ],
    ids=["raw", "steps", "bounds of steps", "lists", "only lists", "events", "unknown fields", "empty"],
)
@pytest.mark.parametrize("keyed", [False, True])
async def test_ignored_feature_hides_no_difference_elsewhere(
    storage: Storage, first: bytes, second: bytes, keyed: bool
) -> None:
    report = await compared(storage, [first, b"same"], [second, b"same"], keyed=keyed)
    assert not report.same
    assert (report.only_first, report.only_second, report.changed) == ((0, 0, 1) if keyed else (1, 1, 0))


@pytest.mark.parametrize("keyed", [False, True])
async def test_ignored_feature_of_sequence_examples_may_differ(storage: Storage, keyed: bool) -> None:
    """The serialized order of the lists also differs, but that does not count as a difference."""
    lists = {"f": [np.array([1.5])], "g": [[b"x"], []]}
    first = asyncrec.encode_sequence_example({"date": 1, "id": 1}, lists)
    second = asyncrec.encode_sequence_example({"date": 2, "id": 1}, dict(reversed(lists.items())))
    empty = asyncrec.encode_example({})
    report = await compared(storage, [first, asyncrec.encode_example({"date": 1})], [second, empty], keyed=keyed)
    assert report.same


async def test_records_without_key_are_compared_by_content(storage: Storage) -> None:
    for name, content in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        async with asyncrec.open_sharded_writer(name, storage=storage, max_shard_records=9) as writer:
            await writer.write(b"keyed", key="one")
            await writer.write(content)
    assert (await tools.diff("a", "c", storage=storage)).same
    report = await tools.diff("a", "b", storage=storage)
    assert (report.by, report.only_first_numbers, report.only_second_numbers) == ("key", [1], [1])


async def test_records_without_feature_are_compared_by_content(storage: Storage) -> None:
    url = asyncrec.encode_example({"url": "a"})
    for name, record in (("a", b"one"), ("b", b"two")):
        await asyncrec.write_records(f"{name}.tfrecord", [url, record], storage=storage)
    report = await tools.diff("a.tfrecord", "b.tfrecord", by="feature:url", storage=storage)
    assert (report.only_first_numbers, report.only_second_numbers, report.changed) == ([1], [1], 0)
