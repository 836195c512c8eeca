"""Whether an object was published, whatever the answers were.

The last request of an object (a put, or the Complete of an upload) may take effect and its answer be lost; repeated,
it is then refused. So each object is written with an id of its writer in its metadata, and HEAD decides: an object
with our id is ours. What the store says it has is compared with what was sent: size, CRC32C where the store keeps
one, ETag where it follows from the MD5s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage.base import ObjectInfo

from .bucket import Bucket, Found, bare, crc_of, date_of
from .errors import UploadGoneError
from .parts import is_md5

__all__ = ["Content", "Publication"]


@dataclass(frozen=True, kw_only=True)
class Content:
    """What was sent.

    Attributes:
        size: bytes.
        crc32c: of the whole; `None` where it is not sent along.
        etag: what the store should give it, as far as is known.
        certain: whether ``etag`` follows from what was sent, so that another one means other bytes.
    """

    size: int
    crc32c: int | None
    etag: str | None
    certain: bool


class Publication:
    """The last step of one object. ``shown`` is its key in the storage, ``key`` that in the bucket."""

    def __init__(self, bucket: Bucket, key: str, shown: str, writer: str, *, exclusive: bool) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = shown
        self._writer = writer
        self._exclusive = exclusive

    @property
    def condition(self) -> dict[str, str]:
        return {"IfNoneMatch": "*"} if self._exclusive else {}

    async def refuse_existing(self) -> None:
        """Where the object must be new and is there: say so before all of it is uploaded.

        What decides is the condition on the last request; so a store that does not let us look is no obstacle.

        Raises:
            ObjectExistsError
        """
        if self._exclusive:
            try:
                found = await self._look()
            except StorageError:
                return
            if found is not None:
                raise ObjectExistsError(f"{self._bucket.what('create', self._key)}: it is there already")

    async def publish(
        self,
        request: Callable[[], Awaitable[dict[str, Any]]],
        content: Content,
        what: str,
        *,
        withdraw: Callable[[], Awaitable[None]] | None = None,
    ) -> ObjectInfo:
        """Send the request, settle what it came to, verify what the store has.

        ``withdraw`` makes sure that no request still on its way can publish any more; it is awaited before HEAD is
        believed that there is nothing.

        Raises:
            ObjectExistsError: another's object is there, and was not to be replaced.
            IntegrityError: the store has something else than was sent; it was deleted.
            StorageError: it is not there; a note says so where even that is unknown.
        """
        try:
            answer = await self._bucket.repeat(request, what)
        except (TransientStorageError, UploadGoneError, ObjectExistsError) as error:
            return await self._settle(error, content, withdraw)
        if withdraw is None and _confirmed(answer, content):
            # A put: the store compared what it got with the checksum, and says what it has. No need to ask again.
            return self._of_answer(answer, content)
        return await self._verify(answer, content)

    async def _settle(
        self, error: StorageError, content: Content, withdraw: Callable[[], Awaitable[None]] | None
    ) -> ObjectInfo:
        try:
            if withdraw is not None and isinstance(error, TransientStorageError):
                await withdraw()
            found = await self._look()
        except StorageError as blind:
            if not isinstance(error, ObjectExistsError):
                error.add_note(f"whether it was published is unknown, for the store did not say: {blind}")
            raise error from blind
        if found is not None and self._is_ours(found, content):
            return self._check(found, content)
        if found is not None and self._exclusive and not isinstance(error, ObjectExistsError):
            what = self._bucket.what("create", self._key)
            raise ObjectExistsError(f"{what}: another's object is there already") from error
        raise error

    async def _verify(self, answer: dict[str, Any], content: Content) -> ObjectInfo:
        found = await self._look()
        if found is None:
            raise IntegrityError(f"{self._what()}: the store acknowledged it, and does not have it")
        if not self._is_ours(found, content):
            # Replaced by another writer since, as is its right: ours was published.
            return self._of_answer(answer, content)
        try:
            info = self._check(found, content)
            if content.etag in (None, info.etag) or found.encrypted:
                return info
            # The content is right, and its ETag is not what follows from those of the parts: one answer was wrong.
            again = await self._look()
            return self._check(again, content) if again is not None and self._is_ours(again, content) else info
        except IntegrityError as error:
            # An answer may be damaged as well: a second one decides.
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
            raise IntegrityError(f"{self._what()}: {content.size:,} bytes were sent, the store has {info.size:,}")
        if info.crc32c is not None and content.crc32c is not None and info.crc32c != content.crc32c:
            raise IntegrityError(f"{self._what()}: the store's CRC32C is not that of what was sent")
        if content.certain and info.etag != content.etag and is_md5(info.etag) and not found.encrypted:
            raise IntegrityError(
                f"{self._what()}: the store's ETag {info.etag} is not {content.etag}, that of what was sent"
            )
        return info

    def _is_ours(self, found: Found, content: Content) -> bool:
        if found.writer is not None:
            return found.writer == self._writer
        # A store that drops metadata: by content, as far as it can be told.
        same_crc = content.crc32c is not None and found.info.crc32c == content.crc32c
        return found.info.size == content.size and (same_crc or found.info.etag == content.etag)

    def _of_answer(self, answer: dict[str, Any], content: Content) -> ObjectInfo:
        etag = bare(answer.get("ETag") or "") or content.etag or "unknown"
        return ObjectInfo(self._shown, content.size, etag, crc_of(answer), date_of(answer))

    async def _look(self) -> Found | None:
        try:
            return await self._bucket.head(self._key, shown=self._shown)
        except ObjectNotFoundError:
            return None

    def _what(self) -> str:
        return self._bucket.what("write", self._key)


def _confirmed(answer: dict[str, Any], content: Content) -> bool:
    etag = bare(answer.get("ETag") or "")
    if content.crc32c is not None and etag:
        return crc_of(answer) == content.crc32c
    return bool(etag) and etag == content.etag
