"""`write_splits` distributes examples over train, eval and test splits, and writes them.

`from_csv` and `from_folder` use it.

    target/train-<writer>-000000.tfrecord ...   with _manifest/train/ and _index/, the data set target/train
    target/eval-...   target/test-...

Existing data sets with these names are replaced in the last step. The manifest of each split contains the schema and,
under ``labels``, the names of the classes. The label of a record is the position of its class in that list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from asyncrec._arguments import Size
from asyncrec._concurrency.map import ordered_map
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.splitting import SplitPlan, deal, open_splits
from asyncrec._framing.compression import Compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec.errors import DatasetError
from asyncrec.example._codec import encode_example
from asyncrec.example._encoding import is_large
from asyncrec.example._kinds import FixedLen, VarLen
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.tools._parameters import Advance, Progress
from asyncrec.tools._report_json import json_of

# The number of files to read into memory at once, which hides the latency of a disk, and most of a store's latency.
_CONCURRENT = 8


@dataclass(slots=True, kw_only=True)
class SplitsReport:
    """The result of `from_csv` or `from_folder`.

    Attributes:
        records: the number of records in each split.
        labels: the names of the classes, in the order of their numbers.
        features: the names of the features, sorted.
        types: the type of each feature: ``"int64"``, ``"float32"`` or ``"bytes"``.
        notes: warnings about possible mistakes, such as a column that is text because of a single cell.
    """

    source: str
    target: str
    records: dict[str, int] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "source target records labels features types notes")


@dataclass(frozen=True, slots=True)
class ExampleParts:
    """The parts of an example.

    Attributes:
        features: the features with known values.
        files: for each other feature, the key of the file whose contents become its value.
    """

    features: Mapping[str, Any]
    files: Mapping[str, str]


class ExampleSource(Protocol):
    """Numbered examples. They are kept in memory, except for the contents of the files that they refer to.

    Attributes:
        labels: the names of the classes, in the order of their numbers.
        key: the feature with the keys of the records; `None` if records have no keys.
        notes: the ``notes`` of the report.
        strata: the stratum (such as the class) of each example. Every split gets its share of each stratum. Reading
            this attribute blocks.
        schema: the schema of the records.
    """

    labels: list[str]
    key: str | None
    notes: list[str]

    @property
    def strata(self) -> Sequence[str | None]: ...

    @property
    def schema(self) -> Schema: ...

    def parts(self, number: int) -> ExampleParts:
        """Return the parts of the example with this number."""


class SplitOptions(NamedTuple):
    """The parameters shared by `from_csv` and `from_folder`, where they are documented."""

    target: str | os.PathLike[str]
    weights: Mapping[str, float]
    seed: int
    max_shard_bytes: Size | None
    compression: Compression
    storage: Storage | None
    storage_options: Mapping[str, Any] | None


async def write_splits(
    source: ExampleSource, files: Storage, options: SplitOptions, report: SplitsReport, progress: Progress
) -> None:
    """Distribute the examples of a source over the splits, write them, and complete the report.

    Args:
        files: the storage of the files that the examples refer to.

    Raises:
        DatasetError: a split would be empty.
        ObjectNotFoundError: a file does not exist; no data set is changed.
    """
    report.labels = source.labels
    report.notes = source.notes
    count, dealt = await in_thread(_dealt, source, options)
    empty = [name for name, numbers in dealt.items() if not numbers]
    if empty:
        raise DatasetError(
            f"{report.source}: {count:,} examples are too few, because the split {empty[0]!r} would be empty; add "
            "examples or change the ratios"
        )
    schema = source.schema
    report.features = sorted(schema.features)
    report.types = {
        name: entry.dtype for name, entry in schema.features.items() if isinstance(entry, FixedLen | VarLen)
    }
    said = {"labels": report.labels, "seed": options.seed, "source": report.source}
    plans = [SplitPlan("", name, schema, {"split": name, **said}, source.key) for name in dealt]
    target = located(options.target, storage=options.storage, storage_options=options.storage_options)
    async with (
        target as (store, key),
        open_splits(
            folder_at(store, key),
            plans,
            path=report.target,
            max_shard_bytes=options.max_shard_bytes,
            compression=options.compression,
            csv=False,
        ) as opened,
    ):
        writers = dict(zip(dealt, opened, strict=True))
        advance = Advance(progress, count)

        async def make(item: tuple[str, int]) -> bytes:
            parts = source.parts(item[1])
            features = dict(parts.features)
            for name, file in parts.files.items():
                features[name] = await files.get(file, max_bytes=MAX_RECORD_BYTES)
            encode = partial(encode_example, features, narrow=True)
            return await in_thread(encode) if is_large(features) else encode()

        async def write(item: tuple[str, int], record: bytes) -> None:
            await writers[item[0]].take([record], "")
            advance(1)

        items = ((name, number) for name, numbers in dealt.items() for number in numbers)
        await ordered_map(items, make, write, concurrency=_CONCURRENT)
    report.records = {name: len(numbers) for name, numbers in dealt.items()}


def _dealt(source: ExampleSource, options: SplitOptions) -> tuple[int, dict[str, list[int]]]:
    """Return the total number of examples, and the numbers of the examples in each split. Blocks."""
    strata = source.strata
    return len(strata), deal(strata, options.weights, seed=options.seed)
