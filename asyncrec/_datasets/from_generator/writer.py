"""`DatasetWriter` makes one split from a generator of examples: it shuffles and shards them, and describes them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._datasets.description import Description
from asyncrec._datasets.from_generator.examples import flatten, image_shapes, prepare, with_shapes
from asyncrec._datasets.from_generator.publishing import SplitTarget
from asyncrec._datasets.from_generator.source import Example, Examples, Serializer, run
from asyncrec._datasets.progress import Progress
from asyncrec._datasets.shuffling.shuffler import MEMORY_LIMIT, HashShuffler, OnDuplicate
from asyncrec._datasets.sidecars import ShardInfo
from asyncrec._framing.compression import Compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.record_size import check_size
from asyncrec.errors import ArgumentTypeError, DatasetError
from asyncrec.example._codec import encode_example
from asyncrec.storage._base import Storage


class ExampleSink:
    """Receives the examples of one split in the order in which the generator yields them.

    Each example is checked and added to the description, and its record is added to the shuffle. The methods are called
    in worker threads, one call at a time. See `asyncrec._datasets.from_generator.source.Receiver`.

    Args:
        sparse_features: the features that are stored together with their shapes.
        flattens: whether to prepare the features for an Example. If false, the serializer gets them unchanged.
        own_serializer: whether the serializer is the user's own. If so, features are read from the records it returns.
        max_record_bytes: the maximum length of a record.

    Attributes:
        taken: the number of examples that have been received.
    """

    def __init__(
        self,
        shuffler: HashShuffler,
        description: Description,
        progress: Progress,
        *,
        sparse_features: tuple[str, ...],
        flattens: bool,
        own_serializer: bool,
        max_record_bytes: int,
    ) -> None:
        self.taken = 0
        self._shuffler = shuffler
        self._description = description
        self._progress = progress
        self._sparse = sparse_features
        self._flattens = flattens
        self._own_serializer = own_serializer
        self._max_record_bytes = max_record_bytes
        self._prepared = 0
        self._last: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        return self._shuffler.size

    def prepare(self, item: Example) -> Example:
        """Return the key and the prepared features. See `asyncrec._datasets.from_generator.examples.prepare`.

        Raises:
            TypeError: the item is not a pair of a key and a dict.
        """
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], Mapping):
            raise ArgumentTypeError(
                f"example {self._prepared} is {str(item)[:80]!r}, a {type(item).__name__}; the generator must yield "
                "(key, features) pairs, where features is a dict"
            )
        self._prepared += 1
        key, features = item
        self._last = features
        if self._sparse:
            features = with_shapes(features, self._sparse)
        return key, prepare(features) if self._flattens else features

    def take(self, example: Example, record: bytes) -> None:
        """Add an example to the description, and its record to the shuffle.

        Raises:
            TypeError: the record is not bytes.
            ValueError: the record is too long.
            SchemaError, DuplicateKeyError: as for `Description` and `HashShuffler`.
        """
        key, features = example
        if not isinstance(record, bytes):
            if not isinstance(record, bytearray | memoryview):
                raise ArgumentTypeError(
                    f"example {self.taken}: the serializer returned a {type(record).__name__}, not bytes"
                )
            record = bytes(record)
        check_size(len(record), self._max_record_bytes, f"example {self.taken}")
        if self._own_serializer:
            self._description.see_record(record, flatten(features), self.taken)
        else:
            self._description.see(features, self.taken)
        self._shuffler.add(key, record)
        self.taken += 1
        self._progress.advance()

    def finish(self) -> None:
        """Set the shapes of images to those in the last example, as datum does, by reading the headers of its files."""
        self._description.see_images(image_shapes(flatten(self._last)))


class DatasetWriter:
    """A writer of one split of a data set, from a generator of examples.

        writer = asyncrec.DatasetWriter(generator, None, "data/cats", "train", 1000)
        await writer.create_records()

    Records are written in the order of the hashes of their keys, so their order and bytes do not depend on the order in
    which the generator yields them, or on the number of shards. The shards are named
    ``{split}-{i:05d}-of-{k:05d}.tfrecord``, and each has an index. The folder also contains a manifest with the schema
    of all examples (``asyncrec.read_manifest("data/cats/train")``), and datum's ``shard_info.json`` and
    ``datum_to_type_and_shape_mapping.json`` for all splits of the folder.

    If a split is written again, the new split replaces the old one once it is complete. After an earlier failure, the
    old split is intact, and no part of the new split is visible.

    Args:
        generator: a function called with ``gen_kwargs`` and ``split``. It yields pairs ``(key, features)``, and may be
            an async generator. A synchronous generator runs in one worker thread. A key is a str, bytes or a number,
            and every example has a different key. ``features`` is a dict, which may contain dicts.
        serializer: a function from the features to bytes, which may be async. `None` makes an Example of the flattened
            features (``{"a": {"b": 1}}`` becomes ``a/b``), and replaces a `pathlib.Path` with the bytes of that file.
            `asyncrec.encode_example` makes an Example of the unchanged features.
        path: the folder, a local path or a URL of any backend. ``""`` is the current folder. With ``storage``, the path
            is a prefix in it.
        split: the name of the split.
        total_examples: the number of examples, for the progress bar, or `None` if it is not known.
        sparse_features: the names of arrays whose shapes vary. The shape of an array with two or more dimensions is
            stored as ``<name>_shape``.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        num_shards: the number of shards; by default, it is derived from the size, with 64 MiB to 1 GiB per shard.
        on_duplicate: how to handle a key that occurs twice. ``"raise"`` (the default) raises an error. ``"first"`` or
            ``"last"`` keeps the first or the last example with the key, so the order of the examples matters.
        memory_limit: the number of bytes of records held in memory, 64 MiB by default. Further records are written to
            disk.
        temporary_folder: the folder for the records on disk, by default the system's folder for temporary files. It
            needs room for all records.
        max_record_bytes: the maximum length of a record; 256 MiB by default, as for `asyncrec.open_sharded_writer`.
        progress: whether to show a progress bar. `None` shows a bar if rich is installed and stderr is a terminal.
        storage: an open `Storage`, which is used but not closed. ``path`` is then a prefix in it, and may be empty.
        storage_options: options for the backend, if the writer opens the storage.
        gen_kwargs: keyword arguments for the generator. If a keyword has the name of an option above, pass
            ``functools.partial(generator, compression=...)`` instead.

    Raises:
        ValueError: an option, or the name of the split, is not valid.
    """

    def __init__(
        self,
        generator: Callable[..., Examples | Awaitable[Examples]],
        serializer: Serializer | None,
        path: str | os.PathLike[str],
        split: str,
        total_examples: int | None = None,
        sparse_features: Sequence[str] | None = None,
        *,
        compression: Compression = "",
        num_shards: int | None = None,
        on_duplicate: OnDuplicate = "raise",
        memory_limit: Size = MEMORY_LIMIT,
        temporary_folder: str | os.PathLike[str] | None = None,
        max_record_bytes: Size = MAX_RECORD_BYTES,
        progress: bool | None = None,
        storage: Storage | None = None,
        storage_options: dict[str, Any] | None = None,
        **gen_kwargs: Any,
    ) -> None:
        self._target = SplitTarget(path, split, compression, num_shards, progress, storage, storage_options)
        if isinstance(sparse_features, str):
            raise ArgumentTypeError(f"sparse_features must be a list of names, such as [{sparse_features!r}]")
        self.split = split
        self._sink: ExampleSink | None = None
        self._generator = generator
        self._serializer = serializer
        self._total = total_examples
        self._sparse = tuple(sparse_features or ())
        self._kwargs = {**gen_kwargs, "split": split}
        self._make_shuffler = partial(
            HashShuffler,
            split,
            memory_limit=byte_count(memory_limit, "memory_limit"),
            temporary_folder=temporary_folder,
            on_duplicate=on_duplicate,
        )
        self._shuffler = self._make_shuffler()
        self._max_record_bytes = record_limit(max_record_bytes)
        self._show_progress = progress
        self._description = Description(self._sparse)

    @property
    def current_examples(self) -> int:
        """The number of examples taken from the generator so far."""
        return 0 if self._sink is None else self._sink.taken

    async def create_records(self) -> None:
        """Run the generator, and write the split: `cache_records`, then `flush`.

        The writer leaves no files in the temporary folder, even after an error or a cancellation.

        Raises:
            DuplicateKeyError, SchemaError, DatasetError, StorageError: see `cache_records` and `flush_records`.
            Exception: the generator or the serializer raised it. A note states how many examples it had processed.
        """
        await self.cache_records()
        await self.flush()

    async def cache_records(self) -> None:
        """Run the generator, and hold its records in memory or, beyond ``memory_limit``, in the temporary folder.

        A second call starts over. After an error or a cancellation, no records are held.

        Raises:
            DuplicateKeyError: a key occurred twice. Duplicates not found here are found by `flush_records`.
            SchemaError: no feature can hold a value, or examples contradict each other.
            DatasetError: the generator yielded no example.
            ValueError: a record is longer than ``max_record_bytes``.
            TypeError: the generator yielded something other than a pair of a key and a dict, or the serializer did not
                return bytes.
            StorageError: the temporary folder is full.
        """
        await self._drop()
        self._shuffler = self._make_shuffler()
        self._description = Description(self._sparse)
        self._sink = None
        try:
            with Progress(f"{self.split}: examples", self._total, show=self._show_progress) as progress:
                sink = self._sink = ExampleSink(
                    self._shuffler,
                    self._description,
                    progress,
                    sparse_features=self._sparse,
                    flattens=self._serializer is None,
                    own_serializer=self._serializer not in (None, encode_example),
                    max_record_bytes=self._max_record_bytes,
                )
                try:
                    await run(self._generator, self._kwargs, self._serializer or encode_example, sink)
                except Exception as error:
                    error.add_note(
                        f"{self._target}: the error occurred after {sink.taken:,} examples; nothing was written"
                    )
                    raise
            if not self.current_examples:
                raise DatasetError(f"{self._target}: the generator yielded no example; nothing was written")
            await in_thread(sink.finish)
            self._description.schema()  # raises its errors before anything is written
        except BaseException:
            await self._drop()
            raise

    async def flush(self) -> None:
        """Write the split; see `flush_records`."""
        await self.flush_records()

    async def flush_records(self) -> tuple[ShardInfo, int]:
        """Write the records held by `cache_records`, publish them as the split, and release them.

        Returns:
            ``{split: {file name: records}}``, and the total number of bytes of the records.

        Raises:
            RuntimeError: no records are held. Call `cache_records` first.
            DuplicateKeyError: sorting found a key that occurred twice.
            StorageError: a store failed. The existing split is intact, unless the error's notes say otherwise.
        """
        shuffler = self._shuffler
        if not shuffler.added:
            raise RuntimeError(f"{self._target}: there are no records to write; call cache_records first")
        try:
            shard_info = await self._target.publish(shuffler, self._description)
        finally:
            await self._drop()
        return shard_info, shuffler.size

    async def save_shard_info(self, shard_info: ShardInfo) -> None:
        """Write the counts of splits without a manifest, such as datum's own, to ``shard_info.json``.

        The counts replace those of the same splits in the file. The counts of other splits are kept. A split with a
        manifest keeps the counts of its manifest, even if those in ``shard_info`` differ.
        """
        await self._target.save(shard_info)

    def add_shape_fields(self, datum: Mapping[str, Any]) -> dict[str, Any]:
        """Return a new dict of the features, with ``<name>_shape`` for each sparse feature of two axes or more."""
        return with_shapes(datum, self._sparse)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        await surely_in_thread(self._shuffler.close)
        self._shuffler = self._make_shuffler()
