"""Datasets for PyTorch's ``DataLoader``: `ShuffledDataset`, `StreamDataset` and, map-style, `RecordDataset`.

    from asyncrec.integrations.torch import ShuffledDataset

    dataset = ShuffledDataset("s3://crawl/2026/pages", batch_size=64, transform=collate, seed=0)
    loader = DataLoader(dataset, batch_size=None, num_workers=4)
    for epoch in range(10):
        dataset.set_epoch(epoch)
        for batch in loader: ...

Each worker process opens the data set on its own event loop when it begins to read. A forked worker therefore inherits
no open objects, and pickling a dataset sends only a manifest and a few functions. A worker's share is determined by its
rank, if ``torch.distributed`` is initialised, and by its number among the loader's workers (`worker_shard`). Because
``torch.distributed`` is not initialised in a spawned worker, the dataset carries the rank.

`ShuffledDataset.stream_state` returns the position of a training loop, from which any number of workers can continue.
With torchdata's ``StatefulDataLoader``, every iterable dataset of this module resumes after the loader's last batch,
with the same number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import get_start_method
from os import PathLike
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.integrations._needed import needed

with needed(__name__, "PyTorch", "torch"):
    import torch
    import torch.distributed
    from torch.utils.data import Dataset, IterableDataset, get_worker_info

from asyncrec._arguments import Size
from asyncrec._sampling.epochs.worker_batches import WorkerBatches, WorkerOfRank
from asyncrec._sampling.parameters import check_function, whole_number
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.blocking._owner import Opened
from asyncrec.blocking._streams import Stream
from asyncrec.integrations._snapshot import Items, Snapshot, SnapshotRecords
from asyncrec.storage._cached import CACHE_BYTES

__all__ = ["RecordDataset", "ShuffledDataset", "StreamDataset", "worker_shard"]

Transform = Callable[[Any], Any]

# A `ShuffledDataset` shares five numbers with its workers: the epoch chosen by `set_epoch`; the first epoch, the epoch
# and the position of the loaded state; and whether an iteration has continued from that state. The initial value of
# each is ``_NONE``.
_NONE = -1
_EPOCH, _FIRST, _STATE_EPOCH, _POSITION, _BEGUN = range(5)


def worker_shard() -> tuple[int, int]:
    """Return ``(i, n)`` if this is worker i of n, counted across the loader workers of all ranks.

    Outside a worker process, a rank counts as one worker. If each worker reads every n-th batch or shard, beginning
    with the i-th, no batch or shard is read by two ranks, even if the ranks have different numbers of workers. In that
    case, one rank may read more batches than another.

    Raises:
        RuntimeError: the worker was spawned rather than forked, and its dataset is not from this module, so the worker
            cannot determine whether there are other ranks.
    """
    info = get_worker_info()
    number, workers = _share(None if info is None else getattr(info.dataset, "_ranks", None))
    return number, workers


def _share(ranks: tuple[int, int] | None) -> WorkerOfRank:
    """Return this worker's share. ``ranks``: the rank of the process that sent the dataset, and the number of ranks."""
    info = get_worker_info()
    if info is None or _is_distributed() or get_start_method(allow_none=True) == "fork":
        ranks = _ranks_here()
    if ranks is None:
        raise RuntimeError(
            "a spawned worker does not know its rank; read through a StreamDataset, which passes the rank on, or "
            'fork the workers (DataLoader(..., multiprocessing_context="fork"))'
        )
    (rank, among), (worker, workers) = ranks, (0, 1) if info is None else (info.id, info.num_workers)
    return WorkerOfRank(rank + among * worker, among * workers, ranks=among)


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _ranks_here() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, from ``torch.distributed``."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if _is_distributed() else (0, 1)


