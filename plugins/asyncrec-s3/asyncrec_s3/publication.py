"""A `Publication` finds out whether an object was published, whatever the answers were.

The last request of an object (a put, or the Complete of an upload) may take effect and its answer be lost; repeated,
it is then refused. So each object is written with an id of its writer in its metadata, and HEAD decides: an object
with our id is ours. What the store says it has is compared with what was sent: size, CRC32C where the store keeps
one, ETag where it follows from the MD5s.

Of an exclusive object the condition on the last request decides, ``If-None-Match: *``. A store whose answers have not
shown that it honours it is not believed: its first put comes after a look, is sent once more, and has to be refused
then. The completion of an upload cannot be tried in this way, for it may replace what is there; so there is a look
before it, and one behind it. Two that complete at the same moment may still both be told that they won: see
`Storage.open_sink`.
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

# For a look that saves work, or sees what comes of a race most of the time: a store that is down is told of by the
# request that follows, and whoever waits at an exit does not wait for it twice.
_BRIEF = RetryPolicy(attempts=4, cap=2.0, total=10.0)


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content that was sent.

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
        self._tried: tuple[Content, Callable[[], Awaitable[None]] | None] | None = None

    @property
    def condition(self) -> dict[str, str]:
        return {"IfNoneMatch": "*"} if self._exclusive else {}

    def refuse_unable(self) -> None:
        """Refuse an object that must be new on a store that was seen to ignore that.

        Raises:
            StorageError
        """
        if self._exclusive and self._bucket.known.excludes_puts is False:
            raise StorageError(
                f"{self._bucket.what('create', self._key)}: the store ignores If-None-Match, so two writers could "
                "overwrite each other's objects. asyncrec refuses to write data sets to it; for details, run "
                "'asyncrec doctor'"
            )

    async def refuse_existing(self) -> None:
        """Refuse an object that must be new and is there, before all of it is uploaded.

        What decides is the condition on the last request; so a store that does not let us look is no obstacle.

        Raises:
            ObjectExistsError
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
        """Send the request, settle what it came to, verify what the store has.

        ``withdraw`` makes sure that no request still on its way can publish any more; it is awaited before HEAD is
        believed that there is nothing.

        Raises:
            ObjectExistsError: another's object is there, and was not to be replaced.
            IntegrityError: the store has something else than was sent; it was deleted.
            CompletingError: it is not there yet, and may be later: call this again, or `give_up`.
            StorageError: it is not there; a note says so where even that is unknown.
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
            # Of a put that it compared with a checksum the store has said what it has: no need to ask again.
            confirmed = put and _confirmed(answer, content)
            info = self._of_answer(answer, content) if confirmed else await self._verify(answer, content, put=put)
        if self._exclusive and put and self._bucket.known.excludes_puts is None:
            await self._prove(request, what)
        return info

    async def give_up(self, error: StorageError) -> ObjectInfo:
        """See to it that what `publish` has not ended does not end later; or the object, if it has ended since.

        Raises:
            StorageError: ``error``, or what `publish` raises.
        """
        assert self._tried is not None, "it was tried"
        return await self._settle(error, *self._tried)

    async def _prove(self, request: Callable[[], Awaitable[dict[str, Any]]], what: str) -> None:
        """Send the same request again, which has to be refused now that the object is there.

        Raises:
            StorageError: it was not, so nothing is proven by its success either; the object was taken away again.
        """
        try:
            # Twice: in between, somebody may have deleted the object, as is his right.
            for _ in range(2):
                await self._bucket.repeat(request, what)
        except ObjectExistsError:
            self._bucket.known.learn_exclusion(puts=True)
            return
        except StorageError:
            return  # ours was taken; the next one will show
        self._bucket.known.learn_exclusion(puts=False)
        found = await self._look()
        if found is not None and found.writer == self._writer:
            await self._bucket.delete(self._key)
        self.refuse_unable()

    async def _settle(
        self, error: StorageError, content: Content, withdraw: Callable[[], Awaitable[None]] | None
    ) -> ObjectInfo:
        try:
            lost = isinstance(error, TransientStorageError)  # and patience with it
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
                # Ours was published, and replaced by one that was to be new as well, or by one that may replace it: in
                # both cases there is nothing of ours.
                raise ObjectExistsError(
                    f"{self._bucket.what('create', self._key)}: another writer published its object at the same time"
                )
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
        # A store that drops metadata: by content, as far as it can be told.
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
