"""`SinglePass` reads shards once, interleaved and, if requested, shuffled. Its state contains no records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._sampling.interleave.cycle_shards import InterleavePlan
from asyncrec._sampling.interleave.interleaver import Interleaver, InterleaverState
from asyncrec._sampling.interleave.provenance import RecordSource, TracedRecords, pack_sources, parse_sources
from asyncrec._sampling.interleave.shard_inputs import ShardInputs
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer, ShuffleState, parse_shuffle_state
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

NO_STATE = "with deterministic=False the order depends on timing, so the stream has no state to resume from"
# The maximum number of records that move through the shuffle buffer between two awaits.
_STEP = 256


class PassState(NamedTuple):
    """The state of a pass.

    ``pending`` and ``shuffled`` are the sources of the records that were read but not yet returned: those that are
    returned next, and those in the shuffle buffer.
    """

    interleaver: InterleaverState
    records: int
    pending: list[RecordSource]
    shuffle: ShuffleState | None
    shuffled: list[RecordSource]


class SinglePass:
    """One pass over the shards of a stream. `take` returns the records in order.

    Only one task may use it. Its reading tasks run in ``scope``.

    Args:
        sequence: the numbers of the inputs, in the order in which they are opened.
        seed: the seed of the shuffle buffer.

    Attributes:
        records: the number of records returned.
        closed: whether `aclose` was called.
    """

    def __init__(
        self,
        inputs: ShardInputs,
        sequence: Sequence[int],
        plan: InterleavePlan,
        *,
        scope: TaskScope | None,
        seed: int = 0,
    ) -> None:
        self._inputs = inputs
        self._plan = plan
        self._interleaver = Interleaver(inputs, sequence, plan, scope=scope)
        self._buffer: ShuffleBuffer[tuple[bytes, RecordSource]] | None = None
        if plan.shuffle_buffer > 1:
            self._buffer = ShuffleBuffer(plan.shuffle_buffer, seed)
        self._gathering = TracedRecords()  # the records to return next, from a cancelled `take` or a loaded state
        self.records = 0
        self.closed = False

    @property
    def shards(self) -> int:
        """The number of shards that were read to the end."""
        return self._interleaver.shards

    @property
    def seconds_waited(self) -> float:
        """The time spent waiting for reads."""
        return self._interleaver.seconds_waited

    async def take(self, count: int, *, buffered_only: bool = False) -> TracedRecords:
        """Return the next ``count`` records, or fewer at the end or before an error.

        With ``buffered_only``, also return fewer records if more would have to be read first. An error is raised once
        the records before it have been returned, and again by every later call. No records are lost if a call is
        cancelled.
        """
        out = self._gathering
        try:
            if self._buffer is None:
                await self._interleaver.gather(out, count, buffered_only=buffered_only)
            else:
                await self._draw(self._buffer, out, count, buffered_only)
        except Exception:
            if not out.records:
                raise
        out, self._gathering = out.split(count)  # a loaded state may have more records than one call returns
        self.records += len(out.records)
        return out

    async def aclose(self) -> None:
        """Close all open shards. The reading tasks end with their scope."""
        self.closed = True
        await self._interleaver.aclose()

    def state_dict(self) -> dict[str, Any]:
        """Return the position in each open shard and the position of each buffered record, as JSON."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Return a function that computes the `state_dict` at the time of this call; see `Interleaver.snapshot`."""
        if not self._plan.deterministic:
            raise RuntimeError(NO_STATE)
        interleaver, records = self._interleaver.snapshot(), self.records
        pending = pack_sources(self._gathering.sources())
        shuffle = None if self._buffer is None else (self._buffer.state_dict(), self._buffer.items)

        def state_dict() -> dict[str, Any]:
            state = {**interleaver(), "records": records, "pending": pending}
            if shuffle is not None:
                state["shuffle"] = shuffle[0]
                state["shuffled"] = pack_sources(source for _, source in shuffle[1])
            return state

        return state_dict

    def parsed(self, values: StateValues) -> PassState:
        """Parse a state that was taken with the same inputs, sequence and plan.

        Raises:
            ValueError: the state belongs to other inputs or to another plan, or is damaged.
        """
        if ("shuffle" in values) != (self._buffer is not None):
            raise ArgumentValueError("the state belongs to a stream with a different shuffle_buffer")
        shards = len(self._inputs)
        return PassState(
            self._interleaver.parsed(values),
            values.whole("records"),
            parse_sources(values, "pending", shards),
            None if self._buffer is None else parse_shuffle_state(values.part("shuffle")),
            [] if self._buffer is None else parse_sources(values, "shuffled", shards),
        )

    async def load(self, state: PassState) -> None:
        """Continue from a state that `parsed` returned, and read the buffered records again."""
        if self._interleaver.begun:
            raise RuntimeError("a state must be loaded before the first record is read")
        self._interleaver.load(state.interleaver)
        self.records = state.records
        self._gathering = await self._inputs.read_traced(state.pending)
        if self._buffer is not None and state.shuffle is not None:
            held = await self._inputs.read_traced(state.shuffled)
            self._buffer.load(state.shuffle, zip(held.records, held.known, strict=True))

    async def _draw(
        self, buffer: ShuffleBuffer[tuple[bytes, RecordSource]], out: TracedRecords, count: int, buffered_only: bool
    ) -> None:
        """Draw records from ``buffer`` until ``out`` has ``count`` records. Read no more records than necessary."""
        while (missing := count - len(out.records)) > 0:
            room = self._plan.shuffle_buffer - len(buffer)
            gathered = TracedRecords()
            try:
                await self._interleaver.gather(
                    gathered, min(_STEP, room or missing), buffered_only=buffered_only, or_nothing=bool(out.records)
                )
            finally:  # keep the gathered records even if cancelled
                for pair in zip(gathered.records, gathered.sources(), strict=True):
                    drawn = buffer.push(pair)
                    if drawn is not None:
                        out.add(*drawn)
            if gathered.records:
                continue
            if not self._interleaver.ended:
                return  # there are more records, but not in memory
            for _ in range(min(missing, len(buffer))):
                out.add(*buffer.pop())
            return
