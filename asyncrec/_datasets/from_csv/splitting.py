"""`open_splits` writes several splits as one: shards and ``examples.csv`` in a folder each, all committed at the end.

Existing splits are replaced, and only by the last step: they do not change before everything has been handed to the
store. Then the splits are committed one by one. A store that fails between two of those commits leaves some splits new
and some old, each intact, and the error's note says which are new.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size
from asyncrec._framing.compression import Compression
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec._shards.writing.writer import ShardedWriter
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._url import join

EXAMPLES_CSV = "examples.csv"
# Of records that wait for the store; a split at a time is written, so it is the job's. More would not make it faster:
# small shards are slow by the store's answers, not by its bandwidth. It holds some parts of any cloud's upload.
_MEMORY_LIMIT = 64 << 20
# Rows of examples.csv are handed to the store in blocks of this many characters.
_CSV_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """One split that is to be written.

    Attributes:
        folder: a key; ``""`` is the storage's root.
        name: of the data set in it.
        schema: of its records, if there is one.
        metadata: for its manifest.
        key_feature: of the schema, which holds the keys of the records, if they have any.
    """

    folder: str
    name: str
    schema: Schema | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key_feature: str | None = None


class SplitWriter:
    """A split being written: its records, and its rows of ``examples.csv``, gathered in blocks.

    Attributes:
        examples, records: taken so far.
        manifest: that of the split, once all splits are committed.
    """

    manifest: Manifest

    def __init__(self, writer: ShardedWriter, csv: ChunkWriter | None, encoding: str) -> None:
        self.examples = 0
        self.records = 0
        self._writer = writer
        self._csv = csv
        self._encoder = codecs.getincrementalencoder(encoding)()  # one, so that UTF-16 has its mark once
        self._lines: list[str] = []
        self._size = 0

    async def take(self, records: Sequence[bytes], line: str) -> None:
        """Take the records of one example, and its line of CSV."""
        await self._writer.write_many(records)
        self.examples += 1
        self.records += len(records)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _CSV_BLOCK:
            await self._hand_on()

    async def send(self) -> None:
        """Hand everything to the store, so that a full disk shows before anything is committed."""
        await self._hand_on(final=True)
        if self._csv is not None:
            await self._csv.finish()
        await self._writer.flush()

    async def _hand_on(self, final: bool = False) -> None:
        data = self._encoder.encode("".join(self._lines), final)
        self._lines, self._size = [], 0
        if data and self._csv is not None:
            await self._csv.write([data])


@asynccontextmanager
async def open_splits(
    store: Storage,
    plans: Sequence[SplitPlan],
    *,
    path: str,
    max_shard_bytes: Size | None,
    compression: Compression = "",
    encoding: str = "utf-8",
    csv: bool = True,
) -> AsyncIterator[list[SplitWriter]]:
    """Yield a writer for each plan, in their order. On a clean exit all splits are committed, otherwise none.

    ``path`` is the store's name in the manifests. Without ``csv`` there is no ``examples.csv``, and an existing one
    stays.

    Raises:
        StorageError: a store failed. Nothing is changed, unless a note says otherwise.
    """
    committed: list[str] = []
    try:
        async with AsyncExitStack() as stack:
            writers = [
                await stack.enter_async_context(
                    _open_split(
                        store,
                        plan,
                        encoding if csv else None,
                        committed,
                        max_shard_bytes=max_shard_bytes,
                        compression=compression,
                    )
                )
                for plan in plans
            ]
            yield writers
            for writer in writers:
                await writer.send()
        for writer, plan in zip(writers, plans, strict=True):
            folder = folder_at(store, plan.folder)
            manifest = await load_manifest(folder, plan.name, path=join(join(path, plan.folder), plan.name))
            assert manifest is not None, "it was just committed"
            writer.manifest = manifest
    except BaseException as error:
        if committed:
            error.add_note(
                f"{store.root}: {', '.join(committed)} had already been committed and replaced the earlier splits"
            )
        raise


@asynccontextmanager
async def _open_split(
    store: Storage, plan: SplitPlan, encoding: str | None, committed: list[str], **options: Any
) -> AsyncIterator[SplitWriter]:
    """On a clean exit, commit the split and then publish its ``examples.csv``."""
    async with AsyncExitStack() as stack:
        csv = None
        if encoding is not None:
            csv = ChunkWriter(await stack.enter_async_context(store.open_sink(join(plan.folder, EXAMPLES_CSV))))
        async with open_sharded_writer(
            join(plan.folder, plan.name),
            mode="replace",
            memory_limit=_MEMORY_LIMIT,
            storage=store,
            schema=plan.schema,
            metadata=plan.metadata,
            key_feature=plan.key_feature,
            **options,
        ) as writer:
            yield SplitWriter(writer, csv, encoding or "utf-8")
        committed.append(plan.folder or plan.name)
