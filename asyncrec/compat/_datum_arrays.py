"""Batches of NumPy arrays, which datum's reader returns if TensorFlow is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec import blocking
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer
from asyncrec.errors import DatasetError
from asyncrec.example._entries import Ragged
from asyncrec.example._schema import Tensor

Batch = dict[str, NDArray[Any]]


@dataclass
class ArrayBatches:
    """Padded batches of parts of splits, which can be iterated any number of times. Each iteration reopens the files.

    Args:
        passes: the number of passes; -1 means forever.
        shuffle: the size of the buffer, the seed, and whether each pass has a different order; `None` does not shuffle.
    """

    path: str | PathLike[str]
    instruction: str
    batch_size: int
    drop_remainder: bool
    shuffle: tuple[int, int, bool] | None
    passes: int

    def __post_init__(self) -> None:
        self._number = count()

    def __iter__(self) -> Iterator[Batch]:
        for _ in count() if self.passes < 0 else range(self.passes):
            yield from self.once()

    def once(self) -> Iterator[Batch]:
        """Read the splits in one pass."""
        with blocking.open_split(self.path, self.instruction) as reader:
            if reader.schema is None:
                raise DatasetError(
                    f"{fspath(self.path)}: no feature types are stored with the data set, so its records cannot be "
                    "decoded"
                )
            tensors = [name for name, entry in reader.schema.features.items() if isinstance(entry, Tensor)]
            records: Iterator[bytes] = (record for records in reader.batches() for record in records)
            if self.shuffle is not None:
                records = self._shuffled(records, *self.shuffle)
            while batch := list(islice(records, self.batch_size)):
                if len(batch) < self.batch_size and self.drop_remainder:
                    return
                columns = reader.schema.decode_batch(batch)
                shapes = {f"{name}_shape": np.array([each.shape for each in columns[name]]) for name in tensors}
                yield {name: _padded(value) for name, value in {**columns, **shapes}.items()}

    def _shuffled(self, records: Iterator[bytes], size: int, seed: int, reshuffle: bool) -> Iterator[bytes]:
        buffer: ShuffleBuffer[bytes] = ShuffleBuffer(size, seed + (next(self._number) if reshuffle else 0))
        for record in records:
            out = buffer.push(record)
            if out is not None:
                yield out
        yield from buffer.drain()


def _padded(value: Any) -> NDArray[Any]:
    """Pad values to one shape, because the values of a VarLen or Tensor differ in size from record to record."""
    if not isinstance(value, Ragged) and not (
        value.dtype == object and len(value) and isinstance(value[0], np.ndarray)
    ):
        return _plain(value)
    each = np.split(value.values, value.row_splits[1:-1]) if isinstance(value, Ragged) else value
    rows = [_plain(row) for row in each]
    shape = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    padded = np.full((len(rows), *shape), b"" if rows[0].dtype == object else 0, rows[0].dtype)
    for into, row in zip(padded, rows, strict=True):
        into[tuple(slice(size) for size in row.shape)] = row
    return padded


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array to one of datum's three types."""
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    flat = [value.encode() if isinstance(value, str) else bytes(value) for value in array.reshape(-1).tolist()]
    plain = np.empty(len(flat), object)
    plain[:] = flat
    return plain.reshape(array.shape)
