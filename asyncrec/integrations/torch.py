"""Datasets for PyTorch's ``DataLoader``: `ShuffledDataset`, `StreamDataset` and, map-style, `RecordDataset`.

    from asyncrec.integrations.torch import ShuffledDataset

    dataset = ShuffledDataset("s3://crawl/2026/pages", batch_size=64, transform=collate, seed=0)
    loader = DataLoader(dataset, batch_size=None, num_workers=4)
    for epoch in range(10):
        dataset.set_epoch(epoch)
        for batch in loader: ...

Each worker process opens what it reads itself, when it begins to read, on an event loop of its own. So nothing that is
open passes through a fork, and a dataset that is sent to a worker consists of a manifest and a few functions. A
worker's share follows from its rank, if ``torch.distributed`` is initialised, and from its number among the loader's
workers (`worker_shard`). A worker that is spawned knows nothing of ``torch.distributed``: the dataset takes the rank
along.

With torchdata's ``StatefulDataLoader`` the iterable datasets resume after the last batch that the loader gave, with the
same number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import get_start_method
from os import PathLike, getpid
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.integrations._needed import needed

with needed(__name__, "PyTorch", "torch"):
    import torch
    import torch.distributed
    from torch.utils.data import Dataset, IterableDataset, get_worker_info

from asyncrec import blocking
from asyncrec._arguments import Size
from asyncrec._sampling.parameters import whole_number
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.blocking._owner import Opened
from asyncrec.blocking._streams import Stream
from asyncrec.integrations._snapshot import SnapshotRecords, snapshot_at
from asyncrec.storage._cached import CACHE_BYTES

__all__ = ["RecordDataset", "ShuffledDataset", "StreamDataset", "worker_shard"]

Transform = Callable[[Any], Any]

# The value in the tensor of a data set until an epoch is chosen.
_NO_EPOCH = -1


def worker_shard() -> tuple[int, int]:
    """Return ``(i, n)``: this is worker i of n, counted over all ranks and, in each, over the loader's workers.

    Outside a worker process a rank counts as one worker. Batches or shards that are dealt by it, every n-th beginning
    with the i-th, are dealt to the ranks first: no two ranks get the same, however many workers each has. With
    different numbers of workers one rank may get more batches than another.

    Raises:
        RuntimeError: in a worker that was spawned and not forked, for a dataset that is not of this module: whether
            there are other ranks is not known there.
    """
    info = get_worker_info()
    return _share(None if info is None else getattr(info.dataset, "_ranks", None))


def _share(ranks: tuple[int, int] | None) -> tuple[int, int]:
    """As `worker_shard`; ``ranks`` is the rank of the process that sent the dataset to this worker, and of how many."""
    info = get_worker_info()
    if info is None or _is_distributed() or get_start_method(allow_none=True) == "fork":
        ranks = _ranks_here()
    if ranks is None:
        raise RuntimeError(
            "a worker that was spawned does not know its rank: read in a StreamDataset, which takes it along, or have "
            'the workers forked (DataLoader(..., multiprocessing_context="fork"))'
        )
    (rank, among), (worker, workers) = ranks, (0, 1) if info is None else (info.id, info.num_workers)
    return rank + among * worker, among * workers


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _ranks_here() -> tuple[int, int]:
    """The rank of this process and how many there are, as ``torch.distributed`` says it."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if _is_distributed() else (0, 1)


