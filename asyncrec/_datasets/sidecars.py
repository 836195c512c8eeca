"""Write datum's two JSON files next to the shards. They are derived from the manifests, which remain authoritative.

``shard_info.json`` contains ``{split: {file name: records}}``. ``datum_to_type_and_shape_mapping.json`` contains the
features of all splits, ``{feature: {"type": ..., "shape": ..., "dense": ...}}``. Both files describe an entire folder,
and several writers may write splits to it at once. Therefore, each writer derives both files from the manifests of all
splits, and checks both again after writing, so that the last writer has read every manifest that was committed before.
Entries of splits that have no manifest, because datum itself wrote them, are kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from asyncrec._datasets.description import FeatureTable
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import load_manifests
from asyncrec.errors import ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage

ShardInfo = dict[str, dict[str, int]]

SHARD_INFO = "shard_info.json"
TABLE = "datum_to_type_and_shape_mapping.json"

# The maximum size of such a file. The names of a million shards take about 50 MB.
_MAX_BYTES = 256 << 20
# The maximum number of attempts. Another attempt is needed only if another writer has written the files in between.
_ATTEMPTS = 10

_log = logging.getLogger("asyncrec.datasets")


async def read_shard_info(folder: Storage) -> ShardInfo:
    """Return the content of ``shard_info.json``, or an empty dictionary if the file does not exist.

    Raises:
        ManifestError: the content is not valid, or names a path outside the folder.
    """
    content = await _read(folder, SHARD_INFO)
    for files in content.values():
        good = isinstance(files, dict) and all(
            isinstance(count, int) and count >= 0 and _is_plain(file) for file, count in files.items()
        )
        if not good:
            raise ManifestError(f"{folder.root}/{SHARD_INFO}: not {{split: {{file name: records}}}}")
    return content


async def read_table(folder: Storage) -> FeatureTable:
    """Return datum's table of features, or an empty dictionary if its file does not exist."""
    return await _read(folder, TABLE)


async def manifests_of_splits(folder: Storage) -> dict[str, Manifest]:
    """Return the manifests, by split, of all data sets in the folder that `DatasetWriter` wrote."""
    manifests = await load_manifests(folder)
    return {name: manifest for name, manifest in manifests.items() if manifest.metadata.get("split") == name}


async def update(folder: Storage, shard_info: ShardInfo, split: str | None = None) -> None:
    """Update both files, using ``shard_info`` for splits without a manifest.

    ``split`` is the split just written. If its features contradict those of another split, the table gets the features
    of ``split``.
    """
    for _ in range(_ATTEMPTS):
        manifests = await manifests_of_splits(folder)
        counts = {**await read_shard_info(folder), **shard_info}
        foreign = counts.keys() - manifests.keys()
        for name, manifest in manifests.items():
            counts[name] = dict(zip(manifest.shards.paths(), manifest.shards.counts.tolist(), strict=True))
        tables = [await read_table(folder)] if foreign else []
        last_first = sorted(manifests, key=lambda name: (name == split, name))
        tables += [manifests[name].metadata.get("features") or {} for name in last_first]
        changed = await _put(folder, SHARD_INFO, dict(sorted(counts.items())))
        changed = await _put(folder, TABLE, merged_tables(tables)) or changed
        if not changed:
            return
    _log.warning(
        "%s: %s and %s may be out of date: other processes changed them during each of %d attempts to write them",
        folder.root,
        SHARD_INFO,
        TABLE,
        _ATTEMPTS,
        extra={"path": folder.root},
    )


def merged_tables(tables: list[FeatureTable]) -> FeatureTable:
    """Merge the tables. A varying size becomes -1, and its feature is not dense. If types differ, the last one wins."""
    merged: FeatureTable = {}
    for table in tables:
        for name, feature in table.items():
            before = merged.get(name)
            if before is not None and before["type"] == feature["type"] and before != feature:
                same_rank = len(before["shape"]) == len(feature["shape"])
                sizes = zip(before["shape"], feature["shape"], strict=False)
                shape = [one if one == other else -1 for one, other in sizes] if same_rank else [-1]
                feature = {
                    "type": feature["type"],
                    "shape": shape,
                    "dense": before["dense"] and feature["dense"] and -1 not in shape,
                }
            elif before is not None and before != feature:
                _log.warning(
                    "the type of feature %r is %s in one split and %s in another",
                    name,
                    before["type"],
                    feature["type"],
                    extra={"feature": name},
                )
            merged[name] = dict(feature)
    return dict(sorted(merged.items()))


async def _put(folder: Storage, key: str, content: Mapping[str, Any]) -> bool:
    """Write the file if its content has changed. Return whether it was written."""
    data = json.dumps(content).encode()
    try:
        if await folder.get(key, max_bytes=_MAX_BYTES) == data:
            return False
    except ObjectNotFoundError:
        pass
    await folder.put(key, data)
    return True


async def _read(folder: Storage, key: str) -> dict[str, Any]:
    try:
        content = json.loads(await folder.get(key, max_bytes=_MAX_BYTES))
    except ObjectNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ManifestError(
            f"{folder.root}/{key}: the file is not JSON written by asyncrec or datum: {error}"
        ) from error
    if not isinstance(content, dict):
        raise ManifestError(f"{folder.root}/{key}: the file must hold a JSON object, not a {type(content).__name__}")
    return content


def _is_plain(name: str) -> bool:
    return bool(name) and "/" not in name and "\\" not in name and name[0] not in "._"
