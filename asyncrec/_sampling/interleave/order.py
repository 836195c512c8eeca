"""`InterleaveOrder` determines which input to read next, in exactly tf.data's order. It does no I/O.

There are ``cycle_length`` slots, each with an open input. Up to ``block_length`` records are taken from a slot, then
from the next slot. When an input ends inside a block, its slot is cleared and the cycle moves on. The slot gets the
next input only when the cycle returns to it. (See tensorflow/core/kernels/data/interleave_dataset_op.cc. The parallel
version has the same order unless it is sloppy.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError


class Take(NamedTuple):
    """An instruction to take up to ``count`` records from input number ``source`` next."""

    source: int
    count: int  # type: ignore[assignment]  # tuple.count is not used


class OrderState(NamedTuple):
    """The inputs in the slots, the current slot, the number of records taken from its block, and the next input."""

    slots: tuple[int | None, ...]
    slot: int
    in_block: int
    next_input: int

    @property
    def opened(self) -> list[int]:
        """The inputs that have a slot."""
        return [source for source in self.slots if source is not None]


class InterleaveOrder:
    """tf.data's order. Call `next`, take the records, and call `took` with their number and whether the input ended.

    Inputs are numbered 0 .. ``inputs - 1``, and are opened in this order.
    """

    def __init__(self, inputs: int, *, cycle_length: int, block_length: int) -> None:
        if cycle_length < 1 or block_length < 1:
            raise ArgumentValueError(
                f"cycle_length={cycle_length} and block_length={block_length}: both must be at least 1"
            )
        self._inputs = inputs
        self._block_length = block_length
        # Slots in excess of the inputs would stay empty, so omitting them does not change the order.
        self._slots: tuple[int | None, ...] = (None,) * max(1, min(cycle_length, inputs))
        self._slot = 0
        self._in_block = 0
        self._next_input = 0

    def next(self) -> Take | None:
        """Return the next input and the number of records to take, or `None` if all inputs are exhausted."""
        for _ in range(len(self._slots)):
            source = self._slots[self._slot]
            if source is None and self._next_input < self._inputs:
                source = self._next_input
                self._put(source)
                self._next_input += 1
            if source is not None:
                return Take(source, self._block_length - self._in_block)
            self._advance()
        return None

    def took(self, count: int, *, ended: bool) -> None:
        """Advance the order past ``count`` records of the input that `next` returned, and past its end if ``ended``.

        As in tf.data, an input that ends exactly with its block keeps its slot for the rest of this cycle. The input
        counts as ended only when the next read finds no record.
        """
        self._in_block += count
        if self._in_block >= self._block_length:
            self._advance()
        elif ended:
            self._put(None)
            self._advance()

    def round(self) -> list[int]:
        """Return the inputs of the next complete round (one block of each, in turn), without advancing the order.

        If each input has enough complete blocks, the caller may take one or more rounds without calling `took`. The
        list is empty if the order is inside a block, or if a slot is about to get its next input.
        """
        slots = self._slots[self._slot :] + self._slots[: self._slot]
        found = [source for source in slots if source is not None]
        if self._in_block or (len(found) < len(slots) and self._next_input < self._inputs):
            return []
        return found

    @property
    def in_block(self) -> int:
        """The number of records taken from the current block."""
        return self._in_block

    def copy(self) -> InterleaveOrder:
        """Return an independent copy of the order."""
        return copy(self)  # no attribute is changed in place

    def open_inputs(self) -> list[int]:
        """Return the inputs that have a slot now, in the order of the slots."""
        return [source for source in self._slots if source is not None]

    def coming_inputs(self, count: int) -> list[int]:
        """Return the next inputs that will get a slot, at most ``count``."""
        return list(range(self._next_input, min(self._inputs, self._next_input + count)))

    def state_dict(self) -> dict[str, Any]:
        return {
            "slots": list(self._slots),
            "slot": self._slot,
            "in_block": self._in_block,
            "next_input": self._next_input,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: the state has different inputs or a different ``cycle_length``, or does not fit
                ``block_length``.
        """
        self.load(self.parsed(StateValues(state)))

    def parsed(self, values: StateValues) -> OrderState:
        """Parse a state of an order over the same number of inputs. Raises the same errors as `load_state_dict`."""
        state = OrderState(
            tuple(values.optional_wholes("slots", below=self._inputs)),
            values.whole("slot"),
            values.whole("in_block", most=self._block_length - 1),
            values.whole("next_input", most=self._inputs),
        )
        opened = state.opened
        if (
            len(state.slots) != len(self._slots)
            or state.slot >= len(state.slots)
            or len(set(opened)) != len(opened)
            or any(source >= state.next_input for source in opened)
        ):
            raise ArgumentValueError(
                "the state belongs to an interleave with different inputs or a different cycle_length"
            )
        return state

    def load(self, state: OrderState) -> None:
        """Continue from a state that `parsed` returned."""
        self._slots, self._slot, self._in_block, self._next_input = state

    def _put(self, source: int | None) -> None:
        self._slots = (*self._slots[: self._slot], source, *self._slots[self._slot + 1 :])

    def _advance(self) -> None:
        self._slot = (self._slot + 1) % len(self._slots)
        self._in_block = 0


class NondeterministicOrder(InterleaveOrder):
    """An interleave order that skips inputs that are not ready, as tf.data does with ``deterministic=False``.

    Slots, blocks and the opening of inputs are as in `InterleaveOrder`, but a slot whose input has no records ready is
    skipped. If all inputs are always ready, the order is the same.

    Args:
        ready: ``ready(source)`` returns whether the input ``source`` can be read without waiting.
    """

    def __init__(self, inputs: int, *, cycle_length: int, block_length: int, ready: Callable[[int], bool]) -> None:
        super().__init__(inputs, cycle_length=cycle_length, block_length=block_length)
        self._ready = ready

    def next(self) -> Take | None:
        """Return the next input that is ready, as `InterleaveOrder.next` does, or `None` if all inputs are exhausted.

        If no input is ready, return an input that is not ready. The caller must then wait for any input to become
        ready, and call `next` again.
        """
        take = super().next()
        for _ in range(len(self._slots)):
            if take is None or self._ready(take.source):
                break
            self._advance()
            take = super().next()
        return take
