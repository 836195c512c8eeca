"""Form and parse the messages of the JSON API and of its resumable uploads. Pure functions.

Sources: https://cloud.google.com/storage/docs/performing-resumable-uploads and
https://cloud.google.com/storage/docs/json_api/v1/objects.

A resumable upload is a session. A POST opens it and returns its URL. Each PUT carries the next bytes, whole multiples
of 256 KiB except the last. A 308 reports the number of bytes stored. The PUT that names the total publishes the object.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import parse_content_range, parse_http_date

UNIT = 256 * 1024
"""The size of which every PUT of a session but the last carries a multiple."""

STATUS_QUERY = "bytes */*"
"""The ``Content-Range`` that asks, with an empty body, how many bytes are stored."""

# Names our upload in the object's metadata, to recognise our object if a response was lost.
_UPLOAD = "asyncrec-upload"

# The checksums of an object without bytes. They identify it if its size is omitted, as programs based on protocol
# buffers do with a zero.
_EMPTY = {"crc32c": "AAAAAA==", "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}

# The requested fields of each object; the whole resource is four times as long.
_FIELDS = "name,size,generation,crc32c,updated"


@dataclass(frozen=True, slots=True)
class Resource:
    """An object as GCS describes it.

    Attributes:
        info: the object; its key is the object's name.
        generation: the generation of the content; also `ObjectInfo.etag`.
        upload: the id of our upload that made the object, or `None`.
    """

    info: ObjectInfo
    generation: str
    upload: str | None


def object_url(endpoint: str, bucket: str, name: str, **params: str) -> str:
    """Return the URL of one object's metadata, or with ``alt="media"`` of its content.

    Only ``.`` is left unescaped of the characters that could change a path, and the keys ``.`` and ``..`` have been
    rejected before.
    """
    return f"{endpoint}/storage/v1/b/{quote(bucket, safe='')}/o/{_quoted(name)}{_query(params)}"


def list_params(*, prefix: str, start_offset: str, page: str, size: int) -> dict[str, str]:
    """Return the parameters for a page of objects from ``start_offset`` on (inclusive), ascending by UTF-8 bytes."""
    params = {"maxResults": str(size), "fields": f"kind,nextPageToken,items({_FIELDS})"}
    params |= {"prefix": prefix} if prefix else {}
    params |= {"startOffset": start_offset} if start_offset else {}
    params |= {"pageToken": page} if page else {}
    return params


def session_url(endpoint: str, bucket: str, name: str, *, exclusive: bool) -> str:
    """Return the URL that opens an upload session. With ``exclusive``, no existing object may be replaced."""
    params = {"uploadType": "resumable", "name": name} | ({"ifGenerationMatch": "0"} if exclusive else {})
    return f"{endpoint}/upload/storage/v1/b/{quote(bucket, safe='')}/o{_query(params)}"


def session_body(name: str, upload: str) -> bytes:
    """Return the metadata of the new object, with the id of this upload."""
    return json.dumps({"name": name, "metadata": {_UPLOAD: upload}}).encode()


def content_range(start: int, length: int, total: int | None) -> str:
    """Return the header of a PUT of ``length`` bytes from ``start``. ``total`` is set in the last one, which publishes.

    An upload whose bytes are all stored, even an empty one, is ended by ``bytes */TOTAL``.
    """
    if not length:
        if total is None:
            raise ValueError("only the last PUT, which states the total, may have no bytes")
        return f"bytes */{total}"
    return f"bytes {start}-{start + length - 1}/{'*' if total is None else total}"


def parse_stored(header: str | None) -> int:
    """Parse the number of stored bytes from a 308: ``Range: bytes=0-N``, or no such header if no bytes are stored.

    Raises:
        ValueError: the header has another form.
    """
    if header is None:
        return 0
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", header.strip())
    if match is None:
        raise ValueError("the Range header of a 308 response must have the form bytes=0-N")
    return int(match[1]) + 1


def range_header(start: int, end: int | None) -> str:
    """Return the header that requests the bytes ``[start, end)``, or all from ``start`` on."""
    return f"bytes={start}-{'' if end is None else end - 1}"


def crc32c_header(value: int) -> str:
    """Return ``X-Goog-Hash`` for the last PUT: the store refuses to publish content with another checksum."""
    return f"crc32c={base64.b64encode(value.to_bytes(4, 'big')).decode()}"


def parse_object(answer: object) -> Resource:
    """Parse an object's metadata from a response's body or from its JSON.

    Raises:
        ValueError: the metadata is invalid.
    """
    return _resource(_json(answer))


def parse_media(key: str, status: int, headers: Mapping[str, str]) -> ObjectInfo | None:
    """Parse the headers of an object's content; return `None` if they do not contain the generation and the size.

    https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash
    """
    generation = headers.get("X-Goog-Generation", "")
    try:
        size = int(headers["Content-Length"]) if status == 200 else parse_content_range(headers.get("Content-Range"))[2]
    except (KeyError, ValueError):
        return None
    if not generation.isdigit() or size is None:
        return None
    match = re.search(r"\bcrc32c=([A-Za-z0-9+/]{6}==)", _joined(headers, "X-Goog-Hash"))
    return ObjectInfo(
        key=key,
        size=size,
        etag=generation,
        crc32c=int.from_bytes(base64.b64decode(match[1]), "big") if match else None,
        modified=parse_http_date(headers.get("Last-Modified")) or datetime.fromtimestamp(0, UTC),
    )


def _joined(headers: Mapping[str, str], name: str) -> str:
    """Return the values of a header that may occur several times."""
    every: list[str] = headers.getall(name, []) if hasattr(headers, "getall") else [headers.get(name, "")]
    return ",".join(every)


def parse_listing(answer: object) -> tuple[list[ObjectInfo], str]:
    """Parse a page of a listing; return the objects and the token of the next page, ``""`` after the last.

    Raises:
        ValueError: the page is invalid.
    """
    page = _json(answer)
    if page.get("kind") != "storage#objects":  # the list of an empty folder has no other member
        raise ValueError("the response is not a list of objects")
    items = page.get("items", [])
    if not isinstance(items, list):
        raise ValueError("the page of a listing contains no list")
    return [_resource(item).info for item in items], str(page.get("nextPageToken") or "")


def _resource(item: Any) -> Resource:
    try:
        generation = str(item["generation"])
        checksum = item.get("crc32c")
        modified = item.get("updated") or item.get("timeCreated")
        info = ObjectInfo(
            key=item["name"],
            size=_size(item),
            etag=generation,
            crc32c=int.from_bytes(base64.b64decode(checksum, validate=True), "big") if checksum else None,
            # Emulators omit the time; the epoch means that it is unknown.
            modified=datetime.fromisoformat(modified) if modified else datetime.fromtimestamp(0, UTC),
        )
        upload = (item.get("metadata") or {}).get(_UPLOAD)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the description of an object has no usable {error}") from None
    return Resource(info, generation, upload)


def _size(item: Mapping[str, Any]) -> int:
    if "size" not in item and any(item.get(name) == value for name, value in _EMPTY.items()):
        return 0
    return int(item["size"])


def _json(answer: object) -> Mapping[str, Any]:
    try:
        value = json.loads(answer) if isinstance(answer, bytes) else answer
    except ValueError:
        raise ValueError("the response is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the response is not a JSON object")
    return value


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _query(params: Mapping[str, str]) -> str:
    return f"?{urlencode(params, quote_via=quote, safe='')}" if params else ""
