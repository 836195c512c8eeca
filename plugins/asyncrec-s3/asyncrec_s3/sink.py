"""`S3Sink` writes one object, either with one put or as a multipart upload of unknown length.

An object shorter than a chunk is sent with one put at the exit. Otherwise, the first full chunk begins an upload. Each
chunk is a part, which a task of the storage uploads while the caller continues. The storage's `PartSlots` bound the
bytes in transit. Slots are acquired before a chunk is copied.

After the exit, the object is either published and verified, or removed, even if the last responses were lost
(`publication`, `upload`). The decisive requests run in tasks of the storage, which continue for a while after the
caller has been cancelled.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TypeVar

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentValueError, StorageError, TransientStorageError
from asyncrec.storage import Backoff, Buffer, ByteSink, ObjectInfo, RetryPolicy, SinkState, in_thread
from asyncrec.storage.http import fill_part

from .body import body_of
from .bucket import writer_metadata
from .errors import CompletingError, InvalidPartError
from .parts import MAX_PARTS, MIB, Digest, base64_of_crc, part_size
from .publication import Content, Publication
from .shared import Shared
from .upload import MultipartUpload

B = TypeVar("B", bytearray, memoryview)

# The time limit in seconds for the last request and its outcome: that of the back-off, and some time for a HEAD.
_PUBLISH_SECONDS = 150.0
# The time limit in seconds for publication after the caller has been cancelled.
_CANCELLED_SECONDS = 20.0
# The policy if the store reports that an upload is already being completed. It waits longer than the 600 s for which
# Ceph keeps the lock of a killed gateway, and allows 1.5 times as many attempts as that needs on average.
_LOCKED = RetryPolicy(attempts=60, base=1.0, cap=30.0, total=660.0)


class S3Sink(ByteSink):
    """A sink for one object, created by `S3Storage.open_sink`, and its own context manager."""

    def __init__(self, shared: Shared, key: str, *, exclusive: bool) -> None:
        self.chunk_size = shared.options.chunk_size
        self._shared = shared
        self._bucket = shared.bucket
        self._key = shared.options.prefix + key
        self._writer = uuid.uuid4().hex
        self._publication = Publication(self._bucket, self._key, key, self._writer, exclusive=exclusive)
        self._upload = MultipartUpload(shared, self._key, self._writer, self._publication.refuse_existing)
        # The CRC32C of the whole object, unless the store cannot verify it.
        self._crc: int | None = None if self._bucket.checksum == "md5" else 0
        self._size = 0
        self._short = bytearray()
        self._last_sent = False
        self._state = SinkState(self._bucket.shown(self._key))

    async def __aenter__(self) -> S3Sink:
        self._shared.check()
        with self._state.entering():
            self._publication.refuse_unable()
            await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._state.leave(exc):
                await self._upload.finish()
                await self._publish()
        except BaseException:
            if self.published is None:
                await self._upload.abandon()
            raise
        if self.published is None:
            await self._upload.abandon()
        else:
            await self._upload.tidy()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if self._last_sent or not 0 < size <= self.chunk_size:
            raise ArgumentValueError(
                f"a chunk must have {self.chunk_size:,} bytes (only the last of an object may be shorter), not {size:,}"
            )
        if self._upload.started == MAX_PARTS:
            raise StorageError(
                f"{self._bucket.what('write', self._key)}: the object does not fit in S3's maximum of {MAX_PARTS:,} "
                f"parts of {self.chunk_size:,} bytes; pass a larger chunk_size"
            )
        # An unfinished send may leave a gap, after which the object must not be published.
        with self._state.working():
            self._last_sent = size < self.chunk_size
            if self._last_sent and not self._upload.started:
                # Acquire no slot, so that a task with several open short objects does not wait for itself.
                self._short = await self._copy(buffers, size, bytearray(size))
            else:
                await self._send_part(buffers, size)

    async def _send_part(self, buffers: Sequence[Buffer], size: int) -> None:
        slots = self._shared.slots.of(size)
        await self._shared.slots.acquire(slots)
        part = self._shared.buffers.take(size)
        try:
            self._upload.check()
            await self._copy(buffers, size, part)
        except BaseException:
            self._shared.buffers.give(part, reusable=True)
            self._shared.slots.release(slots)
            raise
        self._upload.start(part, slots)
        if self._upload.started < MAX_PARTS:
            self.chunk_size = part_size(self._upload.started + 1, self._shared.options.chunk_size)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        """Return 0, because data of an unfinished upload cannot be read. Raise the error of a failed part."""
        self._check()
        await anyio.lowlevel.checkpoint()
        return 0

    def _check(self) -> None:
        self._state.check()
        self._shared.check()
        self._upload.check()

    async def _copy(self, buffers: Sequence[Buffer], size: int, into: B) -> B:
        self._crc = await fill_part(into, buffers, self._crc, limiter=self._shared.threads)
        self._size += size
        return into

    async def _publish(self) -> None:
        backoff = Backoff(self._bucket.what("publish", self._key), _LOCKED)
        while self.published is None:
            try:
                await self._attempt(self._complete if self._upload.started else self._put)
            except CompletingError as error:
                await self._wait_for_completion(backoff, TransientStorageError(str(error)))

    async def _wait_for_completion(self, backoff: Backoff, busy: TransientStorageError) -> None:
        """Wait before the next attempt. Give up the upload, unless it was published, if cancelled or out of attempts.

        The wait is not shielded, so that a cancelled caller does not have to wait.

        Raises:
            TransientStorageError: the attempts are exhausted, and the object does not exist.
        """
        try:
            await backoff.wait(busy)
        except BaseException as end:
            try:
                await self._attempt(partial(self._publication.give_up, busy))
            except StorageError:
                if end is not busy:
                    raise end from None
                raise
            if end is not busy:
                raise

    async def _attempt(self, publish: Callable[[], Awaitable[ObjectInfo]]) -> None:
        """Run ``publish`` in a task of the storage, which continues for a while after the caller is cancelled."""
        outcome: list[Exception] = []

        async def job() -> None:
            try:
                with anyio.move_on_after(_PUBLISH_SECONDS):
                    self.published = await publish()
            except Exception as error:
                outcome.append(error)

        await self._shared.settle(job, limit=_CANCELLED_SECONDS)
        if outcome:
            raise outcome[0]
        if self.published is None:
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise TransientStorageError(
                f"{self._bucket.what('publish', self._key)}: the upload did not complete within "
                f"{_PUBLISH_SECONDS:.0f} s; it is unknown whether the object exists"
            )

    async def _put(self) -> ObjectInfo:
        if self._bucket.known.excludes_puts is None:
            # The put with which the store is tested must not replace an object.
            await self._publication.refuse_existing()
        data = self._short
        threads = self._shared.threads
        # Only parts test whether the store supports a checksum, because a put may be rejected for other reasons.
        kind = "crc32c" if self._bucket.checksum == "crc32c" else "md5"
        if len(data) <= MIB // 4:
            digest = Digest(data, kind)
        else:
            digest = await in_thread(Digest, data, kind, limiter=threads)
        what = self._bucket.what("put", self._key)

        async def request() -> dict[str, object]:
            return await self._bucket.call(
                "put_object",
                what,
                Key=self._key,
                Body=await body_of(data, hashed=self._shared.options.payload_signing, limiter=threads),
                Metadata=writer_metadata(self._writer),
                **digest.params,
                **self._publication.condition,
            )

        # The ETag is not certain, because that of an encrypted object is not an MD5. The store has verified the MD5
        # sent.
        crc = self._crc if kind == "crc32c" else None
        content = Content(size=len(data), crc32c=crc, etag=digest.md5, certain=False)
        return await self._publication.publish(request, content, what)

    async def _complete(self) -> ObjectInfo:
        if not self._bucket.known.excludes_parts:
            await self._publication.refuse_existing()
        try:
            return await self._complete_once()
        except InvalidPartError:
            if not await self._upload.correct_etags():
                raise
        return await self._complete_once()

    async def _complete_once(self) -> ObjectInfo:
        what = self._bucket.what("complete the upload to", self._key)
        params = self._upload.completion | self._publication.condition
        crc = self._crc if self._upload.whole else None
        if crc is not None:
            whole = {"ChecksumCRC32C": base64_of_crc(crc), "ChecksumType": "FULL_OBJECT"}
            params |= whole | {"MpuObjectSize": self._size}
        content = Content(size=self._size, crc32c=crc, etag=self._upload.sent.etag, certain=self._upload.sent.certain)
        request = partial(self._bucket.call, "complete_multipart_upload", what, **params)
        return await self._publication.publish(request, content, what, withdraw=self._upload.abort)
