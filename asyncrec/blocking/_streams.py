"""Iterate without async. Records are transferred from the loop in lists, even if the caller iterates over single items.

Each list is kept until the caller's thread has received it, so an interrupted call loses no records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from asyncrec._concurrency.forks import OfOneProcess
from asyncrec._sampling.damage import ShardDamage
from asyncrec._sampling.interleave.stream import TRANSFERRED
from asyncrec._sampling.state_values import StateValues
from asyncrec.blocking._owner import Handle, Owner

T = TypeVar("T")
A = TypeVar("A")
T_co = TypeVar("T_co", covariant=True)

# The number of items transferred at once if the caller iterates record by record. A call then costs a fraction of a
# microsecond per record. This is one training batch, so it takes no more memory than the caller needs anyway.
CHUNK = TRANSFERRED


class Puller(Generic[T]):
    """The caller's side of an async iterator on the loop. Its items are transferred in lists.

    Attributes:
        arrived: the items that an interrupted call took from the source. The next call returns them first.
    """

    def __init__(self, owner: Owner[Any], source: AsyncIterator[T]) -> None:
        self._owner = owner
        self._source = source
        self.arrived: list[T] = []
        self._error: Exception | None = None
        self._done = False

    def pull(self, count: int = 1, before: Callable[[], None] | None = None) -> list[T]:
        """Return the next ``count`` items, or fewer at the end. Raise any error once all items before it are returned.

        After an interrupted call, ``count`` must not change until the items of that call have been returned. ``before``
        is called on the loop before the first of the items is taken from the source.
        """
        self._owner.call_inside(self._fetch, count, before)
        taken, self.arrived = self.arrived, []
        if not taken and self._error is not None:
            error, self._error = self._error, None
            raise error
        return taken

    async def _fetch(self, count: int, before: Callable[[], None] | None) -> None:
        if before is not None and not self.arrived:
            before()
        try:
            while len(self.arrived) < count and not self._done and self._error is None:
                self.arrived.append(await anext(self._source))
        except StopAsyncIteration:
            self._done = True
        except Exception as error:
            self._error = error


class RecordLists(OfOneProcess, Iterator[list[bytes]]):
    """An iterator over lists of records, or over single records with `next_record`. Both share one position."""

    def __init__(self, lists: Puller[list[bytes]]) -> None:
        super().__init__()
        self._lists = lists
        self._current: Iterator[bytes] = iter(())

    def __next__(self) -> list[bytes]:
        return list(self._current) or self._more()

    def next_record(self) -> bytes:
        for record in self._current:
            return record
        self._current = iter(self._more())
        return next(self._current)

    def next_record_or_none(self) -> bytes | None:
        """Like `next_record`, but return `None` at the end."""
        try:
            return self.next_record()
        except StopIteration:
            return None

    def _more(self) -> list[bytes]:
        for records in self._lists.pull():
            return records
        raise StopIteration


class AsyncStream(Protocol[T_co]):
    """An asynchronous stream: `asyncrec.interleave`, `asyncrec.InterleaveSampler` or `asyncrec.Dataset.shuffled`."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...
    async def __anext__(self) -> T_co: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> Awaitable[None] | None: ...


@runtime_checkable
class OpensShards(Protocol):
    """The stream of `asyncrec.interleave`. Reading a list may open shards, whose versions earlier states then lack."""

    def with_versions(self, state: Mapping[str, Any]) -> dict[str, Any]: ...


@runtime_checkable
class KeepsSnapshots(Protocol):
    """A stream whose ``state_before`` works only for items produced after a call of `keep_snapshots`."""

    def keep_snapshots(self) -> None: ...


