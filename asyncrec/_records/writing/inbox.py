"""An `Inbox` is the queue of items that producers have passed to one owner task."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

import anyio

from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.write_batch import WriteBatch

# The owner takes several queued batches at a time, up to this size, so that one call in a worker thread compresses them
# all. It takes no more, because the budget still counts the batches that it has taken.
_TOGETHER_BYTES = 1 << 20


class FlushRequest:
    """A flush request on its way to the owner task. Several callers may wait for the same request.

    Attributes:
        done: set when the flush has finished, or the owner has failed.
        spooled: whether all records before the request survive this process.
    """

    __slots__ = ("done", "spooled")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.spooled = False

    def finish(self, *, spooled: bool) -> None:
        """Wake the callers that wait for this flush."""
        self.spooled = spooled
        self.done.set()


class EndObject:
    """The marker after the last batch of an object."""


END_OBJECT: Final = EndObject()

Item = WriteBatch | FlushRequest | EndObject


class _State(Enum):
    OPEN = auto()
    CLOSED = auto()  # no more items are accepted; the owner finishes the queued ones
    ENDED = auto()  # the owner has returned, or failed


class Inbox:
    """The queue of one owner task: batches, flush requests and ends of objects, in order.

    Attributes:
        error: the owner's error. Items that are added after the error are discarded, and their room is released.
    """

    def __init__(self, path: str, budget: ByteBudget) -> None:
        self._path = path
        self._budget = budget
        self._items: deque[Item] = deque()
        self._arrived = anyio.Event()
        self._state = _State.OPEN
        self.error: BaseException | None = None
        on_fork(self)

    def forked(self) -> None:
        """Make later writes raise an error, because a forked process shares the files but has no owner task."""
        self.error = forked_error(f"{self._path}: the writer")
        self._budget.release_all()

    # -- producer side (never blocks) ---------------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        """Pass an item to the owner."""
        if self.error is not None or self._state is _State.ENDED:
            _drop(item, self._budget)
            return
        if isinstance(item, WriteBatch):
            self._budget.sent(item.size)
        self._items.append(item)
        self._arrived.set()

    def flush(self) -> FlushRequest:
        """Request a flush of all earlier records. If no item follows the last request, return that request."""
        last = self._items[-1] if self._items else None
        if isinstance(last, FlushRequest):
            return last
        request = FlushRequest()
        self.put(request)
        return request

    def wake(self) -> None:
        """Wake a waiting owner, so that it checks the inbox and its deadlines again."""
        self._arrived.set()

    @property
    def closed(self) -> bool:
        """Whether no more items are accepted."""
        return self._state is not _State.OPEN

    def close(self) -> None:
        """Accept no more items. The owner finishes the queued ones, and ends."""
        self._state = _State.CLOSED
        self._arrived.set()

    # -- owner side ---------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Item | None:
        """The next item, which is not removed; `None` if the inbox is empty."""
        return self._items[0] if self._items else None

    def pop(self) -> None:
        """Remove the next item."""
        self._items.popleft()

    def put_back(self, items: Sequence[Item], *, then: Sequence[Item] = ()) -> None:
        """Put items back at the head of the inbox. The batches count towards the budget again.

        The items in ``then`` follow them. If the last batch ``goes_on``, the remaining batches of its position come in
        between.
        """
        rest: list[Item] = []
        later = list(then)
        last = items[-1] if items else None
        while isinstance(last, WriteBatch) and last.goes_on and self._items:
            item = self._items.popleft()
            if isinstance(item, WriteBatch):
                rest.append(last := item)
            else:
                later.append(item)  # a flush request that was put back in the middle of the position
        self._items.extendleft(reversed([*rest, *later]))
        for item in items:
            if isinstance(item, WriteBatch):
                self._budget.hold(item.size)
                self._budget.sent(item.size)
        self._items.extendleft(reversed(items))

    def take_batches(self) -> list[WriteBatch]:
        """Remove and return the next batches, to be written in one step."""
        batches: list[WriteBatch] = []
        size = 0
        while self._items and size < _TOGETHER_BYTES and isinstance(batch := self._items[0], WriteBatch):
            batches.append(batch)
            size += batch.size
            self._items.popleft()
        return batches

    def revise(self, revised: Callable[[WriteBatch], WriteBatch | None]) -> list[WriteBatch]:
        """Revise the queued batches, and release the freed room. Return the batches that are left without records."""
        items, self._items = self._items, deque()
        dropped: list[WriteBatch] = []
        freed = 0
        for item in items:
            if not isinstance(item, WriteBatch):
                self._items.append(item)
                continue
            freed += item.size
            if (batch := revised(item)) is None:
                dropped.append(item)
            else:
                freed -= batch.size
                self._items.append(batch)
        self._budget.arrived(freed)  # done last, because callers that wait for room may then add items
        return dropped

    def last_flush(self) -> FlushRequest | None:
        """Return the last flush request that is queued for the current object, or `None`."""
        last = None
        for item in self._items:
            if isinstance(item, EndObject):
                break
            if isinstance(item, FlushRequest):
                last = item
        return last

    def waiting_batches(self) -> list[WriteBatch] | None:
        """Return the queued batches, which are all for one object; `None` if the end of an object is queued."""
        if END_OBJECT in self._items:
            return None
        return [item for item in self._items if isinstance(item, WriteBatch)]

    async def wait(self, deadline: float) -> bool:
        """Wait until an item is added, or the inbox is closed. Return false if the deadline passes first."""
        self._arrived = anyio.Event()
        if deadline == math.inf:  # a cancel scope would double a wait's time, and a fast writer waits for each batch
            await self._arrived.wait()
            return True
        with anyio.CancelScope(deadline=deadline) as scope:
            await self._arrived.wait()
        return not scope.cancelled_caught

    def end(self, error: BaseException | None) -> None:
        """Discard the items that the owner has not handled, release their room, and wake all waiting callers."""
        if error is not None:
            self.error = error
        self._state = _State.ENDED
        while self._items:
            item = self._items.popleft()
            if isinstance(item, WriteBatch):
                self._budget.under_way -= item.size
            _drop(item, self._budget)


def _drop(item: Item, budget: ByteBudget) -> None:
    if isinstance(item, WriteBatch):
        budget.give(item.size)
    elif isinstance(item, FlushRequest):
        item.done.set()
