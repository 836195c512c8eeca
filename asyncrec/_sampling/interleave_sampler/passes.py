"""`Passes` reads pass after pass over the shards, each in an order known from (seed, number of the pass)."""

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
    """The state of passes: their order, the number of the pass, the records of those before it, and its own state."""

    seed: int
    epoch: int
    records_before: int
    mixing: PassState


class Passes:
    """The records of pass after pass. Used by one task; tasks that read for it run in ``scope``.

    Args:
        num_repeat: how many passes there are; -1 for ever.

    Attributes:
        epoch: the number of the pass, from 0.
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
        """How many records were read, in all passes."""
        return self._records_before + self._single_pass.records

    @property
    def seconds_waited(self) -> float:
        """How long reads were waited for, in all passes."""
        return self._waited_before + self._single_pass.seconds_waited

    @property
    def is_last(self) -> bool:
        """Whether no other pass comes after this one."""
        return 0 <= self._num_repeat <= self.epoch + 1

    async def take(self, count: int) -> TracedRecords:
        """Return the next records of this pass: see `SinglePass.take`. None at its end."""
        return await self._single_pass.take(count)

    async def begin_next(self) -> None:
        """Begin the next pass.

        Raises:
            DatasetError: there was no record in this one.
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
        """Close what is open. Tasks end with their scope."""
        await self._single_pass.aclose()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Return a function that returns the state of now, later: see `SinglePass.snapshot`."""
        single_pass = self._single_pass.snapshot()
        state = {"seed": self._seed, "epoch": self.epoch, "records_before": self._records_before}
        return lambda: {**state, "mixing": single_pass()}

    def parsed(self, values: StateValues) -> PassesState:
        """Return a state of the same inputs and plan.

        Raises:
            ValueError: it is of others, or damaged.
        """
        last = None if self._num_repeat < 0 else self._num_repeat - 1
        return PassesState(
            values.whole("seed", least=None, most=None),
            values.whole("epoch") if last is None else values.whole("epoch", most=last),
            values.whole("records_before"),
            self._single_pass.parsed(values.part("mixing")),
        )

    async def load(self, state: PassesState) -> None:
        """Go on from what `parsed` returned; reads what the shuffle buffer held."""
        self._seed, self.epoch, self._records_before = state.seed, state.epoch, state.records_before
        await self._single_pass.aclose()  # of a loading that was cancelled
        self._single_pass = self._make()
        await self._single_pass.load(state.mixing)

    def _make(self) -> SinglePass:
        """The order of the shards, and what the shuffle buffer draws, are functions of seed and epoch."""
        rng = random.Random(f"{self._seed}/{self.epoch}")
        sequence = list(range(len(self._inputs)))
        rng.shuffle(sequence)
        return SinglePass(self._inputs, sequence, self._plan, scope=self._scope, seed=rng.getrandbits(53))
