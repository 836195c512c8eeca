"""`Publication` determines whether an object was published, even if responses were lost.

The last request for an object (a put, or the Complete of an upload) may take effect even if its response is lost. The
store then rejects a repeated request. So each object's metadata contains the id of its writer, and a HEAD request shows
whether the object is ours. The stored object's size, its CRC32C if the store keeps one, and its ETag if that follows
from the MD5s are compared with the data sent.

For an exclusive object, the last request has the condition ``If-None-Match: *``. A store is not trusted to honour the
condition until its responses have proved that it does. The first put is preceded by a HEAD and then repeated, and the
store must reject the repetition. The completion of an upload cannot be tested in this way, because it might replace an
existing object, so it is preceded and followed by a HEAD. If two writers complete at the same moment, both may still
succeed (see `Storage.open_sink`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import DEFAULT, ObjectInfo, RetryPolicy

from .bucket import Bucket, Found, bare, crc_of, date_of
from .errors import CompletingError, UploadGoneError
from .parts import is_md5

# The policy for a HEAD that only saves work or detects most races. If the store is down, the next request fails too,
# and a caller that exits should not wait twice.
_BRIEF = RetryPolicy(attempts=4, cap=2.0, total=10.0)


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content that was sent.

    Attributes:
        size: the number of bytes.
        crc32c: the checksum of the whole content; `None` if it was not sent.
        etag: the expected ETag of the object; `None` if it is unknown.
        certain: whether ``etag`` follows from the data sent, so that another ETag implies other data.
    """

    size: int
    crc32c: int | None
    etag: str | None
    certain: bool


