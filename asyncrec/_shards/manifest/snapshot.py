"""The manifest of a data set is read, from any store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.manifest.manifest import Manifest, merge_segments
from asyncrec._shards.manifest.names import CLOSED, MANIFESTS, check_relative, is_segment, manifest_prefix
from asyncrec._shards.manifest.segment import MAX_SEGMENT_BYTES, Segment, parse_segment
from asyncrec.errors import ArgumentValueError, ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._patterns import is_pattern
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact

__all__ = [
    "dataset_at",
    "dataset_names",
    "load_manifest",
    "load_manifests",
    "load_segments",
    "manifest_of",
    "merged",
    "read_manifest",
]


async def read_manifest(
    path: str | PathLike[str],
    at: str | datetime | None = None,
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Manifest:
    """Read the manifest of the data set at ``path``, a folder and a name such as ``"s3://crawl/2026/pages"``.

    ``at`` asks for an earlier state: a time, or the `Manifest.id` of a snapshot.

    Raises:
        ObjectNotFoundError: there is no manifest.
        ManifestError: a segment cannot be read, or the data set never had the state with this id.
    """
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        manifest = await load_manifest(folder, name, path=redact(str(path)), at=at)
    if manifest is None:
        raise ObjectNotFoundError(
            f"{redact(str(path))}: no manifest; a data set's path is its folder and its name, without the shard numbers"
        )
    return manifest


@asynccontextmanager
async def dataset_at(
    path: str | PathLike[str],
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
    allow_pattern: bool = False,
) -> AsyncIterator[tuple[Storage, str]]:
    """Open the folder of a data set, as a storage; the context also gives the data set's name.

    Raises:
        ValueError: the path has no name, or one with a character that patterns use.
    """
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        folder, _, name = key.rpartition("/")
        if not allow_pattern:
            _check_name(name, redact(str(path)))
        yield (PrefixedStorage(store, folder + "/") if folder else store), name


def _check_name(name: str, path: str) -> None:
    if not name or name[0] in "_." or is_pattern(name):
        raise ArgumentValueError(
            f"{path}: a data set's path ends in its name (as 'pages' in 's3://crawl/2026/pages'), "
            "which begins with neither '_' nor '.' and is no pattern"
        )
    try:
        check_relative(f"{name}-0.tfrecord")  # as its manifest will name its shards
    except ValueError as error:
        raise ArgumentValueError(
            f"{path}: no manifest could name the shards of a data set of this name: {error}"
        ) from error


async def load_manifest(folder: Storage, name: str, *, path: str, at: str | datetime | None = None) -> Manifest | None:
    """Load the snapshot of a data set; `None` where nothing was ever committed to it."""
    return await manifest_of(path, await load_segments(folder, name), at=at)


async def manifest_of(path: str, segments: list[Segment], *, at: str | datetime | None = None) -> Manifest | None:
    """Merge segments into a snapshot; `None` where none of them ever committed anything."""
    if all(segment.abandoned and not segment.add for segment in segments):
        return None
    return await merged(path, segments, at=at)


async def merged(path: str, segments: list[Segment], *, at: str | datetime | None = None) -> Manifest:
    """Call `merge_segments` in a worker thread: it takes some microseconds for each shard."""
    return await in_thread(partial(merge_segments, path, segments, at=at))


async def dataset_names(folder: Storage) -> list[str]:
    """The names of all data sets in a folder that have a manifest, ascending."""
    return sorted({info.key.split("/")[1] async for info in folder.list_objects(MANIFESTS)})


async def load_manifests(folder: Storage) -> dict[str, Manifest]:
    """The manifests of all data sets in a folder, by name, ascending."""
    loaded = {
        name: await load_manifest(folder, name, path=join(folder.root, name)) for name in await dataset_names(folder)
    }
    return {name: manifest for name, manifest in loaded.items() if manifest is not None}


async def load_segments(folder: Storage, name: str) -> list[Segment]:
    """Load the segments of all commits of a data set; for a closed writer, the closing one stands for all."""
    prefix = manifest_prefix(name)
    found = [info.key async for info in folder.list_objects(prefix) if is_segment(info.key)]
    closing = {key.rpartition(CLOSED)[0]: key for key in found if key.rpartition(".")[0].endswith(CLOSED)}
    # A closing segment repeats what its writer's others say.
    single = {key: key.rpartition("-")[0] for key in found if key not in closing.values()}
    segments = await _read(folder, [*closing.values(), *(key for key, of in single.items() if of not in closing)])
    # A tombstone does not: whoever put it there could not know what was still being committed.
    gone = {of for of, segment in zip(closing, segments, strict=False) if segment.abandoned}
    return segments + await _read(folder, [key for key, of in single.items() if of in gone])


async def _read(folder: Storage, keys: list[str]) -> list[Segment]:
    async def content(key: str) -> bytes:
        try:
            return await folder.get(key, max_bytes=MAX_SEGMENT_BYTES)
        except ValueError as error:
            raise ManifestError(f"{key}: too large to be a manifest segment: {error}") from error

    def parse(contents: list[bytes]) -> list[Segment]:
        return [parse_segment(content, name=key) for key, content in zip(keys, contents, strict=True)]

    return await in_thread(parse, await for_each(content, keys)) if keys else []
