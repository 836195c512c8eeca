"""`PAGE`, the schema of a page, and `page`, which makes a page from its parts.

The features are described in the docstring of `asyncrec.pages`, which ``help`` and the reference show.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.example._schema import FixedLen, Schema
from asyncrec.pages._headers import Headers, charset_of, header_lines, header_of
from asyncrec.pages._revisits import referring


def _text(default: str = "") -> FixedLen:
    return FixedLen((), "str", default=default)


def _bytes() -> FixedLen:
    return FixedLen((), "bytes", default=b"")


PAGE = Schema(
    {
        "url": FixedLen((), "str"),
        "date": _text(),
        "status": FixedLen((), "int64", default=0),
        "content_type": _text(),
        "headers": _bytes(),
        "content": _bytes(),
        "method": _text("GET"),
        "final_url": _text(),
        "digest": _text(),
        "reason": _text(),
        "protocol": _text(),
        "ip": _text(),
        "elapsed": FixedLen((), "float32", default=0.0),
        "charset": _text(),
        "encoding": _text(),
        "truncated": _text(),
        "depth": FixedLen((), "int64", default=0),
        "referrer": _text(),
        "request_headers": _bytes(),
        "type": _text("response"),
        "record_id": _text(),
        "warc_headers": _bytes(),
        "refers_to_url": _text(),
        "refers_to_date": _text(),
        "refers_to": _text(),
        "profile": _text(),
    }
)
"""The schema of a page. The docstring of `asyncrec.pages` describes each feature."""

_NAMES = PAGE.features.keys()
_DATE = "%Y-%m-%dT%H:%M:%SZ"


def page(
    url: str,
    content: bytes | bytearray | memoryview = b"",
    *,
    status: int = 0,
    headers: Headers = (),
    request_headers: Headers = (),
    date: datetime | str | None = None,
    max_bytes: int | None = None,
    truncated: Literal["", "length", "time", "disconnect"] = "",
    before: Mapping[str, Any] | None = None,
    **features: Any,
) -> dict[str, Any]:
    """Make a page from its parts, in the form of `PAGE`, with the date, the digest and the type of its content.

    Args:
        headers, request_headers: a mapping, pairs of name and value, or lines.
        date: the time of the request, by default the current time.
        max_bytes: the maximum length of the content. Longer content is cut, and ``truncated`` is ``"length"``.
        before: the stored version of the page, such as ``(await conditions(dataset, url)).page``. The new page becomes
            a revisit of that version, without content, if the status is 304 or both have the same content.
        features: other features of `PAGE`, by name.

    Raises:
        TypeError: a feature does not exist, or ``before`` is not a page.
    """
    if unknown := features.keys() - _NAMES:
        raise ArgumentTypeError(f"the feature {min(unknown)!r} is not in PAGE; its features are {', '.join(_NAMES)}")
    check_max_bytes(max_bytes)
    if max_bytes is not None and len(content) > max_bytes:
        content, truncated = content[:max_bytes], "length"
    body = bytes(content)
    lines = header_lines(headers)
    content_type = features.pop("content_type", None) or header_of(lines, b"content-type")
    asked = features.pop("final_url", "")
    made = {
        "url": url,
        "date": _date(date),
        "status": status,
        "content_type": content_type,
        "headers": lines,
        "content": body,
        "final_url": "" if asked == url else asked,
        "digest": features.pop("digest", None) or payload_digest(body),
        "charset": features.pop("charset", None) or charset_of(content_type),
        "truncated": truncated,
        "request_headers": header_lines(request_headers),
        **{name: value for name, value in features.items() if value is not None},
    }
    return made if before is None else referring(made, before)


def check_max_bytes(max_bytes: int | None) -> None:
    """Check a maximum content length.

    Raises:
        ValueError: the limit is negative.
    """
    if max_bytes is not None and max_bytes < 0:
        raise ArgumentValueError(f"max_bytes={max_bytes}: must be at least 0")


class PageWithRequest(dict[str, Any]):
    """A page that knows the digest of its request's body, which is part of its key but not a feature."""

    def __init__(self, page: Mapping[str, Any], request_body: bytes) -> None:
        super().__init__(page)
        self.request_digest = payload_digest(request_body)


def page_key(page: Mapping[str, Any], request_body: bytes = b"") -> str:
    """Return the key of a page: its URL, with the method and the body's digest unless it was a GET without a body.

    A page from `from_crawlee` knows the digest of its request's body; a copy of this page does not.
    """
    method = page.get("method", "GET")
    digest = payload_digest(request_body) if request_body else getattr(page, "request_digest", "")
    if method == "GET" and not digest:
        return str(page["url"])
    return f"{method} {page['url']} {digest}" if digest else f"{method} {page['url']}"


def is_temporary(status: int) -> bool:
    """Return whether a page with this status should be requested again later: 408, 425, 429, and 500 to 599.

    Such a page should not be stored, because the next run does not request stored pages again. The crawler recipes and
    the plugins for Scrapy and Crawlee follow this rule.
    """
    return status in (408, 425, 429) or 500 <= status < 600


def payload_digest(content: bytes | bytearray | memoryview) -> str:
    """Return the SHA-1 of ``content`` in WARC's form, ``sha1:`` and 32 characters, which identifies equal contents."""
    return "sha1:" + base64.b32encode(hashlib.sha1(content, usedforsecurity=False).digest()).decode()


def _date(date: datetime | str | None) -> str:
    if isinstance(date, str):
        return date
    if date is None:
        return _date_of(int(time.time()))
    if date.tzinfo is None:
        raise ArgumentValueError(f"the date {date} has no time zone; pass a date with one, such as datetime.now(UTC)")
    return date.astimezone(UTC).strftime(_DATE)


@lru_cache(maxsize=1)
def _date_of(second: int) -> str:
    """Format a time in seconds as a date. Calls for the same second reuse the text of the first."""
    return time.strftime(_DATE, time.gmtime(second))
