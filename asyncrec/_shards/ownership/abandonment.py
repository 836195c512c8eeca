"""A job is given up: first a tombstone is put up, then what it made is deleted.

Behind the tombstone nothing of the job can be committed any more, so that its objects are nobody's: they may be
deleted. Of a rolling writer each shard that is in no commit is fenced first, by a tombstone under the name of the
segment that would have committed it; what it had committed stays.
"""

from __future__ import annotations

from collections.abc import Collection

from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.closing import entomb, fence, load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import find_job_headers
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import jobs_prefix, maker_of, manifest_prefix, sequence_of
from asyncrec._shards.manifest.snapshot import merged
from asyncrec._shards.ownership.liveness import this_host
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")


async def abandon(folder: Storage, header: JobHeader, *, plain: bool) -> bool:
    """Give up a job, and delete what it made and did not commit. False where it had ended well; then nothing is done.

    Args:
        plain: fixed shards without a maker in their names are its own, by its claim.

    Cancelled, or after an error, the next call goes on.

    Raises:
        StorageError, ManifestError.
    """
    closing = await entomb(folder, header.name, header.writer, by=this_host())
    if not closing.abandoned:
        return False
    await delete_unlisted(folder, header, plain=plain)
    path = join(folder.root, header.name)
    _path_log.info(path, "the writer %s was given up", header.writer, writer=header.writer)
    return True


async def delete_unlisted(folder: Storage, header: JobHeader, *, plain: bool) -> None:
    """Delete the objects of a job that has ended and that no commit names."""
    name = header.name
    history = await load_history(folder, name)
    closing = await load_closing(folder, name, header.writer)
    fenced = closing is not None and not closing.abandoned  # closed well, it commits nothing more
    others: dict[str, bool] = {}
    taken: dict[int, bool] = {}

    async def is_own(key: str, shard: str) -> bool:
        if not header.makes(shard, plain=plain):
            return False
        listed = await in_thread(history.rows_naming, key)
        if listed:
            return False
        maker, rolling = maker_of(name, shard) or (None, False)
        if maker is not None and not rolling:
            if maker not in others:
                others[maker] = await is_another_data_set(folder, f"{name}-{maker}")
            if others[maker]:
                return False
        return True

    async def is_free(shard: str) -> bool:
        # One that lives after all publishes on: also an index whose shard is not there yet is fenced first.
        if header.kind != "rolling" or fenced or not shard.startswith(f"{name}-{header.writer}-"):
            return True
        number = sequence_of(shard)
        if number not in taken:
            taken[number] = await fence(folder, name, header.writer, number, by=this_host(), since=history.checkpoint)
        return taken[number]

    # Only plain names are anywhere among those of the data set: a large one is not listed for the sake of a few.
    begin = f"{name}-" if plain and header.num_shards is not None else f"{name}-{header.writer}"
    async for info in folder.list_objects(begin):
        if await is_own(info.key, info.key) and await is_free(info.key):
            await folder.delete(info.key)
    for prefix, suffix in (("_index/", ".index"), ("_keys/", ".keys")):
        async for info in folder.list_objects(f"{prefix}{begin}"):
            shard = info.key[len(prefix) : -len(suffix)]
            if info.key.endswith(suffix) and await is_own(info.key, shard) and await is_free(shard):
                await folder.delete(info.key)


async def delete_replaced(folder: Storage, name: str, removed: Collection[str]) -> None:
    """Delete shards that a commit removed, with their indexes and keys, unless the data set has them again."""
    if not removed:
        return
    history = await load_history(folder, name)
    now = (await merged(name, history)).shards
    for key in await in_thread(lambda: sorted({key for key in history.objects_of(removed) if not now.names(key)})):
        await folder.delete(key)


async def is_another_data_set(folder: Storage, name: str) -> bool:
    """Whether somebody has made, or is making, a data set of this name.

    ``train-v2-00000-of-00002.tfrecord`` is a shard of ``train`` by the writer ``v2``, or a plain one of ``train-v2``.
    """
    for prefix in (manifest_prefix(name), jobs_prefix(name)):
        if [info.key async for info in folder.list_objects(prefix)]:
            return True
    local = local_folder(folder)
    return local is not None and bool(await in_thread(find_job_headers, local, name))
