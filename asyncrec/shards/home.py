"""Where a sharded writer writes its shards first: in the store itself, or in a local folder that a crash leaves behind.

- A local data set: its own folder. The unfinished shards are the journal.
- A spool: the folder given; whole shards wait in it until they are uploaded (`asyncrec.shards.spool`).
- Else the store. Nothing survives the process but what is committed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from asyncrec.shards.journal import Journal, Note
from asyncrec.shards.naming import replacing_key
from asyncrec.shards.spool import SpoolFolder
from asyncrec.storage.base import Storage
from asyncrec.storage.local import LocalStorage, local_folder
from asyncrec.tasks import in_thread

__all__ = ["Home", "open_home"]

_log = logging.getLogger("asyncrec.shards")

# Removing a note: a few small operations on a disk, or one request with its retries.
_CLEAN_UP_SECONDS = 30


class Home:
    """Of one writer.

    Attributes:
        storage: where shards are opened and published.
        store: the data set's folder, where they are committed.
        journal: of a local one.
        spool: that is the storage then.
        pending: shards that are published, and of which no commit is known; whoever commits keeps it.
    """

    def __init__(self, store: Storage, storage: Storage, journal: Journal | None) -> None:
        self.store = store
        self.storage = storage
        self.journal = journal
        self.spool = storage if isinstance(storage, SpoolFolder) else None
        self.pending: set[str] = set()


@asynccontextmanager
async def open_home(folder: Storage, note: Note, *, owned: LocalStorage | None = None) -> AsyncIterator[Home]:
    """For the data set in ``folder``; with ``owned`` in that, else in the data set's folder where it is local.

    What marks the writer as alive, or as one that was replacing, is taken away at the end, unless something is left
    for `recover` to see to.
    """
    if owned is None and (local := local_folder(folder)) is not None:
        owned = local.owned_by(note.writer, keep=not note.replace)
    marker = replacing_key(note.name, note.writer) if note.replace and note.num_shards is None else None
    if owned is None:
        if marker is not None:
            await folder.put(marker, b"")
        try:
            yield Home(folder, folder, None)
        finally:
            if marker is not None:
                # What stays of a writer that has ended well does no harm.
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_UP_SECONDS):
                    try:
                        await folder.delete(marker)
                    except Exception as error:
                        _log.warning("%s/%s could not be removed: %s", folder.root, marker, error)
        return
    journal = await in_thread(Journal.begin, owned, note)
    home = Home(folder, owned, journal)
    try:
        yield home
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(lambda: journal.end(keep=bool(home.pending)))
