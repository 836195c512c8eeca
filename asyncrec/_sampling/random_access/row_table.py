"""`RowTable` groups rows in bounded memory: those of one bucket come together, whatever the order they were added in.

Rows are held up to a limit, and go to temporary files by their bucket beyond it. So two rows that must meet are given
the same bucket, and what is worked on at a time is a 256th of all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import surely_in_thread

Rows = NDArray[Any]

BUCKETS = 256
_NAME = "{:02x}"


def by_digest(rows: Rows) -> NDArray[np.int64]:
    """The buckets of rows with a digest, whose first half is ``high``."""
    return (rows["high"] >> np.uint64(56)).astype(np.int64)


class RowTable:
    """A table of rows. An async context: its files are gone at the end. All methods block.

    The rows of one bucket are in memory together: those of one key, if there are millions, too.

    Args:
        dtype: of a row.
        bucket: the buckets of rows, 0 .. `BUCKETS` - 1.
        memory: the bytes that are held before rows go to files.
        folder: of the files; that of the system by default.

    Attributes:
        count: how many rows were added.
    """

    def __init__(
        self, dtype: np.dtype[Any], bucket: Callable[[Rows], NDArray[np.int64]], *, memory: int, folder: str | None
    ) -> None:
        self.count = 0
        self._dtype = dtype
        self._bucket = bucket
        self._memory = memory
        self._folder = folder
        self._held: list[Rows] = []
        self._size = 0
        self._files: tempfile.TemporaryDirectory[str] | None = None

    async def __aenter__(self) -> RowTable:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._files is not None:
            await surely_in_thread(self._files.cleanup)

    def add(self, rows: Rows) -> None:
        """Take in rows."""
        self._held.append(rows)
        self._size += rows.nbytes
        self.count += len(rows)
        if self._size > self._memory:
            self._spill()

    def groups(self) -> Iterator[Rows]:
        """All rows, in arrays, by ascending buckets; those of one bucket are in the same array."""
        if self._files is None:
            yield np.concatenate([np.empty(0, self._dtype), *self._held])
            return
        self._spill()
        for bucket in range(BUCKETS):
            path = os.path.join(self._files.name, _NAME.format(bucket))
            if os.path.exists(path):
                yield np.fromfile(path, self._dtype)

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="asyncrec-rows-", dir=self._folder)
        rows = np.concatenate([np.empty(0, self._dtype), *self._held])
        self._held, self._size = [], 0
        buckets = self._bucket(rows)
        rows = rows[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS))
        for bucket in range(BUCKETS):
            part = rows[ends[bucket - 1] if bucket else 0 : ends[bucket]]
            if len(part):
                with open(os.path.join(self._files.name, _NAME.format(bucket)), "ab") as file:
                    file.write(part.tobytes())
