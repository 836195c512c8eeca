"""`recover`: after a crash, what its jobs left becomes part of the data set, or is given up.

What is there to find, in the folder of a data set or in a spool:

- the headers of jobs on this disk (`_shards.journal.journal`), with their journals, the unfinished shards. The whole
  records of a rolling writer's are written into a shard of the name they would have had, with index and keys, and
  committed. It is the way of every other shard, so that nothing is in the manifest that was not published and verified;
  a crash meanwhile leaves what the next call begins with.
- in a spool, whole shards that were not uploaded yet: the same.
- the marks of jobs that have no disk of their own (`_shards.ownership.marks`): what a rolling writer had published and
  could not commit any more is committed as it is.

A lock says which jobs are dead; what belongs to one that lives is left alone. One on another machine cannot be asked:
it is named, with its age, and stays as it is until somebody says that it is to be given up.

Shards that belong together (``num_shards``) are finished when their writer promised something, by a flush, or when all
of them are whole. Every other job that is all or nothing (what replaces, and tools) is given up: a tombstone takes the
name of its closing segment, so that it can commit nothing more, and then what it made is deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from os import PathLike
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.journal import find_job_headers, remove_small_leftovers, remove_unnamed_headers
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.ownership.marks import find_marks
from asyncrec._shards.recovery.report import Recovery
from asyncrec._shards.recovery.run import RecoveryRun
from asyncrec._shards.spool.folder import is_spool, lock_spool
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._url import join

__all__ = ["recover"]


async def recover(
    path: str | PathLike[str],
    *,
    abandon: Collection[str] = (),
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Recovery:
    """Make what writers left, when they died, part of the data set; give up what was all or nothing.

    Args:
        path: a spool; or a data set, as `open_sharded_writer` takes it.
        abandon: ids of jobs that are to be given up, whatever they promised; what they made and did not commit is
            deleted. One that is proven to live is not.
        storage: an open `Storage`; a data set's ``path`` is then a key in it. For a spool, the one that its writer
            had: given in the same way, or else the root of its path (``s3://bucket``).
        storage_options: for the backend, when it is opened here. A spool holds no credentials.

    It may be called at any time, also while others write; twice does no harm. Cancelled, or after an error, the rest
    is still there for the next call. A job that cannot be finished does not keep it from the others: what failed is
    raised at the end, the first error with a note for each other one and for what was done.

    Raises:
        StorageError: a writer uses the spool; the message names its process.
        ConflictError: a job that promised something was given up elsewhere; or one of ``abandon`` lives.
        ObjectNotFoundError: there is no job of an id in ``abandon``.
        ManifestError: of the data set.
    """
    run = RecoveryRun(abandon)
    if await in_thread(is_spool, path):
        async with lock_spool(path) as spool:
            for header_path, header in await in_thread(find_job_headers, spool):
                target = header.url if storage is None else header.key

                opened = dataset_at(target, storage=storage, storage_options=storage_options)
                await run.guarded(header, partial(run.recover_spooled, spool, header_path, header, opened))
            await in_thread(remove_unnamed_headers, spool)
        return run.outcome(str(path))
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        local = local_folder(folder)
        if local is not None:
            for header_path, header in await in_thread(find_job_headers, local, name):
                await run.guarded(header, partial(run.recover_local, local, header_path, header, folder))
            await in_thread(remove_unnamed_headers, local)
            await in_thread(remove_small_leftovers, local, name)
        for mark in await find_marks(folder, name):
            await run.guarded(mark, partial(run.recover_marked, mark, folder))
        return run.outcome(join(folder.root, name))
