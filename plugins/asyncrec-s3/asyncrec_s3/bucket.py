"""Requests to one bucket, with time limits, and with errors and responses converted to asyncrec's types.

`Bucket.call`, `Bucket.download` and `Bucket.begin` make one attempt. The other methods retry transient faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import DEFAULT, ObjectInfo, RetryPolicy, retrying
from asyncrec.storage.http import parse_content_range, parse_http_date

from .body import Body
from .client import Connection
from .download import Download
from .errors import Condition, Limited, UploadGoneError
from .listing import Listing
from .options import Options
from .parts import crc_of_base64

__all__ = ["Bucket", "Found", "bare", "crc_of", "is_encrypted"]

T = TypeVar("T")

# The metadata key by which a writer recognises its own object if the response to its last request was lost.
_WRITER = "asyncrec-writer"
# The members of every response of S3. A response without them is from another server, such as a proxy that returns its
# sign-in page, which the SDK would parse as an empty listing.
_ALWAYS_SAID = {
    "complete_multipart_upload": ("ETag",),
    "create_multipart_upload": ("UploadId",),
    "head_object": ("ContentLength", "ETag", "LastModified"),
    "list_multipart_uploads": ("IsTruncated",),
    "list_objects_v2": ("IsTruncated",),
    "list_parts": ("IsTruncated",),
    "put_object": ("ETag",),
    "upload_part": ("ETag",),
}
# The status of responses without content.
_NO_CONTENT = 204
# The status for a range that begins at or after the end of an object.
_NO_SUCH_RANGE = 416


@dataclass(frozen=True, slots=True)
class Found:
    """The description of an object from a HEAD request. ``writer`` is the id of the object's writer, or `None`."""

    info: ObjectInfo
    writer: str | None
    encrypted: bool


