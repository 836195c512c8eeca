"""Clients, each shared by all storages on an event loop with the same endpoint and credentials.

The library provides the HTTP session, the token, and some calls (`asyncrec_gcs.bucket.LibrarySession`). This module
sends all requests. Requests with the data of objects are formed by asyncrec itself, because the library's
`Storage.upload` cannot stream and, after a fault, reports success for objects that do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from gcloud.aio.auth import AioSession, Token
from gcloud.aio.auth.token import Type
from gcloud.aio.storage import Storage as GcloudStorage
from yarl import URL

from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage import Buffer, in_thread
from asyncrec.storage.http import SharedClients, SlicedBody, StraightBody

from .errors import of_transport
from .options import Access

# The maximum number of concurrent connections to one endpoint with one set of credentials.
CONNECTIONS = 100

# There is no total timeout, because it would interrupt a body that makes progress. For uploads, see `SlicedBody`.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
# The narrowest scope that permits reading, writing and deleting objects. The account's rights may restrict it further.
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
# The seconds within which a request must make progress: connect, send the next slice, or receive a response.
_STALLED = 60.0
# The rate in bytes per second below which a body counts as stalled.
_SLOWEST = 64 * 1024
# The maximum number of bytes copied from a body in one iteration of the event loop.
_BLOCK = 256 * 1024
# The maximum size of an error's body. The JSON of an error has a few hundred bytes.
_ERROR_BYTES = 16 * 1024
# Joining more bytes would block the loop for too long.
_JOIN_ON_LOOP = 1024 * 1024


class Incoming:
    """A response in transit. It occupies a connection until it is complete or closed.

    Attributes:
        status: the HTTP status.
        headers: the headers, which are never shown, because they may contain the URL of a session.
    """

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._what = what
        self._next: Callable[[], Awaitable[bytes]] | None = None
        self._straight: StraightBody | None = None

    async def read(self) -> bytes:
        """Return the whole body, or only the beginning of an error's body.

        Raises:
            TransientStorageError: as for `receive`.
        """
        blocks: list[bytes] = []
        size = 0
        while (self.status < 400 or size < _ERROR_BYTES) and (came := await self.receive(_BLOCK)):
            blocks += came
            size += sum(map(len, came))
        if size > _JOIN_ON_LOOP:
            return await in_thread(b"".join, blocks)
        return b"".join(blocks)

    async def receive(self, size: int) -> list[bytes]:
        """Return blocks with a total of ``size`` bytes or up to 512 KiB more, or fewer bytes if the body ends.

        If cancelled, the received bytes are lost, and the response cannot be used again.

        Raises:
            TransientStorageError: the connection failed, nothing arrived for 60 s, or the rate is below 64 KiB/s.
        """
        blocks: list[bytes] = []
        came = 0
        try:
            async with patient(size):
                while came < size and (block := await self._block()):
                    blocks.append(block)
                    came += len(block)
            return blocks
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failure = of_transport(error, self._what)
        raise failure  # outside the handler, so that it is not chained to the client's error, which has the request

    async def _block(self) -> bytes:
        if self._next is None:
            length = self.headers.get("Content-Length", "")
            if self.status < 400 and length.isdecimal():
                self._straight = StraightBody.of(self._response, int(length))
            straight = self._straight
            self._next = partial(self._response.content.read, _BLOCK) if straight is None else straight.read
        return await self._next()

    async def aclose(self) -> None:
        """Return the connection to the pool if the response is complete; otherwise close it. Does not wait."""
        if self._straight is not None:
            self._straight.leave()
        self._response.close()


def patient(size: int = 0) -> asyncio.Timeout:
    """Return a timeout of 60 s, plus the time for a body of ``size`` bytes at the slowest allowed rate."""
    return asyncio.timeout(_STALLED + size / _SLOWEST)


def extend(patience: asyncio.Timeout) -> None:
    """Restart the timeout because the request made progress."""
    with suppress(RuntimeError):  # expired, or the response arrived before the body was sent
        patience.reschedule(asyncio.get_running_loop().time() + _STALLED)


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """A complete response. It has no repr because its headers may contain the URL of a session."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Connections to one endpoint with one set of credentials."""

    def __init__(self, access: Access, token: Token) -> None:
        self.endpoint = access.endpoint
        # An emulator's certificate may be self-signed. A token is sent to an emulator only if it was passed as an
        # option.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=not access.emulator), timeout=_TIMEOUT
        )
        session: Any = self._session  # the library annotates this as a session of `requests`
        token.session = AioSession(session)
        # In this emulator mode, the library does not send the token itself. `_authorization` adds it.
        self.gcloud = GcloudStorage(session=session, token=token, api_root=access.endpoint, api_is_dev=True)
        self._asking: set[asyncio.Task[str | None]] = set()
        self._had_token = False

    def __repr__(self) -> str:
        return f"<Client of {self.endpoint}>"

    @property
    def secret(self) -> str | None:
        """The current access token, to be removed from the store's messages."""
        return self.gcloud.token.access_token

    async def request(
        self,
        method: str,
        url: str,
        *,
        what: str,
        headers: Mapping[str, str] | None = None,
        data: Buffer | None = None,
    ) -> Answer:
        """Send one request and read the whole response, regardless of its status.

        Args:
            what: the object and the operation, for error messages.
            data: the body, which must not change until the call returns.

        Raises:
            TransientStorageError: the connection failed, or there was no progress for 60 s.
            StoragePermissionError: there are no credentials, or no token can be obtained with them.
        """
        incoming = await self._answered(method, url, what, headers, data, media=False)
        try:
            return Answer(incoming.status, incoming.headers, await incoming.read())
        finally:
            await incoming.aclose()

    async def download(self, url: str, *, what: str, headers: Mapping[str, str]) -> Incoming:
        """Request an object's content without decompressing it. The caller must close the response in any case.

        Raises the errors of `request`.
        """
        return await self._answered("GET", url, what, headers, None, media=True)

    async def _answered(
        self, method: str, url: str, what: str, headers: Mapping[str, str] | None, data: Buffer | None, *, media: bool
    ) -> Incoming:
        response = await self._send(method, url, what, headers, data, media)
        if response.status == 401 and not isinstance(self.gcloud.token, _Given):
            # The token was revoked early. Request a new token once.
            response.close()
            self.gcloud.token.access_token = None
            response = await self._send(method, url, what, headers, data, media)
        return Incoming(response, what)

    async def _send(
        self, method: str, url: str, what: str, headers: Mapping[str, str] | None, data: Buffer | None, media: bool
    ) -> aiohttp.ClientResponse:
        # Without "gzip", GCS would decompress content that is stored compressed, which changes ranges and checksums.
        sent = {"Accept-Encoding": "gzip" if media else "identity", **(headers or {})}
        if _origin(url) == _origin(self.endpoint):
            sent |= await self._authorization(what)
        view = memoryview(data if data is not None else b"").cast("B")
        if method != "GET":
            sent["Content-Length"] = str(len(view))
        try:
            async with patient() as patience:
                response: aiohttp.ClientResponse = await self.gcloud.session.request(
                    method,
                    URL(url, encoded=True),  # type: ignore[arg-type]  # aiohttp would re-encode a str
                    headers=sent,
                    data=SlicedBody(view, lambda: extend(patience)) if view else None,
                    auto_raise_for_status=False,
                    allow_redirects=False,  # a 308 is a normal response here
                    auto_decompress=False,
                )
                return response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failure = of_transport(error, what)
        raise failure  # outside the handler, so that it is not chained to the client's error, which has the request

    async def _authorization(self, what: str) -> dict[str, str]:
        # All callers wait for the same refresh, so cancelling one caller must not cancel the refresh.
        task = asyncio.create_task(self.gcloud.token.get())
        self._asking.add(task)
        task.add_done_callback(self._asked)
        try:
            token = await asyncio.shield(task)
            self._had_token = True
            return {} if token is None else {"Authorization": f"Bearer {token}"}
        except Exception as error:
            failure = self._of_token(error, what)
        raise failure

    def _asked(self, task: asyncio.Task[str | None]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve it even if all waiting callers were cancelled

    def _of_token(self, error: Exception, what: str) -> StorageError:
        """Return the error for a failure to obtain a token, for which the library has already tried five times."""
        name = type(error).__name__
        status = error.status if isinstance(error, aiohttp.ClientResponseError) else None
        # A metadata server that did not respond to the first request probably does not exist.
        passing = self._had_token if status is None else status == 429 or status >= 500
        if self.gcloud.token.token_type is Type.GCE_METADATA and not passing:
            return StoragePermissionError(
                f"{what}: no credentials were found ({name} from the metadata server): set "
                "GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or pass the option "
                "token or service_file; for a public bucket, pass anonymous=True"
            )
        if status in (400, 401, 403):
            return StoragePermissionError(f"{what}: the token server rejected these credentials: HTTP {status}")
        if isinstance(error, (aiohttp.ClientError, OSError, TimeoutError)):
            return TransientStorageError(f"{what}: no token could be obtained: {name}")
        return StoragePermissionError(f"{what}: the credentials are not usable: {name}")

    async def close(self) -> None:
        """Cancel all token requests and close the connections."""
        refresh = self.gcloud.token.acquiring
        tasks: list[asyncio.Task[Any]] = [*self._asking, *([refresh] if refresh is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._session.close()


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


class _Given(Token):
    """A fixed token, or no token. Does not call the base class's ``__init__``, which would look up credentials."""

    def __init__(self, value: str | None) -> None:
        self.access_token = value
        self.acquiring = None

    async def get(self) -> str | None:
        return self.access_token


def _token(access: Access) -> Token:
    """Return the token source. Reads files, so call this in a thread."""
    if access.token is not None or access.emulator or access.anonymous:
        return _Given(access.token)
    try:
        token = Token(service_file=access.service_file, scopes=_SCOPES)
        if token.token_type is Type.SERVICE_ACCOUNT:
            # Otherwise, the loop would parse and check the key for each token (40 ms), and not only sign (0.4 ms).
            token.service_data["private_key"] = load_pem_private_key(token.service_data["private_key"].encode(), None)
        usable = bool(token.service_data) or access.service_file is None
        kind = ""
    except Exception as error:  # any error of the library, whose message may quote the file
        usable, kind = False, f" ({type(error).__name__})"
    if not usable:
        where = access.service_file or "gcloud's default credentials"
        raise StoragePermissionError(f"{where}: the file does not contain usable credentials{kind}")
    return token


async def _make(access: Access) -> Client:
    return Client(access, await in_thread(_token, access))


CLIENTS = SharedClients("asyncrec_gcs_clients", _make, Client.close)
"""The clients in use. Creating a client raises StoragePermissionError if the credentials file is not usable."""
