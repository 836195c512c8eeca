"""`recover`: after a crash, what its writers left becomes part of the data set.

What is there to find, in the folder of a local data set or in a spool (see `asyncrec.shards.journal`):

- journals, the unfinished shards of writers that have died. Their whole records are written into a shard of the name
  they would have had, with index and keys, and committed. It is the way of every other shard, so that nothing is in the
  manifest that was not published and verified; a crash meanwhile leaves what the next call begins with.
- in a spool, whole shards that were not uploaded yet: the same.
- shards that were published, and whose writer died before it could commit them: they are committed as they are.

A journal is removed once its shard is in the manifest, so that calling twice does no harm. What belongs to a writer
that lives is left alone.

Shards that belong together (``num_shards``) are finished when their writer promised something, by a flush, or had begun
to publish them; otherwise none of them is kept. Of a writer that was replacing a data set nothing is kept.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from os import PathLike
from typing import Any

from asyncrec.errors import StorageError
from asyncrec.shards.adopting import adopt_unlisted
from asyncrec.shards.finishing import Finished, Finishing
from asyncrec.shards.journal import Journal, find_notes
from asyncrec.shards.segment import ShardEntry
from asyncrec.shards.snapshot import dataset_at
from asyncrec.shards.spool import is_spool, lock_spool
from asyncrec.storage.base import Storage
from asyncrec.storage.local import LocalStorage, local_folder
from asyncrec.tasks import in_thread

__all__ = ["Recovery", "recover", "recover_spool"]

_log = logging.getLogger("asyncrec.shards")


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What `recover` found and did.

    Attributes:
        shards: that it committed.
        cut_bytes: behind the last whole record of journals: what was being written when the writer died, and had not
            been acknowledged.
        damaged: journals that end in something else than a torn tail. Their records up to there are committed; the
            files are kept under these names, for `asyncrec.tools.repair`.
        discarded: shards of writers that publish all or none, and had promised nothing.
        in_use: ids of writers that live; what is theirs was left alone.
    """

    shards: tuple[ShardEntry, ...] = ()
    cut_bytes: int = 0
    damaged: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Of the shards, as stored."""
        return sum(shard.bytes for shard in self.shards)


async def recover(
    path: str | PathLike[str], *, storage: Storage | None = None, storage_options: dict[str, Any] | None = None
) -> Recovery:
    """Make what writers left, when they died, part of the data set.

    Args:
        path: a spool; or a data set, as `open_sharded_writer` takes it, for the unfinished shards of a local one, and
            those that are published and in no commit.
        storage: an open `Storage`; a data set's ``path`` is then a key in it. For a spool, the one that its writer
            had: given in the same way, or else the root of its path (``s3://bucket``).
        storage_options: for the backend, when it is opened here. A spool holds no credentials.

    It may be called at any time, also while others write; twice does no harm. Cancelled, or after an error, the rest
    is still there for the next call.

    Raises:
        StorageError: a writer uses the spool; the message names its process.
        ObjectExistsError: shards that belong together were acknowledged, and others have taken their names.
        ManifestError: of the data set.
    """
    if await in_thread(is_spool, path):
        return await _recover_whole_spool(path, storage, storage_options)
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        home = local_folder(folder)
        done: list[Finished] = []
        in_use: list[str] = []
        if home is not None:
            for note_path, note in await in_thread(find_notes, home):
                if note.name != name:
                    continue
                finished = await _recover_writer(home, note_path, folder)
                if finished is None:
                    in_use.append(note.writer)
                else:
                    done.append(finished)
        done.append(Finished(shards=await adopt_unlisted(folder, name, in_use)))
    return _summary(done, in_use)


async def recover_spool(spool: LocalStorage, folder: Storage, url: str) -> None:
    """Before a writer begins: commit what earlier ones left in its spool, for the data set at ``url`` in ``folder``.

    Raises:
        StorageError: something is for another data set.
    """
    for path, note in await in_thread(find_notes, spool):
        if note.url != url:
            raise StorageError(
                f"{spool.root}: holds records for {note.url}, written by {note.writer}; recover them first "
                f"(asyncrec.recover({spool.root!r})), or give {url} another spool"
            )
        finished = await _recover_writer(spool, path, folder)
        if finished is not None and finished.shards:
            _log.info("%s: recovered %d records", url, sum(shard.records for shard in finished.shards))


async def _recover_whole_spool(
    path: str | PathLike[str], storage: Storage | None, storage_options: dict[str, Any] | None
) -> Recovery:
    done: list[Finished] = []
    async with lock_spool(path) as spool:
        for note_path, note in await in_thread(find_notes, spool):
            target = note.url if storage is None else note.key
            async with dataset_at(target, storage=storage, storage_options=storage_options) as (folder, _):
                finished = await _recover_writer(spool, note_path, folder)
            done += [finished] if finished is not None else []
    return _summary(done, [])


async def _recover_writer(home: LocalStorage, path: str, target: Storage) -> Finished | None:
    """`None` when the writer lives."""
    try:
        journal = await in_thread(Journal.claim, home, path)
    except StorageError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return None
    finishing = Finishing(journal, target) if journal is not None else None
    try:
        if finishing is not None:
            await finishing.run()
    finally:
        if journal is not None:
            await in_thread(journal.end)
    return finishing.done if finishing is not None else Finished()


def _summary(done: list[Finished], in_use: list[str]) -> Recovery:
    return Recovery(
        shards=tuple(shard for each in done for shard in each.shards),
        cut_bytes=sum(each.cut_bytes for each in done),
        damaged=tuple(path for each in done for path in each.damaged),
        discarded=tuple(shard for each in done for shard in each.discarded),
        in_use=tuple(in_use),
    )
