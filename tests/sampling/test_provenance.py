"""A stream's record can be traced to its shard and position, however records were combined."""

from __future__ import annotations

import pytest

from asyncrec._records.position import Position, RecordBatch
from asyncrec._sampling.interleave.provenance import (
    RecordSource,
    SourcedBatch,
    TracedRecords,
    pack_sources,
    parse_sources,
)
from asyncrec._sampling.state_values import StateValues


def one_by_one(shard: int, count: int) -> TracedRecords:
    """Return records with known sources, as a state lists them."""
    made = TracedRecords()
    for number in range(count):
        made.add(b"%d:%d" % (shard, number), RecordSource(shard, Position(100 * number, 0, number)))
    return made


def of_batch(shard: int, begin: int, count: int) -> TracedRecords:
    """Return records that are part of a batch and are traced only on request."""
    records = [b"%d:%d" % (shard, number) for number in range(begin + count)]
    batch = SourcedBatch.of(shard, [RecordBatch(records, 0, 0, [])])
    return TracedRecords(records[begin:], slices=[(batch, begin, count)])


def told(records: TracedRecords) -> list[bytes]:
    return [b"%d:%d" % (source.shard, source.position.record) for source in records.sources()]


@pytest.mark.parametrize("second", [one_by_one(7, 2), of_batch(7, 3, 2)])
@pytest.mark.parametrize("first", [TracedRecords(), one_by_one(5, 3), of_batch(5, 2, 3)])
def test_merged_records_are_traced_to_their_sources(first: TracedRecords, second: TracedRecords) -> None:
    taken = TracedRecords()
    for each in (first, second, of_batch(8, 1, 2), one_by_one(9, 1), of_batch(10, 0, 4)):
        taken.extend(TracedRecords(list(each.records), list(each.known), list(each.slices)))
    assert told(taken) == taken.records
    for index, source in enumerate(taken.sources()):
        assert taken.source_of(index) == source
    with pytest.raises(IndexError):
        taken.source_of(len(taken.records))


@pytest.mark.parametrize("count", range(9))
def test_split_batches_keep_their_sources(count: int) -> None:
    whole = one_by_one(5, 3)
    whole.extend(of_batch(6, 2, 4))
    expected = list(whole.records)
    left, right = whole.split(count)
    assert (left.records, right.records) == (expected[:count], expected[count:])
    assert (told(left), told(right)) == (expected[:count], expected[count:])


def test_sources_round_trip_through_state() -> None:
    sources = one_by_one(2, 3).sources()
    assert parse_sources(StateValues({"of": pack_sources(sources)}), "of", 3) == sources


@pytest.mark.parametrize("packed", [[3, 0, 0, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, -1]])
def test_state_with_impossible_values_is_rejected(packed: list[int]) -> None:
    with pytest.raises(ValueError, match="whole numbers within the limits of this stream"):
        parse_sources(StateValues({"of": [packed]}), "of", 3)
