"""Read for training without async: random access, shuffled and interleaved streams, balanced batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from asyncrec._sampling.balanced_sampler import sampler as balanced_sampler
from asyncrec._sampling.interleave import stream
from asyncrec._sampling.interleave_sampler import sampler as interleave_sampler
from asyncrec._sampling.parameters import public_type
from asyncrec._sampling.random_access import dataset, opening
from asyncrec._sampling.random_access.dataset import RecordLocation
from asyncrec._sampling.random_access.record_numbers import numbers_of
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.blocking._owner import Handle, Opened, Owner, as_context, owner_of, with_parameters_of
from asyncrec.blocking._records import Examples
from asyncrec.blocking._shuffled import ShuffledStream
from asyncrec.blocking._streams import CHUNK, AsyncStream, Puller, RecordLists, Stream
from asyncrec.errors import ArgumentTypeError
from asyncrec.example._schema import Schema

P = ParamSpec("P")
T = TypeVar("T")


class Dataset(Handle[dataset.Dataset]):
    """`asyncrec.Dataset`. Any number of threads may use it.

    ``dataset[i]`` is ``dataset.get(i)``, and ``dataset[i:j]`` is the list of records ``i`` to ``j - 1``. Records in
    uncompressed shards of a local folder are read in the calling thread.
    """

    def __len__(self) -> int:
        return len(self._value)

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> bytes | list[bytes]:
        return self.get_many(index) if isinstance(index, slice) else self.get(index)

    def __repr__(self) -> str:
        return repr(self._value)

    def __iter__(self) -> Iterator[bytes]:
        records = RecordLists(Puller(self._owner, self._value.batches()))
        return iter(records.next_record_or_none, None)

    def batches(self) -> Iterator[list[bytes]]:
        """See `asyncrec.Dataset.batches`."""
        return RecordLists(Puller(self._owner, self._value.batches()))

    def examples(self, schema: Schema | None = None) -> Iterator[dict[str, Any]]:
        """See `asyncrec.Dataset.examples`. Records are decoded in this thread."""
        return Examples(self.manifest.path, iter(self), self.schema if schema is None else schema)

    @property
    def manifest(self) -> Manifest:
        """The snapshot being read."""
        return self._value.manifest

    @property
    def progress(self) -> Mapping[str, int]:
        """See `asyncrec.Dataset.progress`."""
        return self._value.progress

    @property
    def schema(self) -> Schema | None:
        """The schema in the manifest, or `None` if no writer passed a schema."""
        return self._value.schema

    def get(self, index: SupportsIndex) -> bytes:
        """See `asyncrec.Dataset.get`. For many records, `get_many` is much faster."""
        self._owner.check()
        record = self._value.lookup.one(index, waits=True)
        return self._owner.call(self._value.get, index) if record is None else record

    def get_many(self, indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]]) -> list[bytes]:
        """See `asyncrec.Dataset.get_many`."""
        self._owner.check()
        wanted = numbers_of(indices, len(self), path=self.manifest.path)
        records = self._value.lookup.many_here(wanted)
        return self._owner.call(self._value.get_many, wanted) if records is None else records

    def get_by_key(self, key: str | bytes) -> bytes:
        """See `asyncrec.Dataset.get_by_key`."""
        return self.get(self.find(key)) if self._value.newest is None else self._owner.call(self._value.get_by_key, key)

    def find(self, key: str | bytes) -> int:
        """See `asyncrec.Dataset.find`."""
        self._owner.check()
        keys = self._value.keys
        here = keys.are_read and self._value.newest is None
        return int(keys.look_up(key)[0]) if here else self._owner.call(self._value.find, key)

    def history(self, key: str | bytes) -> list[bytes]:
        """See `asyncrec.Dataset.history`."""
        self._owner.check()
        return self._owner.call(self._value.history, key)

    def locate(self, index: SupportsIndex) -> RecordLocation:
        """See `asyncrec.Dataset.locate`."""
        self._owner.check()
        return self._owner.call(self._value.locate, index)

    @with_parameters_of(dataset.Dataset.shuffled)
    def shuffled(self, **options: Any) -> Opened[ShuffledStream]:
        """See `asyncrec.Dataset.shuffled`, which has the same arguments."""
        return Opened(
            ShuffledStream, lambda: Owner(self._value.shuffled(**options), "shuffled", keeps=self._owner), "shuffled"
        )


def as_stream(
    func: Callable[P, AbstractAsyncContextManager[AsyncStream[T]]], *, chunk: int
) -> Callable[P, Opened[Stream[T]]]:
    """Return a function with the parameters of ``func`` that opens a `Stream` over the stream that ``func`` opens."""

    @wraps(func)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opened[Stream[T]]:
        return Opened(partial(Stream, chunk=chunk), lambda: Owner(func(*args, **kwargs), func.__name__), func.__name__)

    return opened


def _of_dataset(
    func: Callable[Concatenate[dataset.Dataset, P], AbstractAsyncContextManager[AsyncStream[T]]],
) -> Callable[Concatenate[Dataset, P], Opened[Stream[T]]]:
    """Do the same as `as_stream`, but for a ``func`` that draws batches from a `Dataset` of this module."""

    @wraps(func)
    def opened(dataset: Dataset, /, *args: P.args, **kwargs: P.kwargs) -> Opened[Stream[T]]:
        if not isinstance(dataset, Dataset):
            raise ArgumentTypeError(
                f"{func.__name__} takes a Dataset from asyncrec.blocking.open_dataset, not {public_type(dataset)}"
            )
        owner = owner_of(dataset)
        return Opened(
            partial(Stream, chunk=1),
            lambda: Owner(func(owner.value, *args, **kwargs), func.__name__, keeps=owner),
            func.__name__,
        )

    return opened


open_dataset = as_context(opening.open_dataset, Dataset)
interleave = as_stream(stream.interleave, chunk=CHUNK)
# The items are already batches, so one item is transferred at a time.
InterleaveSampler = as_stream(interleave_sampler.InterleaveSampler, chunk=1)
ClassBalancedSampler = _of_dataset(balanced_sampler.ClassBalancedSampler)
