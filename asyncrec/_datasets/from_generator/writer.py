"""`DatasetWriter` makes one split of a generator of examples: shuffled, sharded, described, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._datasets.description import Description
from asyncrec._datasets.from_generator.example_sink import ExampleSink
from asyncrec._datasets.from_generator.examples import with_shapes
from asyncrec._datasets.from_generator.publishing import SplitTarget
from asyncrec._datasets.from_generator.shuffler import MEMORY_LIMIT, HashShuffler, OnDuplicate
from asyncrec._datasets.from_generator.source import Examples, Serializer, run
from asyncrec._datasets.progress import Progress
from asyncrec._datasets.sidecars import ShardInfo
from asyncrec._framing.compression import Compression
from asyncrec.errors import ArgumentTypeError, DatasetError
from asyncrec.example._codec import encode_example
from asyncrec.storage._base import Storage

__all__ = ["DatasetWriter"]


class DatasetWriter:
    """Makes one split of a data set.

        writer = asyncrec.DatasetWriter(generator, None, "data/cats", "train", 1000)
        await writer.create_records()

    The records are written in the order of their keys' hashes: the same order, and the same bytes, in whatever order
    the generator yields them, and whatever the number of shards. They are named
    ``{split}-{i:05d}-of-{k:05d}.tfrecord``, with an index each. Beside them stand a manifest with the schema of all
    examples (``asyncrec.read_manifest("data/cats/train")``), and datum's ``shard_info.json`` and
    ``datum_to_type_and_shape_mapping.json`` for all splits of the folder.

    A split written again is replaced when the new one is complete; any failure before leaves the old one whole. Nothing
    is visible of a split that fails.

    Args:
        generator: called with ``gen_kwargs`` and ``split``; gives pairs ``(key, features)``, by iteration or
            asynchronous iteration. A synchronous one runs in one worker thread. Keys are str, bytes or numbers, one
            example's own; ``features`` is a dict, which may hold dicts.
        serializer: makes bytes of the features; may be asynchronous. `None`: an Example, of the features flattened
            (``{"a": {"b": 1}}`` is ``a/b``), with the files' bytes for text that ends in .png, .jpg or .jpeg.
            `asyncrec.encode_example` makes an Example of the features as they are.
        path: the folder, local or a URL of any backend; ``""`` is the one at hand. With ``storage``, a prefix in it.
        split: its name.
        total_examples: for the progress bar; `None` if it is not known.
        sparse_features: arrays whose shapes differ; each with two axes or more gets ``<name>_shape`` beside it.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        num_shards: as many; otherwise by size, each between 64 MiB and 1 GiB.
        on_duplicate: a key that comes twice raises, or the ``"first"`` or the ``"last"`` example that has it is kept
            (by the order in which they come; then that order matters).
        memory_limit: bytes of records held to be shuffled; beyond it they are spilled to disk. 64 MiB.
        temporary_folder: where they are spilled to; the system's unless given. It needs room for all records.
        progress: show a bar; `None` does where rich is installed and stderr is a terminal.
        storage: an open `Storage`, used and not closed; ``path`` is then a prefix in it, and may be empty.
        storage_options: for the backend, when it is opened here.
        gen_kwargs: for the generator. One whose keyword has the name of an option above is given with
            ``functools.partial(generator, compression=...)``.

    Raises:
        ValueError: an option, or the split's name, is not what it may be.
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
        progress: bool | None = None,
        storage: Storage | None = None,
        storage_options: dict[str, Any] | None = None,
        **gen_kwargs: Any,
    ) -> None:
        self._target = SplitTarget(path, split, compression, num_shards, progress, storage, storage_options)
        if isinstance(sparse_features, str):
            raise ArgumentTypeError(f"sparse_features are names, in a list: [{sparse_features!r}]")
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
        self._show_progress = progress
        self._description = Description(self._sparse)

    @property
    def current_examples(self) -> int:
        """Taken from the generator so far."""
        return 0 if self._sink is None else self._sink.taken

    async def create_records(self) -> None:
        """Run the generator, and write the split: `cache_records`, then `flush`.

        Whatever happens, nothing is left in the temporary folder.

        Raises:
            DuplicateKeyError, SchemaError, DatasetError, StorageError: see `cache_records` and `flush_records`.
            Exception: whatever the generator or the serializer raises, with a note that tells the example.
        """
        await self.cache_records()
        await self.flush()

    async def cache_records(self) -> None:
        """Run the generator, and keep its records: in memory, and beyond ``memory_limit`` in the temporary folder.

        Run again, it starts anew. After an exception, cancellation included, nothing is kept.

        Raises:
            DuplicateKeyError: a key came twice. Told here where it can be seen, else by `flush_records`.
            SchemaError: a value that no feature holds, or examples that contradict each other.
            DatasetError: the generator gave no example.
            TypeError: it gave something else than pairs of a key and a dict, or the serializer no bytes.
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
                )
                try:
                    await run(self._generator, self._kwargs, self._serializer or encode_example, sink)
                except Exception as error:
                    error.add_note(f"{self._target}: after {sink.taken:,} examples; nothing was written")
                    raise
            if not self.current_examples:
                raise DatasetError(f"{self._target}: the generator gave no example; nothing was written")
            await in_thread(sink.finish)
            self._description.schema()  # what it would raise is told before anything is written
        except BaseException:
            await self._drop()
            raise

    async def flush(self) -> None:
        """Write the split; see `flush_records`."""
        await self.flush_records()

    async def flush_records(self) -> tuple[ShardInfo, int]:
        """Write the records that `cache_records` kept, make them the split, and give up what was kept.

        Returns:
            ``{split: {file name: records}}``, and the bytes of all records.

        Raises:
            RuntimeError: nothing is kept; call `cache_records` first.
            DuplicateKeyError: a key came twice, as only sorting shows.
            StorageError: a store failed. The split that was there is whole, unless the error's notes say otherwise.
        """
        shuffler = self._shuffler
        if not shuffler.added:
            raise RuntimeError(f"{self._target}: nothing to write; cache_records comes first")
        try:
            shard_info = await self._target.publish(shuffler, self._description)
        finally:
            await self._drop()
        return shard_info, shuffler.size

    async def save_shard_info(self, shard_info: ShardInfo) -> None:
        """Put these counts into ``shard_info.json``: they replace those of their splits, and other splits' are kept.

        `flush_records` has done it. Splits with a manifest have their counts from there.
        """
        await self._target.save(shard_info)

    def add_shape_fields(self, datum: Mapping[str, Any]) -> dict[str, Any]:
        """The features, with ``<name>_shape`` for each sparse feature of two axes or more; ``datum`` stays as it is."""
        return with_shapes(datum, self._sparse)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        await surely_in_thread(self._shuffler.close)
        self._shuffler = self._make_shuffler()
