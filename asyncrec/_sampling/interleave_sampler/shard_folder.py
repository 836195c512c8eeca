"""`ShardFolder` finds the shards of an `asyncrec.InterleaveSampler` in a folder, by a pattern."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from os import PathLike
from typing import Any

from asyncrec._arguments import Size
from asyncrec._records.dataset_names import MANIFESTS, is_dataset
from asyncrec._records.reading.reader import OnCorrupt
from asyncrec._sampling.interleave.shard_inputs import Compression, ShardInput, ShardInputs
from asyncrec._sampling.interleave.stream import worker_share
from asyncrec._shards.manifest.names import maker_of, may_be_shard
from asyncrec._shards.ownership.listing import without_replaced
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._cached import cache_at, through
from asyncrec.storage._listing import is_pattern
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located, located_folder
from asyncrec.storage._url import join, redact, scheme_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFolder:
    """A folder of shards with the options for reading them, as passed to `asyncrec.InterleaveSampler`."""

    path: str
    pattern: str
    worker: tuple[int, int]
    compression: Compression
    on_corrupt: OnCorrupt
    max_record_bytes: int
    cache: str | PathLike[str] | None
    cache_bytes: Size
    storage: Storage | None
    storage_options: Mapping[str, Any] | None

    @property
    def display_path(self) -> str:
        """The path without secrets, for messages."""
        return redact(self.path)

    def inputs(self, shards: list[ShardInput]) -> ShardInputs:
        return ShardInputs(shards, self.compression, self.on_corrupt, self.max_record_bytes)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[list[str], ShardInputs]]:
        """Open the folder, and yield the sorted names of this worker's shards and the shards themselves.

        Raises:
            ObjectNotFoundError: no shard matches.
            ValueError: fewer shards match than there are workers.
        """
        place = located_folder(self.path, storage=self.storage, storage_options=self.storage_options)
        disk_cache = await cache_at(self.cache, self.cache_bytes)
        async with place as (opened, prefix):
            store = through(opened, disk_cache)
            found = await self._find(store, prefix)
            names = list(worker_share(list(found), self.worker))
            inputs = self.inputs([ShardInput(join(self.display_path, name), store, prefix + name) for name in names])
            for number, name in enumerate(names):
                inputs.know(number, found[name])
            yield names, inputs

    async def _find(self, store: Storage, prefix: str) -> dict[str, ObjectInfo]:
        """Return the matching shards by name, in ascending order.

        Raises:
            ObjectNotFoundError: no shard matches.
        """
        found = {}
        others = 0
        datasets = set()
        async for info in store.list_objects(prefix):
            name = info.key[len(prefix) :]
            if name.startswith(MANIFESTS):
                datasets.add(name.split("/")[1])
            if "/" in name or not may_be_shard(name):
                continue
            if fnmatchcase(name, self.pattern):
                found[name] = info
            else:
                others += 1
        if not found:
            await self._refuse_dataset()
            if is_pattern(self.path):
                folder, _, pattern = self.path.rpartition("/")
                raise ObjectNotFoundError(
                    f"{self.display_path}: this is a pattern, but the sampler takes a folder; pass "
                    f"{redact(folder) or '.'!r} and shard_suffix={pattern!r}"
                )
            if not others and not datasets:
                raise ObjectNotFoundError(
                    f"{self.display_path}: no shard matches shard_suffix={self.pattern!r}, because the folder does "
                    "not exist or is empty"
                )
            raise ObjectNotFoundError(
                f"{self.display_path}: no shard matches shard_suffix={self.pattern!r}; the folder has {others} "
                "other objects. Names that begin with '_' or '.' are never shards"
            )
        kept = await without_replaced(folder_at(store, prefix), list(found))
        found = {name: found[name] for name in kept}
        warn_of_several(
            self.display_path, datasets, found, one_alone=lambda name: f"shard_suffix={f'{escape(name)}-*.tfrecord'!r}"
        )
        return found

    async def _refuse_dataset(self) -> None:
        """Raise an error if the path is a data set rather than a folder.

        Raises:
            ObjectNotFoundError: the path is a data set. Other errors are suppressed, because the caller raises its own.
        """
        path = self.path.rstrip("/")
        if not path or path.endswith(":"):
            return  # a root has no parent folder
        try:
            async with located(path, storage=self.storage, storage_options=self.storage_options) as (store, key):
                if not await is_dataset(store, key):
                    return
        except Exception:  # `is_dataset` also suppresses errors
            return
        name = key.rpartition("/")[2]
        suffix = f"{escape(name)}-*.tfrecord"
        raise ObjectNotFoundError(
            f"{self.display_path}: {name!r} is a data set, but the sampler takes a folder: pass {folder_of(path)!r} "
            f"and shard_suffix={suffix!r}; or use open_dataset and ClassBalancedSampler, which read a data set"
        )


def folder_of(path: str) -> str:
    """Return the folder of a path, without secrets. A root keeps its slash.

    The folder is taken from the path rather than the key, because a name that is escaped in a ``file:`` URL is longer
    there than in the key. The slash before the name may be escaped too.
    """
    at, length = path.rfind("/"), 1
    if scheme_of(path).partition("+")[0] == "file" and (escaped := path.upper().rfind("%2F")) > at:
        at, length = escaped, 3
    if at < 0:
        return "."
    head = path[:at]
    if not head or head.endswith(("/", ":")):
        head = path[: at + length]
    return redact(head)


_log = logging.getLogger("asyncrec.sampling")

# The maximum number of data sets that a warning names.
_NAMED = 10


def warn_of_several(
    path: str, datasets: Iterable[str], shards: Collection[str], *, one_alone: Callable[[str], str]
) -> None:
    """Warn if the names of the shards belong to several data sets.

    Args:
        path: the path that was passed, for the message.
        datasets: the names of the folder's data sets that have a manifest.
        shards: the names of the shards that were found.
        one_alone: returns, for the message, the argument that selects only the data set with a given name.
    """
    mixed = [name for name in sorted(set(datasets)) if any(maker_of(name, shard) for shard in shards)]
    if len(mixed) > 1:
        _log.warning(
            "%s: the shards of %d data sets are read together: %s; to read only one of them, pass %s",
            path,
            len(mixed),
            ", ".join(mixed[:_NAMED]) + (", ..." if len(mixed) > _NAMED else ""),
            one_alone(mixed[0]),
            extra={"path": path, "datasets": len(mixed)},
        )
