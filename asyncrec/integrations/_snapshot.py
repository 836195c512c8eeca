"""`Snapshot`: the state of a data set that all processes of a data loader read, with `SnapshotRecords` or `Items`.

The snapshot is taken once, by the process that creates the loader's dataset, and is pickled with that dataset. The
workers therefore do not read the manifest from the store, and all of them read the same records, regardless of later
writes. With ``newest=``, the newest version of each key is also determined only once, and sent to the workers as one
bit per record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike, fspath, getpid
from typing import Any, SupportsIndex

from asyncrec import blocking
from asyncrec._concurrency.forks import on_fork
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.random_access.record_numbers import numbers_of
from asyncrec._sampling.record_set import RecordSet
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.blocking._owner import owner_of
from asyncrec.blocking._streams import Stream


class Snapshot:
    """The state of a data set at one point in time, picklable. Each process that reads it opens the data set itself.

    Args:
        path: the ``path`` argument of `asyncrec.open_dataset`. A `Manifest` is used as the snapshot.
        reading: the other arguments of `asyncrec.open_dataset`.
        past_damage: with ``newest=``, treat damaged records as the oldest versions instead of raising an error.

    Attributes:
        manifest: the manifest at that time.
        count: the number of records to read: all or, with ``newest=``, one for each key.

    Raises: the errors of `asyncrec.open_dataset` and `asyncrec.Dataset.shuffled`.
    """

    manifest: Manifest

    def __init__(
        self, path: str | PathLike[str] | Manifest, reading: Mapping[str, Any], *, past_damage: bool = False
    ) -> None:
        self._reading = dict(reading)
        self._chosen: RecordSet | None = None
        if isinstance(path, Manifest) and reading.get("newest") is None:
            self.manifest = path
        else:
            given = path if isinstance(path, Manifest) else fspath(path)
            with blocking.open_dataset(given, **reading) as dataset:
                self.manifest = dataset.manifest
                owner = owner_of(dataset)
                self._chosen = owner.call(owner.value.chosen, DamageByShard() if past_damage else None)
        self.count = self.manifest.records if self._chosen is None else len(self._chosen)

    @contextmanager
    def opened(self) -> Iterator[blocking.Dataset]:
        """Open the data set."""
        with blocking.open_dataset(self.manifest, **self._reading) as dataset:
            versions = owner_of(dataset).value.newest_versions
            if versions is not None and self._chosen is not None:
                versions.take(self._chosen)
            yield dataset

    def numbers(self, indices: Iterable[SupportsIndex]) -> Iterable[SupportsIndex]:
        """Convert indices, which count only the records to read, to record numbers in the entire data set.

        Raises:
            IndexError: an index is out of range.
        """
        if self._chosen is None:
            return indices
        found: list[int] = self._chosen.numbers(numbers_of(indices, self.count, path=self.manifest.path)).tolist()
        return found


class SnapshotRecords:
    """Random access to the records of a snapshot by their indices. The object can be pickled.

    Each process that reads, whether forked or spawned, opens the data set once for all its threads.

    Args:
        path: the ``path`` argument of `asyncrec.open_dataset`. The snapshot is taken once and pickled with this object.
        reading: the other arguments of `asyncrec.open_dataset`.

    Attributes:
        manifest: the manifest of the snapshot.
        count: the number of records: all or, with ``newest=``, one for each key.
    """

    _opened: tuple[blocking.Dataset, ExitStack] | None

    def __init__(self, path: str | PathLike[str] | Manifest, **reading: Any) -> None:
        self._begin()
        self._snapshot = Snapshot(path, reading)
        self.manifest = self._snapshot.manifest
        self.count = self._snapshot.count

    def get_many(self, indices: Iterable[SupportsIndex]) -> list[bytes]:
        """Return records by their indices, in the order of ``indices``."""
        return self._dataset().get_many(self._snapshot.numbers(indices))

    def get(self, index: SupportsIndex) -> bytes:
        """Return a record by its index."""
        (number,) = self._snapshot.numbers([index])
        return self._dataset().get(number)

    def _dataset(self) -> blocking.Dataset:
        """Return the data set. The first call in a process opens it."""
        opened = self._opened
        if opened is None:
            with self._opening:
                opened = self._opened
                if opened is None:
                    opened = self._opened = self._open()
        return opened[0]

    def close(self) -> None:
        """Close the data set in this process. The next read reopens it."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(RuntimeError):  # Python is exiting, and has already closed the data set
                opened[1].close()

    def forked(self) -> None:
        """Discard the parent's open data set in a forked child, which opens the data set itself."""
        self._opened = None
        self._opening = threading.Lock()  # a thread of the parent may have held the old lock

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_opened", "_opening")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __del__(self) -> None:
        if "_opened" in self.__dict__:
            self.close()

    def _begin(self) -> None:
        self._opened = None
        self._opening = threading.Lock()
        on_fork(self)

    def _open(self) -> tuple[blocking.Dataset, ExitStack]:
        stack = ExitStack()
        return stack.enter_context(self._snapshot.opened()), stack


Open = Callable[[ExitStack], tuple[Stream[Any], Iterator[Any]]]


class Items(Iterator[Any]):
    """An iterator over a stream's items, which can also return the stream's state.

    The stream is closed after the last item, or when the iterator is garbage-collected.

    The stream is opened by the first method call rather than by the constructor. PyTorch raises the errors of items in
    the training loop, whereas an error at the beginning of an iteration would terminate a persistent worker.
    """

    def __init__(self, open_: Open, transform: Callable[[Any], Any] | None, state: Mapping[str, Any] | None) -> None:
        self._open: Open | None = open_
        self._transform = transform
        self._state = state
        self._stack = ExitStack()
        self._pid = getpid()
        self._opened: tuple[Stream[Any], Iterator[Any]] | None = None
        self._last: dict[str, Any] | None = None

    def __next__(self) -> Any:
        if self._last is not None:
            raise StopIteration
        stream, items = self._opened or self._begin()
        try:
            item = next(items)
        except StopIteration:
            self._last = stream.state_dict()
            self._stack.close()
            raise
        return item if self._transform is None else self._transform(item)

    def state_dict(self) -> dict[str, Any]:
        return (self._opened or self._begin())[0].state_dict() if self._last is None else self._last

    def _begin(self) -> tuple[Stream[Any], Iterator[Any]]:
        assert self._open is not None, "called only once"
        try:
            opened = self._open(self._stack)
            if self._state is not None:
                opened[0].load_state_dict(self._state)
        except BaseException:
            self._stack.close()
            raise
        self._opened, self._open = opened, None  # drop `_open`, whose reference to the dataset is a cycle
        return opened

    def __del__(self) -> None:
        if self._pid == getpid():
            with suppress(RuntimeError):  # Python is exiting, and has already closed the stream
                self._stack.close()
