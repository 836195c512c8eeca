"""`S3Storage` is a bucket, or a prefix in a bucket, as a `Storage`. Entering the storage opens it.

Its sinks and sources share the resources in `Shared`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage import ByteSink, ByteSource, ObjectInfo, Storage, check_key

from .bucket import bare
from .exclusion import excludes_parts
from .listing import Listing
from .options import Options
from .parts import MIB
from .shared import Shared
from .sink import S3Sink
from .source import S3Source


class S3Storage(Storage):
    """A bucket, or a prefix in a bucket, as a `Storage`."""

    flush_level = "buffered"
    # Half of this is requested at a time: 8 MiB are in transit while the previous 8 MiB are processed.
    read_ahead = 16 * MIB

    def __init__(self, options: Options) -> None:
        self.root = options.root
        self.shared = Shared(options)

    def __repr__(self) -> str:
        return f"S3Storage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} cannot be sent to another process; open another storage there with the same options"
        )

    async def __aenter__(self) -> S3Storage:
        await self.shared.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.shared.__aexit__(exc_type, exc, traceback)

    # The contract ------------------------------------------------------------------------------------------------

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return S3Sink(self.shared, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) is invalid: offsets count from the beginning")
        return S3Source(self.shared, check_key(key), start=start, end=end, info=info)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.shared.check()
        root = self.shared.options.prefix
        listing = self.shared.bucket.objects(root + prefix, root + start_after if start_after else "")
        return _Infos(self.shared, root + prefix, listing, _object)

    async def head(self, key: str) -> ObjectInfo:
        self.shared.check()
        return (await self.shared.bucket.head(self.shared.options.prefix + check_key(key), shown=key)).info

    async def delete(self, key: str) -> None:
        self.shared.check()
        await self.shared.bucket.delete(self.shared.options.prefix + check_key(key))

    # UnfinishedUploads -------------------------------------------------------------------------------------------

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List the unfinished multipart uploads. Their size is 0, because S3 does not report it."""
        self.shared.check()
        return _Infos(
            self.shared,
            self.shared.options.prefix + prefix,
            self.shared.bucket.uploads(self.shared.options.prefix + prefix),
            _upload,
        )

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        self.shared.check()
        await self.shared.bucket.abort(self.shared.options.prefix + check_key(upload.key), upload.etag)

    # ExclusiveParts ----------------------------------------------------------------------------------------------

    async def excludes_parts(self, key: str) -> bool:
        """Test with eight requests whether the store honours the condition when it completes a multipart upload."""
        self.shared.check()
        return await excludes_parts(self.shared.bucket, self.shared.options.prefix + check_key(key))


class _Infos:
    """The entries of a listing as `ObjectInfo`, with keys relative to the storage."""

    def __init__(
        self, shared: Shared, prefix: str, listing: Listing, info: Callable[[str, dict[str, Any]], ObjectInfo]
    ) -> None:
        self._shared = shared
        self._prefix = prefix
        self._listing = listing
        self._info = info

    def __aiter__(self) -> _Infos:
        return self

    async def __anext__(self) -> ObjectInfo:
        self._shared.check()
        async for entry in self._listing:
            # Stores that use folders treat "a//" as "a/", and return entries that do not have the prefix. A "folder"
            # created in a console is an object whose key is the prefix itself.
            key = entry["Key"][len(self._shared.options.prefix) :]
            if key and entry["Key"].startswith(self._prefix):
                return self._info(key, entry)
        raise StopAsyncIteration


def _object(key: str, entry: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, int(entry["Size"]), bare(entry["ETag"]), None, entry["LastModified"])


def _upload(key: str, entry: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, 0, entry["UploadId"], None, entry["Initiated"])
