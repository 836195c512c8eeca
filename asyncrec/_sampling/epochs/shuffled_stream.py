"""`ShuffledStream` returns the records of a data set in a seeded order, divides its batches among workers, and can
resume at any position.

The snapshot, the seed and the epoch determine the order of an epoch (`asyncrec._sampling.epochs.epoch_order`). A single
number is the shared position of all workers in that order. Batches are counted from this position, and worker (i, n)
returns the batches whose number is i modulo n. After the same number of batches, all workers are at the same position,
so the position is all that a state needs. A different number of workers can continue from it, and together they return
each remaining record once.

Windows of the order are read ahead (`WindowsAhead`), and at most two windows of records are in memory. If there are
several workers, each worker reads only its own records of a window, and reads neighbouring records together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._sampling.damage import DamageByShard, ShardDamage
from asyncrec._sampling.epochs.read_ahead_items import ReadAheadItems
from asyncrec._sampling.epochs.shuffled_order import NumberedRecords, ShuffledOrder, ShufflePlan
from asyncrec._sampling.epochs.windows_ahead import WindowsAhead
from asyncrec._sampling.epochs.worker_batches import WorkerBatches
from asyncrec._sampling.parameters import check_seed, new_seed, whole_number, worker_of
from asyncrec._sampling.state_values import StateValues
from asyncrec._sampling.stream_state import ordered_state
from asyncrec.errors import ArgumentValueError

T = TypeVar("T")

_path_log = PathLog("asyncrec.sampling")

_KIND = "shuffled"
# The number of parts of windows that are read from a store at the same time. It is large enough to begin all parts of a
# window together, so that their indexes are requested together. `RangeReader` limits the number of concurrent reads.
_TASKS = 20


@dataclass(frozen=True, slots=True)
class StreamStats:
    """The number of records that a `ShuffledStream` has returned, and its position.

    Attributes:
        records: the number of records that this worker has returned since the stream was made.
        epoch, position: the epoch and the position in the stream's ``state_dict``.
        held: the number of records in memory that are ready to be returned.
    """

    records: int
    epoch: int
    position: int
    held: int


class ShuffledBatches(Batches[list[bytes]]):
    """The batches of a stream, returned one at a time or in groups. Unused batches can be given back."""

    def __init__(
        self,
        size: int,
        *,
        ready: Callable[[int], Awaitable[None]],
        pop: Callable[[], list[bytes]],
        counted: WorkerBatches,
        records: deque[bytes | None],
        state_at: Callable[[tuple[int, int]], dict[str, Any]],
    ) -> None:
        super().__init__(self._take)
        self._size = size
        self._ready = ready
        self._pop = pop
        self._counted = counted
        self._records = records
        self._state_at = state_at

    async def _take(self) -> list[bytes]:
        await self._ready(self._size)
        return self._pop()

    async def take_group(self, most: int, most_bytes: int) -> list[Any]:
        """Return the next batch, followed by batches of the same epoch that have already been read.

        If this returns several batches, they have at most ``most`` records and about ``most_bytes`` bytes in total. If
        the batch size is one, the list contains records instead of batches, with `None` for each damaged record that is
        skipped.

        Raises:
            StopAsyncIteration: there are no more batches.
        """
        await self._ready(self._size)
        count = min(most, len(self._records)) // self._size
        held = sum(map(len, filter(None, islice(self._records, count * self._size))))
        if held > most_bytes:
            count = count * most_bytes // held
        count = max(1, min(count, self._counted.left))
        if self._size > 1:
            return [self._pop() for _ in range(count)]
        taken = [self._records.popleft() for _ in range(count)]
        self._counted.took(count)
        self._counted.returned += len(_whole(taken))
        return taken

    def state_before(self, unused: int) -> dict[str, Any]:
        """Return the state before the last ``unused`` batches, which must all be of this epoch."""
        return self._state_at(self._counted.place_before(unused))

    def give_back(self, unused: Sequence[Any]) -> None:
        """Push back the last batches, which must all be from the current epoch. Their records are then yielded again,
        in batches of any size."""
        records = len(_whole(unused)) if self._size == 1 else sum(map(len, unused))
        self._counted.give_back(len(unused), records=records)


def _whole(records: Sequence[T | None]) -> list[T]:
    return [record for record in records if record is not None]


class ShuffledStream:
    """A stream of a data set's records in shuffled order, made by `Dataset.shuffled`. Only one task may use it.

    ``async for records in stream.batches(n)`` yields lists of ``n`` records (the last list of an epoch may be shorter).
    ``async for record in stream`` yields single records. Each loop continues where the previous one stopped. Batches do
    not span epochs.
    """

    def __init__(
        self,
        dataset: NumberedRecords,
        plan: ShufflePlan,
        *,
        epoch: int | None,
        num_repeat: int,
        worker: tuple[int, int],
        uneven: Literal["drop", "pad"],
        on_corrupt: Literal["raise", "skip"],
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: must be "raise" or "skip"')
        self._dataset = dataset
        self._worker = worker_of(worker)
        seed = check_seed(plan.seed, workers=self._worker[1])
        self._chosen = seed is None
        self._plan = plan._replace(seed=new_seed() if seed is None else seed)
        self._order = ShuffledOrder(dataset, self._plan)
        self._uneven = uneven
        self._batches = WorkerBatches(len(dataset), epoch=epoch, num_repeat=num_repeat, worker=worker, uneven=uneven)
        self._skips = on_corrupt == "skip"
        self._damage = DamageByShard()
        self._ahead: ReadAheadItems[bytes | None] = ReadAheadItems(path=dataset.manifest.path, what="stream")
        self._records = self._ahead.items  # `None` is a damaged record
        self._told = False
        # With ``newest=``, the digest of the records in the order or, until the stream is entered, the digest in the
        # loaded state.
        self._digest: str | None = None

    async def __aenter__(self) -> ShuffledStream:
        self._ahead.check_new()
        self._batches.recount(await self._order.choose(self._damage if self._skips else None))
        if self._order.chosen is not None:
            digest = await in_thread(self._order.chosen.digest)
            _check_digest(self._dataset.manifest.path, self._digest, digest)
            self._digest = digest
        await self._ahead.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._ahead.__aexit__(exc_type, exc, traceback)

    def __aiter__(self) -> ShuffledStream:
        return self

    async def __anext__(self) -> bytes:
        batches = self._batches
        if self._records and batches.batch_size == 1 and batches.left and (record := self._records[0]) is not None:
            self._records.popleft()
            batches.took()
            batches.returned += 1
            return record
        while True:
            await self._ready(1)
            for only in self._pop():
                return only

    def batches(self, batch_size: int) -> ShuffledBatches:
        """Iterate over lists of ``batch_size`` records.

        All workers must use the same size, because whole batches are divided among them. If the size changes, counting
        restarts at the current position.
        """
        return ShuffledBatches(
            whole_number(batch_size, "batch_size", least=1),
            ready=self._ready,
            pop=self._pop,
            counted=self._batches,
            records=self._records,
            state_at=self._state_at,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch returned, as JSON of a few hundred bytes.

        After the same number of batches, the state is the same for all workers. You can load it with another number of
        workers, and with another batch size. For files without a manifest, the state also records each file's version,
        which adds about 100 bytes per file.
        """
        return self._state_at(self._batches.place)

    def _state_at(self, place: tuple[int, int]) -> dict[str, Any]:
        epoch, position = place
        state = ordered_state(
            _KIND,
            self._identity(self._order),
            self._dataset.versions.packed,
            first_epoch=self._batches.first_epoch,
            num_repeat=self._batches.num_repeat,
            epoch=epoch,
            position=position,
        )
        return state if self._digest is None else {**state, "newest_records": self._digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from this state. Call this method before iterating.

        If ``epoch`` was not passed to `Dataset.shuffled`, the state determines the epoch.

        Raises:
            ValueError: the state belongs to another snapshot of the data set, to another order or to other epochs, or
                has another version. With ``newest=``, also if a record was damaged or restored, so that other records
                are the newest versions; if the stream has not been entered, entering it raises this error.
            DatasetError: the files have no manifest, and a file was replaced since the state was taken.
            RuntimeError: iteration has begun.
        """
        if self._batches.returned or self._batches.batch_size:
            raise RuntimeError(
                "load_state_dict must be called before iterating; create a new stream with dataset.shuffled()"
            )
        order = self._order
        if self._chosen and isinstance(state, Mapping):
            seed = check_seed(state.get("seed"))
            order = order if seed is None else ShuffledOrder(self._dataset, self._plan._replace(seed=seed))
        self._dataset.versions.check_state(state, _KIND, self._identity(order))
        values = StateValues(state)
        epoch, position = values.whole("epoch"), values.whole("position")
        run = values.whole("first_epoch"), values.whole("num_repeat", least=-1)
        digest = None if self._dataset.newest is None else values.digest("newest_records", position=position)
        if self._order.chosen is not None:
            _check_digest(self._dataset.manifest.path, digest, self._digest)
        self._batches.go_on(epoch, position, run)
        if self._order.chosen is None:
            self._digest = digest
        order.chosen = self._order.chosen
        self._order = order

    def _identity(self, order: ShuffledOrder) -> dict[str, Any]:
        """Return the settings that determine which records remain to be read. A state with different settings is
        rejected."""
        return {**order.identity, "uneven": self._uneven}

    @property
    def damage(self) -> list[ShardDamage]:
        """With ``on_corrupt="skip"``, the first 1,000 records skipped so far, including records read ahead."""
        return self._damage.listed()

    def stats(self) -> StreamStats:
        epoch, position = self._batches.place
        return StreamStats(self._batches.returned, epoch, position, len(self._records))

    async def _ready(self, size: int) -> None:
        """Wait until this worker's next batch has been read.

        Raises:
            StopAsyncIteration: there are no more batches.
        """
        self._ahead.check_open()
        if size != self._batches.batch_size:
            await self._count_batches(size)
        batch = self._batches.batch()
        if batch is None:
            raise StopAsyncIteration
        await self._ahead.wait_for(batch[1] - batch[0])

    def _pop(self) -> list[bytes]:
        """Remove and return this worker's next batch, which must have been read."""
        batch = self._batches.batch()
        assert batch is not None, "the batch has been read"
        take = self._records.popleft
        taken: list[Any] = [take() for _ in range(batch[1] - batch[0])]
        records = _whole(taken) if self._skips else taken
        self._batches.took()
        self._batches.returned += len(records)
        return records

    async def _count_batches(self, size: int) -> None:
        """Start counting batches of this size at the current position, and reading them ahead."""
        await self._order.prepare()
        self._batches.count_batches(size)
        ranges = self._batches.ranges(self._order.window)
        windows = self._order.windows(ranges, batch_size=size, worker=self._worker)
        tasks = _TASKS if self._dataset.folder.read_ahead else 1
        if self._plan.mode == "global" and tasks > 1 and not self._told:
            self._told = True
            _tell_cost(self._dataset.manifest.path, self._batches.count)
        self._ahead.begin(lambda scope: WindowsAhead(scope, windows, self._read, tasks=tasks))

    async def _read(self, numbers: NDArray[np.int64]) -> list[Any]:
        if self._skips:
            return await self._dataset.get_whole(numbers, self._damage)
        return await self._dataset.get_many(numbers)


def _check_digest(path: str, theirs: Any, ours: str | None) -> None:
    """Check that a state, if it has a digest, was taken with the same newest versions."""
    if theirs not in (None, ours):
        raise ArgumentValueError(
            f"{path}: the newest versions are not the same records as when the state was taken, so the order would "
            "differ: a record was damaged or restored since; restore the shards, or start again without the state"
        )


def _tell_cost(path: str, records: int) -> None:
    """Warn that shuffling individual records needs a separate request to the store for most records."""
    _path_log.warning(
        path,
        'in each epoch, mode="global" makes a separate request to the store for nearly every one of %s '
        'records, and stores charge for requests; mode="block" requests about 4 MiB at a time, and cache= '
        "requests each shard only once",
        f"{records:,}",
        records=records,
    )
