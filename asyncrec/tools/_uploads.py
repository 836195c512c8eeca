"""`uploads` lists, and optionally removes, objects that a program began to write but never published.

S3 keeps (and bills) unfinished multipart uploads, and a disk keeps the unfinished files of a killed process. Other
stores cannot list unfinished objects.

An unfinished object is not removed while its job may be alive. On a disk, it is kept for `asyncrec.recover` even if the
job has died, because it contains records. An unfinished upload to a store cannot be read back, so it is removed once
its job is proven dead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncrec._arguments import check_age
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.header import header_path
from asyncrec._shards.journal.home import LocalHome, home_of
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.manifest.names import MANIFESTS, begin_of
from asyncrec._shards.ownership.census import FoundJob, JobState, census, jobs_in
from asyncrec.errors import StorageError
from asyncrec.storage._base import ObjectInfo, Storage, UnfinishedUploads
from asyncrec.storage._local.opening import is_not_own
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact

# One day. No shard takes that long to upload, so active uploads are not removed.
_OLDER_THAN = 86400.0


@dataclass(slots=True, kw_only=True)
class UploadsReport:
    """The result of `uploads`.

    Attributes:
        supported: whether the store can list unfinished uploads.
        root: the root of the store; keys are relative to it.
        found: all unfinished uploads.
        sized: whether the store reports the size of each upload.
        removed: the uploads that were removed.
        kept: the uploads that are old enough to be removed, but were kept because they belong to a job, because a
            process is writing them, or because another user owns them.
        reasons: the reason why each upload was kept, by its key and etag.
    """

    path: str
    root: str
    supported: bool = True
    found: list[ObjectInfo] = field(default_factory=list)
    removed: list[ObjectInfo] = field(default_factory=list)
    kept: list[ObjectInfo] = field(default_factory=list)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    sized: bool = True

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
                    "bytes": info.size if self.sized or info.size else None,
                    "begun": info.modified.isoformat(),
                    "removed": (info.key, info.etag) in removed,
                    "kept": (info.key, info.etag) in kept,
                    "reason": self.reasons.get((info.key, info.etag)),
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
    """Find unfinished uploads at or below ``path``. With ``remove``, delete those older than ``older_than`` seconds.

    By default, only uploads older than a day are deleted, because the uploads of running programs are also found. On a
    disk, no file of a job with a header is deleted, whether the job is running or dead; `asyncrec.recover` handles
    those files. Files that a process is writing are not deleted, either, unless the file system has no locks, in which
    case only the age matters. In a store, an upload that may belong to a job with a mark is deleted only if a lock on
    this machine proves the job dead; `asyncrec.recover` abandons jobs of other machines.

    Raises:
        ValueError: ``older_than`` is longer than a century.
        StorageError: the store failed.
    """
    check_age(older_than, "older_than")
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        report = UploadsReport(path=redact(os.fspath(path)), root=store.root)
        if not isinstance(store, UnfinishedUploads):
            report.supported = False
            return report
        local = home_of(store).folder
        report.sized = local is not None
        folder = key[: key.rfind("/") + 1]
        async for info in store.list_unfinished(folder):
            # On a disk, the name of an unfinished file begins with a dot.
            parent, slash, name = info.key.rpartition("/")
            if info.key.startswith(key) or (parent + slash + name.removeprefix(".")).startswith(key):
                report.found.append(info)
        if remove:
            last = datetime.now(UTC) - timedelta(seconds=older_than)
            jobs = _Owners(store, local)

            def keep(info: ObjectInfo, reason: str) -> None:
                report.kept.append(info)
                report.reasons[info.key, info.etag] = reason

            for info in report.found:
                if info.modified >= last:
                    continue
                if (reason := await jobs.owner(info.key)) is not None:
                    keep(info, reason)
                    continue
                try:
                    await store.remove_unfinished(info)
                except StorageError as error:
                    if error.errno == errno.EWOULDBLOCK:
                        keep(info, "a process is writing it")
                    elif local is not None and is_not_own(error):
                        keep(info, "it is not a regular file owned by this user")
                    else:
                        raise
                else:
                    report.removed.append(info)
    return report


def _folder_of(key: str) -> tuple[str, str]:
    """Return the folder of the data set to which an unfinished object belongs, and the object's name."""
    parent, _, name = key.rpartition("/")
    if parent.rpartition("/")[2] in ("_index", "_keys"):
        parent = parent.rpartition("/")[0]
    return parent, name


class _Owners:
    """The jobs that may own unfinished objects. A folder's jobs are listed once, after its objects.

    A job publishes its header or its mark before its objects, so a job that begins after the listing owns none of them.
    """

    def __init__(self, store: Storage, local: LocalStorage | None) -> None:
        self._store = store
        self._local = local
        self._found: dict[str, list[tuple[FoundJob, JobState]]] = {}

    async def owner(self, key: str) -> str | None:
        """Return why an unfinished object must be kept for its job, or `None` if the object may be removed."""
        parent, name = _folder_of(key)
        if parent not in self._found:
            self._found[parent] = await self._look(parent)
        shard = name.removesuffix(".index").removesuffix(".keys")
        for job, state in self._found[parent]:
            header = job.header
            if job.home.folder is not None:
                own = header_path(job.home.folder, header.name, header.writer)
                ends = tuple(f".{header.writer}{end}.partial" for end in ("", "~begun", "~status", "~taken"))
                if name == os.path.basename(own) or name.endswith(ends):
                    return "it belongs to a job; if the job is dead, run 'asyncrec recover'"
            elif state != "dead" and JobNames.of(header, plain=True).begins(shard):
                if state == "alive":
                    return f"its writer {header.writer} is still running"
                where = f", on {header.host or 'another machine'}, may still be running"
                return f"its writer {header.writer}{where}; if it is dead, run 'asyncrec recover --abandon'"
        return None

    async def _look(self, parent: str) -> list[tuple[FoundJob, JobState]]:
        if self._local is not None:  # unfinished files are kept for their records even if the job is dead
            found = await in_thread(jobs_in, LocalHome(LocalStorage(os.path.join(self._local.folder, parent))))
            return [(job, "unknown") for job in found]
        folder = folder_at(self._store, f"{parent}/" if parent else "")
        keys = [info.key.split("/") async for info in folder.list_objects(MANIFESTS)]
        names = {key[1] for key in keys if len(key) == 3 and begin_of(key[2]) is not None}
        return [job for name in sorted(names) for job in await census(folder, name)]
