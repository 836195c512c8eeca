"""Pure functions that form and parse the messages of the JSON API and of its resumable uploads.

Sources: https://cloud.google.com/storage/docs/performing-resumable-uploads and
https://cloud.google.com/storage/docs/json_api/v1/objects.

A resumable upload is a session. A POST opens the session and returns its URL. Each PUT sends the next bytes, a multiple
of 256 KiB except in the last PUT. A 308 response reports the number of stored bytes. The PUT that contains the total
size publishes the object.
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
"""The unit of a session's PUTs. Each PUT except the last sends a multiple of this size."""

STATUS_QUERY = "bytes */*"
"""The ``Content-Range`` that, with an empty body, requests the number of stored bytes."""

# The metadata key for the id of our upload, by which our object is recognised if a response was lost.
_UPLOAD = "asyncrec-upload"

# The checksums of an empty object. They identify it if its size is omitted, because protocol buffers omit a zero.
_EMPTY = {"crc32c": "AAAAAA==", "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}

# The requested fields of each object. The complete resource is four times as long.
_FIELDS = "name,size,generation,crc32c,updated"


@dataclass(frozen=True, slots=True)
class Resource:
    """GCS's description of an object.

    Attributes:
        info: the description of the object, whose key is the object's name.
        generation: the generation of the content, which is also the `etag` of ``info``.
        upload: the id of the asyncrec upload that created the object, or `None`.
    """

    info: ObjectInfo
    generation: str
    upload: str | None


def object_url(endpoint: str, bucket: str, name: str, **params: str) -> str:
    """Return the URL of one object's metadata or, with ``alt="media"``, of its content.

    Of the characters that could alter a path, only ``.`` is not escaped, and the keys ``.`` and ``..`` have already
    been rejected.
    """
    return f"{endpoint}/storage/v1/b/{quote(bucket, safe='')}/o/{_quoted(name)}{_query(params)}"


def list_params(*, prefix: str, start_offset: str, page: str, size: int) -> dict[str, str]:
    """Return the parameters for a page of the objects from ``start_offset`` on (inclusive), in order of UTF-8 bytes."""
    params = {"maxResults": str(size), "fields": f"kind,nextPageToken,items({_FIELDS})"}
    params |= {"prefix": prefix} if prefix else {}
    params |= {"startOffset": start_offset} if start_offset else {}
    params |= {"pageToken": page} if page else {}
    return params


def session_url(endpoint: str, bucket: str, name: str, *, exclusive: bool) -> str:
    """Return the URL that opens an upload session. With ``exclusive``, the upload fails if the object exists."""
    params = {"uploadType": "resumable", "name": name} | ({"ifGenerationMatch": "0"} if exclusive else {})
    return f"{endpoint}/upload/storage/v1/b/{quote(bucket, safe='')}/o{_query(params)}"


def session_body(name: str, upload: str) -> bytes:
    """Return the metadata of the new object, including the id of its upload."""
    return json.dumps({"name": name, "metadata": {_UPLOAD: upload}}).encode()


def content_range(start: int, length: int, total: int | None) -> str:
    """Return the header for a PUT of ``length`` bytes from ``start``. Pass ``total`` only for the last PUT.

    If all bytes are already stored, or the object is empty, ``bytes */TOTAL`` ends the upload.
    """
    if not length:
        if total is None:
            raise ValueError("only the last PUT, which states the total, may have no bytes")
        return f"bytes */{total}"
    return f"bytes {start}-{start + length - 1}/{'*' if total is None else total}"


def parse_stored(header: str | None) -> int:
    """Return the number of stored bytes from the ``Range: bytes=0-N`` of a 308. Without the header, none are stored.

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
    """Return the header that requests the bytes ``[start, end)``, or all bytes from ``start`` on."""
    return f"bytes={start}-{'' if end is None else end - 1}"


def crc32c_header(value: int) -> str:
    """Return ``X-Goog-Hash`` for the last PUT. The store rejects content with another checksum."""
    return f"crc32c={base64.b64encode(value.to_bytes(4, 'big')).decode()}"


def parse_object(answer: object) -> Resource:
    """Parse an object's metadata from the body of a response, or from parsed JSON.

    Raises:
        ValueError: the metadata is invalid.
    """
    return _resource(_json(answer))


def parse_media(key: str, status: int, headers: Mapping[str, str]) -> ObjectInfo | None:
    """Parse the headers of an object's content. Return `None` if they do not contain the generation and the size.

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
    """Return the values of a header that may occur several times, separated by commas."""
    every: list[str] = headers.getall(name, []) if hasattr(headers, "getall") else [headers.get(name, "")]
    return ",".join(every)


def parse_listing(answer: object) -> tuple[list[ObjectInfo], str]:
    """Parse a page of a listing. Return its objects and the next page's token (``""`` if none).

    Raises:
        ValueError: the page is invalid.
    """
    page = _json(answer)
    if page.get("kind") != "storage#objects":  # the only member of an empty listing
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
            # Emulators omit the time. The epoch represents an unknown time.
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
