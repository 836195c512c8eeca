"""`snapshot_in` finds the data set at a path, the only data set in a folder, or shards that no manifest lists.

`scan_manifest` makes a manifest for these shards, from their indexes or by reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import detect_compression
from asyncrec._framing.frames import HEADER_BYTES, MAX_RECORD_BYTES
from asyncrec._sampling.interleave_sampler.shard_folder import warn_of_several
from asyncrec._sampling.random_access.indexes import make_index, read_index
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._sampling.shard_versions import with_version
from asyncrec._shards.manifest.manifest import Manifest, merge_segments
from asyncrec._shards.manifest.names import is_data
from asyncrec._shards.manifest.segment import Segment, ShardEntry, noting
from asyncrec._shards.manifest.snapshot import dataset_names, datasets_like, load_manifest, matches_data_sets
from asyncrec._shards.ownership.listing import list_shards, longer_names
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._listing import beginning_of, is_pattern, list_some
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._resuming_source import read_head

# The time of the commit is not known. Any time works, because there is only one segment.
_NO_TIME = "1970-01-01T00:00:00.000000Z"


async def snapshot_in(
    store: Storage, name: str, *, path: str, cached: Callable[[Storage], Storage], max_record_bytes: int
) -> tuple[Storage, str, Manifest]:
    """Return the folder of a data set, its name in the folder, and its current manifest.

    Args:
        cached: a function that returns a storage backend that reads the given folder through the cache.

    Raises the same errors as `asyncrec.open_dataset`.
    """
    folder = cached(store)
    manifest = None
    if name and not is_pattern(name):
        manifest = await load_manifest(folder, name, path=path)
        if manifest is None and (inside := await _in_folder(store, name, path)) is not None:
            folder, name, path = cached(PrefixedStorage(store, name)), inside, f"{path}/{inside}"
            manifest = await load_manifest(folder, name, path=path) if name else None
    if manifest is None:
        manifest = await scan_manifest(folder, name, path=path, max_record_bytes=max_record_bytes)
    return folder, name, manifest


async def _in_folder(store: Storage, name: str, path: str) -> str | None:
    """Return the name of the only data set in a folder, ``""`` if there are only shards, or `None` if there is neither.

    Raises:
        ObjectNotFoundError: the folder has several data sets.
    """
    inside = PrefixedStorage(store, name)
    names = await dataset_names(inside)
    if len(names) > 1:
        raise ObjectNotFoundError(
            f"{path}: this folder contains {len(names)} data sets: {', '.join(names[:10])}; open one of them, such "
            f"as '{path}/{names[0]}', or open all shards in the folder together with '{path}/'"
        )
    if names:
        return names[0]
    after = ""
    while page := await list_some(inside, "", after):
        if any("/" not in info.key and is_data(info.key) for info in page):
            return ""
        after = page[-1].key
    return None


async def scan_manifest(folder: Storage, name: str, *, path: str, max_record_bytes: int = MAX_RECORD_BYTES) -> Manifest:
    """Return a manifest of the shards with this name or pattern, in the order of their names.

    The id of the manifest depends on the names, record counts and sizes of the shards, and on their checksums if the
    store keeps checksums. A copy of the shards in another folder therefore has the same order. The entry of each shard
    contains the shard's version (`FileVersions`).

    Raises:
        ObjectNotFoundError: no shard matches.
        FormatError: a shard without an index is damaged.
    """
    keys = await list_shards(name, storage=folder)
    if not keys:
        if is_pattern(name) and (named := await datasets_like(folder, name)):
            raise ObjectNotFoundError(matches_data_sets(path, named))
        if not is_pattern(name) and (others := await longer_names(folder, name)):
            raise ObjectNotFoundError(
                f"{path}: there is no data set with this name; the folder contains {', '.join(others[:10])}"
            )
        raise ObjectNotFoundError(
            f"{path}: there is no manifest and no matching shard; pass the folder and name of a data set, or a "
            "pattern such as 'data/train-*.tfrecord'"
        )

    if not name or is_pattern(name):
        # A shard's name consists of the data set's name, a hyphen and further text, so the data set's name begins with
        # the text before the pattern's first hyphen.
        datasets = await dataset_names(folder, beginning_of(name).partition("-")[0])
        parent = path[: len(path) - len(name)]
        warn_of_several(path, datasets, keys, one_alone=lambda other: f"open_dataset({parent + other!r})")

    async def look(key: str) -> ShardEntry:
        entry, info = await unlisted_entry(folder, key)
        entry = with_version(replace(entry, extra=noting(max_record_bytes)), info)
        index = await read_index(folder, entry, count_known=False)
        if index is None:
            index = await make_index(ShardFiles(folder, [entry]), 0)
        return replace(entry, records=len(index))

    entries = await for_each(look, keys)
    return await in_thread(merge_segments, path, [Segment(writer="", time=_NO_TIME, add=tuple(entries))])


async def unlisted_entry(storage: Storage, key: str, *, path: str | None = None) -> tuple[ShardEntry, ObjectInfo]:
    """Return a manifest entry for an object that no manifest lists, with 0 records, and the object's metadata.

    Args:
        path: the path of the object in the new entry; ``key`` by default.
    """
    head, info = await read_head(storage, key, HEADER_BYTES)
    compression = detect_compression(head)
    entry = ShardEntry(path=path or key, records=0, bytes=info.size, crc32c=info.crc32c, compression=compression)
    return entry, info
