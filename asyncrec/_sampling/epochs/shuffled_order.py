"""`ShuffledOrder` computes the numbers of a data set's records in a seeded order, by position in an epoch.

The sizes of windows and blocks, in records, depend on the mean size of a record, so that memory is bounded in bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.epochs.epoch_order import EpochOrder, Mode
from asyncrec._sampling.epochs.permutation import key_of
from asyncrec._sampling.epochs.windows_ahead import Part, Window
from asyncrec._sampling.epochs.worker_batches import PositionRange
from asyncrec._sampling.parameters import whole_number
from asyncrec._sampling.record_set import RecordSet
from asyncrec._sampling.shard_versions import FileVersions
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage

# With crawled pages of about 10 KiB each, two windows fit in memory next to a model, and the records of a batch come
# from all parts of a window.
BUFFER_SIZE = 16384
BUFFER_BYTES = 128 << 20
# Reading a block takes one request to a store. At 4 MiB, waiting for the first byte takes less time than the transfer.
_BLOCK_BYTES = 4 << 20
# A window has at least this many blocks. For the effect on a batch, see docs/how-to/random-access.md.
_BLOCKS_IN_WINDOW = 16
# The estimated ratio of decompressed bytes to stored bytes. Manifests count stored bytes.
_INFLATION = 4
_NONE = np.empty(0, np.int64)


class NumberedRecords(Protocol):
    """The part of a data set's interface that a shuffled stream needs. `asyncrec.Dataset` implements it."""

    folder: Storage
    manifest: Manifest
    versions: FileVersions
    newest: str | None

    def __len__(self) -> int: ...

    @property
    def starts(self) -> NDArray[np.int64]: ...

    async def runs(self, block_bytes: int, most: int) -> NDArray[np.int64]: ...

    async def chosen(self, damage: DamageByShard | None = None) -> RecordSet | None: ...

    async def get_many(self, indices: NDArray[np.int64]) -> list[bytes]: ...

    async def get_whole(self, indices: NDArray[np.int64], damage: DamageByShard) -> list[bytes | None]: ...


class ShufflePlan(NamedTuple):
    """The parameters of the order; see `asyncrec.Dataset.shuffled`."""

    seed: int | None  # if `None`, the stream chooses a seed
    mode: Mode
    buffer_size: int
    buffer_bytes: int
    block_bytes: int | None
    cycle_length: int
    block_length: int


