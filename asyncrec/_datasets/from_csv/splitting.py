"""`deal` assigns examples to splits. `open_splits` writes the shards and ``examples.csv`` of splits, and commits them.

Existing splits do not change until all data has been sent to the store. The new splits are then committed one by one,
and each replaces the existing split of that name. If the store fails between two of these commits, some splits are new
and others are old, but each is intact, and a note on the error names the new ones.
"""

from __future__ import annotations

import codecs
import math
import random
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size
from asyncrec._framing.compression import Compression
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec._shards.writing.writer import ShardedWriter
from asyncrec.errors import ArgumentValueError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._url import join

EXAMPLES_CSV = "examples.csv"
# The maximum size of the records waiting for the store. Splits are written one at a time, so this limits the entire
# job. It is enough for several parts of an upload to any cloud. A higher limit would not be faster, because the time to
# write small shards depends on the store's latency rather than on its bandwidth.
_MEMORY_LIMIT = 64 << 20
# Rows of examples.csv are sent to the store in blocks of this many characters.
_CSV_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Where and how to write one split.

    Attributes:
        folder: the key of the split's folder; ``""`` is the root of the storage.
        name: the name of the data set in the folder.
        schema: the schema of the records, or `None`.
        metadata: the metadata for the manifest.
        key_feature: the feature that contains the keys of the records; `None` if they have no keys.
    """

    folder: str
    name: str
    schema: Schema | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key_feature: str | None = None


class SplitWriter:
    """Writes the records and the ``examples.csv`` of one split. The rows of that file are written in blocks.

    Attributes:
        examples, records: the number of examples and of records that have been written.
        manifest: the manifest of the split, set once all splits are committed.
    """

    manifest: Manifest

    def __init__(self, writer: ShardedWriter, csv: ChunkWriter | None, encoding: str) -> None:
        self.examples = 0
        self.records = 0
        self._writer = writer
        self._csv = csv
        self._encoder = codecs.getincrementalencoder(encoding)()  # one per file, so UTF-16 has one byte order mark
        self._lines: list[str] = []
        self._size = 0

    async def take(self, records: Sequence[bytes], line: str) -> None:
        """Write one example's records, and its line of CSV."""
        await self._writer.write_many(records)
        self.examples += 1
        self.records += len(records)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _CSV_BLOCK:
            await self._hand_on()

    async def send(self) -> None:
        """Send all data to the store, so that an error such as a full disk is raised before any split is committed."""
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
    """Yield a writer for each plan, in order. On exit without an error, commit all splits; otherwise, commit none.

    ``path`` is the display path of the store. If ``csv`` is false, no ``examples.csv`` is written, and an existing file
    is kept.

    Raises:
        StorageError: a store failed. No split has changed, unless a note on the error names changed splits.
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
            assert manifest is not None, "the split was just committed"
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
    """Open the writer of a split. On exit without an error, commit the split, then publish its ``examples.csv``."""
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


NAMES = ("train", "eval", "test")
# The tolerance for the sum of the ratios: much larger than the rounding error of three floats, and much smaller than a
# mistake.
_ROUNDING = 1e-6


def weights_of(ratios: float | Sequence[float]) -> dict[str, float]:
    """Return the share of each split. One or two ratios mean train and eval; three mean train, eval and test.

    A single number is the share of train, and eval gets the rest. If there are three ratios, the ratio of eval or test
    may be 0, and that split is not made.

    Raises:
        ValueError: any other ratio is not greater than 0, or the sum differs from 1 by more than rounding.
    """
    given = [ratios, 1 - ratios] if isinstance(ratios, int | float) else list(ratios)
    made = {name: ratio for name, ratio in zip(NAMES, given, strict=False) if ratio != 0 or len(given) == 2}
    if len(given) not in (2, 3) or "train" not in made or not all(0 < ratio < 1 for ratio in made.values()):
        raise ArgumentValueError(
            f"ratios={ratios!r}: pass one ratio between 0 and 1 (the share of train; eval gets the rest), or two or "
            "three ratios greater than 0; of three, the ratio of eval or test may be 0, which omits that split"
        )
    if not math.isclose(math.fsum(given), 1, abs_tol=_ROUNDING):
        raise ArgumentValueError(f"ratios={ratios!r} sum to {math.fsum(given):g}; they must sum to 1")
    return made


def deal(strata: Sequence[Hashable], weights: Mapping[str, float], *, seed: int) -> dict[str, list[int]]:
    """Return the row numbers of each split, in shuffled order. Every row is in exactly one split.

    ``strata[i]`` is the stratum of row ``i``. The same seed and strata produce the same splits on every machine and
    with every version of Python.

    Rows are dealt one stratum after another, and each row goes to the split that is furthest below its share.
    Each split therefore gets its share of every stratum, and of all rows, to within two rows, even if strata are small.
    """
    order = list(range(len(strata)))
    random.Random(seed).shuffle(order)
    ranks = {stratum: rank for rank, stratum in enumerate(dict.fromkeys(strata))}
    names = list(weights)
    shares = list(weights.values())
    counts = [0] * len(names)
    split_of = [0] * len(order)
    for dealt, row in enumerate(sorted(order, key=lambda row: ranks[strata[row]]), 1):
        lacks = [share * dealt - count for share, count in zip(shares, counts, strict=True)]
        split = lacks.index(max(lacks))
        counts[split] += 1
        split_of[row] = split
    splits: dict[str, list[int]] = {name: [] for name in names}
    for row in order:
        splits[names[split_of[row]]].append(row)
    return splits
