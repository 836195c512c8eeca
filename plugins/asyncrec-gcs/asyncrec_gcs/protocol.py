"""The words of the JSON API and of its resumable uploads are formed and parsed here. Pure.

Sources: https://cloud.google.com/storage/docs/performing-resumable-uploads and
https://cloud.google.com/storage/docs/json_api/v1/objects.

A resumable upload is a session: a POST opens it and answers with its address; each PUT carries the next bytes, whole
multiples of 256 KiB, except the last; 308 says how many are stored; the PUT that names the total publishes the object.
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
"""Every PUT of a session but the last carries a multiple of this."""

STATUS_QUERY = "bytes */*"
"""The ``Content-Range`` that asks, with an empty body, how much is stored."""

# Names our upload in the object's metadata, so that an answer that was lost can be told from another's object.
_UPLOAD = "asyncrec-upload"

# What is said of an object without bytes, by which it is known where its size is left out, as programs made of protocol
# buffers do with a zero.
_EMPTY = {"crc32c": "AAAAAA==", "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}

# What is asked for of each object; the whole resource is four times as long.
_FIELDS = "name,size,generation,crc32c,updated"


@dataclass(frozen=True, slots=True)
class Resource:
    """An object as GCS describes it.

    Attributes:
        info: its key is the object's name.
        generation: of the content; also `ObjectInfo.etag`.
        upload: the id of the upload of ours that made it, where one did.
    """

    info: ObjectInfo
    generation: str
    upload: str | None


def object_url(endpoint: str, bucket: str, name: str, **params: str) -> str:
    """Make the URL of one object's metadata, or with ``alt="media"`` of its content.

    ``.`` is the only character left as it is that a path could be folded by, and the keys ``.`` and ``..`` are refused
    before.
    """
    return f"{endpoint}/storage/v1/b/{quote(bucket, safe='')}/o/{_quoted(name)}{_query(params)}"


def list_params(*, prefix: str, start_offset: str, page: str, size: int) -> dict[str, str]:
    """Make the parameters for a page of objects from ``start_offset`` on (inclusive), ascending by UTF-8 bytes."""
    params = {"maxResults": str(size), "fields": f"kind,nextPageToken,items({_FIELDS})"}
    params |= {"prefix": prefix} if prefix else {}
    params |= {"startOffset": start_offset} if start_offset else {}
    params |= {"pageToken": page} if page else {}
    return params


def session_url(endpoint: str, bucket: str, name: str, *, exclusive: bool) -> str:
    """Make the URL that opens an upload session; with ``exclusive`` only generation 0, nothing, may be replaced."""
    params = {"uploadType": "resumable", "name": name} | ({"ifGenerationMatch": "0"} if exclusive else {})
    return f"{endpoint}/upload/storage/v1/b/{quote(bucket, safe='')}/o{_query(params)}"


def session_body(name: str, upload: str) -> bytes:
    """Make the metadata of the object to be, with the id of this upload."""
    return json.dumps({"name": name, "metadata": {_UPLOAD: upload}}).encode()


def content_range(start: int, length: int, total: int | None) -> str:
    """Make the header of a PUT of ``length`` bytes from ``start``; ``total`` is in the last one, which publishes.

    An upload that has all its bytes stored, none included, is ended by ``bytes */TOTAL``.
    """
    if not length:
        if total is None:
            raise ValueError("only the last PUT, which states the total, may have no bytes")
        return f"bytes */{total}"
    return f"bytes {start}-{start + length - 1}/{'*' if total is None else total}"


def parse_stored(header: str | None) -> int:
    """Read how many bytes a 308 says are stored: ``Range: bytes=0-N``, or no such header for none.

    Raises:
        ValueError: it is something else.
    """
    if header is None:
        return 0
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", header.strip())
    if match is None:
        raise ValueError("the Range header of a 308 response must have the form bytes=0-N")
    return int(match[1]) + 1


def range_header(start: int, end: int | None) -> str:
    """Make the header that asks for the bytes ``[start, end)``, or all from ``start`` on."""
    return f"bytes={start}-{'' if end is None else end - 1}"


def crc32c_header(value: int) -> str:
    """Make ``X-Goog-Hash`` of a last PUT: the store refuses to publish what has another checksum."""
    return f"crc32c={base64.b64encode(value.to_bytes(4, 'big')).decode()}"


def parse_object(answer: object) -> Resource:
    """Read an object's metadata from an answer's body or from its JSON.

    Raises:
        ValueError: it is not what it should be.
    """
    return _resource(_json(answer))


def parse_media(key: str, status: int, headers: Mapping[str, str]) -> ObjectInfo | None:
    """Read what the headers of an object's content say of it; `None` where they do not say the generation or the size.

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
    """Give the values of a header that may come several times."""
    every: list[str] = headers.getall(name, []) if hasattr(headers, "getall") else [headers.get(name, "")]
    return ",".join(every)


def parse_listing(answer: object) -> tuple[list[ObjectInfo], str]:
    """Read a page of a listing, and the token of the next; ``""`` after the last.

    Raises:
        ValueError: it is not what it should be.
    """
    page = _json(answer)
    if page.get("kind") != "storage#objects":  # the list of an empty folder says nothing else
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
            # Emulators leave it out; the epoch says as much.
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
