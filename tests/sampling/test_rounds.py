"""Rounds computed as a whole equal those taken block by block, with known positions after every record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncrec._records.position import RecordBatch
from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import SourcedBatch
from asyncrec._sampling.interleave.rounds import InterleaveRounds, RoundInput


def sourced(source: int, first: int, count: int) -> SourcedBatch:
    records = [b"%d:%d" % (source, number) for number in range(first, first + count)]
    return SourcedBatch.of(source, [RecordBatch(records, first, 1000 * source, [])])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[RoundInput], int, int]:
    """Draw inputs with enough records, some spread over two batches, with empty slots between them."""
    block, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    inputs = []
    for place in range(draw(st.integers(1, 6))):
        begin, more = draw(st.integers(0, 3)), draw(st.integers(0, 4))
        split = draw(st.integers(0, rounds * block))
        if split < rounds * block:
            following = sourced(place, begin + split, rounds * block - split + more)
            inputs.append(RoundInput(place, sourced(place, 0, begin + split), begin, following))
        else:
            inputs.append(RoundInput(place, sourced(place, 0, begin + split + more), begin, None))
    return inputs, rounds, block


@given(cases(), st.integers(0, 5))
def test_rounds_follow_interleave_order_and_shard_positions(
    case: tuple[list[RoundInput], int, int], start: int
) -> None:
    inputs, rounds, block = case
    begun = InterleaveOrder(len(inputs), cycle_length=len(inputs), block_length=block)
    for _ in range(start % len(inputs) + len(inputs)):  # fills all slots, and varies the slot at which the round begins
        begun.next()
        begun.took(block, ended=False)
    places = begun.round()
    assert sorted(places) == list(range(len(inputs)))
    inputs = [inputs[place] for place in places]
    arranged = InterleaveRounds(inputs, rounds, block)

    order = begun.copy()
    given = {each.place: each.begin for each in inputs}
    for count in range(len(arranged.records) + 1):
        resumed = arranged.order_after(begun, count)
        assert [resumed.next(), resumed.state_dict()] == [order.next(), order.state_dict()]
        for place, (stands, at) in arranged.cursors_after(count).items():
            assert stands.position(at).record == given[place]
        if count < len(arranged.records):
            take = order.next()
            assert take is not None
            assert arranged.records[count] == b"%d:%d" % (take.source, given[take.source])
            (found,) = arranged.sources(count, count + 1)
            assert (found.shard, found.position.record) == (take.source, given[take.source])
            given[take.source] += 1
            order.took(1, ended=False)
    assert order.state_dict() == begun.state_dict()


def test_round_is_empty_within_block_or_before_slot_refill() -> None:
    order = InterleaveOrder(3, cycle_length=2, block_length=2)
    assert order.round() == []
    for _ in range(2):
        assert order.next() is not None
        order.took(2, ended=False)
    assert order.round() == [0, 1]
    order.next()
    order.took(1, ended=False)
    assert order.round() == []
    order.took(0, ended=True)
    assert order.round() == []  # the slot of input 0 gets input 2 on its next turn
    order.next()
    order.took(2, ended=False)
    order.next()
    order.took(0, ended=True)
    assert order.round() == [1]  # there is no input left for the other slot
