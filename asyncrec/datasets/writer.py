"""`DatasetWriter`: a generator of examples becomes one split: shuffled, sharded, described, whole or not at all."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from asyncrec.datasets.description import Description
from asyncrec.datasets.examples import with_shapes
from asyncrec.datasets.ordered import write_shards
from asyncrec.datasets.progress import Progress
from asyncrec.datasets.shuffler import MEMORY_LIMIT, HashShuffler, OnDuplicate
from asyncrec.datasets.sidecars import SHARD_INFO, ShardInfo, read_shard_info, update
from asyncrec.datasets.source import Examples, Serializer, run
from asyncrec.datasets.taker import ExampleTaker
from asyncrec.errors import DatasetError
from asyncrec.example.codec import encode_example
from asyncrec.framing.compression import CompressionOptions, parse_compression
from asyncrec.shards.sizing import shard_count
from asyncrec.shards.snapshot import dataset_at, load_manifest
from asyncrec.shards.splits import parse_split
from asyncrec.storage.base import Storage
from asyncrec.storage.url import redact
from asyncrec.tasks import in_thread, surely_in_thread

__all__ = ["DatasetWriter"]

_log = logging.getLogger("asyncrec.datasets")

# Deleting what the new split replaced; it is not listed any more, so that nothing depends on it.
_CLEAN_UP_SECONDS = 30


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
        compression: str | int | CompressionOptions | None = "",
        num_shards: int | None = None,
        on_duplicate: OnDuplicate = "raise",
        memory_limit: int = MEMORY_LIMIT,
        temporary_folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        storage: Storage | None = None,
        storage_options: dict[str, Any] | None = None,
        **gen_kwargs: Any,
    ) -> None:
        parts = parse_split(split).parts
        if len(parts) != 1 or str(parts[0]) != split or split != parts[0].name:
            raise ValueError(f"{split!r} is no name of a split: letters, digits, '_', '-' and '.'")
        if num_shards is not None and num_shards < 1:
            raise ValueError(f"num_shards is {num_shards}; it is at least 1")
        if isinstance(sparse_features, str):
            raise TypeError(f"sparse_features are names, in a list: [{sparse_features!r}]")
        self.split = split
        self._taker: ExampleTaker | None = None
        self._generator = generator
        self._serializer = serializer
        self._path = os.fspath(path)
        self._total = total_examples
        self._sparse = tuple(sparse_features or ())
        self._compression = parse_compression(compression)
        self._num_shards = num_shards
        self._storage = storage
        self._storage_options = storage_options
        self._kwargs = {**gen_kwargs, "split": split}
        self._make_shuffler = partial(
            HashShuffler,
            split,
            memory_limit=memory_limit,
            temporary_folder=temporary_folder,
            on_duplicate=on_duplicate,
        )
        self._shuffler = self._make_shuffler()
        self._show_progress = progress
        self._description = Description(self._sparse)

    @property
    def current_examples(self) -> int:
        """Taken from the generator so far."""
        return 0 if self._taker is None else self._taker.taken

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
        self._taker = None
        try:
            with Progress(f"{self.split}: examples", self._total, show=self._show_progress) as progress:
                taker = self._taker = ExampleTaker(
                    self._shuffler,
                    self._description,
                    progress,
                    sparse_features=self._sparse,
                    flattens=self._serializer is None,
                    own_serializer=self._serializer not in (None, encode_example),
                )
                try:
                    await run(self._generator, self._kwargs, self._serializer or encode_example, taker)
                except Exception as error:
                    error.add_note(f"{self._shown}: after {taker.taken:,} examples; nothing was written")
                    raise
            if not self.current_examples:
                raise DatasetError(f"{self._shown}: the generator gave no example; nothing was written")
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
            raise RuntimeError(f"{self._shown}: nothing to write; cache_records comes first")
        try:
            await in_thread(shuffler.settle)
            async with dataset_at(self._dataset, storage=self._storage, storage_options=self._storage_options) as (
                folder,
                name,
            ):
                shard_info = await self._write(folder, name, shuffler)
        finally:
            await self._drop()
        return shard_info, shuffler.size

    async def save_shard_info(self, shard_info: ShardInfo) -> None:
        """Put these counts into ``shard_info.json``: they replace those of their splits, and other splits' are kept.

        `flush_records` has done it. Splits with a manifest have their counts from there.
        """
        async with dataset_at(self._dataset, storage=self._storage, storage_options=self._storage_options) as (
            folder,
            _,
        ):
            await update(folder, shard_info)

    def add_shape_fields(self, datum: Mapping[str, Any]) -> dict[str, Any]:
        """The features, with ``<name>_shape`` for each sparse feature of two axes or more; ``datum`` stays as it is."""
        return with_shapes(datum, self._sparse)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _dataset(self) -> str:
        return f"{self._path.rstrip('/')}/{self.split}" if self._path else self.split

    @property
    def _shown(self) -> str:
        return redact(self._dataset)

    async def _write(self, folder: Storage, name: str, shuffler: HashShuffler) -> ShardInfo:
        schema = self._description.schema()
        manifest = await load_manifest(folder, name, path=self._shown)
        listed = {entry.path for entry in manifest.shards} if manifest else set()
        # datum's own, in no manifest: what is deleted in the end must be a shard of this split, whatever the file says.
        its_own = re.compile(re.escape(name) + r"-\d{5,}-of-\d{5,}\.tfrecord")
        stale = [file for file in (await read_shard_info(folder)).get(name, ()) if its_own.fullmatch(file)]
        num_shards = self._num_shards or shard_count(shuffler.size, shuffler.records)
        with Progress(f"{self.split}: records", shuffler.records, show=self._show_progress) as progress:
            entries = await write_shards(
                folder,
                name,
                progress.counted(shuffler.batches()),
                records=shuffler.records,
                num_shards=num_shards,
                compression=self._compression,
                schema=schema.to_json() if schema else None,
                metadata={"split": name, "features": self._description.table()},
            )
        shard_info = {name: {entry.path: entry.records for entry in entries}}
        try:
            await update(folder, shard_info, name)
        except Exception as error:
            error.add_note(f"{self._shown} is written, and in its manifest; {SHARD_INFO} is not up to date")
            raise
        with anyio.move_on_after(_CLEAN_UP_SECONDS):
            for key in stale:
                if key in listed or key in shard_info[name]:
                    continue
                try:
                    await folder.delete(key)
                except Exception as error:
                    _log.warning("%s/%s was replaced, and could not be removed: %s", folder.root, key, error)
        return shard_info

    async def _drop(self) -> None:
        await surely_in_thread(self._shuffler.close)
        self._shuffler = self._make_shuffler()
