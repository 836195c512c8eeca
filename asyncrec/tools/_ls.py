"""`ls` lists the data sets and files of a folder, or the shards of a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec.storage._base import Storage
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import Selection, selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A listed ``"data set"``, ``"shard"`` or ``"file"``. ``records`` and ``changed`` are `None` if unknown."""

    path: str
    kind: str
    bytes: int
    records: int | None = None
    shards: int | None = None
    compression: str | None = None
    changed: str | None = None

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path kind shards records bytes compression changed")


@dataclass(slots=True, kw_only=True)
class LsReport:
    """The result of `ls`."""

    path: str
    kind: str
    entries: list[Listed] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "kind": self.kind, "entries": [entry.to_json() for entry in self.entries]}


async def ls(
    path: str | os.PathLike[str], *, storage: Storage | None = None, storage_options: Mapping[str, Any] | None = None
) -> LsReport:
    """List the content of ``path``, from its manifests and the store's listing. No file is opened.

    For a folder or a pattern, list the data sets and the record files that no manifest lists. For a data set, list its
    shards.

    Raises:
        ObjectNotFoundError, StoragePermissionError: there is nothing at the path, or the path cannot be listed.
        ManifestError: a manifest cannot be read.
    """
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        return LsReport(path=selection.path, kind=selection.kind, entries=await in_thread(_entries, selection))


def _entries(selection: Selection) -> list[Listed]:
    """Return the entries. Blocks, because there may be a million entries."""
    found = []
    for shard in selection.shards:
        if shard.dataset is None:
            found.append(Listed(path=shard.display_path, kind="file", bytes=shard.size))
        elif shard.entry is not None and selection.kind == "data set":
            found.append(
                Listed(
                    path=shard.display_path,
                    kind="shard",
                    records=shard.entry.records,
                    bytes=shard.size,
                    compression=shard.entry.compression,
                    changed=shard.entry.committed or None,
                )
            )
    for dataset in selection.datasets if selection.kind != "data set" else ():
        manifest = dataset.manifest
        commits = [writer.last_commit for writer in manifest.writers.values()]
        kinds = sorted(manifest.shards.compressions)
        found.append(
            Listed(
                path=selection.base + dataset.prefix + dataset.name,
                kind="data set",
                shards=len(manifest.shards),
                records=manifest.records,
                bytes=manifest.bytes,
                compression=kinds[0] if len(kinds) == 1 else ", ".join(kind or "none" for kind in kinds) or None,
                changed=max(commits, default=None),
            )
        )
    return sorted(found, key=lambda entry: entry.path)
