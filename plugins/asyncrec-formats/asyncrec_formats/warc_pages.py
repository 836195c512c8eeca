"""Conversion of WARC records to pages (`asyncrec.pages`), and of requests to additional features. It does no I/O.

WARC headers without a feature are kept in ``warc_headers``. Features without a WARC header are stored in headers named
``X-Asyncrec-...``, which `warc_writing` writes and this module reads.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

from asyncrec import pages

from .http_body import TooLargeError, body_of

# The features without a standard WARC header, and the headers in which they are stored.
EXTRA = {
    "final_url": "X-Asyncrec-Final-Url",
    "elapsed": "X-Asyncrec-Elapsed",
    "charset": "X-Asyncrec-Charset",
    "depth": "X-Asyncrec-Depth",
    "referrer": "X-Asyncrec-Referrer",
}
# The features of a revisit that refer to the record with the body.
REFERENCE = {
    "refers_to_url": "WARC-Refers-To-Target-URI",
    "refers_to_date": "WARC-Refers-To-Date",
    "refers_to": "WARC-Refers-To",
    "profile": "WARC-Profile",
}
# The names of protocols without a status line, in WARC-Protocol and in the feature.
PROTOCOLS = {"h2": "HTTP/2", "h3": "HTTP/3"}

_HEAD_BYTES = 1 << 20
_WITH_HEAD = re.compile(rb"\nwarc-type:[ \t]*(?:response|request|revisit)", re.IGNORECASE)
_HEAD_END = re.compile(rb"\n\r?\n")
_WANTED = ("response", "resource", "revisit")
_WITH_HTTP = ("response", "request", "revisit")
# The headers, in lower case, that have a feature or are computed again, and so are not in ``warc_headers``.
OWN_HEADERS = {
    "warc-type",
    "warc-record-id",
    "warc-date",
    "warc-target-uri",
    "content-length",
    "content-type",
    "warc-payload-digest",
    "warc-block-digest",
    "warc-ip-address",
    "warc-truncated",
    *(name.lower() for name in EXTRA.values()),
}


@dataclass(frozen=True)
class Request:
    """The features that a request record adds to the page of its response."""

    url: str
    record_id: str
    concurrent_to: str
    method: str
    headers: bytes


@dataclass
class Page:
    """A page, the id of the request to which its record refers, and whether a request has been added."""

    features: dict[str, Any]
    concurrent_to: str
    has_request: bool = False

    def take(self, request: Request) -> bool:
        """Add the features of a request if it belongs to the page and is its first. Return whether they were added."""
        if self.has_request:
            return False
        if self.concurrent_to or request.concurrent_to:
            pairs = ((request.concurrent_to, self.features["record_id"]), (self.concurrent_to, request.record_id))
            ours = any(named and named == has for named, has in pairs)
        else:
            ours = request.url == self.features["url"]
        if ours:
            self.has_request = True
            self.features["method"] = request.method
            self.features["request_headers"] = request.headers
        return ours


def parsed(data: bytes, most: int) -> Page | Request | None:
    """Parse a WARC record whose body has at most ``most`` bytes. Return `None` for records of other types.

    Raises:
        TooLargeError: the body decodes to more than ``most`` bytes, or the HTTP headers have more than 1 MiB.
        Exception: an error of warcio, which cannot parse the record.
    """
    from warcio.archiveiterator import ArchiveIterator

    _check_head(data)

    record = next(iter(ArchiveIterator(io.BytesIO(data), no_record_parse=True)))
    headers = record.rec_headers
    http = record.http_headers = _http_head(record)
    if record.rec_type == "request" and http is not None:
        return Request(
            url=_text(headers.get_header("WARC-Target-URI")),
            record_id=_text(headers.get_header("WARC-Record-ID")),
            concurrent_to=_text(headers.get_header("WARC-Concurrent-To")),
            method=_text(http.protocol) or "GET",
            headers=_lines(http.headers),
        )
    if record.rec_type not in _WANTED:
        return None
    extra = {name: headers.get_header(header) for name, header in EXTRA.items()}
    content_type = _text((headers if http is None else http).get_header("Content-Type"))
    features: dict[str, Any] = {
        "date": _text(headers.get_header("WARC-Date")),
        "type": record.rec_type,
        "record_id": _text(headers.get_header("WARC-Record-ID")),
        "ip": _text(headers.get_header("WARC-IP-Address")),
        "truncated": _text(headers.get_header("WARC-Truncated")),
        "elapsed": _number(extra["elapsed"], float),
        "depth": _number(extra["depth"], int),
        "referrer": _text(extra["referrer"]),
        "final_url": _text(extra["final_url"]),
    }
    own = OWN_HEADERS
    if record.rec_type == "revisit":
        features.update({name: _text(headers.get_header(header)) for name, header in REFERENCE.items()})
        own = OWN_HEADERS.union(map(str.lower, REFERENCE.values()))
    others = [(name, value) for name, value in headers.headers if name.lower() not in own]
    if http is not None:
        status = http.get_statuscode()
        features["status"] = int(status) if status and status.isdigit() else 0
        features["reason"] = _text(http.statusline.partition(" ")[2])
        features["protocol"], others = _spoken(_text(http.protocol), others)
    body = body_of(record, most)
    given = _text(headers.get_header("WARC-Payload-Digest"))
    if record.rec_type == "revisit":
        features["digest"] = given  # the digest of the body, which is in another record
    page = pages.page(
        _text(headers.get_header("WARC-Target-URI")),
        body.content,
        headers=_lines(http.headers) if http is not None else b"",
        content_type=content_type,
    )
    page.update(features, warc_headers=_lines(others))
    if body.content or record.rec_type == "revisit":
        page["encoding"] = body.encoding
    if not body.whole and not page["truncated"]:
        page["truncated"] = "unspecified"
    if extra["charset"] is not None:
        page["charset"] = _text(extra["charset"])
    return Page(page, _text(headers.get_header("WARC-Concurrent-To")))


def encoded(page: Page, most: int) -> bytes:
    """Encode a page as a record.

    Raises:
        TooLargeError: the record has more than ``most`` bytes.
    """
    record = pages.PAGE.encode(page.features)
    if len(record) > most:
        raise TooLargeError(f"the record has {len(record):,} bytes, more than the limit of {most:,}")
    return record


def _check_head(data: bytes) -> None:
    """Check the size of the HTTP headers. warcio has no limit, and needs 200 bytes of memory for a line of 5 bytes."""
    begin = data.find(b"\r\n\r\n") + 4
    if (
        len(data) - begin > _HEAD_BYTES
        and _WITH_HEAD.search(data, 0, begin)
        and not _HEAD_END.search(data, begin, begin + _HEAD_BYTES)
    ):
        raise TooLargeError(f"the HTTP headers have more than {_HEAD_BYTES:,} bytes")


def _http_head(record: Any) -> Any:
    """Parse the status line and the headers of a record. Return `None` if it has none.

    warcio would decode the lines, and so lose which bytes they had. Here, bytes that are not ASCII are escaped.
    """
    from warcio.statusandheaders import StatusAndHeadersParser

    uri, kind = (_text(record.rec_headers.get_header(name)).lower() for name in ("WARC-Target-URI", "Content-Type"))
    if record.rec_type not in _WITH_HTTP or not record.length:
        return None
    # warcio parses the HTTP headers only if the URL is one of HTTP.
    if not uri.startswith(("http:", "https:")) and not kind.startswith("application/http"):
        return None
    parser = StatusAndHeadersParser([], verify=False)
    parser.decode_header = lambda line: line.decode("ascii", "surrogateescape")
    return parser.parse(record.raw_stream)


def _spoken(protocol: str, headers: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return the protocol, and the headers without its name. WARC-Protocol may also name the version of TLS."""
    others = []
    for name, value in headers:
        names = [each.strip() for each in value.split(",")] if name.lower() == "warc-protocol" else []
        spoken = [PROTOCOLS[each] for each in names if each in PROTOCOLS]
        rest = ",".join(each for each in names if each not in PROTOCOLS)
        if spoken:
            protocol = spoken[0]
        if rest or not spoken:
            others.append((name, rest if spoken else value))
    return protocol, others


def _text(value: Any) -> str:
    """Return a value as valid text. Bytes that are not UTF-8 are decoded as Latin-1, as in warcio."""
    data = str(value or "").encode("utf-8", "surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _lines(headers: list[tuple[str, str]]) -> bytes:
    return "\n".join(f"{name}: {value}" for name, value in headers).encode("utf-8", "surrogateescape")


def _number(value: str | None, kind: type[int] | type[float]) -> Any:
    try:
        return kind(value or 0)
    except ValueError:
        return 0
