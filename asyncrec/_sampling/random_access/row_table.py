"""`RowTable` groups rows in bounded memory. It returns the rows of a bucket together, no matter when they were added.

Rows are kept in memory up to a limit. Beyond the limit, they are written to temporary files, one for each bucket, and
only about 1/256 of all rows is in memory at a time. Rows that are to be compared must be in the same bucket.
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
    """Return the buckets of rows with a digest, whose first half is the field ``high``."""
    return (rows["high"] >> np.uint64(56)).astype(np.int64)


class RowTable:
    """A table of rows, and an async context manager that removes the table's files on exit. All methods block.

    All rows of a bucket are in memory together, even if it has millions of rows with the same key.

    Args:
        dtype: the type of a row.
        bucket: returns the buckets of rows, 0 .. `BUCKETS` - 1.
        memory: the maximum number of bytes kept in memory. Beyond this limit, rows are written to files.
        folder: the folder of the files; if `None`, the system's folder for temporary files.

    Attributes:
        count: the number of rows added.
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
        """Add rows to the table."""
        self._held.append(rows)
        self._size += rows.nbytes
        self.count += len(rows)
        if self._size > self._memory:
            self._spill()

    def groups(self) -> Iterator[Rows]:
        """Yield all rows in arrays, in bucket order. All rows of a bucket are in the same array."""
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