class StreamDataset(IterableDataset[Any]):  # type: ignore[misc]  # types are checked without PyTorch
    """An ``IterableDataset`` of the items of a stream, for ``DataLoader(dataset, batch_size=None)``.

        def balanced(worker):
            return blocking.InterleaveSampler("data/train", decode, 2, 32, seed=0, worker=worker)

        dataset = StreamDataset(balanced, transform=collate)

    Args:
        open_stream: called in the worker with its share ``(i, n)``; returns a stream of `asyncrec.blocking`, not yet
            entered. If workers are spawned, it must be picklable: a module-level function, for example, not a lambda.
        transform: called with each item, in the worker.
    """

    _batch_size: Any = None  # a state can be loaded only with the same batch size

    def __init__(
        self, open_stream: Callable[[tuple[int, int]], Opened[Stream[Any]]], *, transform: Transform | None = None
    ) -> None:
        check_function(open_stream, "open_stream", "a function that returns a stream of asyncrec.blocking")
        if transform is not None:
            check_function(transform, "transform", "a function of an item of the stream, or None")
        self._open_stream = open_stream
        self._transform = transform
        self._state: dict[str, Any] | None = None
        self._iterator: Items | None = None
        self._ranks: tuple[int, int] | None = None  # (rank, number of ranks) of the process that sent this to a worker

    def __iter__(self) -> Iterator[Any]:
        state, self._state = self._state, None
        self._iterator = Items(self._open, self._transform, state)
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last iteration. Load it in the same worker, with the same number of workers."""
        stream = self._iterator.state_dict() if self._iterator is not None else self._state
        return {"stream": stream, "shard": list(_share(self._ranks)), "batch_size": self._batch_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the next iteration from this state.

        Raises:
            ValueError: the state is from another worker, another number of workers, or another batch size.
            TypeError: ``state`` is not from `state_dict`.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("stream"), Mapping | None):
            raise ArgumentTypeError(f"a state must be the dict that state_dict returned, not {state!r:.80}")
        worker, workers = _share(self._ranks)
        if state.get("shard") != [worker, workers]:
            raise ArgumentValueError(
                f"the state belongs to worker {state.get('shard')!r:.80}, but this is worker {[worker, workers]}; use "
                "the same number of ranks and workers, or a state of stream_state"
            )
        if state.get("batch_size") != self._batch_size:
            raise ArgumentValueError(
                f"the state was taken with batch_size={state.get('batch_size')!r:.80}, but this data set has "
                f"{self._batch_size}, so some records would be read twice and others not at all; pass the same "
                "batch_size"
            )
        self._iterator = None
        self._state = None if state["stream"] is None else dict(state["stream"])

    def __getstate__(self) -> dict[str, Any]:
        ranks = self._ranks if get_worker_info() is not None else _ranks_here()
        return {**self.__dict__, "_iterator": None, "_ranks": ranks}

    def _open(self, stack: ExitStack) -> tuple[Stream[Any], Iterator[Any]]:
        number, workers = _share(self._ranks)
        stream = stack.enter_context(self._open_stream((number, workers)))
        return stream, stream


class ShuffledDataset(StreamDataset):
    """The records of a data set in shuffled order (see `asyncrec.Dataset.shuffled`), in lists of ``batch_size``.

    Use it with ``DataLoader(dataset, batch_size=None)``. The dataset makes the batches, because whole batches are
    divided among the workers. All ranks get the same number of batches, ``len(dataset)`` in an epoch, regardless of the
    number of workers. If an epoch ends with fewer batches than ranks, these batches are discarded or, with
    ``uneven="pad"``, padded. With one rank, all batches are used.

    Args:
        path: the data set's folder and name. The snapshot is taken once, on construction, and sent to the workers. All
            epochs read it, regardless of later writes. If ``path`` is a `Manifest`, all ranks read the same snapshot.
        batch_size: the number of records in a batch.
        transform: called with each list of records, in the worker.
        newest: as for `asyncrec.open_dataset`. The newest version of each key is determined once, on construction.
        storage_options, cache, cache_bytes: as for `asyncrec.open_dataset`; all workers and ranks share the cache.
        shuffling: the arguments of `asyncrec.Dataset.shuffled`, except ``worker``, ``epoch`` and ``seed=None``.

    Raises: the errors of `asyncrec.open_dataset` and `asyncrec.Dataset.shuffled`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        *,
        batch_size: int,
        transform: Transform | None = None,
        newest: str | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
        **shuffling: Any,
    ) -> None:
        if refused := {"worker", "epoch"} & shuffling.keys():
            remedy = "each worker detects its share, and set_epoch sets the epoch"
            raise ArgumentTypeError(f"{', '.join(sorted(refused))}: not allowed here, because {remedy}")
        super().__init__(_no_stream, transform=transform)
        self._batch_size = whole_number(batch_size, "batch_size", least=1)
        reading: dict[str, Any] = {"storage_options": storage_options, "cache": cache, "cache_bytes": cache_bytes}
        self._shuffling = {"num_repeat": 1, "uneven": "drop", **shuffling}
        self._snapshot = Snapshot(
            path, {"newest": newest, **reading}, past_damage=shuffling.get("on_corrupt") == "skip"
        )
        with ExitStack() as stack:
            stream = self._shuffled(stack, worker=(0, 2))  # with several workers, raises an error if seed is None
            self._beginning = stream.state_dict()  # contains the parameters that determine the order
        # In shared memory, because persistent workers have their own copies of this object but must see changes.
        self._place = torch.full((_BEGUN + 1,), _NONE, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        """Return the number of batches that this rank gets in an epoch. Raises TypeError if ``num_repeat`` is not 1."""
        if self._shuffling["num_repeat"] != 1:
            raise ArgumentTypeError("len() is defined only for one epoch; omit num_repeat=")
        return self._batches(0).rounds

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration. Call this in the main process before the iteration.

        The default is 0, or the epoch of the loaded state.

        Raises:
            ValueError: ``epoch`` is negative, or `load_stream_state` has loaded a state of another epoch and no
                iteration has yet begun from it.
        """
        epoch = whole_number(epoch, "epoch", least=0)
        if self._place[_BEGUN] != _NONE:
            self._place.fill_(_NONE)
        self._batches(epoch, loaded=True)
        self._place[_EPOCH] = epoch

    def stream_state(self, batches_done: int) -> dict[str, Any]:
        """Return the position after ``batches_done`` batches of the current iteration, for `load_stream_state`.

        Call this in the main process, with the number of batches that the loader has returned since the iteration
        began. The position is a JSON value of a few hundred bytes, the same in all ranks, and can be loaded with any
        number of workers and ranks and any batch size. A stream of `asyncrec.Dataset.shuffled` also accepts it. The
        loader must return batches in order, which is its default.

        Raises:
            ValueError: the iteration has fewer batches, or ``num_repeat`` is not 1.
        """
        if self._shuffling["num_repeat"] != 1:
            raise ArgumentValueError("stream_state requires num_repeat=1; for more epochs, call set_epoch before each")
        done = whole_number(batches_done, "batches_done", least=0)
        chosen = int(self._place[_EPOCH])
        batches = self._batches(None if chosen == _NONE else chosen, loaded=True)
        if done > batches.rounds:
            raise ArgumentValueError(f"batches_done={done}: an iteration gives this rank {batches.rounds} batches")
        batches.took(done)
        epoch, position = batches.place
        return {**self._beginning, "first_epoch": batches.first_epoch, "epoch": epoch, "position": position}

    def load_stream_state(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration at a position from `stream_state`. Call this in the main process beforehand.

        The state includes its epoch, so calling `set_epoch` with that epoch changes nothing. A second iteration would
        begin in mid-epoch again, so it raises an error unless `set_epoch` has set the next epoch.

        Raises:
            ValueError, TypeError, DatasetError: the errors of `asyncrec.ShuffledStream.load_state_dict`.
        """
        with ExitStack() as stack:
            self._shuffled(stack).load_state_dict(state)
        place = state["first_epoch"], state["epoch"], state["position"]
        self._place[:] = torch.tensor([_NONE, *place, _NONE])

    def _batches(self, epoch: int | None, *, loaded: bool = False) -> WorkerBatches:
        """Return the batches of this rank in an epoch. With ``loaded``, begin at the position of the loaded state."""
        rank, ranks = _ranks_here()
        run = {name: self._shuffling[name] for name in ("num_repeat", "uneven")}
        worker = WorkerOfRank(rank, ranks, ranks=ranks)
        batches = WorkerBatches(self._snapshot.count, epoch=epoch, worker=worker, **run)
        _, first, at, position, _ = self._place.tolist()
        if loaded and first != _NONE:
            batches.go_on(at, position, (first, run["num_repeat"]))
        batches.count_batches(self._batch_size)
        return batches

    def _shuffled(self, stack: ExitStack, **options: Any) -> Stream[bytes]:
        dataset = stack.enter_context(self._snapshot.opened())
        return stack.enter_context(dataset.shuffled(**self._shuffling, **options))

    def _open(self, stack: ExitStack) -> tuple[Stream[Any], Iterator[Any]]:
        epoch, first, at, position, begun = self._place.tolist()
        share, info = _share(self._ranks), get_worker_info()
        leads = info is None or info.id == 0  # only this worker records that the iteration has begun
        if leads and begun != _NONE:
            raise RuntimeError(
                f"an iteration has already used the loaded state of epoch {at}; call set_epoch for the next epoch, "
                "or load a state again"
            )
        # In a run of several epochs, unequal numbers of batches per worker would change the order between epochs.
        worker = share if self._shuffling["num_repeat"] == 1 else tuple(share)
        stream = self._shuffled(stack, worker=worker, epoch=None if epoch == _NONE else epoch)
        if first != _NONE:
            stream.load_state_dict({**self._beginning, "first_epoch": first, "epoch": at, "position": position})
            if leads:
                self._place[_BEGUN] = 1
        return stream, stream.batches(self._batch_size)


class RecordDataset(Dataset[Any]):  # type: ignore[misc]  # as above
    """A map-style dataset of all records by number, for ``DataLoader(dataset, batch_size=64, shuffle=True)``.

    The records of a batch are read together (``__getitems__``). For whole epochs, `ShuffledDataset` is faster, because
    it reads much larger blocks.

    Args:
        path: the data set's folder and name, or a `Manifest`. The snapshot is taken once and sent to the workers.
        transform: called with each record, in the worker.
        newest, storage_options, cache, cache_bytes: as for `ShuffledDataset`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        *,
        transform: Transform | None = None,
        newest: str | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
    ) -> None:
        self._transform = transform
        kept: dict[str, Any] = {"cache": cache, "cache_bytes": cache_bytes}
        self._records = SnapshotRecords(path, newest=newest, storage_options=storage_options, **kept)

    def __len__(self) -> int:
        return self._records.count

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the items of a batch, in the order of ``indices``. PyTorch's loader calls this method if it exists."""
        records = self._records.get_many(indices)
        return list(records) if self._transform is None else [self._transform(record) for record in records]


def _no_stream(worker: tuple[int, int]) -> Opened[Stream[Any]]:
    raise AssertionError(f"a ShuffledDataset opens its own, not {worker}")
