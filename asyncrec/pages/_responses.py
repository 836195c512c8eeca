"""Make pages from the responses of aiohttp, httpx, Scrapy, Crawlee and Playwright, none of which is imported.

Each client returns the headers as they were sent, but the body without its content encoding. If a client did not decode
the body, ``encoding`` names the codings that the body still has. Crawlee and Playwright do not show what they decoded,
so they are assumed to have removed gzip, deflate, br and zstd, and Playwright also x-gzip.

A feature that a client does not provide (the time with aiohttp, the address with Crawlee) has its default, and may be
passed by name.

A body may be endless. ``max_bytes`` limits how much of it is read, unless the client has already read the entire body,
as Scrapy, Crawlee and Playwright do. Scrapy's own limit is ``DOWNLOAD_MAXSIZE``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec.pages._schema import PageWithRequest, check_max_bytes, page

# Computing the digest of this many bytes takes about a millisecond.
_LARGE = 512 << 10
_CUT = frozenset({"partial", "dataloss"})
_DECODED = frozenset({"gzip", "deflate", "br", "zstd"})
# The decoders of httpx, and the codings that they remove.
_HTTPX = {"GZipDecoder": "gzip", "DeflateDecoder": "deflate", "BrotliDecoder": "br", "ZStandardDecoder": "zstd"}


async def from_aiohttp(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from an `aiohttp.ClientResponse`. Read the body if it has not been read.

    For ``max_bytes`` and ``features``, including ``before``, see `page`. This applies to all functions of this module.

    With ``max_bytes``, reading stops at most one chunk beyond the limit, and the connection is closed. Only the page
    then has the content, so ``response.text()`` returns no text for a body that this function has read.
    """
    check_max_bytes(max_bytes)
    # Once the last byte of the body has arrived, the connection returns to its pool, but the response still refers to
    # the protocol.
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
            "encoding": _kept_by_aiohttp(response),
            "referrer": request.headers.get("Referer", ""),
            "max_bytes": max_bytes,
        },
        features,
    )


async def from_httpx(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from an `httpx.Response`. Read the body if it has not been read.

    As in `from_aiohttp`, ``max_bytes`` limits the reading of a response from ``client.stream``. ``client.get`` has
    already read the whole body.
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
    except RuntimeError:  # the response was made without a transport
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
            "encoding": _kept_by_httpx(response),
            "referrer": request.headers.get("referer", ""),
            "max_bytes": max_bytes,
        },
        features,
    )


def from_scrapy(response: Any, *, request: Any = None, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a `scrapy.http.Response` and its request, by default ``response.request``.

    After redirects, the URL is the first of ``redirect_urls`` in the request's meta, but the method comes from the last
    request, because Scrapy does not keep the first one's. Pass ``url`` and ``method`` if a POST may have been
    redirected, or if a spider passes the meta of responses on to other requests. The plugin for Scrapy does so.
    """
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
                "encoding": _kept_by_scrapy(response.headers),
                "depth": int(meta.get("depth") or 0),
                "referrer": referrer.decode("utf-8", "replace") if referrer else "",
                "truncated": _truncated_by_scrapy(response),
                "max_bytes": max_bytes,
            },
            features,
        )
    )


async def from_crawlee(context: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a Crawlee crawling context with an ``http_response``, or with Playwright's ``response``.

    If the request has a payload, the page knows its digest, so that `page_key` includes it.
    """
    request = context.request
    made = await _of_crawlee(context, max_bytes, features)
    payload = getattr(request, "payload", None)
    return PageWithRequest(made, payload) if payload else made


async def _of_crawlee(context: Any, max_bytes: int | None, features: dict[str, Any]) -> dict[str, Any]:
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
            "encoding": _kept(_codings(answer.headers.items()), _DECODED),
            "max_bytes": max_bytes,
        },
        told,
    )


