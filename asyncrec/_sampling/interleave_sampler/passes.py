"""`Passes` makes one pass over the shards after another. The seed and the pass number determine each pass's order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._sampling.interleave.cycle_shards import InterleavePlan
from asyncrec._sampling.interleave.provenance import TracedRecords
from asyncrec._sampling.interleave.shard_inputs import ShardInputs
from asyncrec._sampling.interleave.single_pass import PassState, SinglePass
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import DatasetError


class PassesState(NamedTuple):
    """The state of all passes.

    Attributes:
        seed: the seed for the order of each pass.
        epoch: the number of the current pass, from 0.
        records_before: the number of records in all earlier passes.
        mixing: the state of the current pass.
    """

    seed: int
    epoch: int
    records_before: int
    mixing: PassState


class Passes:
    """The records of all passes, one pass after another. Only one task may use it. Its reading tasks run in ``scope``.

    Args:
        num_repeat: the number of passes; -1 means forever.

    Attributes:
        epoch: the number of the current pass, from 0.
    """

    def __init__(
        self, inputs: ShardInputs, plan: InterleavePlan, *, num_repeat: int, seed: int, scope: TaskScope | None
    ) -> None:
        self.epoch = 0
        self._inputs = inputs
        self._plan = plan
        self._num_repeat = num_repeat
        self._seed = seed
        self._scope = scope
        self._records_before = 0
        self._waited_before = 0.0
        self._single_pass = self._make()

    @property
    def records(self) -> int:
        """The number of records returned, in all passes."""
        return self._records_before + self._single_pass.records

    @property
    def seconds_waited(self) -> float:
        """The time spent waiting for reads, in all passes."""
        return self._waited_before + self._single_pass.seconds_waited

    @property
    def is_last(self) -> bool:
        """Whether this is the last pass."""
        return 0 <= self._num_repeat <= self.epoch + 1

    async def take(self, count: int) -> TracedRecords:
        """Return the next records of this pass, like `SinglePass.take`, or no records at the end of the pass."""
        return await self._single_pass.take(count)

    async def begin_next(self) -> None:
        """Begin the next pass.

        Raises:
            DatasetError: the current pass had no records.
        """
        single_pass = self._single_pass
        if not single_pass.records:
            raise DatasetError(f"the {len(self._inputs)} shards contain no records")
        await single_pass.aclose()
        self._records_before += single_pass.records
        self._waited_before += single_pass.seconds_waited
        self.epoch += 1
        self._single_pass = self._make()

    async def aclose(self) -> None:
        """Close all open shards. The reading tasks end with their scope."""
        await self._single_pass.aclose()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Return a function that computes the state at the time of this call; see `SinglePass.snapshot`."""
        single_pass = self._single_pass.snapshot()
        state = {"seed": self._seed, "epoch": self.epoch, "records_before": self._records_before}
        return lambda: {**state, "mixing": single_pass()}

    def parsed(self, values: StateValues, *, extra: bool) -> PassesState:
        """Parse a state that was taken with the same inputs and plan. ``extra`` allows one more pass after the last.

        Raises:
            ValueError: the state belongs to other inputs or to another plan, or is damaged.
        """
        last = None if self._num_repeat < 0 else self._num_repeat - (not extra)
        return PassesState(
            values.whole("seed", least=None, most=None),
            values.whole("epoch") if last is None else values.whole("epoch", most=last),
            values.whole("records_before"),
            self._single_pass.parsed(values.part("mixing")),
        )

    async def load(self, state: PassesState) -> None:
        """Continue from a state that `parsed` returned. The records of the shuffle buffer are read again."""
        self._seed, self.epoch, self._records_before = state.seed, state.epoch, state.records_before
        await self._single_pass.aclose()  # an earlier load may have been cancelled
        self._single_pass = self._make()
        await self._single_pass.load(state.mixing)

    def _make(self) -> SinglePass:
        """Create the current pass. The seed and the epoch determine the order of the shards and the shuffling."""
        rng = random.Random(f"{self._seed}/{self.epoch}")
        sequence = list(range(len(self._inputs)))
        rng.shuffle(sequence)
        return SinglePass(self._inputs, sequence, self._plan, scope=self._scope, seed=rng.getrandbits(53))
