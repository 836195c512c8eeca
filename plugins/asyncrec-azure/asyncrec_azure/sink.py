"""`AzureSink` writes one object, either with one put or as blocks that are committed together.

An object of at most 1 MiB that is shorter than a chunk is sent with one put at the exit. In a longer object, each chunk
is a block, which a task of the storage stages while the caller continues. After the exit, the object is either
published and verified, or never becomes visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel

from asyncrec.errors import (
    ArgumentValueError,
    IntegrityError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)
from asyncrec.storage import Buffer, ByteSink, ObjectInfo, SinkState, sheltered, shielded
from asyncrec.storage.http import fill_part

from .container import CRC32C, UPLOAD, Container, Found, info_of
from .errors import BlocksGoneError
from .upload import MOST_BLOCKS, Upload

# Copying and checksumming more bytes would block the loop for too long, as would a put, which the SDK sends all at
# once.
_ON_LOOP = 1 << 20
# The seconds for which a cancelled publication may continue, and for the check whether it succeeded.
_PUBLISH_SECONDS = 20.0
_LOOK_SECONDS = 10.0


class AzureSink(ByteSink):
    """A sink for one object, created by the storage's `open_sink`, and its own context manager."""

    def __init__(self, container: Container, key: str, *, exclusive: bool) -> None:
        self.chunk_size = container.chunk_size
        self._container = container
        self._key = key
        self._exclusive = exclusive
        self._shown = container.shown(key)
        self._upload = Upload(container, key, exclusive=exclusive)
        self._short = bytearray()
        self._last_sent = False
        self._size = 0
        self._crc: int | None = 0
        # The policy for requests after a failure that has exhausted the retries.
        self._brief = replace(container.policy, attempts=min(4, container.policy.attempts))
        self._state = SinkState(self._shown)

    async def __aenter__(self) -> AzureSink:
        with self._state.entering():
            await anyio.lowlevel.checkpoint()
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self._state.check()
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if self._last_sent or not 0 < size <= self.chunk_size:
            raise ArgumentValueError(
                f"a chunk must have {self.chunk_size:,} bytes (only the last of an object may be shorter), not {size:,}"
            )
        with self._state.working():
            self._upload.check()
            self._last_sent = size < self.chunk_size
            if self._last_sent and not self._upload.started and size <= _ON_LOOP:
                # Acquire no slot, so that a task with several open short objects does not wait for itself.
                self._short = bytearray(size)
                await self._copy(self._short, buffers, size)
            else:
                await self._send_block(buffers, size)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        """Return 0, because uncommitted data cannot be read. Raise the error of a failed block."""
        self._state.check()
        self._upload.check()
        await anyio.lowlevel.checkpoint()
        return 0

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self._state.leave(exc):
                return
            await self._upload.finish()
            await anyio.lowlevel.checkpoint()
            self.published = await sheltered(self._publish(), limit=_PUBLISH_SECONDS)
        finally:
            if self.published is None:
                await self._upload.abandon()
            self._short = bytearray()

    async def _send_block(self, buffers: Sequence[Buffer], size: int) -> None:
        if self._upload.started == MOST_BLOCKS:
            raise StorageError(
                f"{self._shown}: the object does not fit in Azure's maximum of {MOST_BLOCKS:,} blocks of "
                f"{self.chunk_size:,} bytes; pass a larger chunk_size"
            )
        if self._exclusive and not self._upload.started:
            await self._refuse_existing()
        slots = self._container.slots.of(size)
        await self._container.slots.acquire(slots)
        part = self._container.buffers.take(size)
        try:
            await self._copy(part, buffers, size)
        except BaseException:
            self._container.buffers.give(part, reusable=True)
            self._container.slots.release(slots)
            raise
        self._upload.start(part, slots)

    async def _copy(self, into: bytearray | memoryview, buffers: Sequence[Buffer], size: int) -> None:
        self._crc = await fill_part(into, buffers, self._crc, limiter=self._container.threads)
        self._size += size

    async def _refuse_existing(self) -> None:
        """Raise early if an exclusive object exists. Ignore other errors: the publishing request is decisive."""
        try:
            await self._look()
        except StorageError:
            return
        raise ObjectExistsError(f"{self._shown}: the object already exists")

    async def _publish(self) -> ObjectInfo:
        """Publish and verify the object, and resolve an unknown outcome.

        If cancelled after the object has been published, return its description instead of raising.
        """
        metadata = {UPLOAD: self._upload.id, CRC32C: f"{self._crc:08x}"}
        try:
            if self._upload.started:
                return await self._verified(await self._upload.commit(metadata))
            return self._info(await self._upload.put(self._short, metadata))
        except asyncio.CancelledError:
            with shielded(_LOOK_SECONDS):
                found = await self._ours()
                if found is not None:
                    return found.info
            raise
        except (TransientStorageError, ObjectExistsError, BlocksGoneError) as failure:
            error = failure
        return await self._settle(error)

    async def _settle(self, error: StorageError) -> ObjectInfo:
        """Return the description of our object, recognised by its id, if it was published despite ``error``."""
        try:
            found = await self._look()
        except ObjectNotFoundError:
            raise error from None
        except StorageError as blind:
            error.add_note(f"it is unknown whether the object was published: {blind}")
            raise error from None
        if found.upload == self._upload.id:
            return self._check(found)
        if self._exclusive and not isinstance(error, ObjectExistsError):
            raise ObjectExistsError(f"{self._shown}: another writer has already created this object") from error
        raise error

    async def _verified(self, answer: Mapping[str, Any]) -> ObjectInfo:
        """Verify the object that the store has assembled."""
        found = await self._ours()
        # If the object is no longer ours, another writer has replaced or deleted ours after publication, as is allowed.
        return self._info(answer) if found is None else await self._intact(found)

    async def _intact(self, found: Found) -> ObjectInfo:
        try:
            return self._check(found)
        except IntegrityError as error:
            try:
                await self._container.remove(self._key, etag=found.info.etag)
            except StorageError as failure:
                error.add_note(f"the damaged object could not be deleted: {failure}")
            raise

    def _check(self, found: Found) -> ObjectInfo:
        if found.info.size != self._size:
            raise IntegrityError(
                f"{self._shown}: {self._size:,} bytes were sent, but the store has {found.info.size:,}; write the "
                "object again"
            )
        return found.info

    def _info(self, answer: Mapping[str, Any]) -> ObjectInfo:
        metadata = {CRC32C: f"{self._crc:08x}"}
        return info_of(self._key, self._size, answer.get("etag"), answer.get("last_modified"), metadata)

    async def _look(self) -> Found:
        return await self._container.look(self._key, self._upload.blob, f"{self._shown}: looking", self._brief)

    async def _ours(self) -> Found | None:
        """Return the object's description if this upload created it, or `None`."""
        try:
            found = await self._look()
        except ObjectNotFoundError:
            return None
        return found if found.upload == self._upload.id else None
