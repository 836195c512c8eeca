"""`MultipartUpload` uploads the parts of one object in tasks of the storage, and removes them if it is abandoned.

The first failure cancels the other parts, and `finish` raises it. `abandon` restores the store's previous state, if the
store responds within the time limit. It also removes an upload whose creation was never acknowledged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage import in_thread, shielded
from asyncrec.storage.http import PartTasks

from .body import body_of
from .bucket import bare, is_encrypted, writer_metadata
from .parts import Digest, is_md5, multipart_etag
from .shared import Shared

logger = logging.getLogger("asyncrec.storage.s3")


class SentParts:
    """The store's descriptions of the parts of one upload, by number."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, Any]] = {}
        self._sizes: dict[int, int] = {}
        self._md5s: dict[int, str] = {}
        # Whether the store's ETags of parts are MD5s: true until one differs.
        self._plain = True

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The entries for the request that completes the upload, in order."""
        return [self._entries[number] for number in sorted(self._entries)]

    @property
    def etag(self) -> str | None:
        """The expected ETag of the object, derived from its parts' ETags, or `None` if those are not MD5s."""
        return multipart_etag(bare(entry["ETag"]) for entry in self.entries)

    @property
    def certain(self) -> bool:
        """Whether `etag` follows from the data sent rather than only from the store's responses."""
        return self._plain and len(self._md5s) == len(self._entries)

    def judge(self, number: int, answer: dict[str, Any], digest: Digest, what: str) -> None:
        """Compare the ETag of a response with the MD5 sent, which the store has also verified.

        If they differ, either the store's ETags are not MD5s, because it encrypts objects or uses another scheme, or
        this response is wrong, and a second one will be right.

        Raises:
            TransientStorageError: this response may be wrong.
        """
        if digest.md5 is None:
            return
        etag = bare(answer["ETag"])
        if etag != digest.md5 and self._plain:
            self._plain = False
            if is_md5(etag) and not is_encrypted(answer):
                raise TransientStorageError(f"{what}: the ETag in the response is not the MD5 of the data sent")
        self._md5s[number] = digest.md5

    def add(self, number: int, entry: dict[str, Any], size: int) -> None:
        self._entries[number] = entry
        self._sizes[number] = size

    def correct(self, listed: dict[str, Any]) -> bool | None:
        """Adopt a part's ETag from a listing. Return whether it differed, or `None` if another writer sent the part."""
        number = listed["PartNumber"]
        entry = self._entries.get(number)
        if entry is None or listed.get("Size") != self._sizes[number]:
            return None
        wrong: bool = entry["ETag"] != listed["ETag"]
        entry["ETag"] = listed["ETag"]
        return wrong


# The time limit in seconds for removing everything. If it expires, a warning is logged.
_CLEAN_SECONDS = 10.0


