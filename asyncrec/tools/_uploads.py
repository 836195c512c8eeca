"""`uploads` lists what was begun to be written and never published, and removes it.

S3 keeps (and bills) multipart uploads, a disk the unfinished files of a process that was killed. Other stores have none
that can be listed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import find_job_headers
from asyncrec.errors import StorageError
from asyncrec.storage._base import ObjectInfo, Storage, UnfinishedUploads
from asyncrec.storage._local.storage import LocalStorage, local_folder
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact

__all__ = ["UploadsReport", "uploads"]

# A day: what is being written goes on, and no upload of a shard takes so long.
_OLDER_THAN = 86400.0


@dataclass(slots=True, kw_only=True)
class UploadsReport:
    """What `uploads` found.

    Attributes:
        supported: whether the store can say at all.
        root: of the store; keys are relative to it.
        found: all of them.
        removed: those that were removed.
        kept: those that are old enough, and belong to somebody: to a job, for `asyncrec.recover`, or to a process that
            is writing them.
    """

    path: str
    root: str
    supported: bool = True
    found: list[ObjectInfo] = field(default_factory=list)
    removed: list[ObjectInfo] = field(default_factory=list)
    kept: list[ObjectInfo] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        removed = {(info.key, info.etag) for info in self.removed}
        kept = {(info.key, info.etag) for info in self.kept}
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
                    "kept": (info.key, info.etag) in kept,
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

    What a running program is writing is among them: a day is the default for its sake. On a disk, nothing is removed
    that a job's header speaks for, whether the job lives or died (`asyncrec.recover` sees to that), nor what a process
    holds open.

    Raises:
        StorageError: the store failed.
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
            local = local_folder(store)
            jobs = None if local is None else _Jobs(local)
            for info in report.found:
                if info.modified >= last:
                    continue
                if jobs is not None and await in_thread(jobs.have, info.key):
                    report.kept.append(info)
                    continue
                try:
                    await store.remove_unfinished(info)
                except StorageError as error:
                    if error.errno != errno.EWOULDBLOCK:
                        raise
                    report.kept.append(info)
                else:
                    report.removed.append(info)
    return report


class _Jobs:
    """The jobs with a header on a disk, each folder's looked up once: after the files were found. Blocks.

    A job has its header before its files. So one that began after the look has none among those that were found.
    """

    def __init__(self, root: LocalStorage) -> None:
        self._root = root
        self._found: dict[str, list[tuple[str, JobHeader]]] = {}

    def have(self, key: str) -> bool:
        """Whether an unfinished file is a job's header, or stands in one's folder under its name."""
        parent, _, name = key.rpartition("/")
        if parent.rpartition("/")[2] in ("_index", "_keys"):
            parent = parent.rpartition("/")[0]
        if parent not in self._found:
            self._found[parent] = find_job_headers(LocalStorage(os.path.join(self._root.folder, parent)))
        return any(
            name == os.path.basename(path)
            or name.endswith(tuple(f".{header.writer}{end}.partial" for end in ("", "~begun", "~status")))
            for path, header in self._found[parent]
        )