async def from_playwright(response: Any, *, max_bytes: int | None = None, **features: Any) -> dict[str, Any]:
    """Make a page from a `playwright.async_api.Response`, with the body as the server sent it, before scripts ran."""
    request = response.request
    asked = request
    while asked.redirected_from is not None:
        asked = asked.redirected_from
    body = await response.body()
    sent = [(each["name"], each["value"]) for each in await response.headers_array()]
    server = await response.server_addr()
    headers = await request.all_headers()
    timing: Mapping[str, float] = request.timing or {}
    return await _made(
        asked.url,
        body,
        {
            "status": response.status,
            "reason": response.status_text,
            "headers": sent,
            "request_headers": [each for each in headers.items() if not each[0].startswith(":")],
            "method": asked.method,
            "final_url": response.url,
            "ip": server["ipAddress"] if server else "",
            "elapsed": max(0.0, timing.get("responseEnd", 0.0) / 1000),
            "referrer": headers.get("referer", ""),
            "encoding": _kept(_codings(sent), {*_DECODED, "x-gzip"}),
            "max_bytes": max_bytes,
        },
        features,
    )


async def _up_to(max_bytes: int, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the joined chunks. Stop after the chunk that exceeds ``max_bytes``."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            break
    return bytes(body)


def _parts(url: str, body: bytes, told: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """Merge the features that the client provides with those that the caller passed, which override the client's."""
    if not told["encoding"] or not body or "content" in features:
        del told["encoding"]  # an empty body and the caller's own content have no encoding of the client's
    return {"url": url, "content": body, **told, **features}


async def _made(url: str, body: bytes, told: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    parts = _parts(url, body, told, features)
    if len(parts["content"]) > _LARGE:  # the content may also be the caller's own
        return await in_thread(lambda: page(**parts))
    return page(**parts)


def _codings(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the content codings that the headers name, in the order in which they were applied."""
    values = [value for name, value in headers if name.lower() == "content-encoding"]
    codings = [coding.strip().lower() for coding in ",".join(values).split(",")] if values else []
    return [coding for coding in codings if coding not in ("", "identity")]


def _kept(codings: list[str], removable: Iterable[str]) -> str:
    """Return the encoding of a body from which a client removes the last codings, up to one that it cannot remove."""
    while codings and codings[-1] in removable:
        codings.pop()
    return ", ".join(codings)


def _kept_by_aiohttp(response: Any) -> str:
    codings = _codings(response.headers.items())
    if not hasattr(response.content, "total_compressed_bytes"):  # an older aiohttp
        return "" if len(codings) == 1 and codings[0] in _DECODED else ", ".join(codings)
    # aiohttp counts the compressed bytes only if it decodes the body.
    return ", ".join(codings) if response.content.total_compressed_bytes is None else ""


def _kept_by_httpx(response: Any) -> str:
    codings = _codings(response.headers.multi_items())
    decoder = getattr(response, "_decoder", None)
    if not codings or decoder is None:
        return _kept(codings, _DECODED)
    # httpx skips the codings that it does not know.
    removed = {_HTTPX.get(type(each).__name__) for each in getattr(decoder, "children", [decoder])}
    return ", ".join(coding for coding in codings if coding not in removed)


def _kept_by_scrapy(headers: Any) -> str:
    """Return the value of Content-Encoding, from which Scrapy removes the codings that it decodes."""
    values = dict.get(headers, b"Content-Encoding") if isinstance(headers, dict) else None
    return ", ".join(_codings([("content-encoding", value.decode("latin-1")) for value in values or ()]))


def _peer(transport: Any) -> str:
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _scrapy_headers(headers: Any) -> Any:
    """Return the items of Scrapy's dict of lists. Scrapy's ``items`` is slow, because it looks up each name again."""
    return dict.items(headers) if isinstance(headers, dict) else headers


def _truncated_by_scrapy(response: Any) -> str:
    """Return "disconnect" if Scrapy has flagged a body as shorter than its Content-Length."""
    return "disconnect" if not _CUT.isdisjoint(getattr(response, "flags", ()) or ()) else ""
