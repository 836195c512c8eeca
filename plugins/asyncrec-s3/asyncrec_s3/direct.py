"""`DirectGets` makes GET requests for a bucket's objects without the SDK, but in the SDK's form.

For each request, the SDK occupies the loop for 0.7 ms to validate parameters, resolve the endpoint, emit twenty events,
sign, and parse the response. This dominates many small reads. The GETs of a bucket differ only in the key, the range
and the condition, so the SDK sends only the first GET, which becomes the pattern for the others. The pattern contains
the URL, with its endpoint and addressing style, and the region of the signature. The SDK's own HTTP session sends all
requests, with its connections, proxies, time limits and errors.

If a request of the SDK is not understood completely, as for directory buckets, the SDK sends all requests. If a
response redirects the client to another region, the SDK sends the request again, which then becomes the pattern. If
that does not change the pattern, the store accepts a request from the SDK that it rejects from us, so the SDK sends all
later requests.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from aiobotocore.response import AioStreamingBody
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError, create_parser

from .redaction import remember
from .sdk import SharingSession, parse_date

# The known headers of a GET, in lower case. The last two are only for the SDK's statistics.
_UNDERSTOOD = {
    "authorization", "if-match", "range", "x-amz-checksum-mode", "x-amz-content-sha256", "x-amz-date",
    "x-amz-security-token", "user-agent", "amz-sdk-invocation-id", "amz-sdk-request",
}  # fmt: skip
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/,\s]+/\d{8}/([a-z0-9-]+)/s3/aws4_request, ")
_OF_NOTHING = hashlib.sha256(b"").hexdigest()
# The statuses for a bucket in another region. Some stores return 400.
_ELSEWHERE = (301, 302, 307, 308, 400)
_FAILED = 300
# The members of a response that asyncrec uses, and the headers that contain them.
_MEMBERS = {
    "ETag": "etag", "ContentRange": "content-range", "ChecksumCRC32C": "x-amz-checksum-crc32c",
    "ChecksumType": "x-amz-checksum-type",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Request:
    """A request with the attributes that the SDK's HTTP session requires."""

    url: str
    headers: dict[str, str]
    method: str = "GET"
    body: None = None
    stream_output: bool = True
    context: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The common form of requests for a bucket's objects.

    Attributes:
        address: the URL before the key.
        region: the region of the signature, or `None` if requests are not signed.
    """

    address: str
    region: str | None

    @classmethod
    def of(cls, url: str, headers: Mapping[str, Any], key: str) -> Pattern | None:
        """Return the pattern of the SDK's request for a key, or `None` if the request is not understood."""
        sent = {name.lower(): _text(value) for name, value in headers.items()}
        end = quoted(key)
        if not sent.keys() <= _UNDERSTOOD or not url.endswith(f"/{end}") or "?" in url or "#" in url:
            return None
        address = url[: len(url) - len(end)]
        if "authorization" not in sent:
            return cls(address, None)
        scope = _SCOPE.match(sent["authorization"])
        return None if scope is None else cls(address, scope[1])


