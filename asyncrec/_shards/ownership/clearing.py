"""Delete the objects of an ended job that no commit lists. They cannot be committed any more."""

from __future__ import annotations

from collections.abc import Collection

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import maker_of, manifest_prefix
from asyncrec._shards.manifest.snapshot import merged
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import closing_listing


async def delete_unlisted(folder: Storage, names: JobNames) -> None:
    """Delete the objects of an ended job that no commit lists."""
    name = names.name
    history = await load_history(folder, name)
    others: dict[str, bool] = {}

    async def may_go(key: str, shard: str) -> bool:
        if not names.makes(shard):
            return False
        if await in_thread(history.rows_naming, key):
            return False
        maker, rolling = maker_of(name, shard) or (None, False)
        if maker is not None and not rolling:
            if maker not in others:
                others[maker] = await is_another_data_set(folder, f"{name}-{maker}")
            return not others[maker]
        return True

    # Listing a large data set takes long, so list only the names that begin with the job's own prefix. This does not
    # work for plain names and for rewritten shards, which can be anywhere among the data set's names.
    anywhere = names.rewrites or (names.plain and names.num_shards is not None)
    begin = f"{name}-" if anywhere else f"{name}-{names.writer}"
    for prefix, suffix in (("", ""), ("_index/", ".index"), ("_keys/", ".keys"), ("_progress/", ".progress")):
        async with closing_listing(folder.list_objects(f"{prefix}{begin}")) as listing:
            async for info in listing:
                shard = info.key[len(prefix) : len(info.key) - len(suffix)]
                if info.key.endswith(suffix) and await may_go(info.key, shard):
                    await folder.delete(info.key)


async def delete_replaced(folder: Storage, name: str, removed: Collection[str]) -> None:
    """Delete shards that a commit removed, and their index and keys files, unless the manifest lists them again."""
    if not removed:
        return
    history = await load_history(folder, name)
    now = (await merged(name, history)).shards
    keys = await in_thread(lambda: sorted({key for key in history.objects_of(removed) if not now.names(key)}))
    await for_each(folder.delete, keys)


async def is_another_data_set(folder: Storage, name: str) -> bool:
    """Return whether another job has created, or is creating, a data set with this name.

    ``train-v2-00000-of-00002.tfrecord`` may be a shard of ``train`` by the writer ``v2``, or a shard of ``train-v2``
    with a plain name.
    """
    if [info.key async for info in folder.list_objects(manifest_prefix(name))]:
        return True
    return bool(await in_thread(home_of(folder).headers, name))
