"""A `Snapshot` of a data set is opened by the processes of a data loader; `SnapshotRecords` is any record of one.

The snapshot is taken once, by the process that makes a data set for a loader, and is pickled with it: no worker asks
the store for the manifest, and all of them read the same records, whatever is written meanwhile. With ``newest=``, the
newest version of each key is looked for once, too: the bits that say which they are go to the workers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike, fspath
from typing import Any, SupportsIndex

from asyncrec import blocking
from asyncrec._concurrency.forks import on_fork
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.random_access.record_numbers import numbers_of
from asyncrec._sampling.record_set import RecordSet
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.blocking._owner import owner_of


class Snapshot:
    """A data set as it was when this was made. It goes through pickle, and is opened where it is read.

    Args:
        path: as for `asyncrec.open_dataset`. A manifest that is given is the snapshot.
        reading: its other arguments.
        past_damage: if the newest version of each key is wanted, damaged records count as the oldest.

    Attributes:
        manifest: the snapshot.
        count: how many records are read of it: all, or the newest version of each key.

    Raises: as `asyncrec.open_dataset` and `asyncrec.Dataset.shuffled`.
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
        """Open it."""
        with blocking.open_dataset(self.manifest, **self._reading) as dataset:
            versions = owner_of(dataset).value.newest_versions
            if versions is not None and self._chosen is not None:
                versions.take(self._chosen)
            yield dataset

    def numbers(self, indices: Iterable[SupportsIndex]) -> Iterable[SupportsIndex]:
        """The numbers of records by their places among those that are read of it.

        Raises:
            IndexError: there is no such record.
        """
        if self._chosen is None:
            return indices
        found: list[int] = self._chosen.numbers(numbers_of(indices, self.count, path=self.manifest.path)).tolist()
        return found


class SnapshotRecords:
    """The records of a data set as it was when this was made; it can be pickled, and each process opens it.

    Each process that reads opens the data set once, whether it was forked or spawned, for all of its threads.

    Args:
        path: as for `asyncrec.open_dataset`. The snapshot is taken once, and pickled with this.
        reading: the other arguments of `asyncrec.open_dataset`.

    Attributes:
        manifest: the snapshot.
        count: how many records there are: all, or with ``newest=``, the newest version of each key.
    """

    _opened: tuple[blocking.Dataset, ExitStack] | None

    def __init__(self, path: str | PathLike[str] | Manifest, **reading: Any) -> None:
        self._begin()
        self._snapshot = Snapshot(path, reading)
        self.manifest = self._snapshot.manifest
        self.count = self._snapshot.count

    def get_many(self, indices: Iterable[SupportsIndex]) -> list[bytes]:
        """Records by their places, in the order asked for."""
        return self._dataset().get_many(self._snapshot.numbers(indices))

    def get(self, index: SupportsIndex) -> bytes:
        """One record by its place."""
        (number,) = self._snapshot.numbers([index])
        return self._dataset().get(number)

    def _dataset(self) -> blocking.Dataset:
        """The data set, which is opened by the first call in a process."""
        opened = self._opened
        if opened is None:
            with self._opening:
                opened = self._opened
                if opened is None:
                    opened = self._opened = self._open()
        return opened[0]

    def close(self) -> None:
        """Close what this process opened; reading opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(RuntimeError):  # Python ends, and closed it
                opened[1].close()

    def forked(self) -> None:
        """Forget the opened data set in a child made by fork, which opens its own."""
        self._opened = None
        self._opening = threading.Lock()  # another thread may have held it

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