class MultipartUpload:
    """One upload. ``prepare`` is awaited before the upload begins, and its error fails the upload.

    Attributes:
        started: the number of parts passed to `start` so far.
        whole: whether the upload was created with a CRC32C of the whole object.
        sent: the parts that the store has acknowledged.
    """

    def __init__(self, shared: Shared, key: str, writer: str, prepare: Callable[[], Awaitable[None]]) -> None:
        self.started = 0
        self.whole = False
        self.sent = SentParts()
        self._shared = shared
        self._bucket = shared.bucket
        self._key = key
        self._writer = writer
        self._prepare = prepare
        self._id: str | None = None
        self._created = anyio.Event()
        self._stray = False
        self._attempts: Counter[int] = Counter()
        self._tasks = PartTasks(shared.tasks, shared.slots.release)
        self._creating = anyio.CancelScope(shield=True)

    def start(self, data: memoryview, slots: int) -> None:
        """Upload the next part in the background. Its ``slots`` and memory are released when it has been sent."""
        if not self.started:
            self._tasks.start(self._create, 0)
        self.started += 1
        self._tasks.start(partial(self._upload, self.started, data), slots)

    def check(self) -> None:
        """Raise the error of a failed part."""
        self._tasks.check()

    async def finish(self) -> None:
        """Wait until every part has been uploaded. After a cancellation, the upload can be abandoned.

        Raises:
            StorageError: the error of a failed part.
        """
        await self._tasks.wait()
        self.check()
        if len(self.sent) != self.started:
            raise anyio.ClosedResourceError(
                f"{self._shared.options.root} was closed while {self._key} was being written"
            )

    @property
    def completion(self) -> dict[str, Any]:
        """The parameters of the request that completes the upload."""
        return {"Key": self._key, "UploadId": self._id, "MultipartUpload": {"Parts": self.sent.entries}}

    async def correct_etags(self) -> bool:
        """Replace the parts' ETags with those in the store's listing, in case a response was wrong.

        Return whether any ETag was wrong, or False if the listing fails or contains another writer's part. The new
        ETags can be trusted, because the store has verified the checksum of each part.
        """
        assert self._id is not None, "parts were uploaded"
        wrong = False
        try:
            async for listed in self._bucket.parts(self._key, self._id):
                corrected = self.sent.correct(listed)
                if corrected is None:
                    return False
                wrong = wrong or corrected
        except StorageError:
            return False
        return wrong

    async def abort(self) -> None:
        """Abort the upload in the store. Do nothing if the upload no longer exists."""
        if self._id is not None:
            await self._bucket.abort(self._key, self._id)

    async def abandon(self) -> None:
        """Cancel the parts and remove the upload, shielded for at most ten seconds. A failure is only logged."""
        self._tasks.cancel()
        with shielded(_CLEAN_SECONDS / 2) as limit:
            self._creating.deadline = limit.deadline
        if self.started:
            await self._shared.settle(self._clean)

    async def tidy(self) -> None:
        """After publication, remove any upload whose creation was not acknowledged."""
        if self._stray:
            await self._shared.settle(self._clean)

    # Requests ----------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        try:
            await self._prepare()
            await self._bucket.repeat(self._create_once, self._bucket.what("begin an upload to", self._key))
        finally:
            self._created.set()

    async def _create_once(self) -> None:
        what = self._bucket.what("begin an upload to", self._key)
        params: dict[str, Any] = {"Key": self._key, "Metadata": writer_metadata(self._writer)}
        self.whole = self._bucket.checksum == "crc32c"
        if self.whole:
            params |= {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"}
        deadline = self._creating.deadline
        # Shielded, because otherwise the id of a new upload could be lost. `abandon` limits the time.
        with anyio.CancelScope(shield=True, deadline=deadline) as self._creating:
            try:
                answer = await self._bucket.call("create_multipart_upload", what, **params)
            except TransientStorageError:
                self._stray = True
                raise
            self._id = answer["UploadId"]
        if self._id is None:
            self._stray = True
            raise TransientStorageError(f"{what}: the store did not answer in time")

    async def _upload(self, number: int, data: memoryview) -> None:
        try:
            await self._upload_part(number, data)
        finally:
            # After a response, nothing reads the memory, but after a fault, a connection that is closing may.
            self._shared.buffers.give(data, reusable=number in self.sent and self._attempts[number] == 1)

    async def _upload_part(self, number: int, data: memoryview) -> None:
        await self._created.wait()
        if self._id is None:
            return  # `_create` has failed and raises its own error
        kind = "crc32c" if self.whole else self._bucket.checksum
        digest = await in_thread(Digest, data, kind, limiter=self._shared.threads)
        what = f"{self._bucket.what('upload to', self._key)}, part {number}"
        try:
            part = await self._bucket.repeat(partial(self._upload_once, number, data, digest, what), what)
        except StorageError as error:
            if type(error) is not StorageError or digest.md5 is None or digest.crc32c is None:
                raise
            # The reason is unknown, but some stores reject every request with an unknown header.
            self._bucket.known.learn_crc32c(False)
            digest = await in_thread(Digest, data, "md5", limiter=self._shared.threads)
            part = await self._bucket.repeat(partial(self._upload_once, number, data, digest, what), what)
        self.sent.add(number, part, len(data))

    async def _upload_once(self, number: int, data: memoryview, digest: Digest, what: str) -> dict[str, Any]:
        self._attempts[number] += 1
        body = await body_of(data, hashed=self._shared.options.payload_signing, limiter=self._shared.threads)
        answer = await self._bucket.call(
            "upload_part",
            what,
            Key=self._key,
            UploadId=self._id,
            PartNumber=number,
            Body=body,
            **digest.params,
        )
        etag = bare(answer["ETag"])
        echo = answer.get("ChecksumCRC32C")
        if digest.crc32c is not None:
            self._bucket.known.learn_crc32c(echo is not None)
            if echo is not None and echo != digest.crc32c:
                raise TransientStorageError(f"{what}: the CRC32C in the response differs from that of the data sent")
            if echo is None and digest.md5 is None:
                # The store did not verify the checksum, even if it did before, so only its ETag can be compared.
                digest = await in_thread(Digest, data, "md5", limiter=self._shared.threads)
        self.sent.judge(number, answer, digest, what)
        part: dict[str, Any] = {"PartNumber": number, "ETag": f'"{etag}"'}
        if self.whole and echo is not None:
            part["ChecksumCRC32C"] = echo
        return part

    # Clean-up ----------------------------------------------------------------------------------------------------

    async def _clean(self) -> None:
        left: str | None = "the store did not answer in time"
        with shielded(_CLEAN_SECONDS):
            await self._tasks.wait()
            try:
                if self._tasks.cancelled:
                    await self.abort()
                if self._stray:
                    await self._remove_strays()
                left = None
            except StorageError as error:
                left = str(error)
        if left is not None:
            logger.warning(
                "%s: an unfinished upload may remain; to see it, use list_unfinished: %s",
                self._bucket.what("write", self._key),
                left,
                extra={"path": self._bucket.shown(self._key)},
            )

    async def _remove_strays(self) -> None:
        """Remove uploads to this key without parts, which may be ours if a response was lost.

        Another writer's upload to this key looks the same until its first part has arrived. If it is removed, that
        writer fails with an error, which is the lesser evil.
        """
        async for upload in self._bucket.uploads(self._key):
            if upload["Key"] != self._key or upload["UploadId"] == self._id:
                continue
            if not await self._bucket.has_parts(self._key, upload["UploadId"]):
                await self._bucket.abort(self._key, upload["UploadId"])