class DirectGets:
    """The GETs of one bucket by one client.

    Args:
        client: the SDK's client.
        credentials: the credentials that the SDK found, or `None`.
        user_agent: the user agent to send with each request.
    """

    def __init__(self, client: Any, credentials: Any, bucket: str, user_agent: str) -> None:
        self._client = client
        self._credentials = credentials
        self._bucket = bucket
        self._user_agent = user_agent
        self._pattern: Pattern | None = None
        self._session = getattr(getattr(client, "_endpoint", None), "http_session", None)
        self._by_sdk = not isinstance(self._session, SharingSession)

    async def get(self, key: str, *, range: str = "", etag: str = "") -> dict[str, Any]:  # the header's
        """Request an object or a range of it, in the version ``etag`` if set. Return a response in the SDK's form.

        Raises ClientError, and any other error of the SDK.
        """
        pattern = self._pattern
        if pattern is None or self._by_sdk:
            return await self._get_by_sdk(key, range, etag)
        headers = {"User-Agent": self._user_agent}
        if range:
            headers["Range"] = range
        else:
            headers["x-amz-checksum-mode"] = "ENABLED"
        if etag:
            headers["If-Match"] = etag
        url = pattern.address + quoted(key)
        if pattern.region is not None:
            found = await self._credentials.get_frozen_credentials()
            remember(found.access_key)
            remember(found.token)
            sign(url, headers, pattern.region, found.access_key, found.secret_key, found.token)
        assert self._session is not None, "_by_sdk is false"
        response = await self._session.send(_Request(url, headers))
        status, came = response.status_code, response.headers
        if status >= _FAILED:
            content = await response.content
            if status in _ELSEWHERE:
                by_sdk = await self._get_by_sdk(key, range, etag)  # raises if the store rejects this one too
                self._by_sdk = self._by_sdk or self._pattern == pattern
                return by_sdk
            answer = {"headers": came, "status_code": status, "body": content}
            model = self._client.meta.service_model.operation_model("GetObject")
            raise ClientError(create_parser("rest-xml").parse(answer, model.output_shape), "GetObject")
        return _answer(status, came, response.raw)

    async def _get_by_sdk(self, key: str, range: str, etag: str) -> dict[str, Any]:
        """Send the request through the SDK. It becomes the pattern unless the SDK sends all requests."""

        def learn(request: Any) -> None:
            self._pattern = Pattern.of(request.url, request.headers, key)

        asked = {name: value for name, value in (("Range", range), ("IfMatch", etag)) if value}
        token = _learning.set(None if self._by_sdk else learn)
        try:
            answer: dict[str, Any] = await self._client.get_object(Bucket=self._bucket, Key=key, **asked)
        finally:
            _learning.reset(token)
        if self._pattern is None or (self._pattern.region is not None and self._credentials is None):
            self._by_sdk = True
        return answer


_learning: ContextVar[Callable[[Any], None] | None] = ContextVar("asyncrec_s3_learning", default=None)


def show_sent(request: Any, **_: Any) -> None:
    """Handle the SDK's event before sending: pass the request to `DirectGets`, in the task that sends the request."""
    learn = _learning.get()
    if learn is not None:
        learn(request)


def _answer(status: int, headers: Mapping[str, str], raw: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
        "Body": AioStreamingBody(raw, headers.get("content-length")),
    }
    answer |= {member: headers[name] for member, name in _MEMBERS.items() if name in headers}
    try:
        if "content-length" in headers:
            answer["ContentLength"] = int(headers["content-length"])
        if "last-modified" in headers:
            answer["LastModified"] = parse_date(headers["last-modified"])
    except ValueError as error:
        raw.close()
        raise ResponseParserError(f"Unable to parse response: {error}") from None
    return answer


def quoted(key: str) -> str:
    """Quote a key for a URL."""
    return quote(key, safe="/~")


def sign(
    url: str, headers: dict[str, str], region: str, access_key: str, secret_key: str, token: str | None,
    *, now: datetime | None = None,
) -> None:  # fmt: skip
    """Sign a GET without a body by adding headers (AWS Signature Version 4, S3 variant)."""
    time = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    headers["X-Amz-Date"] = time
    headers["X-Amz-Content-SHA256"] = _OF_NOTHING
    if token:
        headers["X-Amz-Security-Token"] = token
    parts = urlsplit(url)
    signed = {name.lower(): value for name, value in headers.items() if name != "User-Agent"} | {"host": _host(parts)}
    names = sorted(signed)
    lines = [f"{name}:{' '.join(signed[name].split())}" for name in names]
    request = "\n".join(["GET", parts.path, "", *lines, "", ";".join(names), _OF_NOTHING])
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(_signing_key(secret_key, time[:8], region), text.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )


@lru_cache(8)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _host(parts: Any) -> str:
    """Return the value of the Host header that aiohttp sends."""
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    host: str = parts.netloc.rpartition("@")[2]
    return host.removesuffix(f":{usual}").lower()


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
