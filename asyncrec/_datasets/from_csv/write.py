"""Write the rows of a CSV file, or the examples in a dict, as train, eval and test splits, like TFRecorder's factory.

    save_directory_path/train/train-<writer>-000000.tfrecord ...    with _manifest/ and _index/ next to them
    save_directory_path/train/examples.csv                          a row for each example in the split
    save_directory_path/eval/...  save_directory_path/test/...

Once all splits are written, they are committed and replace existing splits (`asyncrec._datasets.from_csv.splitting`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import anyio

from asyncrec._arguments import Size
from asyncrec._concurrency.map import ordered_map
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.csv_rows import CsvRows
from asyncrec._datasets.from_csv.example_maker import Made, Origin, make
from asyncrec._datasets.from_csv.splitting import NAMES, SplitPlan, deal, open_splits, weights_of
from asyncrec._datasets.progress import Progress
from asyncrec._framing.compression import Compression
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from asyncrec.example._declared import DeclaredExample
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import is_pattern
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact, scheme_of

_log = logging.getLogger("asyncrec.datasets")

# TFRecorder's limit, which suits toy data sets. For training from an object store, shards usually have at least 100 MB.
_MAX_SHARD_BYTES = 1_000_000
# Loading mostly waits for a disk. Eight threads keep the disk busy, but hold eight examples in memory.
_CONCURRENCY = 8
Path = str | PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSplits:
    """The result of `write_splits_from_csv` and `write_folds`.

    Attributes:
        examples: for each split, the number of rows in its ``examples.csv``.
        records: for each split, the number of records. If ``split`` returned several parts, a split has more records
            than examples.
        ignored: the number of examples skipped by `IgnoreExample`, or because ``split`` returned no parts. Each skipped
            example is logged with the reason.
        manifests: the manifest of each split.
    """

    examples: Mapping[str, int]
    records: Mapping[str, int]
    ignored: int
    manifests: Mapping[str, Manifest]


async def write_splits_from_csv(
    save_directory_path: Path,
    example_class: type[DeclaredExample],
    examples_list_filepath: Path,
    *,
    ratios: float | Sequence[float] = 0.8,
    seed: int = 0,
    stratify_by: int | Callable[[list[str]], Hashable] | None = None,
    max_shard_bytes: Size = _MAX_SHARD_BYTES,
    compression: Compression = "",
    concurrency: int = _CONCURRENCY,
    encoding: str = "utf-8",
    progress: bool | None = None,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> WrittenSplits:
    """Make an example from every row of a CSV file, and write the examples as train, eval and test splits.

    Each split is a data set in a folder of its own, ``<save_directory_path>/train`` and so on, with a file
    ``examples.csv`` that lists its examples. Once all splits are written, they are committed and replace existing
    splits.

    For each row, ``from_csv_row``, ``load``, ``to_csv_row`` and ``split`` are called, then ``encode`` and ``release``
    of each part. ``kwargs`` are passed to ``from_csv_row``, ``load`` and ``split``. Async methods are awaited. Other
    methods run in worker threads, ``concurrency`` examples at a time, so objects that they share must be thread-safe.
    The order of the records depends only on ``seed``. An example is released as soon as its records are made.

    Args:
        save_directory_path: a folder, or a URL of any installed backend.
        example_class: a `DeclaredExample`.
        examples_list_filepath: the CSV file, local or a URL, without a header. It is held in memory.
        ratios: the share of the rows for train, with the rest for eval (0.8 by default); or two ratios; or three, for
            train, eval and test. Of three ratios, the ratio of eval or test may be 0. That split is then not made.
        seed: the seed of the shuffle. The same rows and seed produce the same splits in the same order.
        stratify_by: a column, counted from 0, or a function of the row. Each split gets its share of every value.
        max_shard_bytes: the maximum size of a shard's file; 1 MB by default, as in TFRecorder. It is exceeded only for
            a larger single record or, with compression, by at most the compressed size of 1 MiB of records.
        compression: the compression of the shards.
        concurrency: the number of examples that are processed, and therefore held in memory, at once.
        encoding: the encoding of the CSV file and of ``examples.csv``.
        progress: whether to show a progress bar; `None` shows a bar on a terminal if rich is installed.
        storage: an open `Storage`, which is used but not closed. Both paths are then keys in it.
        storage_options: options for the backend, if this call opens the storage; also for the CSV file, if its scheme
            is the same.
        kwargs: arguments for the methods of ``example_class``.

    Raises:
        DatasetError: a method raised an exception (the message names the file, line and row); or the file has another
            encoding or no rows; or a split has no rows; or a split of an earlier run would remain beside the new ones.
        StorageError: a store failed. No split has changed, unless a note on the error names changed splits.
        ValueError: the ratios do not sum to 1, or another option is out of range.
        TypeError: ``example_class`` declares no field.
    """
    weights = weights_of(ratios)
    display_path = redact(str(examples_list_filepath))
    same_scheme = scheme_of(examples_list_filepath) == scheme_of(save_directory_path)
    options = storage_options if same_scheme else None
    async with located(examples_list_filepath, storage=storage, storage_options=options) as (store, key):
        content = await store.get(key)
    rows = await in_thread(partial(CsvRows, content, path=display_path, encoding=encoding))
    del content
    dealt = await in_thread(partial(_deal, rows, weights, stratify_by, seed))
    for name, found in dealt.items():
        if not found:
            raise DatasetError(
                f"{display_path}: {len(rows)} rows are too few for ratios={ratios}: the split {name!r} would get no "
                "example; add rows or change the ratios"
            )

    def origins(indexes: list[int]) -> Iterator[Origin]:
        return (_CsvOrigin(example_class, rows, index) for index in indexes)

    writing = _Writing(save_directory_path, max_shard_bytes, compression, encoding, storage, storage_options)
    making = _Making(example_class, kwargs, concurrency, encoding, progress)
    return await _write(
        writing,
        making,
        {name: origins(indexes) for name, indexes in dealt.items()},
        total=len(rows),
        other_splits=set(NAMES) - weights.keys(),
        metadata={
            "seed": seed,
            "ratios": [weights.get(name, 0) for name in NAMES if name in weights or name == "eval"],
        },
    )


async def write_folds(
    save_directory_path: Path,
    folds: Mapping[str, Sequence[DeclaredExample]],
    *,
    max_shard_bytes: Size = _MAX_SHARD_BYTES,
    compression: Compression = "",
    concurrency: int = _CONCURRENCY,
    encoding: str = "utf-8",
    progress: bool | None = None,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> WrittenSplits:
    """Write existing examples, not yet loaded, as splits with any names, such as folds: ``{"fold_0": [...], ...}``.

    Each split keeps the order of its examples. Otherwise, this works like `write_splits_from_csv`. The class must
    define ``to_csv_row``.

    Raises:
        DatasetError: as for `write_splits_from_csv`; if a method raises, the message names the fold and the example's
            number in the fold.
        ValueError: ``folds`` is empty, or a name is not valid for a folder.
        TypeError: the examples are of different classes, or their class declares no field.
    """
    kinds = {type(example) for examples in folds.values() for example in examples}
    for name, examples in folds.items():
        if not examples:
            raise DatasetError(f"the fold {name!r} has no examples; pass at least one")
        if not name or name[0] in "_." or "/" in name or is_pattern(name):
            raise ArgumentValueError(
                f"{name!r}: the name of a fold must not contain / * ? [ or begin with '_' or '.'; rename the fold"
            )
    if not folds:
        raise ArgumentValueError("there are no folds; pass a dict that maps each name to a list of examples")
    if len(kinds) > 1 or not issubclass(kind := kinds.pop(), DeclaredExample):
        raise ArgumentTypeError("the examples of all folds must be instances of the same subclass of DeclaredExample")

    def origins(name: str) -> Iterator[Origin]:
        return (_GivenOrigin(example, f"{name!r}, example {number}") for number, example in enumerate(folds[name]))

    writing = _Writing(save_directory_path, max_shard_bytes, compression, encoding, storage, storage_options)
    making = _Making(kind, kwargs, concurrency, encoding, progress)
    splits = {name: origins(name) for name in folds}
    return await _write(writing, making, splits, total=sum(map(len, folds.values())), other_splits=set(), metadata={})


class _Writing(NamedTuple):
    """The folder to which splits are written, and the options for writing."""

    path: Path
    max_shard_bytes: Size
    compression: Compression
    encoding: str
    storage: Storage | None
    storage_options: dict[str, Any] | None


class _Making(NamedTuple):
    """The parameters for making records, such as the class of the examples and the arguments of its methods."""

    kind: type[DeclaredExample]
    kwargs: Mapping[str, Any]
    concurrency: int
    encoding: str
    progress: bool | None


@dataclass(frozen=True, slots=True)
class _CsvOrigin:
    kind: type[DeclaredExample]
    rows: CsvRows
    index: int

    def example(self, kwargs: Mapping[str, Any]) -> Any:
        return self.kind.from_csv_row(self.rows[self.index], **kwargs)

    def row(self) -> list[str]:
        return self.rows[self.index]

    def where(self) -> str:
        return self.rows.where(self.index)

    def guess(self) -> str:
        return (
            ""
            if self.index
            else "If this row is a header, remove it: every row is read as an example, including the first"
        )


@dataclass(frozen=True, slots=True)
class _GivenOrigin:
    given: DeclaredExample
    place: str

    def example(self, kwargs: Mapping[str, Any]) -> DeclaredExample:
        return self.given

    def row(self) -> None:
        return None

    def where(self) -> str:
        return self.place

    def guess(self) -> str:
        return ""


async def _write(
    writing: _Writing,
    making: _Making,
    splits: Mapping[str, Iterable[Origin]],
    *,
    total: int,
    other_splits: set[str],
    metadata: Mapping[str, Any],
) -> WrittenSplits:
    """Make and write the examples of all splits. Raise DatasetError if any of ``other_splits`` exists."""
    kind, encoding = making.kind, making.encoding
    if not kind.fields():
        raise ArgumentTypeError(f"{kind.__name__} has no field declared with @tfrecordable; declare at least one")
    if making.concurrency < 1:
        raise ArgumentValueError(f"concurrency must be at least 1, not {making.concurrency}")
    ignored = 0
    limiter = anyio.CapacityLimiter(making.concurrency)
    plans = [
        SplitPlan(name, name, kind.schema(), {"split": name, "example_class": kind.__name__, **metadata})
        for name in splits
    ]
    async with located(writing.path, storage=writing.storage, storage_options=writing.storage_options) as (store, key):
        folder = folder_at(store, key)
        await _refuse_others(folder, other_splits)
        async with open_splits(
            folder,
            plans,
            path=redact(str(writing.path)).rstrip("/"),
            max_shard_bytes=writing.max_shard_bytes,
            compression=writing.compression,
            encoding=encoding,
        ) as writers:
            open_ = dict(zip(splits, writers, strict=True))
            with Progress("examples", total, show=making.progress) as bar:

                async def work(job: tuple[str, Origin]) -> Made:
                    return await make(job[1], kind, making.kwargs, encoding=encoding, limiter=limiter)

                async def use(job: tuple[str, Origin], made: Made) -> None:
                    nonlocal ignored
                    bar.advance()
                    if made.ignored is None:
                        await open_[job[0]].take(made.records, made.csv)
                        return
                    ignored += 1
                    _log.info("%s: example skipped: %s", job[1].where(), made.ignored, extra={"path": job[1].where()})

                jobs = ((name, origin) for name, origins in splits.items() for origin in origins)
                await ordered_map(jobs, work, use, concurrency=making.concurrency)
            for name, split in open_.items():
                if not split.records:
                    raise DatasetError(
                        f"{folder.root}: every example of the split {name!r} was skipped (IgnoreExample), so "
                        "nothing was written"
                    )
    return WrittenSplits(
        examples={name: split.examples for name, split in open_.items()},
        records={name: split.records for name, split in open_.items()},
        ignored=ignored,
        manifests={name: split.manifest for name, split in open_.items()},
    )


async def _refuse_others(folder: Storage, names: set[str]) -> None:
    """Raise DatasetError if another split exists, because the new splits may contain its examples."""
    for name in sorted(names):
        manifest = await load_manifest(folder_at(folder, name), name, path=name)
        if manifest is not None and manifest.shards:
            raise DatasetError(
                f"{folder.root}/{name} holds a split of an earlier partition that these ratios do not write, so its "
                "examples would be in two splits. Remove it, write to another folder, or pass three ratios"
            )


def _deal(
    rows: CsvRows, weights: Mapping[str, float], stratify_by: int | Callable[[list[str]], Hashable] | None, seed: int
) -> dict[str, list[int]]:
    strata: list[Hashable] = [None] * len(rows)
    if stratify_by is not None:
        stratum = stratify_by if callable(stratify_by) else (lambda row: row[stratify_by])
        for index in range(len(rows)):
            try:
                strata[index] = stratum(rows[index])
                hash(strata[index])
            except Exception as error:
                raise DatasetError(f"{rows.where(index)}: stratify_by={stratify_by!r}: {error}") from error
    return deal(strata, weights, seed=seed)
