"""A read-only store over TLS that checks each signature with botocore, and a proxy that tunnels to it.

Both run on the test's event loop. moto, which other tests use, supports neither TLS nor signatures.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from certificates import Certificate

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([a-z0-9-]+)/s3/aws4_request, SignedHeaders=([^,]+), Signature=(\w+)"
)

_ID = {"x-amz-request-id": "1"}


@dataclass(frozen=True)
class Asked:
    """A GET request: its host and key, who signed it for which region, and whether the SDK sent it."""

    host: str
    key: str
    access_key: str
    region: str
    by_sdk: bool


def refusal(status: int, code: str, more: str = "", headers: dict[str, str] | None = None) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>as the test wants it</Message>{more}</Error>"
    return web.Response(status=status, text=text, content_type="application/xml", headers=_ID | (headers or {}))


class HttpsStore:
    """The store, while it is `serving`.

    Attributes:
        objects: the objects by key, whatever the bucket.
        keys: the secret key of each access key; empty if requests are not signed.
        plan: a function whose response replaces the store's.
        headers: additional headers of each response.
        chunked: whether responses to GETs omit their length.
        ends: whether each response announces that its connection is closed, and closes it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.keys: dict[str, str] = {}
        self.plan: Callable[[Asked], web.Response | None] = lambda asked: None
        self.headers: dict[str, str] = {}
        self.chunked = self.ends = False
        self.asked: list[Asked] = []
        self.connections: set[object] = set()
        self.port = 0

    @asynccontextmanager
    async def serving(self, certificate: Certificate | None) -> AsyncIterator[HttpsStore]:
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate and certificate.server).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        path = re.sub(r"^http://[^/]+", "", request.raw_path)  # as a proxy receives it
        bucket = "" if request.host.startswith("bucket.") else "bucket/"
        key = unquote(path).removeprefix(f"/{bucket}")
        signed = _SIGNED.fullmatch(request.headers.get("Authorization", ""))
        access_key, region = (signed[1], signed[2]) if signed else ("", "")
        asked = Asked(request.host, key, access_key, region, "amz-sdk-invocation-id" in request.headers)
        self.asked.append(asked)
        if (planned := self.plan(asked)) is not None:
            return planned
        if access_key not in self.keys and (self.keys or access_key):
            return refusal(403, "InvalidAccessKeyId")
        if signed and _signature(request, path, signed, self.keys[access_key]) != signed[4]:
            return refusal(403, "SignatureDoesNotMatch")
        if key not in self.objects:
            return refusal(404, "NoSuchKey")
        return await self._send(request, self.objects[key])

    async def _send(self, request: web.BaseRequest, data: bytes) -> web.StreamResponse:
        headers = {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"', "Last-Modified": "Tue, 24 Nov 2026 12:00:00 GMT",
            **_ID, **self.headers,
        }  # fmt: skip
        status, content = 200, data
        if span := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", "")):
            start, end = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
            status, content = 206, data[start:end]
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        response = web.StreamResponse(status=status, headers=headers)
        if self.ends:
            response.force_close()
        if self.chunked and request.method == "GET":
            response.enable_chunked_encoding()
        else:
            response.content_length = len(content)
        with suppress(ConnectionError):
            await response.prepare(request)
            if request.method != "HEAD":
                for begin in range(0, len(content), 100_000):
                    await response.write(content[begin : begin + 100_000])
            await response.write_eof()
        return response


def _signature(request: web.BaseRequest, path: str, signed: re.Match[str], secret: str) -> str:
    """Compute the expected signature with botocore from the headers received."""
    headers = {name: request.headers[name] for name in signed[3].split(";")}
    token = request.headers.get("X-Amz-Security-Token")
    auth = S3SigV4Auth(Credentials(signed[1], secret, token), "s3", signed[2])
    sent = AWSRequest(request.method, f"{request.scheme}://{request.host}{path}", headers=headers)
    sent.context["timestamp"] = request.headers["X-Amz-Date"]
    signature: str = auth.signature(auth.string_to_sign(sent, auth.canonical_request(sent)), sent)
    return signature


class Tunnels:
    """A proxy that connects to the target of a CONNECT request or to the host in a GET request's URL.

    Attributes:
        asked: the first line of each connection.
        url: the proxy's URL.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def serving(self, certificate: Certificate | None = None) -> AsyncIterator[Tunnels]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=certificate and certificate.server)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0].decode()
        self.asked.append(line)
        found = re.search(r":(\d+)[/ ]", line)
        assert found is not None
        there, to_there = await asyncio.open_connection("127.0.0.1", int(found[1]))
        if line.startswith("CONNECT"):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            to_there.write(head)
        await asyncio.gather(_pass_on(reader, to_there), _pass_on(there, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
    writer.close()
