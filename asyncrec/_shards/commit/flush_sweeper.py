"""`FlushSweeper` deletes the flush entries that are no longer needed, while the writer goes on."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.map import for_each
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.flush_ledger import FlushLedger
from asyncrec._shards.manifest.names import flush_key
from asyncrec.errors import StoragePermissionError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")


@dataclass(frozen=True)
class FlushPlace:
    """The place of the flush log of a writer of the data set ``name``."""

    storage: Storage
    name: str
    writer: str

    @property
    def path(self) -> str:
        """The path of the data set."""
        return join(self.storage.root, self.name)

    def key(self, number: int) -> str:
        """Return the key of the entry with this number."""
        return flush_key(self.name, self.writer, number)


class FlushSweeper:
    """A task that deletes the entries that the ledger releases. `run` is its body."""

    def __init__(self, place: FlushPlace, ledger: FlushLedger) -> None:
        self._place = place
        self._ledger = ledger
        self._due = anyio.Event()
        self._may_delete = True

    def wake(self) -> None:
        """Wake the task, so that it looks again."""
        self._due.set()

    async def run(self) -> None:
        """Delete entries until cancelled."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            await self.sweep()

    async def sweep(self) -> None:
        """Delete entries for some seconds. Those that are left or fail are retried later."""
        if self._may_delete and (numbers := self._ledger.deletable()):
            with anyio.move_on_after(CLEAN_UP_SECONDS):
                await for_each(self._delete, numbers)

    async def _delete(self, number: int) -> None:
        place = self._place
        try:
            await place.storage.delete(place.key(number))
            self._ledger.garbage.discard(number)
        except StoragePermissionError as error:
            if self._may_delete:
                _path_log.warning(place.path, "flushed records cannot be deleted: %s", error, writer=place.writer)
            self._may_delete = False
        except Exception as error:
            _path_log.debug(place.path, "a flush entry could not be deleted: %s", error, writer=place.writer)
