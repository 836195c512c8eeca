"""`Server` sends requests to one server, and follows redirects."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx2

from asyncrec.errors import StorageError
from asyncrec.storage import in_thread, redact
from asyncrec.storage.http import Redacting, SharedClients, trusting

from .errors import of_transport
from .options import Options

# The time limits in seconds for connecting, and for receiving the next bytes.
_TIMEOUT = httpx2.Timeout(60.0, connect=10.0, pool=None)
_CONNECTIONS = 64
_LIMITS = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=16)
# The client's loggers, whose messages contain URLs and redirects.
_LOGGERS = ("httpx2", *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks")))
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


class Server:
    """A server with its options.

    Attributes:
        told: whether a warning that the server does not support ranges has been logged.
        through: the number of additional responses that may be kept open in order to read them through. The remaining
            connections are reserved for other requests.
    """

    def __init__(self, options: Options, context: ssl.SSLContext) -> None:
        self.options = options
        self.told = False
        self.through = _CONNECTIONS // 2
        self._client = httpx2.AsyncClient(
            verify=context,
            timeout=_TIMEOUT,
            limits=_LIMITS,
            follow_redirects=False,
            proxy=options.proxy,
            # Accept no encoding, so that ranges and sizes count stored bytes.
            headers={"Accept-Encoding": "identity", "User-Agent": "asyncrec-http"},
        )

    def __repr__(self) -> str:
        return f"<Server {self.options.root}>"

    @asynccontextmanager
    async def request(
        self, method: str, address: str, *, what: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[httpx2.Response, str]]:
        """Send a request and follow redirects. Yield the response, whose body has not yet been read, and its URL.

        Raises:
            TransientStorageError: the connection failed, or nothing arrived for 60 s.
            StorageError: there are too many redirects, or a redirect from https to http or to an invalid URL.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._send(method, address, what, headers or {})
            try:
                target = response.headers.get("Location") if response.status_code in _REDIRECTS else None
                if target is None:
                    yield response, address
                    return
                address = self._followed(address, target, what)
            finally:
                await response.aclose()
        raise StorageError(f"{what}: redirected more than {_MOST_REDIRECTS} times")

    async def _send(self, method: str, address: str, what: str, headers: Mapping[str, str]) -> httpx2.Response:
        # Send the caller's headers only to this server.
        own = self.options.headers if _origin(address) == _origin(self.options.root) else ()
        try:
            request = self._client.build_request(method, address, headers={**dict(own), **headers})
            return await self._client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            failure = of_transport(error, what)
        raise failure  # outside the handler, so that it is not chained to the client's error, with its request

    def _followed(self, address: str, target: str, what: str) -> str:
        try:
            target = urljoin(address, target)
            scheme = _origin(target)[0]
        except ValueError:
            scheme = None
        if scheme is None:
            raise StorageError(f"{what}: the server redirects to an invalid URL")
        if urlsplit(address).scheme == "https" and scheme != "https":
            shown = redact(target.partition("?")[0])
            raise StorageError(f"{what}: redirected from https to {shown}, which is not safe")
        return target

    async def close(self) -> None:
        await self._client.aclose()


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


_redacting = Redacting(redact)


async def _make(options: Options) -> Server:
    _redacting.install(_LOGGERS)
    what = f"opening {options.root}"
    context = await in_thread(lambda: trusting(options.ca_file, named_by="ca_file", what=what))
    # Create it in a thread, because the client looks up proxies in the environment and creates a pool for each.
    return await in_thread(Server, options, context)


SERVERS = SharedClients("asyncrec_http_servers", _make, Server.close)