class Stream(Handle[Any], Iterator[T]):
    """A stream of records or of batches, iterated with ``for``, by one thread at a time.

    Records are transferred from the event loop in lists of 256. ``state_dict`` is still the position after the last
    record returned, also if a call was interrupted after it took records from the asynchronous stream.
    """

    def __init__(self, owner: Owner[Any], value: AsyncStream[T], *, chunk: int) -> None:
        super().__init__(owner, value)
        if isinstance(value, KeepsSnapshots):
            value.keep_snapshots()
        self._chunk = chunk
        self._items = Puller(owner, aiter(value))
        self._lists: tuple[int, Puller[list[T]]] | None = None  # the last batch size, and its batches
        self._current: Sequence[T] = ()
        self._given = 0
        self._before: dict[str, Any] | None = None
        self._first = chunk

    def __next__(self) -> T:
        if self._given == len(self._current):
            self._refill()
        item = self._current[self._given]
        self._given += 1
        return item

    def batches(self, batch_size: int) -> Iterator[list[T]]:
        """Iterate over lists of ``batch_size`` records, one call to the loop per list. See the stream's ``batches``."""
        if self._given < len(self._current) or self._items.arrived:
            raise RuntimeError(
                "this stream was iterated record by record and has already read ahead; continue record by record, "
                "or iterate over the batches of a new stream"
            )
        if self._lists is None or self._lists[0] != batch_size or not self._lists[1].arrived:
            self._check_lists()
            self._lists = batch_size, Puller(self._owner, self._value.batches(batch_size))
        return _Lists(self._lists[1])

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last record or batch returned, as JSON. See the stream's own ``state_dict``."""
        if 0 < self._given < len(self._current) and self._before is not None:
            before, stream = self._before, self._value
            if isinstance(stream, OpensShards):
                before = self._owner.call_sync(stream.with_versions, before)
            return {**before, "list_position": before.get("list_position", 0) + self._given}
        if self._before is not None and self._given == 0 and self._current:
            return self._before
        if self._items.arrived and self._before is not None:
            return self._before
        state: dict[str, Any] = self._owner.call_sync(self._value.state_before, self._unused())
        return state

    def _unused(self) -> int:
        """Return how many records, or batches of a sampler, an interrupted call took from the stream."""
        if self._lists is not None and self._lists[1].arrived:
            return sum(map(len, self._lists[1].arrived))
        return len(self._items.arrived)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Call this before iterating.

        Raises:
            ValueError: the state belongs to another stream.
        """
        values = StateValues(state)
        left_out = values.whole("list_position", most=self._chunk - 1) if "list_position" in values else 0
        self._owner.call_inside(self._load, dict(state))
        self._first = self._chunk - left_out  # a position within a list must stay below the chunk

    def stats(self) -> Any:
        """Return the stream's counts. Records in transit from the event loop are counted as returned."""
        return self._owner.call_sync(self._value.stats)

    @property
    def damage(self) -> list[ShardDamage]:
        """The damage skipped so far. See the stream's own ``damage``. (Class-balanced samplers skip nothing.)"""
        found: list[ShardDamage] = self._owner.call_sync(lambda: self._value.damage)
        return found

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes of a `ClassBalancedSampler`. Raises AttributeError for other streams."""
        found: tuple[Any, ...] = self._value.classes
        return found

    def _refill(self) -> None:
        """Fetch the next list, and record the stream's state before it.

        Raises:
            StopIteration: the stream has ended.
        """
        self._check_lists()
        self._current, self._given = self._items.pull(self._first, before=self._note_state), 0
        self._first = self._chunk
        if not self._current:
            raise StopIteration

    def _check_lists(self) -> None:
        if self._lists is not None and self._lists[1].arrived:
            raise RuntimeError(
                f"an interrupted call read a batch that was not returned; first take it from batches({self._lists[0]})"
            )

    async def _load(self, state: dict[str, Any]) -> None:
        loading = self._value.load_state_dict(state)
        if isinstance(loading, Awaitable):  # awaiting it rereads the records of a shuffle buffer
            await loading

    def _note_state(self) -> None:
        self._before = None
        if self._chunk > 1:
            with suppress(RuntimeError):  # without state, the error recurs when the caller asks for it
                self._before = self._value.state_dict()


class _Lists(OfOneProcess, Iterator[list[T]]):
    def __init__(self, puller: Puller[list[T]]) -> None:
        super().__init__()
        self._puller = puller

    def __next__(self) -> list[T]:
        for items in self._puller.pull():
            return items
        raise StopIteration