class Publication:
    """The publication of one object, whose key is ``shown`` in the storage and ``key`` in the bucket."""

    def __init__(self, bucket: Bucket, key: str, shown: str, writer: str, *, exclusive: bool) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = shown
        self._writer = writer
        self._exclusive = exclusive
        self._tried: tuple[Content, Callable[[], Awaitable[None]] | None] | None = None

    @property
    def condition(self) -> dict[str, str]:
        return {"IfNoneMatch": "*"} if self._exclusive else {}

    def refuse_unable(self) -> None:
        """Raise StorageError if the object is exclusive but the store is known to ignore the condition."""
        if self._exclusive and self._bucket.known.excludes_puts is False:
            raise StorageError(
                f"{self._bucket.what('create', self._key)}: the store ignores If-None-Match, so two writers could "
                "overwrite each other's objects. asyncrec refuses to write data sets to it; for details, run "
                "'asyncrec doctor'"
            )

    async def refuse_existing(self) -> None:
        """Raise ObjectExistsError early if the object is exclusive and another writer's object exists.

        A failed HEAD is ignored, because the condition of the last request is decisive.
        """
        if self._exclusive:
            try:
                found = await self._look(_BRIEF)
            except StorageError:
                return
            if found is not None and found.writer != self._writer:
                raise ObjectExistsError(f"{self._bucket.what('create', self._key)}: the object already exists")

    async def publish(
        self,
        request: Callable[[], Awaitable[dict[str, Any]]],
        content: Content,
        what: str,
        *,
        withdraw: Callable[[], Awaitable[None]] | None = None,
    ) -> ObjectInfo:
        """Send the request, determine its outcome, and verify the stored object.

        ``withdraw`` ensures that a request in transit can no longer publish the object. It is awaited before a HEAD,
        because otherwise a missing object could still appear.

        Raises:
            ObjectExistsError: the upload is exclusive, and another writer's object exists.
            IntegrityError: the stored object differs from the data sent, and was deleted.
            CompletingError: the object does not yet exist but may appear later. Call `publish` again, or call
                `give_up`.
            StorageError: the object does not exist, or its existence is unknown according to the error's note.
        """
        put = withdraw is None
        self._tried = content, withdraw
        try:
            answer = await self._bucket.repeat(request, what)
        except CompletingError as error:
            try:
                found = await self._look()
            except StorageError:
                raise error from None
            if found is None or not self._is_ours(found, content):
                raise
            return self._check(found, content)
        except (TransientStorageError, UploadGoneError, ObjectExistsError) as error:
            if isinstance(error, ObjectExistsError):
                self._bucket.known.learn_exclusion(**{"puts" if put else "parts": True})
            info = await self._settle(error, content, withdraw)
        else:
            # If the store compared a checksum of the put, its response is sufficient without a HEAD.
            confirmed = put and _confirmed(answer, content)
            info = self._of_answer(answer, content) if confirmed else await self._verify(answer, content, put=put)
        if self._exclusive and put and self._bucket.known.excludes_puts is None:
            await self._prove(request, what)
        return info

    async def give_up(self, error: StorageError) -> ObjectInfo:
        """Withdraw an unfinished completion of `publish`, or return the object if it was published.

        Raises:
            StorageError: ``error``, or an error of `publish`.
        """
        assert self._tried is not None, "publish was called"
        return await self._settle(error, *self._tried)

    async def _prove(self, request: Callable[[], Awaitable[dict[str, Any]]], what: str) -> None:
        """Repeat the request, which the store must reject because the object exists.

        Raises:
            StorageError: the store accepted the request, so its first success proves nothing. The object was deleted.
        """
        try:
            # Try twice, because another writer may delete the object in between.
            for _ in range(2):
                await self._bucket.repeat(request, what)
        except ObjectExistsError:
            self._bucket.known.learn_exclusion(puts=True)
            return
        except StorageError:
            return  # our object was published, and the next put will test the store again
        self._bucket.known.learn_exclusion(puts=False)
        found = await self._look()
        if found is not None and found.writer == self._writer:
            await self._bucket.delete(self._key)
        self.refuse_unable()

    async def _settle(
        self, error: StorageError, content: Content, withdraw: Callable[[], Awaitable[None]] | None
    ) -> ObjectInfo:
        try:
            lost = isinstance(error, TransientStorageError)  # the retries are exhausted
            if withdraw is not None and lost:
                await withdraw()
            found = await self._look(_BRIEF if lost else DEFAULT)
        except StorageError as blind:
            if not isinstance(error, ObjectExistsError):
                error.add_note(
                    f"it is unknown whether the object was published, because the store did not answer: {blind}"
                )
            raise error from blind
        if found is not None and self._is_ours(found, content):
            return self._check(found, content)
        if found is not None and self._exclusive and not isinstance(error, ObjectExistsError):
            what = self._bucket.what("create", self._key)
            raise ObjectExistsError(f"{what}: another writer has already created this object") from error
        raise error

    async def _verify(self, answer: dict[str, Any], content: Content, *, put: bool) -> ObjectInfo:
        found = await self._look()
        if found is None:
            raise IntegrityError(
                f"{self._what()}: the store acknowledged the object but does not have it; write it again"
            )
        if not self._is_ours(found, content):
            if self._exclusive and not put and not self._bucket.known.excludes_parts:
                # Our object was published, but then replaced by another writer's object, exclusive or not.
                raise ObjectExistsError(
                    f"{self._bucket.what('create', self._key)}: another writer published its object at the same time"
                )
            # Our object was published, and another writer has since replaced it, as is allowed.
            return self._of_answer(answer, content)
        try:
            info = self._check(found, content)
            if content.etag in (None, info.etag) or found.encrypted:
                return info
            # The content is right, but the ETag does not follow from the parts' ETags, so one response was wrong.
            again = await self._look()
            return self._check(again, content) if again is not None and self._is_ours(again, content) else info
        except IntegrityError as error:
            # This response may itself have been damaged, so check a second one.
            found = await self._look()
            if found is not None and self._is_ours(found, content):
                try:
                    return self._check(found, content)
                except IntegrityError:
                    await self._bucket.delete(self._key)
            raise error

    def _check(self, found: Found, content: Content) -> ObjectInfo:
        info = found.info
        if info.size != content.size:
            raise IntegrityError(f"{self._what()}: {content.size:,} bytes were sent, but the store has {info.size:,}")
        if info.crc32c is not None and content.crc32c is not None and info.crc32c != content.crc32c:
            raise IntegrityError(f"{self._what()}: the store's CRC32C differs from that of the data sent")
        if content.certain and info.etag != content.etag and is_md5(info.etag) and not found.encrypted:
            raise IntegrityError(
                f"{self._what()}: the store's ETag is {info.etag}, but the data that was sent has {content.etag}"
            )
        return info

    def _is_ours(self, found: Found, content: Content) -> bool:
        if found.writer is not None:
            return found.writer == self._writer
        # The store discards metadata, so identify the object by its content as far as possible.
        same_crc = content.crc32c is not None and found.info.crc32c == content.crc32c
        return found.info.size == content.size and (same_crc or found.info.etag == content.etag)

    def _of_answer(self, answer: dict[str, Any], content: Content) -> ObjectInfo:
        etag = bare(answer.get("ETag") or "") or content.etag or "unknown"
        return ObjectInfo(self._shown, content.size, etag, crc_of(answer), date_of(answer))

    async def _look(self, policy: RetryPolicy = DEFAULT) -> Found | None:
        try:
            return await self._bucket.head(self._key, shown=self._shown, policy=policy)
        except ObjectNotFoundError:
            return None

    def _what(self) -> str:
        return self._bucket.what("write", self._key)


def _confirmed(answer: dict[str, Any], content: Content) -> bool:
    etag = bare(answer.get("ETag") or "")
    if content.crc32c is not None and etag:
        return crc_of(answer) == content.crc32c
    return bool(etag) and etag == content.etag
