"""`Upload` is one resumable upload. Its bytes are sent until they are stored, then published and verified, or removed.

After a fault whose effect is unknown, the upload queries the session for the number of stored bytes, and sends only the
rest. It never repeats the last request blindly, because the session shows whether that request succeeded. If the
session no longer exists, the object's metadata shows it by the id of the upload that created the object.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from asyncrec.errors import (
    IntegrityError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)
from asyncrec.storage import ObjectInfo, retrying, sheltered, shielded

from .bucket import Bucket
from .errors import Condition, SessionGoneError
from .protocol import (
    STATUS_QUERY,
    Resource,
    content_range,
    crc32c_header,
    parse_object,
    parse_stored,
    session_body,
    session_url,
)
from .session import Answer

# The time limit in seconds for removing a session. A longer wait would delay a cancelled program, and sessions expire.
ABORT_SECONDS = 10.0
# The seconds for which a cancelled opening waits for the session's URL, which is needed to remove the session.
_OPEN_SECONDS = 5.0
_GONE = (404, 410, 499)

logger = logging.getLogger("asyncrec.storage")


class Upload:
    """The upload of one object. Only one task may use it at a time.

    Attributes:
        stored: the number of bytes that the store has acknowledged.
    """

    def __init__(self, bucket: Bucket, key: str, *, exclusive: bool) -> None:
        self.stored = 0
        self._bucket = bucket
        self._key = key
        self._exclusive = exclusive
        self._condition: Condition = "none" if exclusive else ""
        self._id = secrets.token_hex(16)
        self._address: str | None = None
        self._unsure = False  # whether the effect of the last request is unknown
        # The policy for requests after a failure that has exhausted the retries.
        self._brief = replace(bucket.policy, attempts=min(4, bucket.policy.attempts))

    async def begin(self) -> None:
        """Open the session.

        Raises:
            ObjectExistsError: the upload is exclusive, and the object exists.
            ObjectNotFoundError: the bucket does not exist.
            StoragePermissionError: the store denies access.
            TransientStorageError: every attempt failed.
        """
        await retrying(
            lambda: sheltered(self._open(), limit=_OPEN_SECONDS), what=self._what, policy=self._bucket.policy
        )

    async def append(self, data: memoryview) -> None:
        """Send ``data``, whose size is a multiple of 256 KiB, and wait until it is stored.

        Raises:
            SessionGoneError: the session has expired or was removed.
            StorageError: any other error. The upload can then only be aborted.
        """
        await self._push(data, None, {})

    async def finish(self, data: memoryview, checksum: int) -> ObjectInfo:
        """Publish the object, which consists of the stored bytes and ``data``, with the CRC32C ``checksum``.

        If cancelled, abort the upload, so that the object is not published later. If it has already been published,
        ignore the cancellation.

        Raises:
            ObjectExistsError: the upload is exclusive, and another writer's object exists.
            IntegrityError: the stored object differs from the data sent, and was deleted.
            TransientStorageError: a new upload may succeed. Nothing was published, unless the error has a note that
                this is unknown.
        """
        total = self.stored + len(data)
        try:
            resource = await self._publish(data, total, checksum)
        except asyncio.CancelledError:
            with shielded(ABORT_SECONDS), suppress(StorageError):
                await self.abort()
                if (found := await self._ours()) is not None:
                    return await self._verified(found, total, checksum)
            raise
        return await self._verified(resource, total, checksum)

    async def abort(self) -> None:
        """Remove the session and its stored bytes. A failure is only logged."""
        if self._address is None:
            return
        what = f"{self._bucket.shown(self._key)}: aborting the upload"
        request = partial(self._bucket.request, "DELETE", self._address, what=what, expect=(200, 204, *_GONE))
        try:
            await retrying(request, what=what, policy=self._brief)
        except StorageError as error:
            logger.warning(
                "%s: the store did not confirm it; the upload session expires within a week: %s",
                what,
                error,
                extra={"path": self._bucket.shown(self._key)},
            )
            return
        self._address = None

    @property
    def _what(self) -> str:
        return f"{self._bucket.shown(self._key)}: writing"

    async def _open(self) -> None:
        bucket = self._bucket
        answer = await bucket.request(
            "POST",
            session_url(bucket.endpoint, bucket.name, self._key, exclusive=self._exclusive),
            what=self._what,
            expect=(200, 201),
            write=True,
            condition=self._condition,
            headers={"Content-Type": "application/json; charset=UTF-8"},
            data=session_body(self._key, self._id),
        )
        address = answer.headers.get("Location")
        if not address:
            raise TransientStorageError(f"{self._what}: the store opened an upload session but did not send its URL")
        self._address = address

    async def _publish(self, data: memoryview, total: int, checksum: int) -> Resource:
        """Send the last request until its outcome is known. Return the published object's description."""
        try:
            resource = await self._push(data, total, {"X-Goog-Hash": crc32c_header(checksum)})
            assert resource is not None, "the last request returns the object"
            return resource
        except StorageError as failure:
            error = failure
        # Despite the error, an earlier attempt may have succeeded, because aiohttp also repeats requests. Removing the
        # session proves nothing, because stores confirm it even for a completed session. So look for the object.
        await self.abort()
        try:
            found = await self._ours()
        except StorageError as unclear:
            found = None
            error.add_note(f"it is unknown whether the object was published: {unclear}")
        if found is None:
            raise error
        return found

    async def _ours(self) -> Resource | None:
        """Return the object's description if this upload created it, or `None`."""
        try:
            found = await self._bucket.resource(self._key, self._what, self._brief)
        except ObjectNotFoundError:
            return None
        return found if found.upload == self._id else None

    async def _verified(self, resource: Resource, total: int, checksum: int) -> ObjectInfo:
        self._address = None
        info = resource.info
        if info.size == total and info.crc32c in (None, checksum):
            return info
        have = "none" if info.crc32c is None else f"{info.crc32c:#010x}"
        error = IntegrityError(
            f"{self._what}: the store has {info.size:,} bytes with crc32c {have}, but {total:,} with "
            f"{checksum:#010x} were sent; write the object again"
        )
        try:
            await self._bucket.remove(self._key, generation=resource.generation)
        except StorageError as failure:
            error.add_note(f"the damaged object could not be deleted: {failure}")
        raise error

    async def _push(self, data: memoryview, total: int | None, headers: Mapping[str, str]) -> Resource | None:
        """Send ``data`` until it is stored or, with ``total``, until it is published."""
        start = self.stored
        while total is not None or self.stored < start + len(data):
            # A step that returns has made progress, so the next one may again use all retries.
            step = partial(self._step, data, start, total, headers)
            resource = await retrying(step, what=self._what, policy=self._bucket.policy)
            if resource is not None:
                return resource
        return None

    async def _step(
        self, data: memoryview, start: int, total: int | None, headers: Mapping[str, str]
    ) -> Resource | None:
        before = self.stored
        if self._unsure:
            answer = await self._put(STATUS_QUERY, None, {})
            resource = self._take(answer, start, start + len(data), total)
            if resource is not None or self.stored > before:
                return resource
        rest = data[self.stored - start :]
        self._unsure = True
        answer = await self._put(content_range(self.stored, len(rest), total), rest, headers)
        resource = self._take(answer, start, start + len(data), total)
        if resource is None and self.stored == before:
            raise TransientStorageError(f"{self._what}: the store accepted none of the bytes sent")
        return resource

    async def _put(self, span: str, data: memoryview | None, headers: Mapping[str, str]) -> Answer:
        if self._address is None:
            raise SessionGoneError(f"{self._what}: the upload has already ended")
        answer = await self._bucket.request(
            "PUT",
            self._address,
            what=self._what,
            expect=(200, 201, 308, *_GONE),
            write=True,
            condition=self._condition,
            headers={"Content-Range": span, "Content-Type": "application/octet-stream", **headers},
            data=data,
        )
        if answer.status in _GONE:
            raise SessionGoneError(
                f"{self._what}: HTTP {answer.status}: the upload session has expired (after a week) or was deleted; "
                "write the object again"
            )
        return answer

    def _take(self, answer: Answer, start: int, end: int, total: int | None) -> Resource | None:
        """Update the number of stored bytes from a response. Return the object if it was published, or `None`."""
        try:
            if answer.status != 308:
                resource = parse_object(answer.body)
            stored = parse_stored(answer.headers.get("Range")) if answer.status == 308 else end
        except ValueError as error:
            # The next attempt begins with a status query, which returns the object's metadata or the session's state.
            raise TransientStorageError(f"{self._what}: HTTP {answer.status}: {error}") from None
        self._unsure = False
        if answer.status != 308:
            if total is None:
                raise StorageError(f"{self._what}: the store ended the upload before the last byte was sent")
            self.stored = end
            return resource
        if not start <= stored <= end:
            raise IntegrityError(
                f"{self._what}: the store reports {stored:,} stored bytes, but only {start:,} to {end:,} are possible"
            )
        lost, self.stored = stored < self.stored, stored
        if lost:
            raise TransientStorageError(f"{self._what}: the store now has fewer bytes than it reported before")
        return None