class Bucket:
    """A bucket, whose methods accept full keys, including the storage's prefix.

    Attributes:
        name: the name of the bucket.
        known: the capabilities that the store's responses have revealed.
    """

    def __init__(self, connection: Connection, options: Options) -> None:
        self.name = options.bucket
        self.known = connection.known
        self._checksum = options.checksum
        self._connection = connection
        self._patience = options.connect_timeout + options.read_timeout

    @property
    def checksum(self) -> str:
        """The checksum to send with the next body: ``"crc32c"``, ``"md5"``, or ``"both"`` to test the store."""
        if self._checksum != "auto":
            return self._checksum
        return {True: "crc32c", False: "md5", None: "both"}[self.known.crc32c]

    def shown(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def what(self, operation: str, key: str = "") -> str:
        return f"{operation} {self.shown(key)}"

    async def call(self, name: str, what: str, **params: Any) -> dict[str, Any]:
        """Make one attempt at an SDK request. The time limit restarts with each block of a `Body` that is sent.

        Raises:
            StorageError: the translated error.
            TransientStorageError: also if the time limit has expired, or if the response is from another server.
        """
        condition: Condition = "none" if "IfNoneMatch" in params else ""
        limited = Limited(what, condition, self._patience, 0)
        if isinstance(body := params.get("Body"), Body):
            body.moved = limited.extend
        with limited:
            try:
                answer: dict[str, Any] = await getattr(self._connection.client, name)(Bucket=self.name, **params)
            except ClientError as error:
                self.known.check_origin(error, what)
                raise
        if missing := [said for said in _ALWAYS_SAID.get(name, ()) if answer.get(said) in (None, "")]:
            raise TransientStorageError(f"{what}: the response is not from S3, because it has no {', '.join(missing)}")
        self.known.check_answer(answer, name, what)
        return answer

    async def repeat(self, operation: Callable[[], Awaitable[T]], what: str, policy: RetryPolicy = DEFAULT) -> T:
        return await retrying(operation, what=what, policy=policy)

    async def head(self, key: str, *, shown: str, policy: RetryPolicy = DEFAULT) -> Found:
        """Return the description of an object. ``shown`` is the key relative to the storage, for the `ObjectInfo`."""
        what = self.what("head", key)

        async def once() -> Found:
            answer = await self.call("head_object", what, Key=key, ChecksumMode="ENABLED")
            size, etag, modified = (answer[name] for name in _ALWAYS_SAID["head_object"])
            info = ObjectInfo(shown, int(size), bare(etag), crc_of(answer), modified)
            return Found(info, answer.get("Metadata", {}).get(_WRITER), is_encrypted(answer))

        return await self.repeat(once, what, policy)

    async def download(self, key: str, start: int, end: int, etag: str) -> Download:
        """Make one attempt to begin reading the bytes ``[start, end)``. The caller must close the download.

        Raises:
            ObjectChangedError: the etag in the response is not ``etag``.
        """
        what = self.what("get", key)
        with Limited(what, "same", self._patience, 0):
            try:
                answer = await self._connection.gets(self.name).get(
                    key, range=f"bytes={start}-{end - 1}", etag=f'"{etag}"'
                )
            except ClientError as error:
                self.known.check_origin(error, what)
                raise
        download = Download(answer["Body"], end - start, what, self._patience)
        try:
            self.known.check_answer(answer, "get_object", what)
            if bare(answer.get("ETag", "")) != etag:
                raise ObjectChangedError(
                    f"{what}: the object was replaced since it was opened (its etag is no longer {etag}); open it again"
                )
            _check_start(answer, start, what)
        except StorageError:
            await download.aclose()
            raise
        return download

    async def begin(self, key: str, start: int, end: int | None, *, shown: str) -> tuple[ObjectInfo, Download] | None:
        """Make one attempt to begin reading the current version, to its end if ``end`` is `None`.

        Return `None` if the object has no bytes from ``start`` on, or if the response does not describe the version.
        ``shown`` is as for `head`. The caller must close the download.

        Raises:
            ObjectNotFoundError, StorageError: as for `call`.
        """
        what = self.what("get", key)
        # Request a whole object without a range, because stores then also return its checksum.
        whole = start == 0 and end is None
        wanted = "" if whole else f"bytes={start}-{'' if end is None else end - 1}"
        with Limited(what, "", self._patience, 0):
            try:
                answer = await self._connection.gets(self.name).get(key, range=wanted)
            except ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == _NO_SUCH_RANGE:
                    return None
                self.known.check_origin(error, what)
                raise
        size, etag, modified = (answer.get(name) for name in _ALWAYS_SAID["head_object"])
        download = Download(answer["Body"], int(size or 0), what, self._patience)
        try:
            self.known.check_answer(answer, "get_object", what)
            if size is None or not etag or modified is None:
                found = None
            elif "ContentRange" not in answer:
                _check_start(answer, start, what)
                if end is not None and end < size:
                    raise StorageError(
                        f"{what}: the store does not support range requests, which asyncrec needs for reading"
                    )
                found = ObjectInfo(shown, size, bare(etag), crc_of(answer), modified)
            else:
                found = _part_of(answer, start, end, ObjectInfo(shown, size, bare(etag), None, modified))
        except BaseException:
            await download.aclose()
            raise
        if found is None:
            await download.aclose()
            return None
        return found, download

    async def delete(self, key: str) -> None:
        what = self.what("delete", key)

        async def once() -> None:
            answer = await self.call("delete_object", what, Key=key)
            if not _is_silent(answer):
                # The response may be from a proxy or another store, so check whether the object still exists.
                await self.call("head_object", what, Key=key)
                raise TransientStorageError(f"{what}: the response is not from S3, and the object still exists")

        try:
            await self.repeat(once, what)
        except ObjectNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise

    def objects(self, prefix: str, start_after: str) -> Listing:
        """Return a listing of all objects in ascending order of UTF-8 bytes. Any other order raises StorageError."""
        params: dict[str, Any] = {"Prefix": prefix}
        if start_after:
            params["StartAfter"] = start_after
        marks = {"ContinuationToken": "NextContinuationToken"}
        what = self.what("list", prefix)
        ask = partial(self._page, "list_objects_v2", what)
        return Listing(ask, what, params, "Contents", marks, ordered=True)

    def uploads(self, prefix: str) -> Listing:
        """Return a listing of the unfinished multipart uploads."""
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        what = self.what("list the unfinished uploads of", prefix)
        ask = partial(self._page, "list_multipart_uploads", what)
        return Listing(ask, what, {"Prefix": prefix}, "Uploads", marks, ordered=False)

    async def has_parts(self, key: str, upload_id: str) -> bool:
        what = self.what("list the parts of an upload to", key)
        request = partial(self.call, "list_parts", what, Key=key, UploadId=upload_id, MaxParts=1)
        return bool((await self.repeat(request, what)).get("Parts"))

    def parts(self, key: str, upload_id: str) -> Listing:
        """Return a listing of an upload's stored parts."""
        marks = {"PartNumberMarker": "NextPartNumberMarker"}
        what = self.what("list the parts of an upload to", key)
        ask = partial(self._page, "list_parts", what)
        return Listing(ask, what, {"Key": key, "UploadId": upload_id}, "Parts", marks, ordered=False)

    async def _page(self, verb: str, what: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.repeat(partial(self.call, verb, what, **params), what)

    async def abort(self, key: str, upload_id: str) -> None:
        """Abort an upload. Do nothing if the upload no longer exists."""
        what = self.what("abort an upload to", key)

        async def once() -> None:
            if not _is_silent(await self.call("abort_multipart_upload", what, Key=key, UploadId=upload_id)):
                # If the upload was aborted, the next attempt reports that it no longer exists.
                raise TransientStorageError(f"{what}: the response is not from S3")

        try:
            await self.repeat(once, what)
        except (UploadGoneError, ObjectNotFoundError):
            return


def _check_start(answer: dict[str, Any], start: int, what: str) -> None:
    """Raise StorageError unless the response begins at the requested byte."""
    if not answer.get("ContentRange", f"bytes {start}-").startswith(f"bytes {start}-"):
        raise TransientStorageError(
            f"{what}: the request was for bytes from {start:,} on, but the store sent another range"
        )
    if "ContentRange" not in answer and start:
        raise StorageError(f"{what}: the store does not support range requests, which asyncrec needs for reading")


def _part_of(answer: dict[str, Any], start: int, end: int | None, part: ObjectInfo) -> ObjectInfo | None:
    """Return ``part`` with the size of the whole object, or `None` if the response is inconsistent with the request."""
    try:
        first, last, size = parse_content_range(answer["ContentRange"])
    except ValueError:
        return None
    if size is None or (first, last) != (start, size if end is None else min(end, size)) or last - first != part.size:
        return None
    return replace(part, size=size)


def writer_metadata(writer: str) -> dict[str, str]:
    return {_WRITER: writer}


def bare(etag: str) -> str:
    """Remove the quotes from an ETag."""
    return etag.strip('"')


def crc_of(answer: dict[str, Any]) -> int | None:
    """Return the CRC32C of the whole object, or `None` if the store does not keep one."""
    return None if answer.get("ChecksumType") == "COMPOSITE" else crc_of_base64(answer.get("ChecksumCRC32C"))


def _is_silent(answer: dict[str, Any]) -> bool:
    return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == _NO_CONTENT)


def is_encrypted(answer: dict[str, Any]) -> bool:
    """Return whether the object is encrypted such that its ETag is not an MD5."""
    return str(answer.get("ServerSideEncryption", "")).startswith("aws:kms") or "SSECustomerAlgorithm" in answer


def date_of(answer: dict[str, Any]) -> datetime:
    """Return the date of a response by the store's clock, or the current time if the response has no date."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return parse_http_date(headers.get("date")) or datetime.now(UTC)
