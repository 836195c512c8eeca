"""`FsspecStorage` is an fsspec filesystem as a read-only `Storage`, whose calls run in worker threads.

Asynchronous filesystems are called through their synchronous API, which runs an event loop in a separate thread, so the
storage works on both asyncio and trio.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import anyio
from fsspec.core import url_to_fs

from asyncrec.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ObjectChangedError,
    ObjectNotFoundError,
    PluginError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage import (
    ByteSource,
    ObjectInfo,
    ReadOnlyStorage,
    check_key,
    in_thread,
    join,
    redact,
    retrying,
    scheme_of,
)
from asyncrec.storage.http import RangedSource

T = TypeVar("T")

# The maximum number of concurrent calls of a storage, so that a hanging filesystem does not occupy all threads.
_THREADS = 8
# The fields of a file's info that change with its content, most reliable first, and the fields that contain times.
_VERSIONS = ("ETag", "etag", "blob_id", "oid", "sha", "md5Hash", "md5", "checksum", "generation", "version_id")
_DATES = ("LastModified", "last_modified", "modified", "mtime", "updated", "created")

# Errors are listed by name, because their libraries may not be installed.
_PERMISSION = ("AuthenticationException", "ClientAuthenticationError", "GatedRepoError", "NoCredentialsError")
_ABSENT = ("EntryNotFoundError", "RepositoryNotFoundError", "RevisionNotFoundError")
_TRANSIENT = (
    "ClientConnectionError", "ClientPayloadError", "ConnectionClosedError", "HTTPClientError", "IncompleteReadError",
    "ReadError", "RemoteProtocolError", "SSHException", "ServerTimeoutError", "TransportError",
)  # fmt: skip
_TRANSIENT_STATUS = (408, 429, 500, 502, 503, 504)


class FsspecStorage(ReadOnlyStorage):
    """A folder of an fsspec filesystem as a read-only storage."""

    read_ahead = 2 * RangedSource.window
    lists_by_pages = False  # a listing finds all files of a folder before it yields the first
    why = (
        "asyncrec only reads through fsspec, because closing an fsspec file after an error publishes it, and "
        "many filesystems cannot create a file exclusively; to write, use the plugins for s3://, gs:// and "
        "az://"
    )

    def __init__(self, root: str, filesystem: Any, folder: str) -> None:
        self.root = redact(root)
        self._filesystem = filesystem
        self._folder = folder.rstrip("/")
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @classmethod
    async def of(cls, url: str, options: Mapping[str, Any]) -> FsspecStorage:
        """Open the folder at ``url`` in a thread, because creating a filesystem may connect or import modules.

        Raises the errors of `asyncrec_fsspec.plugin.open_filesystem`.
        """
        scheme = scheme_of(url)
        if not url.startswith("://", len(scheme)):
            raise ArgumentValueError(f"{redact(url)}: the URL must have the form {scheme or 'hf'}://folder")
        theirs = scheme.removesuffix("+fsspec") + url[len(scheme) :]
        what = f"{redact(url)}: opening"
        try:
            filesystem, folder = await in_thread(lambda: url_to_fs(theirs, **options))
        except ImportError as error:
            raise PluginError(f"{what}: {error}") from None
        except TypeError as error:
            raise ArgumentTypeError(f"{what}: {redact(str(error))}") from None
        except ValueError as error:
            raise ArgumentValueError(f"{what}: {redact(str(error))}") from None
        except Exception as error:
            failure = translate(error, what)
        else:
            return cls(url, filesystem, folder)
        raise failure

    def __repr__(self) -> str:
        return f"FsspecStorage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} cannot be sent to another process; open another storage there with the same options"
        )

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return _FsspecSource(self, check_key(key), start=start, end=end, info=info)

    async def head(self, key: str) -> ObjectInfo:
        path, what = self.path_of(check_key(key)), f"{self.shown(key)}: looking"
        found = await retrying(lambda: self.call(self._filesystem.info, path, what=what), what=what)
        return self._info(key, found, what)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects with the prefix. All files in the prefix's folder are listed and sorted first."""
        what = f"{self.shown(prefix)}*: listing"
        folder = prefix.rpartition("/")[0]
        path = self.path_of(folder) if folder else self._folder

        async def ask() -> Mapping[str, Any]:
            try:
                found: Any = await self.call(lambda: self._filesystem.find(path, detail=True), what=what)
            except ObjectNotFoundError:
                return {}
            return dict(found)

        found = await retrying(ask, what=what)

        def chosen() -> list[ObjectInfo]:
            infos = []
            for name, entry in found.items():
                key = name.strip("/").removeprefix(self._folder.strip("/")).lstrip("/")
                if key and key.startswith(prefix) and key.encode() > start_after.encode():
                    infos.append(self._info(key, entry, what))
            return sorted(infos, key=lambda info: info.key.encode())

        # fsspec does not list by pages, so even a million files are sorted at once.
        for info in await in_thread(chosen):
            yield info

    def path_of(self, key: str) -> str:
        return f"{self._folder}/{key}" if self._folder else key

    def shown(self, key: str) -> str:
        return redact(join(self.root, key))

    async def read(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``, with a single call."""
        what = f"{self.shown(key)}: reading bytes {start:,} to {end:,}"
        block: bytes = await self.call(self._filesystem.cat_file, self.path_of(key), start, end, what=what)
        return bytes(block)

    async def call(self, function: Callable[..., T], *args: Any, what: str) -> T:
        """Call the filesystem in a thread.

        Raises:
            StorageError: the translated error, not chained to the original, which may contain credentials.
        """
        try:
            return await in_thread(function, *args, limiter=self._limiter)
        except Exception as error:
            failure = translate(error, what)
        raise failure

    def _info(self, key: str, found: Mapping[str, Any], what: str) -> ObjectInfo:
        size = found.get("size")
        if found.get("type", "file") != "file":
            raise ObjectNotFoundError(f"{what}: {key} is not a file")
        if not isinstance(size, int):
            raise StorageError(f"{what}: the filesystem does not report the size of {key}, so it cannot be read")
        dates = [found[name] for name in _DATES if found.get(name) is not None]
        version = next((str(found[name]) for name in _VERSIONS if found.get(name)), None)
        # If the filesystem reports no version, use the size and the times, which usually change with the content.
        etag = version or hashlib.sha256(repr((size, [str(date) for date in dates])).encode()).hexdigest()[:32]
        return ObjectInfo(key, size, etag, None, _date(dates))


class _FsspecSource(RangedSource):
    def __init__(
        self, storage: FsspecStorage, key: str, *, start: int, end: int | None, info: ObjectInfo | None
    ) -> None:
        self._storage = storage
        self._key = key
        super().__init__(storage.shown(key), start=start, end=end, info=info)

    async def look(self) -> ObjectInfo:
        return await self._storage.head(self._key)

    async def fetch(self, start: int, end: int) -> list[bytes]:
        block = await self._storage.read(self._key, start, end)
        # fsspec cannot read a specific version of a file, so check the version after the read.
        if (await self.look()).etag != self.info.etag:
            raise ObjectChangedError(
                f"{self._storage.shown(self._key)}: the file was replaced since it was opened; open it again"
            )
        return [block]


def _date(values: list[Any]) -> datetime:
    for value in values:
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if isinstance(value, (int, float)):
            with suppress(ValueError, OverflowError, OSError):  # NaN, or a year out of range
                return datetime.fromtimestamp(value, UTC)
    return datetime.fromtimestamp(0, UTC)  # the time is unknown


def translate(error: Exception, what: str) -> StorageError:
    """Return the StorageError for a filesystem's error. ``what`` is the operation, such as ``"hf://x: reading"``.

    The message omits secrets, such as signed URLs.
    """
    text = f"{what}: {type(error).__name__}: {redact(str(error))[:300]}"
    names = {each.__name__ for each in type(error).__mro__}
    response = getattr(error, "response", None)
    status = getattr(error, "status", None) or getattr(response, "status_code", None)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)) or names & {*_ABSENT}:
        return ObjectNotFoundError(text)
    if isinstance(error, PermissionError) or names & {*_PERMISSION} or status in (401, 403):
        return StoragePermissionError(text)
    if status == 404:
        return ObjectNotFoundError(text)
    transient = isinstance(error, (ConnectionError, TimeoutError, EOFError)) or names & {*_TRANSIENT}
    if transient or status in _TRANSIENT_STATUS:
        return TransientStorageError(text)
    return StorageError(text)
