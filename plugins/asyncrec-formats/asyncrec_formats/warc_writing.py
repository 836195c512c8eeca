"""Conversion of pages to WARC, plain or with one GZIP member per record. A page becomes a response record.

If a page has request headers or a method other than GET, a request record follows. If the content was stored without
its encodings, the headers for these encodings are removed, Content-Encoding has only the encodings that the content
still has, and Content-Length is set to the stored size. Otherwise, the headers are written unchanged, as are those of
a HEAD or a 304, which describe a body that was not sent. A page with neither a status nor headers becomes a resource.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from asyncrec import FixedLen, Schema, decode_sequence_example, pages
from asyncrec.errors import ExampleError, SchemaError

from .warc_pages import EXTRA, OWN_HEADERS, PROTOCOLS, REFERENCE

# Text is read as bytes, because pages converted by older versions of asyncrec may not be UTF-8.
_STORED = Schema(
    {
        name: FixedLen((), "bytes", default=None if entry.default is None else entry.default.encode())
        if isinstance(entry, FixedLen) and entry.dtype == "str"
        else entry
        for name, entry in pages.PAGE.features.items()
    },
    allow_extra=True,
)
_OWN_HEADERS = {name.encode() for name in OWN_HEADERS}
# The names of protocols without a status line, as clients spell them, and in WARC-Protocol.
_SPOKEN = {spelt: short for short, name in PROTOCOLS.items() for spelt in (short, name, f"{name}.0")}
_BREAKS = re.compile(rb"[\r\n]+[ \t]*")
# Characters that warcio replaces or strips in a URI.
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]")
# The path and the query of a URL.
_TARGET = re.compile(rb"://[^/?#]*([^#]*)")
_HTTP = re.compile(rb"https?:", re.IGNORECASE)
# Values that require WARC 1.1: fractional seconds in a date, and a profile defined by version 1.1.
_FRACTION = b"."
_PROFILE_1_1 = b"/warc/1.1/"
_EMPTY = (b"", b"0", b"0.0")


class WarcEncoder:
    """An encoder that converts pages to a WARC file."""

    def __init__(self, name: str, schema: Mapping[str, Any] | None) -> None:
        self._compressed = name.lower().endswith(".gz")
        self._name = name.rpartition("/")[2]
        self._number = 0
        self._begun = False

    def encode(self, records: Sequence[bytes], /) -> bytes:
        """Return the next bytes of the file.

        Raises:
            SchemaError, DecodeError: a record is not a page, or has feature lists.
        """
        parts = [] if self._begun else [self._member(self._info())]
        self._begun = True
        for record in records:
            parts += [self._member(each) for each in self._page(record)]
            self._number += 1
        return b"".join(parts)

    def finish(self) -> bytes:
        return b"" if self._begun else self.encode(())

    def _member(self, record: bytes) -> bytes:
        return gzip.compress(record, compresslevel=6, mtime=0) if self._compressed else record

    def _info(self) -> bytes:
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
        headers = [
            (b"WARC-Type", b"warcinfo"),
            (b"WARC-Record-ID", b"<urn:uuid:%s>" % str(uuid.uuid4()).encode()),
            (b"WARC-Date", date),
            (b"WARC-Filename", self._name.encode("utf-8", "surrogateescape")),
            (b"Content-Type", b"application/warc-fields"),
        ]
        return _record(headers, b"software: asyncrec\r\nformat: WARC File Format 1.1\r\n", date)

    def _page(self, record: bytes) -> list[bytes]:
        try:
            page = _STORED.decode(record)
        except ExampleError as error:
            raise SchemaError(
                f"record {self._number:,} cannot be written to a WARC file, because it is not a page "
                f"(asyncrec.pages.PAGE): {error}"
            ) from None
        if decode_sequence_example(record)[1]:
            raise SchemaError(
                f"record {self._number:,} is a SequenceExample, whose feature lists have no place in a WARC file; "
                "convert to JSON lines instead"
            )
        url, date, content = page["url"], page["date"], page["content"]
        kind = page["type"] or b"response"
        uri = _uri(url)
        http = kind != b"resource" and bool(page["status"] or page["headers"])
        if not http and kind == b"response":
            kind = b"resource"
        digest = page["digest"] if kind == b"revisit" else pages.payload_digest(content).encode()
        name = b" ".join((url, date, digest, b"%d" % self._number)).decode("utf-8", "surrogateescape")
        own = str(uuid.uuid5(uuid.NAMESPACE_URL, name.encode("utf-8", "backslashreplace").decode()))
        identity = page["record_id"] or b"<urn:uuid:%s>" % own.encode()
        headers = [(b"WARC-Type", kind), (b"WARC-Record-ID", identity), (b"WARC-Date", date), (b"WARC-Target-URI", uri)]
        headers += _told(
            (b"WARC-IP-Address", page["ip"]),
            (b"WARC-Truncated", page["truncated"]),
            (b"WARC-Protocol", _spoken(page["protocol"]) if http else b""),
        )
        if not http or kind == b"revisit" or _HTTP.match(uri):
            # For other URLs, warcio takes the HTTP headers for a part of the payload.
            headers += _told((b"WARC-Payload-Digest", digest))
        headers += _told(*((EXTRA[name].encode(), _plain(page[name])) for name in EXTRA if name != "charset"))
        if page["charset"] != _charset_of(page["content_type"]):
            headers.append((EXTRA["charset"].encode(), page["charset"]))
        written = _OWN_HEADERS
        if kind == b"revisit":
            page["refers_to_url"] = _uri(page["refers_to_url"])
            reference = _told(*((header.encode(), page[name]) for name, header in REFERENCE.items()))
            headers += reference
            written = written.union(name.lower() for name, _ in reference)
        headers += [pair for pair in _pairs(page["warc_headers"]) if pair[0].lower() not in written]
        if http:
            headers.append((b"Content-Type", b"application/http; msgtype=response"))
            block = _response_head(page) + content
        else:
            headers += _told((b"Content-Type", page["content_type"]))
            block = content
        made = [_record(headers, block, date)]
        if page["request_headers"] or page["method"] not in (b"GET", b""):
            headers = [
                (b"WARC-Type", b"request"),
                (b"WARC-Record-ID", b"<urn:uuid:%s>" % str(uuid.uuid5(uuid.NAMESPACE_URL, f"{own} request")).encode()),
                (b"WARC-Date", date),
                (b"WARC-Target-URI", uri),
                (b"WARC-Concurrent-To", identity),
                (b"Content-Type", b"application/http; msgtype=request"),
            ]
            made.append(_record(headers, _request_head(page, uri), date))
        return made


def _record(headers: list[tuple[bytes, bytes]], block: bytes, date: bytes) -> bytes:
    version = (
        b"WARC/1.1" if _FRACTION in date or _PROFILE_1_1 in dict(headers).get(b"WARC-Profile", b"") else b"WARC/1.0"
    )
    digest = b"sha1:" + base64.b32encode(hashlib.sha1(block, usedforsecurity=False).digest())
    lines = [version, *(b"%s: %s" % (name, _BREAKS.sub(b" ", value)) for name, value in headers)]
    lines += [b"WARC-Block-Digest: " + digest, b"Content-Length: %d" % len(block), b"", b""]
    return b"\r\n".join(lines) + block + b"\r\n\r\n"


def _response_head(page: Mapping[str, Any]) -> bytes:
    protocol = page["protocol"] if page["protocol"].startswith(b"HTTP/1") else b"HTTP/1.1"
    status = _BREAKS.sub(b" ", b"%s %03d %s" % (protocol, page["status"], page["reason"]))
    given = _pairs(page["headers"])
    bodiless = not page["content"] and (page["method"] == b"HEAD" or page["status"] == 304)
    kept = given if bodiless and page["type"] != b"revisit" else _of_content(page, given)
    lengths = [value for name, value in kept if name.lower() == b"content-length"]
    if kept != given and page["type"] == b"revisit":
        # The length is that of the encoded body.
        kept = [pair for pair in kept if pair[0].lower() != b"content-length"]
        return b"\r\n".join([status, *(b"%s: %s" % pair for pair in kept), b"", b""])
    size = b"%d" % len(page["content"])
    whole = not page["truncated"] and page["type"] != b"revisit" and not bodiless
    if kept != given or (whole and any(value != size for value in lengths)):
        kept = [(name, size if name.lower() == b"content-length" else value) for name, value in kept]
        if not lengths:
            kept.append((b"Content-Length", size))
    return b"\r\n".join([status, *(b"%s: %s" % pair for pair in kept), b"", b""])


def _of_content(page: Mapping[str, Any], headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers without those for encodings that were removed from the content, or from a revisit's body."""
    kept = [pair for pair in headers if pair[0].lower() != b"transfer-encoding"]
    sent = [value for name, value in kept if name.lower() == b"content-encoding"]
    # The page's encoding lists the content codings that its content still has.
    if _codings(b",".join(sent)) == _codings(page["encoding"]):
        return kept
    kept = [pair for pair in kept if pair[0].lower() != b"content-encoding"]
    return [*kept, (b"Content-Encoding", page["encoding"])] if page["encoding"] else kept


