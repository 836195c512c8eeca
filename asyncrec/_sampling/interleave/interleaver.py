"""`Interleaving`: one pass over shards in interleave order, read as they are needed; where each of them stands.

Memory: every shard of the cycle holds record batches, and those bounds divide one budget between them, so that a cycle
of a thousand shards costs no more than one of ten. Beyond `_MOST_OPEN` shards none keeps its file open between reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio

from asyncrec._sampling.interleave.nondeterministic_order import ReadyOrder
from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import Held, Taken
from asyncrec._sampling.interleave.rounds import Part, Weave
from asyncrec._sampling.interleave.shard_cursor import Cursor
from asyncrec._sampling.interleave.shard_feed import Feed, InlineFeed, Pool, PooledFeed
from asyncrec._sampling.interleave.shard_inputs import Inputs
from asyncrec.records.position import BEGINNING, Position
from asyncrec.tasks import TaskScope

__all__ = ["LEAST_BATCH", "MEMORY_LIMIT", "PREFETCH", "Interleaving", "Plan"]

# For the record batches of all shards together: 16 shards then get the 256 KiB blocks that read best, and their
# compressed ones a member of 4 MiB at a time.
MEMORY_LIMIT = 64 << 20
# Batches waiting for each shard of a pool: one is taken while the next comes.
PREFETCH = 2
# A shard's share of the budget, at least: below, a read costs more than its bytes. This bounds a cycle of 1,000 shards
# to 64 MiB inline.
LEAST_BATCH = 64 << 10
_MOST_BATCH = 4 << 20
# One read of a local file, and of a store where each read is a request.
_CHUNK = 256 << 10
_REMOTE_CHUNK = 1 << 20
# An eighth of the 1,024 open files that a process usually may have.
_MOST_OPEN = 128
# Records laid out at once, as references: so many that what is done once for each shard and each batch costs nothing.
_WOVEN = 8192


class Plan(NamedTuple):
    """The parameters of a pass; see `asyncrec.interleave`."""

    cycle_length: int
    block_length: int
    parallelism: int
    deterministic: bool
    prefetch: int
    memory_limit: int
    shuffle_buffer: int


class Interleaving:
    """Records in order, by `gather`. Used by one task; tasks that read for it run in ``scope``.

    Args:
        sequence: which inputs, in which order. A *place* is a number in this sequence.

    Attributes:
        begun: whether anything was asked for.
        shards, seconds_waited: read to their end; for reads.
    """

    def __init__(self, inputs: Inputs, sequence: Sequence[int], plan: Plan, *, scope: TaskScope | None) -> None:
        self._inputs = inputs
        self._sequence = sequence
        self._plan = plan
        self._slots = max(1, min(plan.cycle_length, len(sequence)))
        self._pool: Pool | None = None
        self._ahead = 0
        batches = 1
        if plan.parallelism:
            assert scope is not None, "a pool runs somewhere"
            self._pool = Pool(scope, reads=plan.parallelism, prefetch=plan.prefetch)
            self._ahead = min(plan.parallelism, len(sequence) - self._slots)
            batches += plan.prefetch
        # And a quarter of a batch that is left beside the one that came early.
        share = 4 * plan.memory_limit // ((self._slots + self._ahead) * (4 * batches + 1))
        self._batch_bytes = min(_MOST_BATCH, max(LEAST_BATCH, share))
        self._chunk = min(self._batch_bytes, _REMOTE_CHUNK if inputs.reads_cost_waiting else _CHUNK)
        self._park = self._slots + self._ahead > _MOST_OPEN
        self._order: InterleaveOrder
        if plan.deterministic or self._pool is None:
            self._order = InterleaveOrder(len(sequence), cycle_length=plan.cycle_length, block_length=plan.block_length)
        else:
            self._order = ReadyOrder(
                len(sequence),
                cycle_length=plan.cycle_length,
                block_length=plan.block_length,
                ready=self._is_ready,
            )
        self._cursors: dict[int, Cursor] = {}
        self._woven: Weave | None = None
        self._woven_at = 0
        self._blocks_alone = 0  # until weaving is tried again
        self._starts: dict[int, Position] = {}
        self.begun = False
        self._error: Exception | None = None
        self.shards = 0
        self.seconds_waited = 0.0

    @property
    def ended(self) -> bool:
        """Whether every shard was read to its end."""
        return self._order.next() is None

    async def aclose(self) -> None:
        """Close what is open. Tasks end with their scope."""
        while self._cursors:
            _, cursor = self._cursors.popitem()
            await cursor.aclose()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """What gives the state of now, later: most are never asked for. It keeps alive what is held now.

        The state: that of the order, and the position of each open shard.
        """
        order = self._order.copy()
        starts = dict(self._starts)
        standing: dict[int, tuple[Held, int]] = {}
        weave, woven_at = self._woven, self._woven_at
        if weave is None:
            for place, cursor in self._cursors.items():
                if cursor.held is None:
                    starts[place] = cursor.start
                else:
                    standing[place] = cursor.held, cursor.at
        shards = self.shards

        def state_dict() -> dict[str, Any]:
            stands = standing if weave is None else weave.standing(woven_at)
            ordered = order if weave is None else weave.order(order, woven_at)
            positions = {place: starts.get(place, BEGINNING) for place in ordered.open_inputs()}
            positions |= {place: stands[place][0].position(stands[place][1]) for place in positions if place in stands}
            return {
                "order": ordered.state_dict(),
                "open": [[place, *position] for place, position in positions.items()],
                "shards": shards,
            }

        return state_dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same inputs, sequence and plan.

        Raises:
            ValueError: it is of others.
        """
        self._order.load_state_dict(state["order"])
        self._starts = {
            int(place): Position(int(offset), int(skip), int(record)) for place, offset, skip, record in state["open"]
        }
        self.shards = int(state["shards"])

    async def gather(self, taken: Taken, count: int, *, held_only: bool = False, or_nothing: bool = False) -> None:
        """Add the next records, up to ``count`` in all; fewer at the end.

        ``held_only``: no more than are at hand, but one batch of one shard where ``taken`` has none yet; with
        ``or_nothing`` not even that. An error comes again at every later call. Cancelled, nothing is lost.
        """
        order, cursors, records, runs = self._order, self._cursors, taken.records, taken.runs
        if self._error is not None:
            raise self._error
        self.begun = True
        while (missing := count - len(records)) > 0:
            if self._woven is None and not self._blocks_alone:
                await self._weave(early=not held_only)
            if self._woven is not None:
                woven, begin = self._woven, self._woven_at
                some = woven.records[begin : begin + missing]
                records += some
                runs.append((woven, begin, len(some)))
                self._woven_at += len(some)
                if self._woven_at == len(woven.records):
                    self._woven = None
                continue
            take = order.next()
            if take is None:
                return
            place, wanted = take
            cursor = cursors.get(place)
            if cursor is None or cursor.at == cursor.size:
                if held_only and (records or or_nothing):
                    return
                if not await self._fill(place):
                    continue
                cursor = cursors[place]
            held, at = cursor.held, cursor.at
            assert held is not None, "filled"
            some = held.batch.records[at : min(at + min(wanted, missing), cursor.size)]
            records += some
            runs.append((held, at, len(some)))
            cursor.advance(len(some))
            order.took(len(some), ended=False)
            self._blocks_alone = max(0, self._blocks_alone - 1)

    async def _weave(self, *, early: bool) -> None:
        """Put as many whole rounds in order as are at hand; ``early``: read for those shards that would soon ask.

        Where there is not one, the next round is taken block by block, before this is tried again.
        """
        places = self._order.round()
        self._blocks_alone = 1 if self._order.in_block else self._slots
        block = self._plan.block_length
        rounds = _WOVEN // (block * max(1, len(places)))
        if not rounds:  # large blocks are cheap one by one, and so many shards would hold the loop
            return
        parts = []
        for place in places:
            cursor = self._cursors.get(place)
            if cursor is None or cursor.held is None:
                return
            if early and cursor.wants(rounds * block, block):
                began = anyio.current_time()
                try:
                    await cursor.fetch()
                finally:
                    self.seconds_waited += anyio.current_time() - began
            rounds = min(rounds, cursor.at_hand // block)
            if not rounds:
                return
            parts.append(Part(place, cursor.held, cursor.at, cursor.coming))
        if parts:
            self._woven, self._woven_at = Weave(parts, rounds, block), 0
            self._blocks_alone = 0
            for place in places:
                self._cursors[place].advance(rounds * block)

    async def _fill(self, place: int) -> bool:
        """Get the next batch of a shard; `False` when it has ended, or another is to be asked."""
        cursor = self._cursors.get(place)
        if cursor is None:
            self._start_shards(place)
            cursor = self._cursors[place]
        began = anyio.current_time()
        try:
            if self._pool is not None and not self._plan.deterministic and not cursor.ready:
                self._pool.changed = anyio.Event()
                await self._pool.changed.wait()
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
        if self._pool is not None:
            self._start_shards()
        return False

    def _start_shards(self, *places: int) -> None:
        """Begin to read; with a pool all of the cycle, and some that come after it."""
        if self._pool is not None:
            opened = self._order.open_inputs()
            places = (*opened, *self._order.coming_inputs(self._slots + self._ahead - len(opened)))
        for place in places:
            if place not in self._cursors:
                start = self._starts.pop(place, BEGINNING)
                source = self._sequence[place]
                reading = self._inputs.reading(source, start, chunk_size=self._chunk, inflate_bytes=self._batch_bytes)
                feed: Feed
                if self._pool is None:
                    feed = InlineFeed(reading, park=self._park)
                else:
                    feed = PooledFeed(self._pool, reading, park=self._park)
                self._cursors[place] = Cursor(source, feed, start)

    def _is_ready(self, place: int) -> bool:
        cursor = self._cursors.get(place)
        return cursor is None or cursor.ready
