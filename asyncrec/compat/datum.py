"""datum's writer and reader: ``from asyncrec.compat.datum import TFRecordWriter, load``.

`TFRecordWriter` writes datum's files (``{split}-{i:05d}-of-{k:05d}.tfrecord``, ``shard_info.json`` and
``datum_to_type_and_shape_mapping.json``), which datum can read. A split is published as a whole, with a manifest, and
replaces the previous one. `load` reads these files and those that datum wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncrec._datasets.description import Description
from asyncrec._datasets.from_generator.examples import flatten, image_shapes, prepare, with_shapes
from asyncrec._datasets.from_generator.publishing import SplitTarget
from asyncrec._datasets.progress import Progress
from asyncrec._datasets.shuffling.shuffler import HashShuffler
from asyncrec._datasets.sidecars import ShardInfo
from asyncrec.blocking._portal import current_portal
from asyncrec.compat._datum_configs import BucketConfigs, DatasetConfigs, TFRReadConfigs
from asyncrec.compat._datum_reading import Dataset, InstructionError, load
from asyncrec.errors import ArgumentTypeError, DatasetError, DuplicateKeyError, SchemaError
from asyncrec.example._codec import encode_example

__all__ = [
    "BucketConfigs",
    "Dataset",
    "DatasetConfigs",
    "DuplicatedKeysError",
    "InstructionError",
    "Shuffler",
    "TFRReadConfigs",
    "TFRecordWriter",
    "load",
]

# The file extensions of images.
_IMAGES = (".png", ".jpg", ".jpeg")
_SHUFFLER_OPTIONS = ("memory_limit", "temporary_folder", "on_duplicate")


class DuplicatedKeysError(DuplicateKeyError, AssertionError):
    """Two records have the same key. This is also an AssertionError, because datum raises one."""


class _NothingToWriteError(RuntimeError, AssertionError):
    """`flush` was called before `cache_records`. This is also an AssertionError, because datum raises one."""


class _NoBytesError(ArgumentTypeError, AssertionError):
    """A serializer did not return bytes. This is also an AssertionError, because datum raises one."""


class _NoFeatureError(SchemaError, TypeError):
    """With ``serializer=None``, a value fits no feature. This is also a TypeError, because datum raises one."""


class Shuffler(HashShuffler):
    """A `HashShuffler` of the records of a split, which also collects their description."""

    def __init__(self, split: str, description: Description, **options: Any) -> None:
        super().__init__(split, **options)
        self._description = description

    def add(self, key: object, data: bytes, features: Mapping[str, Any] | None = None) -> None:
        """Add one record. ``features`` are its values before encoding, whose types the record does not preserve."""
        if not isinstance(data, bytes):
            raise _NoBytesError(f"example {self.added}: the serializer returned a {type(data).__name__}, not bytes")
        self._description.see_record(data, flatten(features or {}), self.added)
        self._keep(key, data)

    def add_example(self, key: object, features: Mapping[str, Any]) -> None:
        """Encode features that `prepare` has converted as an Example, and add the record."""
        record = _encoded(features)
        self._description.see(features, self.added)
        self._keep(key, record)

    def _keep(self, key: object, data: bytes) -> None:
        try:
            super().add(key, data)
        except DuplicateKeyError as error:
            raise DuplicatedKeysError(*error.args) from None

    @property
    def bucket_lengths(self) -> list[int]:
        return [self.records]

    def __iter__(self) -> Iterator[bytes]:
        for batch in self.batches():
            yield from batch


class TFRecordWriter:
    """A writer of a generator's examples to one split, in the caller's thread. Subclasses may override its methods.

    `create_records` calls `cache_records` and `flush`. `cache_records` calls `add_shape_fields` for each example.
    `flush` calls `flush_records`, which calls `save_shard_info`.

    Args:
        generator: called with ``gen_kwargs`` and ``split``; yields ``(key, features)``.
        serializer: converts features to bytes; `None` encodes them as an Example (see `asyncrec.DatasetWriter`).
        path: the folder, a local path or a URL.
        split: the name of the split.
        total_examples: the number of examples, for the progress bar.
        sparse_features: the names of arrays whose shapes differ from example to example.
        gen_kwargs: keyword arguments for the generator.
        writer_options: options of `asyncrec.DatasetWriter`, such as ``{"compression": "GZIP"}``.

    Attributes:
        generator, serializer, total_examples, split, sparse_features: the arguments.
        gen_kwargs: the generator's arguments, including the split.
        path: the folder joined with the name of the split.
        shuffler: the shuffler of the records.
        current_examples: the number of examples added so far.
    """

    def __init__(
        self,
        generator: Callable[..., Any],
        serializer: Callable[[Any], bytes] | None,
        path: str | os.PathLike[str],
        split: str,
        total_examples: int | None,
        sparse_features: list[str] | None = None,
        *,
        writer_options: Mapping[str, Any] | None = None,
        **gen_kwargs: Any,
    ) -> None:
        if writer_options is not None and not isinstance(writer_options, Mapping):
            gen_kwargs["writer_options"] = writer_options  # the generator's own argument of this name
            writer_options = None
        options = dict(writer_options or {})
        shuffling = {name: options.pop(name) for name in _SHUFFLER_OPTIONS if name in options}
        self._target = SplitTarget(os.fspath(path), split, **options)
        self._default = serializer is None
        self.generator = generator
        self.serializer: Callable[[Any], bytes] = serializer or _serialized
        self.path = os.path.join(path, split)
        self.split = split
        self.total_examples = total_examples
        self.sparse_features = sparse_features or []
        self.gen_kwargs = {**gen_kwargs, "split": split}
        self.current_examples = 0
        self._description = Description(self.sparse_features)
        self._shuffling = shuffling
        self.shuffler = Shuffler(split, self._description, **shuffling)

    def create_records(self) -> None:
        """Run the generator and write the split."""
        self.cache_records()
        self.flush()

    def cache_records(self) -> None:
        """Run the generator and cache its records. After an exception, no records are kept.

        Raises:
            DuplicatedKeysError: two records have the same key. If not detected here, `flush_records` raises this error.
            SchemaError: a value fits no feature (this error is also a TypeError), or examples contradict each other.
            DatasetError: the generator yielded no examples.
        """
        if not self.shuffler.added:
            self.current_examples = 0
        datum: Mapping[str, Any] = {}
        try:
            for key, datum in self._shown(self.generator(**self.gen_kwargs)):
                if self.sparse_features:
                    datum = self.add_shape_fields(datum)
                if self._default:
                    self.shuffler.add_example(key, _prepared(datum))
                else:
                    self.shuffler.add(key, self.serializer(datum), datum)
                self.current_examples += 1
            if not self.shuffler.added:
                raise DatasetError(f"{self._target}: the generator yielded no example; nothing was written")
            self._description.see_images(image_shapes(_with_paths(datum)))
            self._description.schema()  # raise its errors before anything is written
        except BaseException as error:
            error.add_note(
                f"{self._target}: the error occurred after {self.current_examples:,} examples; nothing was written"
            )
            self._begin()
            raise

    def add_shape_fields(self, datum: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add ``<name>_shape`` for each sparse feature with two or more axes. As in datum, this modifies ``datum``."""
        shaped = with_shapes(datum, tuple(self.sparse_features))
        if not isinstance(datum, dict):
            return shaped
        datum.update(shaped)
        return datum

    def flush(self) -> None:
        """Write the split. See `flush_records`."""
        self.flush_records()

    def flush_records(self) -> tuple[ShardInfo, int]:
        """Write the cached records, publish them as the split, and empty the cache.

        Returns:
            ``{split: {file name: number of records}}`` for all splits in the folder, and the size of this split's
            records in bytes.

        Raises:
            DuplicatedKeysError, StorageError: see `asyncrec.DatasetWriter.flush_records`.
        """
        shuffler = self.shuffler
        if not shuffler.added:
            raise _NothingToWriteError(f"{self._target}: there are no records to write; call cache_records first")
        try:
            shard_info = current_portal().run(self._target.publish, shuffler, self._description)
        except DuplicateKeyError as error:
            raise DuplicatedKeysError(*error.args) from None
        finally:
            self._begin()
        self.save_shard_info(shard_info)
        return shard_info, shuffler.size

    def save_shard_info(self, shard_info: ShardInfo) -> None:
        """Save ``shard_info`` and add the other splits' counts to it. See `asyncrec.DatasetWriter.save_shard_info`."""
        for split, counts in current_portal().run(self._target.save, shard_info).items():
            shard_info.setdefault(split, counts)

    def _begin(self) -> None:
        """Empty the cache."""
        self.shuffler.close()
        self._description = Description(self.sparse_features)
        self.shuffler = Shuffler(self.split, self._description, **self._shuffling)

    def _shown(self, examples: Iterable[tuple[Any, Mapping[str, Any]]]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Yield the examples while showing progress. Close the generator when the iteration ends or is abandoned."""
        try:
            with Progress(f"{self.split}: examples", self.total_examples, show=self._target.progress) as progress:
                for example in examples:
                    yield example
                    progress.advance()
        finally:
            if (close := getattr(examples, "close", None)) is not None:
                close()


def _serialized(datum: Mapping[str, Any]) -> bytes:
    return _encoded(_prepared(datum))


def _encoded(features: Mapping[str, Any]) -> bytes:
    try:
        return encode_example(features)
    except SchemaError as error:
        raise _NoFeatureError(*error.args) from None


def _prepared(datum: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in prepare(_with_paths(datum)).items()}


def _with_paths(datum: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flattened features. As in datum, text that ends with an image's file extension becomes a `Path`.

    URLs stay text.
    """

    def is_path(value: Any) -> bool:
        return isinstance(value, str) and value.endswith(_IMAGES) and "://" not in value

    found = flatten(datum)
    for name, value in found.items():
        if is_path(value):
            found[name] = Path(value)
        elif isinstance(value, list | tuple) and value and all(map(is_path, value)):
            found[name] = [Path(each) for each in value]
    return found


def _value(value: Any) -> Any:
    """Convert values that only datum's serializer accepts: tensors, and lists that mix integers and floats."""
    if isinstance(value, list | tuple):
        return [float(each) for each in value] if set(map(type, value)) == {int, float} else value
    return (
        np.asarray(value) if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic) else value
    )