class StreamDataset(IterableDataset[Any]):  # type: ignore[misc]  # PyTorch is not there when types are checked
    """An ``IterableDataset`` of what a stream gives, for ``DataLoader(dataset, batch_size=None)``.

        def balanced(worker):
            return blocking.InterleaveSampler("data/train", decode, 2, 32, seed=0, worker=worker)

        dataset = StreamDataset(balanced, transform=collate)

    Args:
        open_stream: called in the worker with its share ``(i, n)``; returns a stream of `asyncrec.blocking`, not yet
            entered. If workers are spawned it must be picklable: a function of a module, not a lambda.
        transform: called with each item, in the worker.
    """

    def __init__(
        self, open_stream: Callable[[tuple[int, int]], Opened[Stream[Any]]], *, transform: Transform | None = None
    ) -> None:
        self._open_stream = open_stream
        self._transform = transform
        self._state: dict[str, Any] | None = None
        self._iterator: _Items | None = None
        self._ranks: tuple[int, int] | None = None  # of the process that sent this to a worker

    def __iter__(self) -> Iterator[Any]:
        state, self._state = self._state, None
        self._iterator = _Items(self._open, self._transform, state)
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last iteration, for `load_state_dict` in the same worker among as many."""
        stream = self._iterator.state_dict() if self._iterator is not None else self._state
        return {"stream": stream, "shard": list(_share(self._ranks)), **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the next iteration from this state.

        Raises:
            ValueError: the state is of another worker, or was taken with another number of workers, or is of batches of
                another size.
            TypeError: it is not what `state_dict` gave.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("stream"), Mapping | None):
            raise ArgumentTypeError(f"a state is the dict that state_dict gave, not {state!r:.80}")
        worker, workers = _share(self._ranks)
        if state.get("shard") != [worker, workers]:
            raise ArgumentValueError(
                f"the state is of worker {state.get('shard')!r:.80} (number, of how many), and this is worker "
                f"{[worker, workers]}: go on with as many ranks and workers as before"
            )
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ArgumentValueError(
                    f"the state was taken with {name}={state.get(name)!r:.80}, and this data set has {value}: workers "
                    "that stand at different batches would give some records twice, and others not at all"
                )
        self._iterator = None
        self._state = None if state["stream"] is None else dict(state["stream"])

    def __getstate__(self) -> dict[str, Any]:
        ranks = self._ranks if get_worker_info() is not None else _ranks_here()
        return {**self.__dict__, "_iterator": None, "_ranks": ranks}

    def _identity(self) -> dict[str, Any]:
        """What a state says of this besides where it stands, and is compared."""
        return {}

    def _open(self, stack: ExitStack) -> tuple[Stream[Any], Iterator[Any]]:
        stream = stack.enter_context(self._open_stream(_share(self._ranks)))
        return stream, stream


class ShuffledDataset(StreamDataset):
    """The records of a data set in shuffled order (see `asyncrec.Dataset.shuffled`), in lists of ``batch_size``.

    For ``DataLoader(dataset, batch_size=None)``: the batches are made here, because whole batches are divided among the
    workers. All workers of all ranks get equally many. (A loader with a number there would make one batch of so many.)

    Args:
        path: the data set's folder and name. The snapshot is taken once, here, and sent to the workers: all epochs read
            it, whatever is written meanwhile. With a `Manifest`, all ranks do.
        batch_size: records in a batch.
        transform: called with each list of records, in the worker.
        storage_options: options for the backend.
        cache, cache_bytes: a local folder that all workers and ranks of this machine read through, and its bound; see
            `asyncrec.open_dataset`.
        shuffling: the arguments of `asyncrec.Dataset.shuffled`, except ``worker`` and ``epoch``.

    Raises: as `asyncrec.open_dataset`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        *,
        batch_size: int,
        transform: Transform | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
        **shuffling: Any,
    ) -> None:
        if refused := {"worker", "epoch"} & shuffling.keys():
            raise ArgumentTypeError(f"{', '.join(sorted(refused))}: found out by itself; epochs are told by set_epoch")
        batch_size = whole_number(batch_size, "batch_size", least=1)
        super().__init__(_no_stream, transform=transform)
        self._reading: dict[str, Any] = {"storage_options": storage_options, "cache": cache, "cache_bytes": cache_bytes}
        self._manifest = snapshot_at(path, self._reading)
        self._batch_size = batch_size
        self._shuffling = shuffling
        # In shared memory: persistent workers have a copy of this object, and are to see it change.
        self._epoch = torch.full((), _NO_EPOCH, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration. Call it before that, in the main process.

        The default is 0, or the epoch of the state that is loaded. A state of another epoch than was chosen is refused
        when the iteration begins, unless nothing was left of its own.

        Raises:
            ValueError: ``epoch`` is below 0.
        """
        self._epoch.fill_(whole_number(epoch, "epoch", least=0))

    def _identity(self) -> dict[str, Any]:
        return {"batch_size": self._batch_size}

    def _open(self, stack: ExitStack) -> tuple[Stream[Any], Iterator[Any]]:
        dataset = stack.enter_context(blocking.open_dataset(self._manifest, **self._reading))
        epoch = int(self._epoch)
        shuffled = dataset.shuffled(
            worker=_share(self._ranks), epoch=None if epoch == _NO_EPOCH else epoch, **self._shuffling
        )
        stream = stack.enter_context(shuffled)
        return stream, stream.batches(self._batch_size)


class RecordDataset(Dataset[Any]):  # type: ignore[misc]  # as above
    """A map-style dataset of all records by number, for ``DataLoader(dataset, batch_size=64, shuffle=True)``.

    The records of a batch are read together (``__getitems__``). For whole epochs `ShuffledDataset` reads much larger
    pieces.

    Args:
        path: the data set's folder and name, or a `Manifest`. The snapshot is taken once, and sent to the workers.
        transform: called with each record, in the worker.
        storage_options: options for the backend.
        cache, cache_bytes: as for `ShuffledDataset`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        *,
        transform: Transform | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
    ) -> None:
        self._transform = transform
        self._records = SnapshotRecords(path, storage_options=storage_options, cache=cache, cache_bytes=cache_bytes)

    def __len__(self) -> int:
        return self._records.count

    def __getitem__(self, index: int) -> Any:
        (item,) = self.__getitems__([index])
        return item

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The items of a batch, in the order asked for; PyTorch's loader calls this where it is there."""
        records = self._records.dataset().get_many(indices)
        return list(records) if self._transform is None else [self._transform(record) for record in records]


class _Items(Iterator[Any]):
    """One iteration: opened at the first item, closed behind the last, or when it is dropped."""

    def __init__(
        self,
        open_: Callable[[ExitStack], tuple[Stream[Any], Iterator[Any]]],
        transform: Transform | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        self._transform = transform
        self._stack = ExitStack()
        self._pid = getpid()
        self._last: dict[str, Any] | None = None
        try:
            self._stream, self._items = open_(self._stack)
            if state is not None:
                self._stream.load_state_dict(state)
        except BaseException:
            self._stack.close()
            raise

    def __next__(self) -> Any:
        if self._last is not None:
            raise StopIteration
        try:
            item = next(self._items)
        except StopIteration:
            self._last = self._stream.state_dict()
            self._stack.close()
            raise
        return item if self._transform is None else self._transform(item)

    def state_dict(self) -> dict[str, Any]:
        return self._stream.state_dict() if self._last is None else self._last

    def __del__(self) -> None:
        if self._pid == getpid():
            with suppress(RuntimeError):  # Python ends, and closed it
                self._stack.close()


def _no_stream(worker: tuple[int, int]) -> Opened[Stream[Any]]:
    raise AssertionError(f"a ShuffledDataset opens its own, not {worker}")
