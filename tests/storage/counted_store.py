"""A folder that acts as a remote store and logs all requests to a file that several processes share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.storage._local.storage import LocalStorage


class CountedStorage(LocalStorage):
    """A local storage that appends a line to ``log`` for each request: the operation, the key, and the range."""

    read_ahead = 8 << 20

    def __init__(self, folder: str | os.PathLike[str], log: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self._log = log

    def _note(self, *what: object) -> None:
        with open(self._log, "a") as file:
            file.write(" ".join(map(str, what)) + "\n")

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        self._note("GET", key, start, end)
        return super().open_source(key, start=start, end=end, info=info)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self._note("LIST", prefix)
        return super().list_objects(prefix, start_after=start_after)

    async def head(self, key: str) -> ObjectInfo:
        self._note("HEAD", key)
        return await super().head(key)


def asked(log: Path) -> Counter[str]:
    """Return the requests that were logged since the last call of this function, with their counts."""
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return Counter(lines)
