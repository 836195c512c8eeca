"""`ShuffleBuffer` is a reservoir that gives out its items in random order. Pure.

The buffer fills first. From then on each item that comes in takes the place of an item drawn at random, which goes out.
At the end, the remaining items are drawn, too. With room for all, every order is equally likely; with less, an item can
come out at most ``buffer_size`` places early, and any number late (as in tf.data).

The generator is Python's Mersenne Twister, seeded anew for every 4,096 draws from (seed, number of the 4,096): so its
state is a seed and a count instead of 2,500 bytes, and equal seeds give equal orders on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from asyncrec._arguments import Size, byte_count
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

T = TypeVar("T")

# Seeding costs 10 us, which is nothing for this many draws; a resumed buffer repeats fewer draws than these.
_DRAWS_PER_SEED = 4096


class ShuffleState(NamedTuple):
    """What the generator of a shuffle buffer has drawn, and whether the next push returns an item."""

    seed: int
    draws: int
    owed: bool


def parse_shuffle_state(values: StateValues) -> ShuffleState:
    """Return the state that `ShuffleBuffer.state_dict` returned.

    Raises:
        ValueError: it is of another version, or damaged.
    """
    version = values.whole("version")
    if version != 1:
        raise ArgumentValueError(
            f"the state of a shuffle buffer has version {version}, but this release of asyncrec reads only version 1"
        )
    return ShuffleState(values.whole("seed", least=None, most=None), values.whole("draws"), values.flag("owed"))


class ShuffleBuffer(Generic[T]):
    """A reservoir of at most ``buffer_size`` items, and of ``max_bytes`` if given, that gives them out in random order.

    Args:
        buffer_size: how many items it holds; 1 keeps the order.
        seed: an integer. Equal seeds and equal items give equal orders.
        max_bytes: a second limit, on the sum of ``size_of`` over the items; an item larger than that is held alone.
        fill: `False` gives out items while it fills, one for every two that come in: sooner, and less well mixed.
        size_of: a function that returns the bytes of an item; `len` by default.

    Raises:
        ValueError: ``buffer_size`` or ``max_bytes`` is below 1.
    """

    def __init__(
        self,
        buffer_size: int,
        seed: int,
        *,
        max_bytes: Size | None = None,
        fill: bool = True,
        size_of: Callable[[T], int] = len,  # type: ignore[assignment]  # of bytes; other items need their own
    ) -> None:
        if max_bytes is not None:
            max_bytes = byte_count(max_bytes, "max_bytes")
        if buffer_size < 1 or (max_bytes is not None and max_bytes < 1):
            raise ArgumentValueError(f"buffer_size={buffer_size} and max_bytes={max_bytes}: both must be at least 1")
        self._buffer_size = buffer_size
        self._seed = seed
        self._max_bytes = max_bytes
        self._fill = fill
        self._size_of = size_of
        self._items: list[T] = []
        self._bytes = 0
        self._draws = 0
        self._owed = False  # without `fill`: the next push gives one out
        self._random = random.Random()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> tuple[T, ...]:
        """The items it holds, in the order that `load_state_dict` expects."""
        return tuple(self._items)

    def push(self, item: T) -> T | None:
        """Add one item; return one, or `None` while the buffer fills.

        With ``max_bytes``, one large item may outweigh the one it displaces; `push_many` returns as many as the limit
        requires.
        """
        items = self._items
        if self._max_bytes is None:
            if len(items) >= self._buffer_size:
                index = self._draw()
                out, items[index] = items[index], item
                return out
        else:
            self._bytes += self._size_of(item)
        items.append(item)
        if self._is_over():
            return self.pop()
        if self._fill:
            return None
        self._owed = not self._owed
        return None if self._owed else self.pop()

    def push_many(self, items: Iterable[T]) -> list[T]:
        """Add all items; return as many as the limits require."""
        given: list[T] = []
        for item in items:
            out = self.push(item)
            if out is not None:
                given.append(out)
            while self._is_over():
                given.append(self.pop())
        return given

    def pop(self) -> T:
        """Remove one item at random, and return it.

        Raises:
            IndexError: the buffer is empty.
        """
        if not self._items:
            raise IndexError("the shuffle buffer is empty")
        index = self._draw()
        last = self._items.pop()
        if index < len(self._items):
            last, self._items[index] = self._items[index], last
        if self._max_bytes is not None:
            self._bytes -= self._size_of(last)
        return last

    def drain(self) -> Iterator[T]:
        """Yield all remaining items in random order, and remove them."""
        while self._items:
            yield self.pop()

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's state without the items: their owner knows where they came from. See `items`."""
        return {"version": 1, "seed": self._seed, "draws": self._draws, "owed": self._owed}

    def load_state_dict(self, state: dict[str, Any], items: Iterable[T]) -> None:
        """Continue as the buffer that returned this state and held these items.

        Raises:
            ValueError: a state of another version, or more items than there is room for.
        """
        self.load(parse_shuffle_state(StateValues(state)), items)

    def load(self, state: ShuffleState, items: Iterable[T]) -> None:
        """Continue from what `parse_shuffle_state` returned, as `load_state_dict`."""
        held = list(items)
        if len(held) > self._buffer_size:
            raise ArgumentValueError(f"{len(held)} items do not fit into a shuffle buffer of size {self._buffer_size}")
        self._items = held
        self._bytes = sum(map(self._size_of, held)) if self._max_bytes is not None else 0
        self._seed, draws, self._owed = state
        self._draws = draws - draws % _DRAWS_PER_SEED
        for _ in range(draws % _DRAWS_PER_SEED):
            self._draw(1)

    def _is_over(self) -> bool:
        if len(self._items) > self._buffer_size:
            return True
        return self._max_bytes is not None and self._bytes > self._max_bytes and len(self._items) > 1

    def _draw(self, count: int | None = None) -> int:
        """Return a position among the items."""
        if self._draws % _DRAWS_PER_SEED == 0:
            self._random.seed(f"{self._seed}/{self._draws // _DRAWS_PER_SEED}")
        self._draws += 1
        # 53 random bits: what this is off an equal chance cannot be seen in any buffer that fits into memory.
        return int(self._random.random() * (count or len(self._items)))
