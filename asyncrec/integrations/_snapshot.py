"""`SnapshotRecords` is any record of one snapshot of a data set, for the processes and threads of a data loader.

The snapshot is taken once, by the process that makes a data set for a loader, and is pickled with it: no worker asks
the store for the manifest, and all of them read the same records, whatever is written meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from os import PathLike, fspath
from typing import Any

from asyncrec import blocking
from asyncrec._concurrency.forks import on_fork
from asyncrec._shards.manifest.manifest import Manifest


def snapshot_at(path: str | PathLike[str] | Manifest, reading: Mapping[str, Any]) -> Manifest:
    """Return the current manifest of a data set, or the manifest that was passed.

    Raises: as `asyncrec.open_dataset`, whose arguments are ``reading``.
    """
    if isinstance(path, Manifest):
        return path
    with blocking.open_dataset(fspath(path), **reading) as dataset:
        manifest = dataset.manifest
    return manifest  # noqa: RET504  # to the type checker a context may swallow what is raised in it


class SnapshotRecords:
    """The records of a data set as it was when this was made; it can be pickled, and each process opens it.

    Each process that reads opens the data set once, whether it was forked or spawned, for all of its threads.

    Args:
        path: as for `asyncrec.open_dataset`. The snapshot is taken once, and pickled with this.
        reading: the other arguments of `asyncrec.open_dataset`.

    Attributes:
        manifest: the snapshot.
        count: the number of its records.
    """

    _opened: tuple[blocking.Dataset, ExitStack] | None

    def __init__(self, path: str | PathLike[str] | Manifest, **reading: Any) -> None:
        self._reading = reading
        self._begin()
        self.manifest = snapshot_at(path, reading)
        self.count = self.manifest.records

    def dataset(self) -> blocking.Dataset:
        """Return the data set, which is opened by the first call in a process."""
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
        return stack.enter_context(blocking.open_dataset(self.manifest, **self._reading)), stack
