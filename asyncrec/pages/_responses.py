"""Pages of the responses of aiohttp, httpx, Scrapy, Crawlee and Playwright; none of them is imported.

Each client gives the body decoded, so that ``encoding`` is empty, and the headers as they were sent. What a client
does not tell (aiohttp no time, Crawlee no address) is left at its default, and may be given as a feature by name.

A body may be endless: ``max_bytes`` ends the reading where the client has not read it before. Scrapy, Crawlee and
Playwright have; Scrapy's own limit is ``DOWNLOAD_MAXSIZE``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec.pages._schema import check_max_bytes, page

# A digest takes about a millisecond for so much.
_LARGE = 512 << 10
_CUT = frozenset({"partial", "dataloss"})


async def from_aiohttp(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from an `aiohttp.ClientResponse`; its body is read if it was not.

    ``max_bytes`` and ``features`` are those of `page`, ``before`` among them; this is true for all these functions.

    With ``max_bytes``, at most one chunk more than that is read, and the connection is closed. Only the page has the
    content then: ``response.text()`` returns nothing for a body that this function has read.
    """
    check_max_bytes(max_bytes)
    # The connection goes back to its pool with the last byte of the body, which a small one has before it is asked for;
    # its protocol stays the response's.
    address = _peer(getattr(getattr(response, "_protocol", None), "transport", None))
    if max_bytes is None or response.content.at_eof():
        body = await response.read()
    else:
        body = await _up_to(max_bytes, response.content.iter_any())
        if len(body) > max_bytes:
            response.close()
    asked = response.history[0] if response.history else response
    request = response.request_info
    version = response.version
    return await _made(
        str(asked.url),
        body,
        {
            "status": response.status,
            "reason": response.reason or "",
            "headers": response.raw_headers,
            "request_headers": request.headers,
            "method": asked.method,
            "final_url": str(response.url),
            "protocol": f"HTTP/{version.major}.{version.minor}" if version is not None else "",
            "ip": address,
            "charset": response.charset,
            "referrer": request.headers.get("Referer", ""),
            "max_bytes": max_bytes,
        },
        features,
    )


async def from_httpx(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from an `httpx.Response`; its body is read if it was not.

    ``max_bytes`` ends the reading, as for `from_aiohttp`, for a response of ``client.stream``; ``client.get`` reads
    everything.
    """
    check_max_bytes(max_bytes)
    stream = response.extensions.get("network_stream")
    server = stream.get_extra_info("server_addr") if stream is not None else None
    if response.is_closed:
        body = response.content
    elif max_bytes is None:
        body = await response.aread()
    else:
        body = await _up_to(max_bytes, response.aiter_bytes())
        await response.aclose()
    asked = (response.history[0] if response.history else response).request
    request = response.request
    try:
        elapsed = response.elapsed.total_seconds()
    except RuntimeError:  # it was made without a transport
        elapsed = 0.0
    return await _made(
        str(asked.url),
        body,
        {
            "status": response.status_code,
            "reason": response.reason_phrase,
            "headers": response.headers.raw,
            "request_headers": request.headers.raw,
            "method": asked.method,
            "final_url": str(response.url),
            "protocol": response.http_version,
            "ip": str(server[0]) if server else "",
            "elapsed": elapsed,
            "charset": response.charset_encoding,
            "referrer": request.headers.get("referer", ""),
            "max_bytes": max_bytes,
        },
        features,
    )


def from_scrapy(response: Any, *, request: Any = None, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a `scrapy.http.Response`, and from ``response.request`` unless another request is given."""
    request = response.request if request is None else request
    meta = request.meta if request is not None else {}
    through = meta.get("redirect_urls") or ()
    referrer = request.headers.get("Referer") if request is not None else None
    return page(
        **_parts(
            str(through[0]) if through else (request.url if request is not None else response.url),
            response.body,
            {
                "status": response.status,
                "headers": _scrapy_headers(response.headers),
                "request_headers": _scrapy_headers(request.headers) if request is not None else (),
                "method": request.method if request is not None else "GET",
                "final_url": response.url,
                "protocol": response.protocol or "",
                "ip": str(response.ip_address) if response.ip_address is not None else "",
                "elapsed": float(meta.get("download_latency") or 0.0),
                "charset": getattr(response, "encoding", "") or "",
                "depth": int(meta.get("depth") or 0),
                "referrer": referrer.decode("utf-8", "replace") if referrer else "",
                "truncated": _truncated_by_scrapy(response),
                "max_bytes": max_bytes,
            },
            features,
        )
    )


async def from_crawlee(context: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a crawling context of Crawlee that has an ``http_response``, or Playwright's ``response``."""
    request = context.request
    answer = getattr(context, "http_response", None)
    told = {"depth": int(getattr(request, "crawl_depth", 0) or 0), **features}
    if answer is None:
        return await from_playwright(context.response, max_bytes=max_bytes, **{"url": request.url, **told})
    return await _made(
        request.url,
        await answer.read(),
        {
            "status": answer.status_code,
            "headers": answer.headers,
            "request_headers": request.headers,
            "method": request.method,
            "final_url": getattr(request, "loaded_url", None) or "",
            "protocol": answer.http_version or "",
            "max_bytes": max_bytes,
        },
        told,
    )


async def from_playwright(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a `playwright.async_api.Response`: what the server sent, not what scripts made of it."""
    request = response.request
    asked = request
    while asked.redirected_from is not None:
        asked = asked.redirected_from
    body = await response.body()
    sent = await response.headers_array()
    server = await response.server_addr()
    headers = await request.all_headers()
    timing: Mapping[str, float] = request.timing or {}
    return await _made(
        asked.url,
        body,
        {
            "status": response.status,
            "reason": response.status_text,
            "headers": [(each["name"], each["value"]) for each in sent],
            "request_headers": [each for each in headers.items() if not each[0].startswith(":")],
            "method": asked.method,
            "final_url": response.url,
            "ip": server["ipAddress"] if server else "",
            "elapsed": max(0.0, timing.get("responseEnd", 0.0) / 1000),
            "referrer": headers.get("referer", ""),
            "max_bytes": max_bytes,
        },
        features,
    )


async def _up_to(max_bytes: int, chunks: AsyncIterator[bytes]) -> bytes:
    """What these are together, to the end of the chunk in which they become more than ``max_bytes``."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            break
    return bytes(body)


def _parts(url: str, body: bytes, told: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """What the caller says goes before what the client says."""
    return {"url": url, "content": body, **told, **features}


async def _made(url: str, body: bytes, told: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    parts = _parts(url, body, told, features)
    if len(parts["content"]) > _LARGE:  # which the caller may have given
        return await in_thread(lambda: page(**parts))
    return page(**parts)


def _peer(transport: Any) -> str:
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _scrapy_headers(headers: Any) -> Any:
    """Scrapy's are a dict of lists, whose own ``items`` asks for each name anew."""
    return dict.items(headers) if isinstance(headers, dict) else headers


def _truncated_by_scrapy(response: Any) -> str:
    """Scrapy marks a body that ended before its Content-Length said."""
    return "disconnect" if not _CUT.isdisjoint(getattr(response, "flags", ()) or ()) else ""
