"""`Interleaver` makes one pass over shards in interleave order, and tracks the position in each shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import BEGINNING, Position
from asyncrec._sampling.interleave.cycle_shards import CycleShards, InterleavePlan, ShardCursor
from asyncrec._sampling.interleave.order import InterleaveOrder, NondeterministicOrder, OrderState
from asyncrec._sampling.interleave.provenance import SourcedBatch, TracedRecords
from asyncrec._sampling.interleave.rounds import InterleaveRounds, RoundInput
from asyncrec._sampling.interleave.shard_inputs import ShardInputs
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

# The maximum number of records (references, not copies) that are arranged at once. It is large enough to make the fixed
# work per shard and batch negligible.
_MOST_ARRANGED = 8192


class InterleaverState(NamedTuple):
    """The order, the position in each open shard (by place), and the number of shards that were read to the end."""

    order: OrderState
    starts: dict[int, Position]
    shards: int


class Interleaver:
    """The records of many shards, interleaved. `gather` returns them in order.

    Only one task may use it. Its readers run in ``scope``.

    Args:
        sequence: the numbers of the shards, in the order in which they are opened. A *place* is an index into it.

    Attributes:
        begun: whether any record was requested.
        shards: the number of shards that were read to the end.
        seconds_waited: the time spent waiting for reads.
    """

    def __init__(
        self, inputs: ShardInputs, sequence: Sequence[int], plan: InterleavePlan, *, scope: TaskScope | None
    ) -> None:
        self._plan = plan
        self._shards = CycleShards(inputs, sequence, plan, scope=scope)
        count, cycle, block = len(sequence), plan.cycle_length, plan.block_length
        self._order: InterleaveOrder
        if plan.deterministic or self._shards.pool is None:
            self._order = InterleaveOrder(count, cycle_length=cycle, block_length=block)
        else:
            self._order = NondeterministicOrder(count, cycle_length=cycle, block_length=block, ready=self._is_ready)
        if self._shards.pool is not None:
            self._shards.pool.ended = self._open_cursors
        self._cursors: dict[int, ShardCursor] = {}
        self._rounds: InterleaveRounds | None = None
        self._rounds_index = 0
        self._blocks_until_rounds = 0  # the number of blocks to take before trying to arrange complete rounds again
        self._starts: dict[int, Position] = {}
        self.begun = False
        self._error: Exception | None = None
        self.shards = 0
        self.seconds_waited = 0.0

    @property
    def ended(self) -> bool:
        """Whether every shard was read to the end."""
        return self._order.next() is None

    async def aclose(self) -> None:
        """Close all open shards. The reading tasks end with their scope."""
        if self._shards.pool is not None:
            self._shards.pool.ended = lambda: None
        while self._cursors:
            _, cursor = self._cursors.popitem()
            await cursor.aclose()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Return a function that computes the state at the time of this call.

        The computation is deferred because most states are never used. The function keeps the current batches in
        memory. The state consists of the state of the order, the position in each open shard, and the number of
        finished shards.
        """
        order = self._order.copy()
        starts = dict(self._starts)
        standing: dict[int, tuple[SourcedBatch, int]] = {}
        rounds, index = self._rounds, self._rounds_index
        if rounds is None:
            for place, cursor in self._cursors.items():
                if cursor.current is None:
                    starts[place] = cursor.start
                else:
                    standing[place] = cursor.current, cursor.index
        shards = self.shards

        def state_dict() -> dict[str, Any]:
            stands = standing if rounds is None else rounds.cursors_after(index)
            ordered = order if rounds is None else rounds.order_after(order, index)
            positions = {place: starts.get(place, BEGINNING) for place in ordered.open_inputs()}
            positions |= {place: stands[place][0].position(stands[place][1]) for place in positions if place in stands}
            return {
                "order": ordered.state_dict(),
                "open": [[place, *position] for place, position in positions.items()],
                "shards": shards,
            }

        return state_dict

    def parsed(self, values: StateValues) -> InterleaverState:
        """Parse a state that was taken with the same inputs, sequence and plan.

        Raises:
            ValueError: the state belongs to other inputs or to another plan, or is damaged.
        """
        order = self._order.parsed(values.part("order"))
        starts = {row[0]: Position(*row[1:]) for row in values.rows("open", None, None, None, None)}
        if starts.keys() != set(order.opened):
            raise ArgumentValueError("the state is damaged: its list of shards does not match its open shards")
        return InterleaverState(order, starts, values.whole("shards"))

    def load(self, state: InterleaverState) -> None:
        """Continue from a state that `parsed` returned."""
        self._order.load(state.order)
        self._starts = dict(state.starts)
        self.shards = state.shards

    async def gather(
        self, out: TracedRecords, count: int, *, buffered_only: bool = False, or_nothing: bool = False
    ) -> None:
        """Append the next records to ``out`` until it has ``count`` records or all shards are exhausted.

        With ``buffered_only``, append only records that are already in memory. If ``out`` is empty, one batch of a
        shard may be read first, unless ``or_nothing`` is set. After an error, every call raises the error again. No
        records are lost if a call is cancelled.
        """
        order, cursors, records, slices = self._order, self._cursors, out.records, out.slices
        if self._error is not None:
            raise self._error
        self.begun = True
        while (missing := count - len(records)) > 0:
            if self._rounds is None and not self._blocks_until_rounds:
                await self._arrange_rounds(early=not buffered_only)
            if self._rounds is not None:
                rounds, begin = self._rounds, self._rounds_index
                taken = rounds.records[begin : begin + missing]
                records += taken
                slices.append((rounds, begin, len(taken)))
                self._rounds_index += len(taken)
                if self._rounds_index == len(rounds.records):
                    self._rounds = None
                continue
            take = order.next()
            if take is None:
                return
            place, wanted = take
            cursor = cursors.get(place)
            if cursor is None or cursor.index == cursor.size:
                if buffered_only and (records or or_nothing):
                    return
                if not await self._fill(place):
                    continue
                cursor = cursors[place]
            current, index = cursor.current, cursor.index
            assert current is not None, "the cursor is filled"
            taken = current.records[index : min(index + min(wanted, missing), cursor.size)]
            records += taken
            slices.append((current, index, len(taken)))
            cursor.advance(len(taken))
            order.took(len(taken), ended=False)
            self._blocks_until_rounds = max(0, self._blocks_until_rounds - 1)

    async def _arrange_rounds(self, *, early: bool) -> None:
        """Arrange as many complete rounds as are in memory.

        With ``early``, first fetch the next batch of each shard that has few records left. If no round is complete, the
        next round is taken block by block before this is tried again.
        """
        places = self._order.round()
        self._blocks_until_rounds = 1 if self._order.in_block else self._shards.slots
        block = self._plan.block_length
        rounds = _MOST_ARRANGED // (block * max(1, len(places)))
        if not rounds:  # taking large blocks singly is cheap, and arranging many at once would block the event loop
            return
        inputs = []
        for place in places:
            cursor = self._cursors.get(place)
            if cursor is None or cursor.current is None:
                return
            if early and cursor.wants(rounds * block, block):
                began = anyio.current_time()
                try:
                    await cursor.fetch()
                finally:
                    self.seconds_waited += anyio.current_time() - began
            rounds = min(rounds, cursor.available // block)
            if not rounds:
                return
            inputs.append(RoundInput(place, cursor.current, cursor.index, cursor.next))
        if inputs:
            self._rounds, self._rounds_index = InterleaveRounds(inputs, rounds, block), 0
            self._blocks_until_rounds = 0
            for place in places:
                self._cursors[place].advance(rounds * block)

    async def _fill(self, place: int) -> bool:
        """Fetch the next batch of a shard. Return `False` if the shard is exhausted or if another one may be next."""
        pool = self._shards.pool
        cursor = self._cursors.get(place)
        if cursor is None:
            self._open_cursors(place)
            cursor = self._cursors[place]
        began = anyio.current_time()
        try:
            if pool is not None and not self._plan.deterministic and not cursor.ready:
                pool.changed = anyio.Event()
                await pool.changed.wait()
                return False
            filled = await cursor.fill()
        except Exception as error:
            self._error = error
            raise
        finally:
            self.seconds_waited += anyio.current_time() - began
        if filled:
            return True
        await cursor.aclose()
        del self._cursors[place]
        self.shards += 1
        self._order.took(0, ended=True)
        if pool is not None:
            self._open_cursors()
        return False

    def _open_cursors(self, *places: int) -> None:
        """Start reading the shards at ``places``.

        With a pool, start reading all shards of the cycle instead, and as many successors as there is room for.
        """
        for place in places if self._shards.pool is None else self._shards.to_open(self._order):
            if place not in self._cursors:
                self._cursors[place] = self._shards.open_cursor(place, self._starts.pop(place, BEGINNING))

    def _is_ready(self, place: int) -> bool:
        cursor = self._cursors.get(place)
        return cursor is None or cursor.ready
