"""Azure's Blob service on top of a dictionary: blobs and uncommitted blocks, stricter than the real service.

It is stricter where that catches mistakes: a block must come with a checksum, which has to be right; a list may name
only existing blocks; the names of blocks have equal lengths; unsigned requests are rejected.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as Xml

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from serving import Refusal, Server  # importable because of the line above

__all__ = ["ACCOUNT", "CONTAINER", "Blob", "FakeAzure"]

ACCOUNT, CONTAINER = "devstoreaccount1", "crawl"


@dataclass
class Blob:
    data: bytes
    etag: str
    metadata: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, bytes] = field(default_factory=dict)
    modified: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{self.etag}"',
            "Last-Modified": format_datetime(self.modified, usegmt=True),
            "x-ms-blob-type": "BlockBlob",
            "x-ms-server-encrypted": "true",
        } | {f"x-ms-meta-{name}": value for name, value in self.metadata.items()}


class FakeAzure(Server):
    """A fake store with one container, which logs its requests and has faults on demand.

    The kinds in its log are ``put``, ``block``, ``commit``, ``read``, ``meta``, ``list``, ``delete``. In addition to
    the faults of every test server, there are ``corrupt`` (the committed blob lacks its last byte) and ``damage`` (a
    body arrives with a flipped bit).

    Attributes:
        blobs, staged: the blobs by name; the uncommitted blocks by name and id.
        authorization: the required start of each request's Authorization header; `None`: anything is accepted.
        signature: the ``sig`` required in each URL; `None`: none is required.
        page_size: the maximum number of blobs on a page of a listing.
        knows_start: whether a listing can start in the middle.
        crc64: how the store treats a CRC-64 sent instead of an MD5 with a block: it ``"compares"``, ``"refuses"`` or
            ``"ignores"`` it, or ``"answers"`` with the CRC-64 of the received body without comparing.
    """

    def reset(self) -> None:
        super().reset()
        self.blobs: dict[str, Blob] = {}
        self.staged: dict[str, dict[str, bytes]] = {}
        self.authorization: str | None = f"SharedKey {ACCOUNT}:"
        self.signature: str | None = None
        self.page_size = 5_000
        self.knows_start = True
        self.crc64 = "compares"
        self._version = 0x8DC000000000000

    @property
    def endpoint(self) -> str:
        return f"{self.url}/{ACCOUNT}"

    def store(
        self, name: str, data: bytes, metadata: dict[str, str] | None = None, blocks: dict[str, bytes] | None = None
    ) -> Blob:
        self._version += 1
        self.staged.pop(name, None)  # publishing discards all writers' uncommitted blocks
        self.blobs[name] = Blob(bytes(data), f"0x{self._version:X}", metadata or {}, blocks or {})
        return self.blobs[name]

    def kind_of(self, request: web.BaseRequest) -> str:
        _, query = self._where(request)
        if request.method == "PUT":
            return {"block": "block", "blocklist": "commit"}.get(query.get("comp", ""), "put")
        if request.method == "GET":
            return "list" if query.get("comp") == "list" else "read"
        return {"HEAD": "meta", "DELETE": "delete"}[request.method]

    def _where(self, request: web.BaseRequest) -> tuple[str, dict[str, str]]:
        parts = urlsplit(request.raw_path)
        query = parse_qs(parts.query, keep_blank_values=True)
        return unquote(parts.path, errors="strict"), {name: values[0] for name, values in query.items()}

    async def answer(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        response = await self._answer(request, kind, how)
        response.headers["x-ms-request-id"] = "00000000-0000-0000-0000-000000000000"
        return response

    async def _answer(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        path, query = self._where(request)
        if self.authorization is not None and not request.headers.get("Authorization", "").startswith(
            self.authorization
        ):
            given = request.headers.get("Authorization")
            raise Refusal(403, f"AuthenticationFailed: The MAC signature found in the HTTP request '{given}' is wrong")
        if self.signature is not None and query.get("sig") != self.signature:
            raise Refusal(403, f"AuthenticationFailed: Signature did not match: {request.raw_path}")
        match = re.fullmatch(rf"/{ACCOUNT}/([^/]+)(?:/(.+))?", path, re.DOTALL)
        if match is None or match[1] != CONTAINER:
            raise Refusal(404, "ContainerNotFound: The specified container does not exist.")
        if kind == "list":
            return self._list(query)
        name = match[2]
        if kind in ("put", "block", "commit"):
            body = await self.body(request)
            if how == "damage" and body:
                body = bytes([body[0] ^ 1]) + body[1:]
            return self._write(request, kind, name, body, query, how)
        blob = self.blobs.get(name)
        if blob is None:
            raise Refusal(404, "BlobNotFound: The specified blob does not exist.")
        if request.headers.get("If-Match", f'"{blob.etag}"') != f'"{blob.etag}"':
            raise Refusal(412, "ConditionNotMet: The condition specified using HTTP conditional header(s) is not met.")
        if kind == "delete":
            del self.blobs[name]
            return web.Response(status=202)
        if kind == "meta":
            return web.Response(headers=blob.headers | {"Content-Length": str(len(blob.data))})
        return self._read(request, blob)

    def _write(
        self, request: web.BaseRequest, kind: str, name: str, body: bytes, query: dict[str, str], how: str
    ) -> web.Response:
        if int(request.headers["Content-Length"]) != len(body):
            raise Refusal(400, "InvalidHeaderValue: the length is wrong")
        if kind != "commit":
            self._compare(request, body)
        if kind == "block":
            others = {len(each) for each in self.staged.get(name, {})}
            if others and others != {len(query["blockid"])}:
                raise Refusal(400, "InvalidBlobOrBlock: The specified blob or block content is invalid.")
            base64.b64decode(query["blockid"], validate=True)
            self.staged.setdefault(name, {})[query["blockid"]] = body
            answers = "x-ms-content-crc64" in request.headers and self.crc64 in ("compares", "answers")
            return web.Response(status=201, headers={"x-ms-content-crc64": _crc64(body)} if answers else {})
        if request.headers.get("If-None-Match") == "*" and name in self.blobs:
            raise Refusal(409, "BlobAlreadyExists: The specified blob already exists.")
        metadata = {
            header[len("x-ms-meta-") :]: value
            for header, value in request.headers.items()
            if header.lower().startswith("x-ms-meta-")
        }
        blocks: dict[str, bytes] = {}
        if kind == "commit":
            known = (self.blobs[name].blocks if name in self.blobs else {}) | self.staged.get(name, {})
            ids = [str(each.text) for each in Xml.fromstring(body)]
            if not set(ids) <= set(known):
                raise Refusal(400, "InvalidBlockList: The specified block list is invalid.")
            blocks = {block: known[block] for block in ids}
            body = b"".join(known[block] for block in ids)
        if how == "corrupt":
            body = body[:-1]
        return web.Response(status=201, headers=self.store(name, body, metadata, blocks).headers)

    def _compare(self, request: web.BaseRequest, body: bytes) -> None:
        md5, crc = request.headers.get("Content-MD5"), request.headers.get("x-ms-content-crc64")
        if crc is not None and self.crc64 == "refuses":
            raise Refusal(500, "FeatureNotSupported: x-ms-content-crc64 header or parameter is not supported")
        if (md5 is None) == (crc is None):
            raise Refusal(400, "MissingRequiredHeader: an MD5 or a CRC64, and not both")
        if md5 is not None and md5 != base64.b64encode(hashlib.md5(body).digest()).decode():
            raise Refusal(400, "Md5Mismatch: The MD5 value specified in the request did not match.")
        if crc is not None and self.crc64 == "compares" and crc != _crc64(body):
            raise Refusal(400, "Crc64Mismatch: The CRC64 value specified in the request did not match.")

    def _read(self, request: web.BaseRequest, blob: Blob) -> web.Response:
        span = request.headers.get("x-ms-range") or request.headers.get("Range")
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", span or "")
        if match is None:
            raise Refusal(400, f"InvalidHeaderValue: bad range {span}")
        start, end = int(match[1]), min(int(match[2]) + 1, len(blob.data))
        if start >= len(blob.data):
            raise Refusal(416, "InvalidRange: The range specified is invalid.")
        headers = blob.headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(blob.data)}"}
        return web.Response(status=206, body=blob.data[start:end], headers=headers)

    def _list(self, query: dict[str, str]) -> web.Response:
        first = query.get("marker") or (query.get("startFrom", "") if self.knows_start else "")
        names = sorted(
            (
                name
                for name in self.blobs
                if name.startswith(query.get("prefix", "")) and name.encode() >= first.encode()
            ),
            key=str.encode,
        )
        size = min(int(query.get("maxresults", "5000")), self.page_size)
        root = Xml.Element("EnumerationResults", ContainerName=CONTAINER)
        blobs = Xml.SubElement(root, "Blobs")
        for name in names[:size]:
            found = self.blobs[name]
            entry = Xml.SubElement(blobs, "Blob")
            Xml.SubElement(entry, "Name").text = name
            properties = Xml.SubElement(entry, "Properties")
            for tag, text in {
                "Last-Modified": format_datetime(found.modified, usegmt=True),
                "Etag": found.etag,
                "Content-Length": str(len(found.data)),
                "Content-Type": "application/octet-stream",
                "BlobType": "BlockBlob",
            }.items():
                Xml.SubElement(properties, tag).text = text
            metadata = Xml.SubElement(entry, "Metadata")
            for key, value in found.metadata.items():
                Xml.SubElement(metadata, key).text = value
        Xml.SubElement(root, "NextMarker").text = names[size] if size < len(names) else None
        return web.Response(body=Xml.tostring(root, "utf-8", xml_declaration=True), content_type="application/xml")

    def error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        code, _, message = words.partition(": ")
        root = Xml.Element("Error")
        Xml.SubElement(root, "Code").text = code
        Xml.SubElement(root, "Message").text = f"{message or words}\nRequestId:0000\nTime:now"
        body = Xml.tostring(root, "utf-8", xml_declaration=True)
        known = {"x-ms-error-code": code} if message else {}
        return web.Response(status=status, body=body, content_type="application/xml", headers=known | (headers or {}))


@functools.lru_cache(maxsize=1)  # a block's checksum is compared, and then returned
def _crc64(body: bytes) -> str:
    """Return Azure's CRC-64/NVME in the form of its header."""
    crc = (1 << 64) - 1
    for byte in body:
        crc = _CRC64_OF[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return base64.b64encode((crc ^ ((1 << 64) - 1)).to_bytes(8, "little")).decode()


def _crc64_of(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x9A6C9329AC4BC9B5 if byte & 1 else 0)
    return byte


_CRC64_OF = [_crc64_of(byte) for byte in range(256)]
