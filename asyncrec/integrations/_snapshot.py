"""`SnapshotRecords` is any record of one snapshot of a data set, for the processes and threads of a data loader."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from os import PathLike, fspath
from typing import Any

from asyncrec import blocking
from asyncrec._concurrency.forks import on_fork
from asyncrec._shards.manifest.manifest import Manifest


class SnapshotRecords:
    """The records of a data set as it was when this was made; it goes through pickle, and is opened where it is read.

    Whoever reads opens the data set: each process once, whether it was forked or spawned, for all of its threads.

    Args:
        path, storage_options, cache: as for `asyncrec.open_dataset`. The snapshot is taken once, and goes along.

    Attributes:
        manifest: the snapshot.
        count: its records.
    """

    _opened: tuple[blocking.Dataset, ExitStack] | None

    def __init__(
        self,
        path: str | PathLike[str] | Manifest,
        storage_options: dict[str, Any] | None,
        cache: str | PathLike[str] | None,
    ) -> None:
        self._storage_options = storage_options
        self._cache = cache
        self._begin()
        where = path if isinstance(path, Manifest) else fspath(path)
        with blocking.open_dataset(where, storage_options=storage_options) as dataset:
            self.count = len(dataset)
            self.manifest = dataset.manifest

    def dataset(self) -> blocking.Dataset:
        """The data set, which is opened by the first call in a process."""
        opened = self._opened
        if opened is None:
            with self._opening:
                opened = self._opened
                if opened is None:
                    opened = self._opened = self._open()
        return opened[0]

    def close(self) -> None:
        """Close what this process opened; to read opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(RuntimeError):  # Python ends, and closed it
                opened[1].close()

    def forked(self) -> None:
        """In a child, which opens its own."""
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
        opening = blocking.open_dataset(self.manifest, storage_options=self._storage_options, cache=self._cache)
        return stack.enter_context(opening), stack