class ShuffledOrder:
    """Determines which record is at each position of each epoch.

    Attributes:
        window: the number of records that are shuffled together.
        chosen: the set of records in the order, or `None` for all records. If it is a set, the positions of shards,
            blocks and records count only the records in it.
        identity: the values on which the order depends. They are stored in the state, and a state in which any of them
            differs is rejected.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, dataset: NumberedRecords, plan: ShufflePlan) -> None:
        if plan.mode not in get_args(Mode):
            raise ArgumentValueError(f'mode={plan.mode!r}: must be "block", "buffer" or "global"')
        block_bytes = plan.block_bytes
        for name in ("buffer_size", "buffer_bytes", "cycle_length", "block_length"):
            whole_number(getattr(plan, name), name, least=1)
        if block_bytes is not None:
            whole_number(block_bytes, "block_bytes", least=1, other="None")
        stored = dataset.manifest.bytes / max(1, len(dataset))
        mean = stored * _INFLATION if any(dataset.manifest.shards.compressions) else stored
        window = max(1, min(plan.buffer_size, int(plan.buffer_bytes / max(1.0, mean))))
        if block_bytes is None:
            block_bytes = max(1, min(_BLOCK_BYTES, int(window * stored) // _BLOCKS_IN_WINDOW))
        self.window = window
        self.identity: dict[str, Any] = {
            "snapshot": dataset.manifest.id,
            "newest": dataset.newest,
            "seed": plan.seed,
            "mode": plan.mode,
            "buffer_size": window,
            "block_bytes": block_bytes if plan.mode == "block" else None,
            "cycle_length": plan.cycle_length if plan.mode == "buffer" else None,
            "block_length": plan.block_length if plan.mode == "buffer" else None,
        }
        self._dataset = dataset
        self._plan = plan
        self._block_bytes = block_bytes
        self._blocks: NDArray[np.int64] | None = None
        self.chosen: RecordSet | None = None
        self._order: tuple[int, EpochOrder] | None = None
        self._ordering = threading.Lock()

    async def choose(self, damage: DamageByShard | None) -> int:
        """Determine which records are in the order, and return their number. ``damage`` is as for `Dataset.chosen`."""
        self.chosen = await self._dataset.chosen(damage)
        return len(self._dataset) if self.chosen is None else len(self.chosen)

    async def prepare(self) -> None:
        """Find the first record of each block, if the mode needs blocks and they are not yet known."""
        if self._plan.mode == "block" and self._blocks is None:
            blocks = await self._dataset.runs(self._block_bytes, self.window)
            self._blocks = blocks if self.chosen is None else await in_thread(self.chosen.ranks, blocks)

    def windows(
        self, ranges: Iterator[PositionRange], *, batch_size: int, worker: tuple[int, int]
    ) -> Iterator[Window[Any]]:
        """Yield a worker's records, one window for each range of positions. Each step blocks the thread.

        A block that straddles the border between two windows is read only once.
        """
        cut: Part[Any] | None = None
        following = next(ranges, None)
        numbers = _NONE if following is None else self._records(following, batch_size, worker)
        while following is not None:
            positions, wanted = following, numbers
            parts = [] if cut is None else [cut]
            following = next(ranges, None)
            numbers = _NONE if following is None else self._records(following, batch_size, worker)
            block = self._across(positions, following)
            cut = None
            if block is not None:
                both = np.concatenate([wanted, numbers])
                cut = Part(np.sort(both[(both >= block[0]) & (both < block[1])]))
                parts.append(cut)
            rest = np.sort(wanted)
            for part in parts:
                rest = np.setdiff1d(rest, part.numbers, assume_unique=True)
            yield Window(wanted, [*self._parts(rest), *parts])

    def _across(self, positions: PositionRange, following: PositionRange | None) -> tuple[int, int] | None:
        """Return the block that two neighbouring ranges share, as the range ``[first, last)`` of its records."""
        if following is None or following.counted_from is None or following.epoch != positions.epoch:
            return None
        with self._ordering:
            block = self._of_epoch(positions.epoch).across(following.first)
        if block is None or self.chosen is None:
            return block
        first, last = self.chosen.numbers(np.array([block[0], block[1] - 1])).tolist()
        return first, last + 1

    def _parts(self, numbers: NDArray[np.int64]) -> list[Part[Any]]:
        """Split ascending numbers into parts that are read by one call each. In a store, no part spans two shards."""
        if not self._dataset.folder.read_ahead:
            return [Part(numbers)] if len(numbers) else []
        shards = np.searchsorted(self._dataset.starts, numbers, side="right")
        return [Part(part) for part in np.split(numbers, np.flatnonzero(np.diff(shards)) + 1) if len(part)]

    def _records(self, positions: PositionRange, batch_size: int, worker: tuple[int, int]) -> NDArray[np.int64]:
        """Return the numbers of a worker's records at these positions."""
        own = self._places(positions, batch_size, worker)
        return own if self.chosen is None else self.chosen.numbers(own)

    def _places(self, positions: PositionRange, batch_size: int, worker: tuple[int, int]) -> NDArray[np.int64]:
        """Return the places of a worker's records among the chosen records.

        A lock serialises calls, because an earlier call whose result was discarded may still be running in its thread.
        """
        with self._ordering:
            order = self._of_epoch(positions.epoch)
            first, last = positions.first, positions.last
            if positions.counted_from is None:
                borders = range((first // self.window + 1) * self.window, last, self.window)
                return np.concatenate([order.at(*piece) for piece in pairwise([first, *borders, last])])
            number, workers = worker
            batches = (np.arange(first, last) - positions.counted_from) // batch_size
            own: NDArray[np.int64] = order.at(first, last)[batches % workers == number]
            return own

    def _of_epoch(self, epoch: int) -> EpochOrder:
        if self._order is None or self._order[0] != epoch:
            plan = self._plan
            starts = self._dataset.starts if self.chosen is None else self.chosen.ranks(self._dataset.starts)
            order = EpochOrder(
                plan.mode,
                starts,
                blocks=starts if self._blocks is None else self._blocks,
                window=self.window,
                key=key_of(self.identity["snapshot"], plan.seed, epoch),
                cycle_length=plan.cycle_length,
                block_length=plan.block_length,
            )
            self._order = (epoch, order)
        return self._order[1]
