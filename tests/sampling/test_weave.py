"""Whole rounds laid out at once: what taking block by block gives, and known at every record who stands where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import Held
from asyncrec._sampling.interleave.rounds import Part, Weave
from asyncrec.records.position import RecordBatch


def held(source: int, first: int, count: int) -> Held:
    records = [b"%d:%d" % (source, number) for number in range(first, first + count)]
    return Held(source, RecordBatch(records, first, 1000 * source, []))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Part], int, int]:
    """Parts with enough at hand, some in two batches; slots without an input between them."""
    block, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    parts = []
    for place in range(draw(st.integers(1, 6))):
        begin, more = draw(st.integers(0, 3)), draw(st.integers(0, 4))
        split = draw(st.integers(0, rounds * block))
        if split < rounds * block:
            coming = held(place, begin + split, rounds * block - split + more)
            parts.append(Part(place, held(place, 0, begin + split), begin, coming))
        else:
            parts.append(Part(place, held(place, 0, begin + split + more), begin, None))
    return parts, rounds, block


@given(cases(), st.integers(0, 5))
def test_a_weave_is_the_interleave_order_and_knows_where_each_shard_stands(
    case: tuple[list[Part], int, int], start: int
) -> None:
    parts, rounds, block = case
    begun = InterleaveOrder(len(parts), cycle_length=len(parts), block_length=block)
    for _ in range(start % len(parts) + len(parts)):  # all slots filled, and the round begins at any of them
        begun.next()
        begun.took(block, ended=False)
    places = begun.round()
    assert sorted(places) == list(range(len(parts)))
    parts = [parts[place] for place in places]
    weave = Weave(parts, rounds, block)

    order = begun.copy()
    taken = {part.place: part.begin for part in parts}
    for count in range(len(weave.records) + 1):
        resumed = weave.order(begun, count)
        assert [resumed.next(), resumed.state_dict()] == [order.next(), order.state_dict()]
        for place, (stands, at) in weave.standing(count).items():
            assert stands.batch.first + at == taken[place]
        if count < len(weave.records):
            take = order.next()
            assert take is not None
            assert weave.records[count] == b"%d:%d" % (take.source, taken[take.source])
            (origin,) = weave.origins(count, count + 1)
            assert (origin.source, origin.position.record) == (take.source, taken[take.source])
            taken[take.source] += 1
            order.took(1, ended=False)
    assert order.state_dict() == begun.state_dict()


def test_there_is_no_round_within_a_block_nor_where_a_slot_waits_for_its_next_input() -> None:
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
    assert order.round() == []  # the slot of 0 gets 2 when it comes back
    order.next()
    order.took(2, ended=False)
    order.next()
    order.took(0, ended=True)
    assert order.round() == [1]  # no input is left for the other slot
