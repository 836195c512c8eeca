"""Write and read entire data sets without async: splits, tables and tuples, as in `asyncrec._datasets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asyncrec._concurrency.forks import OfOneProcess
from asyncrec._datasets.from_csv import write as tabular
from asyncrec._datasets.from_generator import writer
from asyncrec._datasets.reading import reader, tuples
from asyncrec._datasets.sidecars import ShardInfo
from asyncrec._shards.manifest.splits import Split
from asyncrec.blocking._owner import Handle, Owner, as_call, as_context
from asyncrec.blocking._portal import current_portal
from asyncrec.blocking._streams import CHUNK, Puller, RecordLists
from asyncrec.errors import DatasetError
from asyncrec.example._schema import Schema

A = TypeVar("A")
P = ParamSpec("P")


def _made_by(make: Callable[P, A]) -> Callable[[Callable[[Any, A], None]], Callable[Concatenate[Any, P], None]]:
    """Return a decorator for an ``__init__`` that accepts what ``make`` returns. Callers pass ``make``'s arguments."""

    def decorate(init: Callable[[Any, A], None]) -> Callable[Concatenate[Any, P], None]:
        @wraps(make)
        def with_parameters(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, make(*args, **kwargs))

        return with_parameters

    return decorate


class DatasetWriter(OfOneProcess):
    """`asyncrec.DatasetWriter` with synchronous methods and the same parameters.

    The generator and the serializer may be synchronous or asynchronous.
    """

    @_made_by(writer.DatasetWriter)
    def __init__(self, made: writer.DatasetWriter) -> None:
        super().__init__()
        self._writer = made

    @property
    def split(self) -> str:
        return self._writer.split

    @property
    def current_examples(self) -> int:
        """The number of examples taken from the generator so far."""
        return self._writer.current_examples

    def create_records(self) -> None:
        """See `asyncrec.DatasetWriter.create_records`."""
        current_portal().run(self._writer.create_records)

    def cache_records(self) -> None:
        """See `asyncrec.DatasetWriter.cache_records`."""
        current_portal().run(self._writer.cache_records)

    def flush(self) -> None:
        """See `asyncrec.DatasetWriter.flush`."""
        current_portal().run(self._writer.flush)

    def flush_records(self) -> tuple[ShardInfo, int]:
        """See `asyncrec.DatasetWriter.flush_records`."""
        return current_portal().run(self._writer.flush_records)

    def save_shard_info(self, shard_info: ShardInfo) -> None:
        """See `asyncrec.DatasetWriter.save_shard_info`."""
        current_portal().run(self._writer.save_shard_info, shard_info)

    def add_shape_fields(self, datum: Mapping[str, Any]) -> dict[str, Any]:
        """See `asyncrec.DatasetWriter.add_shape_fields`."""
        return self._writer.add_shape_fields(datum)


class SplitReader(Handle[reader.SplitReader], Iterator[dict[str, Any]]):
    """`asyncrec.SplitReader`, iterated with ``for`` over decoded features, or over the lists of `batches`.

    Only one thread may use a reader.
    """

    def __init__(self, owner: Owner[reader.SplitReader], value: reader.SplitReader) -> None:
        super().__init__(owner, value)
        self._records = RecordLists(Puller(owner, value.batches()))

    def __len__(self) -> int:
        return len(self._value)

    @property
    def split(self) -> Split:
        return self._value.split

    @property
    def schema(self) -> Schema | None:
        """The schema of the records, or `None` if the data set has no schema."""
        return self._value.schema

    def __next__(self) -> dict[str, Any]:
        if self.schema is None:
            raise DatasetError(
                f"{self.split}: the data set has no schema, so its records cannot be decoded; use batches() to read "
                "them as bytes"
            )
        return self.schema.decode(self._records.next_record())

    def batches(self) -> Iterator[list[bytes]]:
        """Iterate over the records as they are stored, in non-empty lists."""
        return self._records


class TupleReader(Handle[tuples.TupleReader], Iterator[tuple[Any, ...]]):
    """`asyncrec.datasets.TupleReader`, iterated with ``for``. Only one thread may use a reader."""

    def __init__(self, owner: Owner[tuples.TupleReader], value: tuples.TupleReader) -> None:
        super().__init__(owner, value)
        self._tuples = Puller(owner, value)
        self._current: Iterator[tuple[Any, ...]] = iter(())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, in the order of the values in each tuple."""
        return self._value.names

    def __next__(self) -> tuple[Any, ...]:
        for values in self._current:
            return values
        self._current = iter(self._tuples.pull(CHUNK))
        return next(self._current)


open_split = as_context(reader.open_split, SplitReader)
generate_dataset = as_context(tuples.generate_dataset, TupleReader)
get_tfrecord_filepaths = as_call(tuples.get_tfrecord_filepaths)
write_splits_from_csv = as_call(tabular.write_splits_from_csv)
write_folds = as_call(tabular.write_folds)
