"""`ClassQueues` makes batches of exactly P distinct classes, with K examples each, from a stream of unknown classes.

Each class has a queue, which is ready as long as it contains at least K items. When P queues are ready, a batch is made
from the K oldest items of each of the P queues that became ready first.

The queues contain at most ``capacity`` items in total. If there is no room for another item and fewer than P queues are
ready, the oldest item of the longest queue is discarded, because that queue belongs to the most frequent class. If no
queue contains more than K items, the longest queue that is not ready loses its oldest item instead. If several queues
are equally long, the one that reached this length first loses an item. A ready class therefore always stays ready. If
it did not, rare classes would lose items as soon as they have enough, and a batch might never be made
(docs/design/class-queues.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

T = TypeVar("T")

_UNFIT = (
    "the state does not fit this sampler's class buffer: it is damaged, or was taken with other parameters; pass the "
    "parameters that the state was taken with"
)


class QueuesState(NamedTuple):
    """The queues' lengths, the ready queues in the order in which they became ready, and the number of discards."""

    lengths: list[int]
    ready: list[int]
    dropped: int


class ClassQueues(Generic[T]):
    """Queues that sort items by class, and return batches of P classes with K items each. Only one task may use them.

    Args:
        classes: P, the number of distinct classes in a batch.
        per_class: K, the number of items of each class in a batch.
        capacity: the maximum number of items in all queues; at least P x K, so that a batch fits.

    Attributes:
        dropped: the number of items that were discarded for lack of room.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, classes: int, per_class: int, capacity: int) -> None:
        if classes < 1 or per_class < 1:
            raise ArgumentValueError(f"classes={classes} and examples per class={per_class}: both must be at least 1")
        if capacity < classes * per_class:
            raise ArgumentValueError(
                f"class_buffer must be at least {classes * per_class} for a batch of {classes} classes with "
                f"{per_class} examples each, not {capacity}"
            )
        self._classes = classes
        self._per_class = per_class
        self._capacity = capacity
        self._queues: dict[Hashable, deque[T]] = {}
        self._ready: dict[Hashable, None] = {}  # in the order in which they became ready
        # length -> the classes with a queue of that length, in the order in which they reached it
        self._by_length: dict[int, dict[Hashable, None]] = {}
        self._longest = 0
        self._held = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of items in all queues."""
        return self._held

    @property
    def ready(self) -> int:
        """The number of classes with enough items for a batch."""
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """The number of classes with at least one item."""
        return len(self._queues)

    def push(self, cls: Hashable, item: T) -> list[T] | None:
        """Add one item. If it completes a batch, return the batch: K items of one class, K of the next, ..."""
        queue = self._queues.get(cls)
        if queue is None:
            queue = self._queues[cls] = deque()
        queue.append(item)
        self._held += 1
        self._moved(cls, len(queue) - 1, len(queue))
        if len(queue) == self._per_class:
            self._ready[cls] = None
        if len(self._ready) >= self._classes:
            return self.take()
        if self._held > self._capacity:
            self._drop()
        return None

    def take(self) -> list[T]:
        """Remove and return a batch of P ready classes, or of all ready classes if there are fewer."""
        batch: list[T] = []
        for cls in list(self._ready)[: self._classes]:
            queue = self._queues[cls]
            before = len(queue)
            batch += [queue.popleft() for _ in range(self._per_class)]
            self._moved(cls, before, len(queue))
            del self._ready[cls]
            if len(queue) >= self._per_class:
                self._ready[cls] = None  # behind the other ready classes
        self._held -= len(batch)
        return batch

    def items(self) -> list[T]:
        """Return all items, in the order that `load_state_dict` expects."""
        return [item for cls in self._in_order() for item in self._queues[cls]]

    def state_dict(self) -> dict[str, Any]:
        """Return how the `items` are divided into queues, as JSON."""
        numbers = {cls: number for number, cls in enumerate(self._in_order())}
        return {
            "lengths": [len(self._queues[cls]) for cls in numbers],
            "ready": [numbers[cls] for cls in self._ready],
            "dropped": self.dropped,
        }

    def load_state_dict(self, state: Mapping[str, Any], items: Iterable[tuple[Hashable, T]]) -> None:
        """Restore the queues that returned this state and contained these items, each given with its class.

        Raises:
            ValueError: the state is damaged, or does not match the items because the classes or the parameters changed.
        """
        self.load(self.parsed(StateValues(state)), items)

    def parsed(self, values: StateValues) -> QueuesState:
        """Parse a state of queues with the same parameters. Raises the same errors as `load_state_dict`."""
        lengths = values.wholes("lengths")
        state = QueuesState(lengths, values.wholes("ready", below=len(lengths)), values.whole("dropped"))
        ready = {number for number, length in enumerate(lengths) if length >= self._per_class}
        if min(lengths, default=1) < 1 or len(state.ready) != len(ready) or set(state.ready) != ready:
            raise ArgumentValueError(_UNFIT)
        return state

    def load(self, state: QueuesState, items: Iterable[tuple[Hashable, T]]) -> None:
        """Continue from a state that `parsed` returned, as `load_state_dict` does."""
        pairs = list(items)
        if sum(state.lengths) != len(pairs) or len(pairs) > self._capacity:
            raise ArgumentValueError(_UNFIT)
        self._queues, self._by_length, self._longest = {}, {}, 0
        order: list[Hashable] = []
        begin = 0
        for length in state.lengths:
            run = pairs[begin : begin + length]
            begin += length
            cls = run[0][0]
            if cls in self._queues or any(other != cls for other, _ in run):
                raise ArgumentValueError("class_fn does not return the same classes as when the state was taken")
            self._queues[cls] = deque(item for _, item in run)
            self._moved(cls, 0, length)
            order.append(cls)
        self._held = len(pairs)
        self._ready = {order[number]: None for number in state.ready}
        self.dropped = state.dropped

    def _in_order(self) -> list[Hashable]:
        return [cls for length in sorted(self._by_length) for cls in self._by_length[length]]

    def _moved(self, cls: Hashable, before: int, after: int) -> None:
        if before:
            classes = self._by_length[before]
            del classes[cls]
            if not classes:
                del self._by_length[before]
        if after:
            self._by_length.setdefault(after, {})[cls] = None
            self._longest = max(self._longest, after)
        else:
            del self._queues[cls]
        while self._longest and self._longest not in self._by_length:
            self._longest -= 1

    def _drop(self) -> None:
        length = self._longest
        if length == self._per_class:
            # A shorter queue exists, because P - 1 ready classes with K items each cannot fill a capacity of P x K.
            length = next(shorter for shorter in range(length - 1, 0, -1) if shorter in self._by_length)
        cls = next(iter(self._by_length[length]))
        self._queues[cls].popleft()
        self._held -= 1
        self.dropped += 1
        self._moved(cls, length, length - 1)
