"""`Upload` sends the blocks of one object in tasks of the storage, and publishes them.

A staged block is invisible until a list that contains it is committed. An upload need not be aborted, because
uncommitted blocks disappear within a week, or when any writer publishes the object.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
from azure.core import MatchConditions
from azure.storage.blob import BlobBlock

from asyncrec.storage import Buffer, in_thread, shielded
from asyncrec.storage.http import PartTasks, SlicedBody, crc64nvme

from .container import Container
from .errors import Condition, HeaderUnknownError

# https://learn.microsoft.com/azure/storage/blobs/scalability-targets
MOST_BLOCKS = 50_000
# Hashing more bytes would block the loop for too long.
_HASH_ON_LOOP = 256 << 10
# The seconds within which cancelled tasks must end. Each only releases its connection.
_CANCEL_SECONDS = 5.0


class Upload:
    """The upload of one object.

    Attributes:
        id: a unique id, which is part of the object's metadata and of the names of its blocks.
        started: the number of blocks passed to `start` so far.
        condition: the condition of the publishing request.
    """

    def __init__(self, container: Container, key: str, *, exclusive: bool) -> None:
        self.id = uuid.uuid4().hex
        self.started = 0
        self.condition: Condition = "none" if exclusive else ""
        self.blob = container.blob(key)
        self._container = container
        self._shown = container.shown(key)
        self._staged = 0
        self._tasks = PartTasks(container.tasks, container.slots.release)

    def start(self, part: memoryview, slots: int) -> None:
        """Send the next block in the background. Its ``slots`` and memory are released when it has been sent."""
        self._tasks.start(partial(self._stage, self.started, part), slots)
        self.started += 1

    def check(self) -> None:
        """Raise the error of a failed block."""
        self._tasks.check()

    async def finish(self) -> None:
        """Wait until every block has been staged.

        Raises:
            StorageError: the error of a failed block.
        """
        await self._tasks.wait()
        self.check()
        if self._staged != self.started:
            raise anyio.ClosedResourceError(
                f"{self._shown}: the storage was closed while this object was being written"
            )

    async def abandon(self) -> None:
        """Cancel the blocks in transit and wait until their tasks have ended."""
        self._tasks.cancel()
        with shielded(_CANCEL_SECONDS):
            await self._tasks.wait()

    async def put(self, data: Buffer, metadata: Mapping[str, str]) -> Mapping[str, Any]:
        """Publish an object in a single request, without blocks."""
        what = f"{self._shown}: writing"
        headers = await _header(_md5, data, self._container.threads)
        body = bytes(data)

        async def request() -> Mapping[str, Any]:
            answer: Mapping[str, Any] = await self.blob.upload_blob(
                body,
                length=len(body),
                metadata=dict(metadata),
                headers=headers,
                # The SDK adds its own condition only if none is passed.
                **(self._conditions or {"overwrite": True}),
            )
            return answer

        return await self._container.repeat(request, what, condition=self.condition)

    async def commit(self, metadata: Mapping[str, str]) -> Mapping[str, Any]:
        """Publish the blocks. Repeating this after a lost response is harmless, because committed blocks stay valid."""
        blocks = [BlobBlock(block_id=self._block(n)) for n in range(self.started)]
        request = partial(self.blob.commit_block_list, blocks, metadata=dict(metadata), **self._conditions)
        what = f"{self._shown}: publishing"
        return await self._container.repeat(request, what, condition=self.condition)

    @property
    def _conditions(self) -> dict[str, Any]:
        return {"match_condition": MatchConditions.IfMissing} if self.condition == "none" else {}

    def _block(self, number: int) -> str:
        """Return the name of a block. Azure requires equally long names for an object's blocks, even across writers."""
        return f"{self.id}-{number:05}"

    async def _stage(self, number: int, part: memoryview) -> None:
        reusable = False
        try:
            what = f"{self._shown}: writing block {number:,}"
            compared = self._container.has_crc64 and await self._stage_with_crc64(number, part, what)
            if not compared:
                headers = await _header(_md5, part, self._container.threads)
                await self._container.repeat(partial(self._stage_once, number, part, headers), what)
            reusable = True
            self._staged += 1
        finally:
            self._container.buffers.give(part, reusable=reusable)

    async def _stage_with_crc64(self, number: int, part: memoryview, what: str) -> bool:
        """Send a block with its CRC-64. Return whether the store verified it; if not, send no more CRC-64s.

        A store that supports the header responds with the CRC-64 of the received bytes.
        """
        headers = await _header(_crc64, part, self._container.threads)
        try:
            answer = await self._container.repeat(partial(self._stage_once, number, part, headers), what)
        except HeaderUnknownError:
            answer = {}
        got = answer.get("content_crc64")
        compared = got is not None and base64.b64encode(got).decode() in headers.values()
        if not compared:
            self._container.has_crc64 = False
        return compared

    async def _stage_once(self, number: int, part: memoryview, headers: Mapping[str, str]) -> Mapping[str, Any]:
        body: Any = SlicedBody(part)
        answer: Mapping[str, Any] = await self.blob.stage_block(
            self._block(number), body, length=len(part), headers=dict(headers)
        )
        return answer


async def _header(
    checksum: Callable[[Buffer], dict[str, str]], data: Buffer, limiter: anyio.CapacityLimiter
) -> dict[str, str]:
    """Return the header with a body's checksum, which the store verifies before it accepts the body.

    The SDK's ``validate_content`` is not used, because it blocks the loop, and holds the GIL for a CRC-64.
    """
    if memoryview(data).nbytes <= _HASH_ON_LOOP:
        return checksum(data)
    return await in_thread(checksum, data, limiter=limiter)


def _crc64(data: Buffer) -> dict[str, str]:
    crc = crc64nvme(data)
    assert crc is not None, "has_crc64 was checked"
    return {"x-ms-content-crc64": base64.b64encode(crc.to_bytes(8, "little")).decode()}


def _md5(data: Buffer) -> dict[str, str]:
    return {"Content-MD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()}
