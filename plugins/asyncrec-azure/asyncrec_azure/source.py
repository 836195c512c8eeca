"""`AzureSource` reads one version of a blob in ranges, and fetches large ranges in parallel."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import RangedSource, parse_content_range

from .container import Container, info_of

__all__ = ["WINDOW", "AzureSource"]

# The maximum number of bytes requested at a time, and in one request. Two parallel requests hide each other's latency.
# Smaller pieces would be slower: Azurite took three times as long with pieces of 2 MiB as with 8 MiB.
WINDOW = 8 << 20
_PIECE = 4 << 20
# The status for a range that begins at or after the end of a blob.
_NO_SUCH_RANGE = 416


class AzureSource(RangedSource):
    """A source for one version of a blob, identified by its ETag."""

    window = WINDOW

    def __init__(self, container: Container, key: str, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._container = container
        self._key = key
        self._shown = container.shown(key)
        self._blob = container.blob(key)
        super().__init__(self._shown, start=start, end=end, info=info)

    async def look(self) -> ObjectInfo:
        return (await self._container.look(self._key, self._blob, f"{self._shown}: opening")).info

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, list[bytes]] | None:
        assert end is not None, "without slots, end is always passed"
        what = f"{self._shown}: opening"
        found = await self._container.once(partial(self._ask, start, min(end, start + _PIECE)), what)
        if found is None:
            return None
        info, block = found
        if len(block) != min(end, start + _PIECE, info.size) - start:
            raise TransientStorageError(f"{what}: the response had {len(block):,} bytes")
        return info, [block]

    async def fetch(self, start: int, end: int) -> list[bytes]:
        starts = range(start, end, _PIECE)
        if len(starts) == 1:
            return [await self._get(start, end)]
        blocks = [b""] * len(starts)
        failures: list[StorageError] = []

        async def get(n: int, begin: int) -> None:
            try:
                blocks[n] = await self._get(begin, min(begin + _PIECE, end))
            except StorageError as error:
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for n, begin in enumerate(starts):
                group.start_soon(get, n, begin)
        if failures:
            raise failures[0]
        return blocks

    async def _get(self, start: int, end: int) -> bytes:
        """Return exactly the bytes ``[start, end)``, without retries, because the core resumes from its position."""
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        request = partial(self._download, start, end)
        try:
            block = await self._container.once(request, what, condition="same")
        except ObjectNotFoundError as error:
            raise ObjectChangedError(f"{error}; the object was deleted since it was opened") from None
        if len(block) != end - start:
            raise TransientStorageError(f"{what}: the response had {len(block):,} bytes")
        return block

    async def _ask(self, start: int, end: int) -> tuple[ObjectInfo, bytes] | None:
        try:
            stream: Any = await self._blob.download_blob(offset=start, length=end - start)
        except HttpResponseError as error:
            if error.status_code == _NO_SUCH_RANGE:
                return None
            raise
        found = stream.properties
        # The SDK's `size` is the number of downloaded bytes, not the size of the blob.
        size = parse_content_range(found.content_range)[2]
        info = info_of(self._key, size, found.etag, found.last_modified, found.metadata or {})
        return info, await stream.readall()

    async def _download(self, start: int, end: int) -> bytes:
        stream = await self._blob.download_blob(
            offset=start,
            length=end - start,
            etag=f'"{self.info.etag}"',
            match_condition=MatchConditions.IfNotModified,
        )
        block: bytes = await stream.readall()
        return block