def _codings(value: bytes) -> list[bytes]:
    codings = [coding.strip().lower() for coding in value.split(b",")]
    return [coding for coding in codings if coding not in (b"", b"identity")]


def _request_head(page: Mapping[str, Any], uri: bytes) -> bytes:
    found = _TARGET.search(uri)
    target = found[1] if found is not None else b"/"
    if not target.startswith(b"/"):
        target = b"/" + target
    first = _BREAKS.sub(b" ", b"%s %s HTTP/1.1" % (page["method"] or b"GET", target))
    return b"\r\n".join([first, *(b"%s: %s" % pair for pair in _pairs(page["request_headers"])), b"", b""])


def _pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    pairs = []
    for line in lines.splitlines():
        name, colon, value = line.partition(b":")
        if colon and name.strip():
            pairs.append((name.strip(), value.strip()))
    return pairs


def _uri(url: bytes) -> bytes:
    """Return a URL whose spaces are percent-encoded, and whose scheme is in lower case if it is HTTP."""
    text = url.strip().decode("utf-8", "surrogateescape")
    uri = _SPACE.sub(lambda space: quote(space[0]), text).encode("utf-8", "surrogateescape")
    scheme = _HTTP.match(uri)
    return uri if scheme is None else scheme[0].lower() + uri[scheme.end() :]


def _told(*pairs: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in pairs if value not in _EMPTY]


def _spoken(protocol: bytes) -> bytes:
    return _SPOKEN.get(protocol.decode("utf-8", "replace"), "").encode()


def _plain(value: Any) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode()


def _charset_of(content_type: bytes) -> bytes:
    found = pages.page("", headers=[(b"Content-Type", content_type)])["charset"]
    return bytes(found.encode())
