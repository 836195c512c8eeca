"""`ReadOnlyStorage`: a storage that only reads, and says why where it is asked for more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from asyncrec.errors import StorageError
from asyncrec.storage._base import ByteSink, ObjectInfo, Storage
from asyncrec.storage._url import join, redact


class ReadOnlyStorage(Storage):
    """A storage for a backend to derive from that cannot write as asyncrec does.

    Attributes:
        why: it cannot, as a sentence goes on after "cannot be written: ".
    """

    why: str

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        self._refuse(key, "written")

    async def delete(self, key: str) -> None:
        self._refuse(key, "deleted")

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List, where the store can: unless a backend overrides it, it cannot.

        Raises:
            StorageError: it cannot.
        """
        raise StorageError(f"{redact(join(self.root, prefix))}: its objects cannot be listed: {self.why}")

    def _refuse(self, key: str, done: str) -> NoReturn:
        raise StorageError(f"{redact(join(self.root, key))}: cannot be {done}: {self.why}")
