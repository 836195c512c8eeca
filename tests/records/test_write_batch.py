"""`asyncrec._records.writing.write_batch`: how records are divided into batches."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec._records import record_size
from asyncrec._records.record_size import LARGE_RECORD
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, batched
from asyncrec.storage._memory import MemoryStorage

SIZES = st.lists(st.sampled_from([0, 1, 100, 5000, 200_000, BATCH_BYTES - 1, BATCH_BYTES, LARGE_RECORD]), max_size=40)


@given(SIZES, st.booleans(), st.integers(1, 3))
def test_batches_are_bounded_and_contain_all_records(sizes: list[int], mutable: bool, times: int) -> None:
    records = [bytearray(size) if mutable and i % 3 == 0 else bytes(size) for i, size in enumerate(sizes)]
    found: list[bytes] = []
    for item in batched(records, times=times):
        assert isinstance(item, tuple), "a record of LARGE_RECORD is not yet large"
        batch, size = item
        assert batch
        assert all(type(record) is bytes for record in batch)
        assert size == record_size.framed_size(list(map(len, batch)))
        assert len(batch) == 1 or sum(map(len, batch)) <= times * BATCH_BYTES
        assert len(batch) <= BATCH_RECORDS
        found += batch
    assert found == records


def test_many_small_records_fill_batches() -> None:
    sizes = [len(item[0]) for item in batched([b"x"] * 2500) if isinstance(item, tuple)]
    assert sizes == [1024, 1024, 452]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_large_record_is_passed_through_in_order(kind: type[bytes] | type[bytearray]) -> None:
    large = kind(LARGE_RECORD + 1)
    items = list(batched(iter([b"a", large, b"b"])))
    assert items[0] == ([b"a"], 17)
    assert items[1] is large
    assert items[2] == ([b"b"], 17)


def test_records_before_invalid_record_are_yielded_first() -> None:
    items = batched([b"a", b"b", 7])  # type: ignore[list-item]  # deliberately wrong
    assert next(items) == ([b"a", b"b"], 34)
    with pytest.raises(TypeError, match="not int"):
        next(items)


@pytest.mark.anyio
@pytest.mark.parametrize("counts", [(1000, 100), (1023, 1, 1), (1, 1023, 1024, 1), (500, 500, 500, 500)])
async def test_calls_exceeding_one_batch_keep_record_order(counts: tuple[int, ...]) -> None:
    """This holds for any number of small records that fit in one of the writer's batches."""
    storage = MemoryStorage()
    records = [b"%d" % number for number in range(sum(counts))]
    left = iter(records)
    async with asyncrec.open_writer("x", storage=storage) as writer:
        for count in counts:
            await writer.write_many(list(islice(left, count)))
    assert await asyncrec.read_records("x", storage=storage) == records
