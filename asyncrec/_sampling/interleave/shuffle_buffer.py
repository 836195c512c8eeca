"""`ShuffleBuffer` is a reservoir that returns its items in random order. It does no I/O.

The buffer is filled first. After that, each new item replaces a randomly drawn item, which is returned. At the end, the
remaining items are drawn too. If the buffer has room for all items, every order is equally likely. Otherwise, an item
can be returned at most ``buffer_size`` places early, and any number of places late (as in tf.data).

The generator is Python's Mersenne Twister. Every 4,096 draws, it is reseeded from the seed and the number of draws made
so far. The state is thus a seed and a count, rather than the generator's 2,500 bytes, and equal seeds produce equal
orders on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from asyncrec._arguments import Size, byte_count
from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

T = TypeVar("T")

# Seeding takes 10 us, which is negligible for this many draws. A resumed buffer has to repeat fewer draws than this.
_DRAWS_PER_SEED = 4096


class ShuffleState(NamedTuple):
    """The seed of a shuffle buffer, the number of draws made, and whether the next push returns an item."""

    seed: int
    draws: int
    owed: bool


def parse_shuffle_state(values: StateValues) -> ShuffleState:
    """Parse a state that `ShuffleBuffer.state_dict` returned.

    Raises:
        ValueError: the state is of another version, or damaged.
    """
    version = values.whole("version")
    if version != 1:
        raise ArgumentValueError(
            f"the state of a shuffle buffer has version {version}, but this release of asyncrec reads only version 1"
        )
    return ShuffleState(values.whole("seed", least=None, most=None), values.whole("draws"), values.flag("owed"))


class ShuffleBuffer(Generic[T]):
    """A reservoir that returns its items in random order. It holds at most ``buffer_size`` items.

    Args:
        buffer_size: the maximum number of items in the buffer; 1 keeps the order.
        seed: an integer. Equal seeds and equal items produce equal orders.
        max_bytes: a second limit, on the sum of ``size_of`` over all items. An item above this limit is held alone.
        fill: if `False`, the buffer returns one item for every two items pushed while it fills. The first items are
            returned sooner, but are less well mixed.
        size_of: a function that returns the size of an item in bytes; `len` by default.

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
        size_of: Callable[[T], int] = len,  # type: ignore[assignment]  # for bytes; other items need a function
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
        self._owed = False  # without `fill`, whether the next push returns an item
        self._random = random.Random()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> tuple[T, ...]:
        """The items in the buffer, in the order that `load_state_dict` expects."""
        return tuple(self._items)

    def push(self, item: T) -> T | None:
        """Add one item and return another, or `None` while the buffer fills.

        With ``max_bytes``, the new item may be larger than the item that it replaces, so the buffer may exceed the
        limit. Use `push_many`, which returns as many items as the limit requires.
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
        """Add all items, and return as many items as the limits require."""
        given: list[T] = []
        for item in items:
            out = self.push(item)
            if out is not None:
                given.append(out)
            while self._is_over():
                given.append(self.pop())
        return given

    def pop(self) -> T:
        """Remove and return one item at random.

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
        """Remove and yield all remaining items in random order."""
        while self._items:
            yield self.pop()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator, but not the `items`, which the caller can read again."""
        return {"version": 1, "seed": self._seed, "draws": self._draws, "owed": self._owed}

    def load_state_dict(self, state: dict[str, Any], items: Iterable[T]) -> None:
        """Restore the buffer that returned this state and held these items.

        Raises:
            ValueError: the state is damaged or of another version, or there are more items than ``buffer_size``.
        """
        self.load(parse_shuffle_state(StateValues(state)), items)

    def load(self, state: ShuffleState, items: Iterable[T]) -> None:
        """Continue from a state that `parse_shuffle_state` returned, as `load_state_dict` does."""
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
        """Return a random index below ``count``, by default the number of items."""
        if self._draws % _DRAWS_PER_SEED == 0:
            self._random.seed(f"{self._seed}/{self._draws // _DRAWS_PER_SEED}")
        self._draws += 1
        # With 53 random bits, the deviation from a uniform choice is negligible for any buffer that fits into memory.
        return int(self._random.random() * (count or len(self._items)))
