"""`from_folder` makes train, eval and test splits from files in folders that are named after their labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.splitting import weights_of
from asyncrec._framing.compression import Compression
from asyncrec._shards.manifest.names import is_data
from asyncrec.errors import ArgumentValueError, DatasetError, ObjectNotFoundError
from asyncrec.example._kinds import FixedLen
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact
from asyncrec.tools._parameters import Progress
from asyncrec.tools._same_object import path_inside
from asyncrec.tools._splits import ExampleParts, SplitOptions, SplitsReport, write_splits


async def from_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ratios: float | Sequence[float] = 0.8,
    seed: int = 0,
    max_shard_bytes: Size | None = None,
    compression: Compression = "",
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SplitsReport:
    """Make train, eval and test splits from files in folders named after labels (``cats/1.png``, ``dogs/2.png``).

    A record has ``data`` (the contents of the file), ``label`` (the position of its folder's name in sorted order) and
    ``path`` (relative to ``source``). Names that begin with ``_`` or ``.`` are ignored. Each split gets its share of
    each label.

    Raises:
        ValueError: the target is inside the source.
        ObjectNotFoundError: the folder does not exist.
        DatasetError: no subfolder contains files, or a split would get no file.
    """
    report = SplitsReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    options = SplitOptions(
        target, weights_of(ratios), seed, max_shard_bytes, compression, target_storage, target_storage_options
    )
    async with located(source, storage=storage, storage_options=storage_options) as (store, key):
        async with located(target, storage=target_storage, storage_options=options.storage_options) as (other, into):
            inside = await path_inside(store, key, other, into)
        if inside and is_data(inside):
            raise ArgumentValueError(
                f"{report.target}: the target is inside the source {report.source}, so a second call would take the "
                "shards for files of a label; write the splits to another folder"
            )
        prefix = f"{key.rstrip('/')}/" if key else ""
        names = [info.key[len(prefix) :] async for info in store.list_objects(prefix)]
        files = await in_thread(_Files, prefix, names)
        if not names:
            raise ObjectNotFoundError(f"{report.source}: the folder does not exist or is empty")
        if not files.strata:
            raise DatasetError(
                f"{report.source}: no subfolder contains files; put the files of each label in a subfolder with the "
                "label's name"
            )
        await write_splits(files, store, options, report, progress)
    return report


class _Files:
    """The files in the label folders below a prefix. Other ``names`` are ignored. The constructor blocks."""

    schema = Schema({"data": FixedLen((), "bytes"), "label": FixedLen((), "int64"), "path": FixedLen((), "bytes")})

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        self._prefix = prefix
        self._paths = [name for name in names if "/" in name and is_data(name)]
        self.strata = [path.partition("/")[0] for path in self._paths]
        self.notes: list[str] = []
        self.key: str | None = None
        self.labels = sorted(set(self.strata))
        self._numbers = {name: number for number, name in enumerate(self.labels)}

    def parts(self, number: int) -> ExampleParts:
        path = self._paths[number]
        return ExampleParts({"label": self._numbers[self.strata[number]], "path": path}, {"data": self._prefix + path})
