"""`uploads`: what was begun to be written and never published, and its removal.

S3 keeps (and bills) multipart uploads, a disk the unfinished files of a process that was killed. Other stores have none
that can be listed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncrec.storage.base import ObjectInfo, Storage, UnfinishedUploads
from asyncrec.storage.registry import located
from asyncrec.storage.url import join, redact

__all__ = ["UploadsReport", "uploads"]

# A day: what is being written goes on, and no upload of a shard takes so long.
_OLDER_THAN = 86400.0


@dataclass(slots=True, kw_only=True)
class UploadsReport:
    """What was found.

    Attributes:
        supported: whether the store can say at all.
        root: of the store; keys are relative to it.
        found: all of them.
        removed: those that were removed.
    """

    path: str
    root: str
    supported: bool = True
    found: list[ObjectInfo] = field(default_factory=list)
    removed: list[ObjectInfo] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        removed = {(info.key, info.etag) for info in self.removed}
        return {
            "path": self.path,
            "supported": self.supported,
            "uploads": [
                {
                    "path": join(self.root, info.key),
                    "id": info.etag,
                    "bytes": info.size,
                    "begun": info.modified.isoformat(),
                    "removed": (info.key, info.etag) in removed,
                }
                for info in self.found
            ],
        }


async def uploads(
    path: str | os.PathLike[str],
    *,
    remove: bool = False,
    older_than: float = _OLDER_THAN,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> UploadsReport:
    """What is unfinished at or below ``path``; with ``remove``, those begun more than ``older_than`` seconds ago go.

    What a running program is writing is among them: a day is the default for its sake.
    """
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        report = UploadsReport(path=redact(os.fspath(path)), root=store.root)
        if not isinstance(store, UnfinishedUploads):
            report.supported = False
            return report
        folder = key[: key.rfind("/") + 1]
        async for info in store.list_unfinished(folder):
            # On a disk the name of an unfinished file begins with a dot.
            parent, slash, name = info.key.rpartition("/")
            if info.key.startswith(key) or (parent + slash + name.removeprefix(".")).startswith(key):
                report.found.append(info)
        if remove:
            last = datetime.now(UTC) - timedelta(seconds=older_than)
            for info in report.found:
                if info.modified < last:
                    await store.remove_unfinished(info)
                    report.removed.append(info)
    return report
