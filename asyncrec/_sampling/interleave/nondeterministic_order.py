"""`ReadyOrder`: the interleave order that waits for nobody. Pure.

Slots, blocks and refill as in `asyncrec._sampling.interleave.order`, but a slot whose input has nothing ready is passed
over. With everything ready at all times it is the same order.
"""

from __future__ import annotations

from collections.abc import Callable

from asyncrec._sampling.interleave.order import InterleaveOrder, Take

__all__ = ["ReadyOrder"]


class ReadyOrder(InterleaveOrder):
    """As `InterleaveOrder`; ``ready(source)`` says whether asking that input would not wait."""

    def __init__(self, inputs: int, *, cycle_length: int, block_length: int, ready: Callable[[int], bool]) -> None:
        super().__init__(inputs, cycle_length=cycle_length, block_length=block_length)
        self._ready = ready

    def next(self) -> Take | None:
        """What to take next. Where nothing is ready it is some input that is not: wait for any, and ask again."""
        take = super().next()
        for _ in range(len(self._slots)):
            if take is None or self._ready(take.source):
                break
            self._advance()
            take = super().next()
        return take
