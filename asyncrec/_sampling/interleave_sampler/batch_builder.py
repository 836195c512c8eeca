"""`BatchBuilder` makes the batches of an `asyncrec.InterleaveSampler` in order, across all its passes.

Without a class function, a batch consists of the next records, and may continue into the next pass. With a class
function, `ClassQueues` makes the batches.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

from asyncrec._sampling.interleave.provenance import RecordSource, TracedRecords, pack_sources, parse_sources
from asyncrec._sampling.interleave.shard_inputs import ShardInputs
from asyncrec._sampling.interleave_sampler.class_queues import ClassQueues, QueuesState
from asyncrec._sampling.interleave_sampler.deserializer import Deserializer
from asyncrec._sampling.interleave_sampler.passes import Passes, PassesState
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import DatasetError, DecodeError, SchemaError

_log = logging.getLogger("asyncrec.sampling")

OnExhausted = Literal["stop", "repeat", "short"]

# The number of positions that a snapshot can copy (by reference) in about the time that it takes to produce a record.
_POSITIONS_COPIED = 8
ClassFunction = Callable[[Any], Hashable]


class BatchPlan(NamedTuple):
    """The parameters of the batches; see `asyncrec.InterleaveSampler`."""

    batch_size: int
    per_class: int
    class_fn: ClassFunction | None
    class_buffer: int
    num_repeat: int
    drop_remainder: bool
    on_exhausted: OnExhausted


class BuilderState(NamedTuple):
    """The state of a builder, including the sources of the records that it has read but not yet returned."""

    batches: int
    in_pass: int
    last_batch: bool
    ended: bool
    passes: PassesState
    gathered: list[RecordSource]
    queues: QueuesState | None
    queued: list[RecordSource]
    examples: list[RecordSource]


class BatchBuilder:
    """Builds batches of examples from repeated passes over the shards. Only one task may use it.

    No examples are lost if a call is cancelled. An error is raised once all batches before it have been returned, and
    again by every later call.

    Args:
        state_cost: the number of positions in the state of a pass.

    Attributes:
        batches: the number of batches made.
        passes: the passes over the shards.
    """

    def __init__(
        self, inputs: ShardInputs, passes: Passes, batch_plan: BatchPlan, deserializer: Deserializer, *, state_cost: int
    ) -> None:
        self.passes = passes
        self.batches = 0
        self._inputs = inputs
        self._batch_plan = batch_plan
        self._deserializer = deserializer
        self._state_cost = state_cost
        self._in_pass = 0  # the number of batches made in this pass
        self._last_batch = False  # with on_exhausted="repeat", whether only one more batch follows
        self._ended = False
        self._error: Exception | None = None
        self._failed: DecodeError | None = None  # the error to raise once all waiting examples are in a queue
        self._gathered = TracedRecords()
        self._examples: deque[tuple[Any, RecordSource]] = deque()  # deserialised but not yet in a queue
        self._queues: ClassQueues[tuple[Any, RecordSource]] | None = None
        if batch_plan.class_fn is not None:
            classes = batch_plan.batch_size // batch_plan.per_class
            self._queues = ClassQueues(classes, batch_plan.per_class, batch_plan.class_buffer)

    @property
    def dropped(self) -> int:
        return self._queues.dropped if self._queues is not None else 0

    @property
    def snapshot_cost(self) -> int:
        """The cost of a `snapshot` now: the number of records that could be produced in about the same time."""
        queued = len(self._queues) if self._queues is not None else 0
        return self._state_cost // _POSITIONS_COPIED + queued + len(self._examples)

    async def next_batches(self, most: int, *, examples: bool = True) -> list[list[Any]]:
        """Return the next batches, at least one and at most ``most``, or an empty list once there are no more.

        Args:
            examples: if `False`, the caller does not use the examples, so they need not be deserialised.
        """
        if self._error is not None:
            raise self._error
        if self._ended:
            return []
        if self._queues is None:
            batches = await self._consecutive(most, examples)
        else:
            batch = await self._balanced(self._queues)
            batches = [] if batch is None else [batch]
        if not batches:
            self._ended = True
        self.batches += len(batches)
        self._in_pass += len(batches)
        return batches

    async def aclose(self) -> None:
        await self.passes.aclose()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Return a function that computes the state at the time of this call; see `Passes.snapshot`."""
        passes = self.passes.snapshot()
        state: dict[str, Any] = {
            "batches": self.batches,
            "in_pass": self._in_pass,
            "last_batch": self._last_batch,
            "ended": self._ended,
            "gathered": pack_sources(self._gathered.sources()),
        }
        sources = {}
        if self._queues is not None:
            state["queues"] = self._queues.state_dict()
            sources = {
                "queued": [source for _, source in self._queues.items()],
                "examples": [source for _, source in self._examples],
            }

        def state_dict() -> dict[str, Any]:
            return {**passes(), **state, **{name: pack_sources(each) for name, each in sources.items()}}

        return state_dict

    def parsed(self, values: StateValues) -> BuilderState:
        """Parse a state that was taken with the same inputs and plan.

        Raises:
            ValueError: the state belongs to other inputs or to another plan, or is damaged.
        """
        shards, queues = len(self._inputs), self._queues
        last_batch = values.flag("last_batch")
        return BuilderState(
            values.whole("batches"),
            values.whole("in_pass"),
            last_batch,
            values.flag("ended"),
            self.passes.parsed(values, extra=last_batch),
            parse_sources(values, "gathered", shards),
            None if queues is None else queues.parsed(values.part("queues")),
            [] if queues is None else parse_sources(values, "queued", shards),
            [] if queues is None else parse_sources(values, "examples", shards),
        )

    async def load(self, state: BuilderState) -> None:
        """Continue from a state that `parsed` returned. Read and deserialise the queued examples again."""
        self.batches, self._in_pass = state.batches, state.in_pass
        self._last_batch, self._ended = state.last_batch, state.ended
        await self.passes.load(state.passes)
        self._gathered = await self._inputs.read_traced(state.gathered)
        if self._queues is not None and state.queues is not None:
            queued = await self._inputs.read_traced(state.queued)
            pairs = zip(await self._deserialised(queued), queued.known, strict=True)
            classed = [(self._class_of(queued, index, pair[0]), pair) for index, pair in enumerate(pairs)]
            self._queues.load(state.queues, classed)
            waiting = await self._inputs.read_traced(state.examples)
            self._examples = deque(zip(await self._deserialised(waiting), waiting.known, strict=True))

    async def _deserialised(self, taken: TracedRecords) -> list[Any]:
        examples, error = await self._deserializer.run(taken)
        if error is not None:
            raise error
        return examples

    async def _begin_pass(self) -> None:
        await self.passes.begin_next()
        self._in_pass = 0

    async def _consecutive(self, most: int, wanted: bool) -> list[list[Any]]:
        size = self._batch_plan.batch_size
        gathered = self._gathered
        while (missing := most * size - len(gathered.records)) > 0:
            try:
                taken = await self.passes.take(missing)
            except Exception:
                if len(gathered.records) < size:
                    raise
                break  # the next call raises the error again
            if taken.records:
                gathered.extend(taken)
            elif len(gathered.records) >= size:
                break
            elif not self.passes.is_last:
                await self._begin_pass()
            elif self._batch_plan.drop_remainder or not gathered.records:
                return []
            else:
                break
        now, later = gathered.split(max(size, len(gathered.records) // size * size))
        examples: list[Any]
        examples, error = await self._deserializer.run(now) if wanted else (now.records, None)
        self._gathered = later
        if error is not None:
            self._error = error
            del examples[len(examples) // size * size :]
            if not examples:
                raise error
        return [examples[begin : begin + size] for begin in range(0, len(examples), size)]

    async def _balanced(self, queues: ClassQueues[tuple[Any, RecordSource]]) -> list[Any] | None:
        plan = self._batch_plan
        if self._last_batch and self._in_pass:
            return None
        while True:
            while self._examples:
                example, source = self._examples.popleft()
                cls = self._class_of(TracedRecords([b""], known=[source]), 0, example)
                batch = queues.push(cls, (example, source))
                if batch is not None:
                    return [example for example, _ in batch]
            if self._failed is not None:
                self._error = self._failed
                raise self._failed
            if not self._gathered.records:
                self._gathered = await self.passes.take(plan.batch_size)
            if self._gathered.records:
                examples, self._failed = await self._deserializer.run(self._gathered)
                self._examples.extend(zip(examples, self._gathered.sources(), strict=False))
                self._gathered = TracedRecords()
                continue
            if queues.ready >= plan.batch_size // plan.per_class:
                return [example for example, _ in queues.take()]
            if self._in_pass and not self.passes.is_last and not self._last_batch:
                await self._begin_pass()
            elif not await self._go_on_exhausted(queues):
                return None
            elif plan.on_exhausted == "short":
                return [example for example, _ in queues.take()]

    async def _go_on_exhausted(self, queues: ClassQueues[tuple[Any, RecordSource]]) -> bool:
        """Return whether another batch follows after the last pass, or after a pass that did not yield any batch."""
        plan = self._batch_plan
        classes = plan.batch_size // plan.per_class
        if plan.on_exhausted == "short" and queues.ready:
            return True
        if plan.on_exhausted == "repeat" and queues.ready:
            if not self._in_pass and self.passes.epoch:
                raise self._no_batch(queues)
            last = self.passes.is_last
            await self._begin_pass()
            self._last_batch = last
            return True
        if not self.batches:
            # A training run that ends before its first batch is a mistake.
            raise self._no_batch(queues)
        if not self._in_pass:
            _log.warning(
                "a whole pass over the shards yielded no batch of %d classes with %d examples each: the class "
                "buffer still holds examples of %d classes; the sampler stops here",
                classes,
                plan.per_class,
                queues.waiting,
                extra={"classes": classes, "waiting": queues.waiting},
            )
        return False

    def _no_batch(self, queues: ClassQueues[tuple[Any, RecordSource]]) -> DatasetError:
        plan = self._batch_plan
        if not self.passes.records:
            return DatasetError(f"the {len(self._inputs)} shards contain no records")
        return DatasetError(
            f"a whole pass over the shards yielded no batch: {queues.ready} classes have {plan.per_class} examples "
            f"each, but a batch needs {plan.batch_size // plan.per_class}. Use a smaller batch_size, or a larger "
            "class_buffer"
        )

    def _class_of(self, taken: TracedRecords, index: int, example: Any) -> Hashable:
        assert self._batch_plan.class_fn is not None, "called only with a class_fn"
        try:
            cls = self._batch_plan.class_fn(example)
            hash(cls)
            if cls != cls:  # each NaN would form a class of its own
                raise SchemaError(
                    f"it returned {cls!r}, which is not equal to itself; return another class for these examples"
                )
        except Exception as error:
            raise self._deserializer.error(taken, index, "class_fn", error) from error
        return cls
