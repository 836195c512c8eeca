"""The records of a data set in a seeded order, dealt to workers by batches, resumable anywhere.

There is one order for an epoch, made of the snapshot, the seed and the epoch (`asyncrec._sampling.epochs.epoch_order`),
and one number that says where in it all workers stand. From there the batches are counted; worker (i, n) takes those
whose count is i modulo n. After as many batches each, all workers stand at the same number, so it is the whole state:
another number of workers goes on from it, and together they give what is left, each record once.

Windows of the order are read whole, one ahead: two windows of records are held at most. Of several workers each reads
its own records of a window, nearby ones together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, Protocol, get_args

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.read_ahead import ReadAhead
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._sampling.damage import DamageByShard, ShardDamage
from asyncrec._sampling.epochs.epoch_order import EpochOrder, Mode
from asyncrec._sampling.epochs.permutation import key_of
from asyncrec._sampling.epochs.worker_batches import PositionRange, WorkerBatches
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.errors import ArgumentValueError

__all__ = ["BUFFER_BYTES", "BUFFER_SIZE", "ShuffledStream", "StreamStats"]

# Two windows of crawled pages (some 10 KiB each) fit beside a model; a batch's neighbours come from all over one.
BUFFER_SIZE = 16384
BUFFER_BYTES = 128 << 20
# A run is read by one request; of text records it has some dozens.
_BLOCK_BYTES = 256 << 10
# So many runs at least share a window, since two neighbours of a batch come from one run in one of so many cases: with
# 16 shards they come from the same shard 1.12 times as often as in a perfect shuffle.
_RUNS_IN_WINDOW = 128
# What compressed records grow by, roughly: manifests count stored bytes.
_INFLATION = 4

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamStats:
    """What a `ShuffledStream` gave out, and where it stands.

    ``records`` counts this worker's since the stream was made; ``epoch`` and ``position`` are those of its
    ``state_dict``; ``held`` is how many records are in memory now.
    """

    records: int
    epoch: int
    position: int
    held: int


class NumberedRecords(Protocol):
    """What a stream needs of a data set: records by number. `asyncrec.Dataset` is one."""

    manifest: Manifest

    def __len__(self) -> int: ...

    @property
    def starts(self) -> NDArray[np.int64]: ...

    async def runs(self, block_records: int, most: int) -> NDArray[np.int64]: ...

    async def get_many(self, indices: NDArray[np.int64]) -> list[bytes]: ...

    async def get_whole(self, indices: NDArray[np.int64], damage: DamageByShard) -> list[bytes | None]: ...


class ShuffledStream:
    """A stream of a data set's records in shuffled order, made by `Dataset.shuffled`. For one task.

    ``async for records in stream.batches(n)`` gives lists of ``n`` records (the last of an epoch may be shorter);
    ``async for record in stream`` single ones. Each goes on where the other stopped. Batches do not span epochs.
    """

    def __init__(
        self,
        dataset: NumberedRecords,
        *,
        seed: int,
        epoch: int,
        num_repeat: int,
        mode: Mode,
        buffer_size: int,
        buffer_bytes: int,
        block_records: int | None,
        cycle_length: int,
        block_length: int,
        worker: tuple[int, int],
        uneven: Literal["drop", "pad"],
        on_corrupt: Literal["raise", "skip"],
    ) -> None:
        if mode not in get_args(Mode):
            raise ArgumentValueError(f'mode={mode!r}: "block", "buffer" or "global"')
        if on_corrupt not in ("raise", "skip"):
            raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: "raise" or "skip"')
        if min(buffer_size, buffer_bytes, cycle_length, block_length, block_records or 1) < 1:
            raise ArgumentValueError(
                "buffer_size, buffer_bytes, block_records, cycle_length and block_length are at least 1"
            )
        self._dataset = dataset
        self._worker, self._workers = worker
        self._batches = WorkerBatches(len(dataset), epoch=epoch, num_repeat=num_repeat, worker=worker, uneven=uneven)
        self._skips = on_corrupt == "skip"
        self._damage = DamageByShard()
        self._lost = 0
        mean = dataset.manifest.bytes / max(1, len(dataset))
        if any(entry.compression for entry in dataset.manifest.shards):
            mean *= _INFLATION
        window = max(1, min(buffer_size, int(buffer_bytes / max(1.0, mean))))
        if block_records is None:
            block_records = max(1, min(int(_BLOCK_BYTES / max(1.0, mean)), window // _RUNS_IN_WINDOW))
        # What the order depends on; a state of another order is refused.
        self._identity: dict[str, Any] = {
            "snapshot": dataset.manifest.id,
            "seed": seed,
            "mode": mode,
            "buffer_size": window,
            "block_records": block_records if mode == "block" else None,
            "cycle_length": cycle_length if mode == "buffer" else None,
            "block_length": block_length if mode == "buffer" else None,
        }
        self._mode: Mode = mode
        self._window = window
        self._block_records = block_records
        self._interleave = (cycle_length, block_length)
        self._blocks: NDArray[np.int64] | None = None
        self._order: tuple[int, EpochOrder] | None = None
        self._ordering = threading.Lock()

        self._closed = False
        self._given = 0
        self._records: deque[bytes | None] = deque()  # `None`: damaged
        self._scope: TaskScope | None = None
        self._ahead: ReadAhead[PositionRange, list[bytes | None]] | None = None
        self._forked = False
        on_fork(self)

    def forked(self) -> None:
        """In the child of a fork: whoever reads on is told."""
        self._forked = True
        self._records.clear()

    async def __aenter__(self) -> ShuffledStream:
        if self._scope is not None:
            raise RuntimeError("a stream is entered once; make another with dataset.shuffled()")
        self._forked = False  # made before a fork, and entered behind it
        self._scope = TaskScope()
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._scope is not None, "entered"
        self._ahead = None
        self._records.clear()
        self._closed = True
        self._scope.cancel()
        await self._scope.__aexit__(exc_type, exc, traceback)

    def __aiter__(self) -> ShuffledStream:
        return self

    async def __anext__(self) -> bytes:
        batches = self._batches
        if self._records and batches.batch_size == 1 and batches.goes_on and (record := self._records[0]) is not None:
            self._records.popleft()
            batches.took()
            self._given += 1
            return record
        while True:
            for only in await self._take(1):
                return only

    def batches(self, batch_size: int) -> AsyncIterator[list[bytes]]:
        """Lists of ``batch_size`` records.

        With several workers all of them must use the same size: batches are what is dealt. After a change of size the
        batches are counted anew from where the stream stands.
        """
        if batch_size < 1:
            raise ArgumentValueError(f"batch_size={batch_size}: at least 1")
        return Batches(partial(self._take, batch_size))

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as of the last batch given out; JSON, a few hundred bytes.

        It is the same for all workers after equally many batches, and may be loaded with another number of them, and
        another size of batches.
        """
        epoch, position = self._batches.place
        return {"version": _VERSION, "kind": "shuffled", **self._identity, "epoch": epoch, "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. Before iterating.

        Raises:
            ValueError: the state is of another snapshot of the data set, another order, or a later version.
            RuntimeError: something was given out already.
        """
        if self._given or self._batches.batch_size:
            raise RuntimeError("load_state_dict comes before iterating; make another stream with dataset.shuffled()")
        if state.get("version") != _VERSION or state.get("kind") != "shuffled":
            raise ArgumentValueError(
                f"a state of kind {state.get('kind')!r}, version {state.get('version')!r}; "
                f"this is 'shuffled', version {_VERSION}"
            )
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise ArgumentValueError(
                    f"the state was made with {name}={state.get(name)!r}, and this stream has {value!r}: it would go "
                    "on in another order"
                    + ("; open the data set by read_manifest(path, at=<that id>)" if name == "snapshot" else "")
                )
        self._batches.go_to(int(state["epoch"]), int(state["position"]))

    @property
    def damage(self) -> list[ShardDamage]:
        """With ``on_corrupt="skip"``: the records left out so far, also of those read ahead; at most 1,000."""
        return self._damage.listed()

    def stats(self) -> StreamStats:
        epoch, position = self._batches.place
        return StreamStats(self._given - self._lost, epoch, position, len(self._records))

    async def _take(self, size: int) -> list[bytes]:
        """This worker's next batch."""
        if self._forked:
            raise forked_error(f"{self._dataset.manifest.path}: the stream")
        if self._scope is None or self._closed:
            raise anyio.ClosedResourceError("a stream is read inside its `async with`")
        if size != self._batches.batch_size:
            await self._count_batches(size)
        batch = self._batches.batch()
        if batch is None:
            raise StopAsyncIteration
        assert self._ahead is not None, "dealt"
        count = batch[1] - batch[0]
        while len(self._records) < count:
            loaded = await self._ahead.next()
            assert loaded is not None, "there is a batch to come, so there are records to come"
            self._records.extend(loaded)
        self._batches.took()
        self._given += count
        take = self._records.popleft
        records = [record for record in (take() for _ in range(count)) if record is not None]
        self._lost += count - len(records)
        return records

    async def _count_batches(self, size: int) -> None:
        """Count batches of this size from here."""
        assert self._scope is not None, "checked"
        if self._mode == "block" and self._blocks is None:
            self._blocks = await self._dataset.runs(self._block_records, self._window)
        self._batches.count_batches(size)
        if self._ahead is not None:
            self._ahead.cancel()
            self._records.clear()
        self._ahead = ReadAhead(self._scope, self._batches.ranges(self._window), self._fetch)

    async def _fetch(self, positions: PositionRange) -> list[bytes | None]:
        indices = await in_thread(self._indices, positions)
        if self._skips:
            return await self._dataset.get_whole(indices, self._damage)
        return list[bytes | None](await self._dataset.get_many(indices))

    def _indices(self, positions: PositionRange) -> NDArray[np.int64]:
        """In a worker thread; one at a time, also while another, whose result nobody wants any more, still runs."""
        with self._ordering:
            return self._indices_alone(positions)

    def _indices_alone(self, positions: PositionRange) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != positions.epoch:
            identity = self._identity
            cycle_length, block_length = self._interleave
            order = EpochOrder(
                self._mode,
                self._dataset.starts,
                blocks=self._dataset.starts if self._blocks is None else self._blocks,
                window=self._window,
                key=key_of(identity["snapshot"], identity["seed"], positions.epoch),
                cycle_length=cycle_length,
                block_length=block_length,
            )
            self._order = (positions.epoch, order)
        order = self._order[1]
        if positions.counted_from is None:
            borders = range((positions.first // self._window + 1) * self._window, positions.last, self._window)
            cuts = [positions.first, *borders, positions.last]
            return np.concatenate([order.at(first, last) for first, last in pairwise(cuts)])
        batches = (np.arange(positions.first, positions.last) - positions.counted_from) // self._batches.batch_size
        own: NDArray[np.int64] = order.at(positions.first, positions.last)[batches % self._workers == self._worker]
        return own
