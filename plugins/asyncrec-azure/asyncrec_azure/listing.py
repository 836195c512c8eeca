"""Listings, one page at a time. The SDK requests the pages, and this module parses them in a thread.

The SDK creates objects on the loop, in a millisecond per blob, so a page of 1,000 blobs would block the loop for a
second. So the transport passes the page to this module, and an empty page to the SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as Xml

from asyncrec.errors import StorageError
from asyncrec.storage import ObjectInfo, in_thread
from asyncrec.storage.http import parse_http_date

from .container import Container, info_of

# The number of blobs per page: about 700 KB, which a thread parses in about 20 ms.
_PAGE = 1_000
# The number of bytes parsed at a time, during which the parser holds the GIL for a few tenths of a millisecond.
_BITE = 32 << 10


async def pages(container: Container, prefix: str, start_after: str) -> AsyncIterator[list[ObjectInfo]]:
    """Yield pages of the objects after ``start_after``, in ascending order of UTF-8 bytes.

    Raises:
        StorageError: the keys are not in order, as in an account with a hierarchical namespace.
    """
    what = f"{container.shown(prefix)}*: listing"
    first = last = start_after.encode()
    token = ""
    # These characters sort before the supplementary characters in UTF-8, but after them in UTF-16.
    from_there = bool(start_after) and not any("\ue000" <= each <= "\uffff" for each in start_after)
    while True:

        async def ask(token: str = token) -> tuple[list[ObjectInfo], str]:
            taken: list[bytes] = []
            # start_from is inclusive. A store that does not support it starts at the beginning.
            start: dict[str, Any] = {"start_from": start_after} if from_there and not token else {}
            listing = container.sdk.list_blobs(
                name_starts_with=prefix or None,
                include=["metadata"],
                results_per_page=_PAGE,
                taken=taken,  # filled by the transport
                **start,
            )
            async for _ in listing.by_page(token or None):
                break
            return await in_thread(parse_page, taken[0])

        found, following = await container.repeat(ask, what)
        # The emulator orders a page by UTF-16, and other stores may order it by folder.
        found = sorted((info for info in found if info.key.encode() > first), key=lambda info: info.key.encode())
        if found and found[0].key.encode() <= last:
            raise StorageError(
                f"{what}: {found[0].key!r} was listed after {last.decode()!r}, so the listing is not in the order of "
                "UTF-8 bytes. asyncrec cannot use accounts with a hierarchical namespace, whose listings have "
                "another order"
            )
        last = found[-1].key.encode() if found else last
        yield found
        if not following:
            return
        if following == token:
            raise StorageError(f"{what}: the store announces another page but returns the same page again")
        token = following


def parse_page(page: bytes) -> tuple[list[ObjectInfo], str]:
    """Parse a page of a listing. Return its objects, without folders, and the next page's token (``""`` if none).

    Raises:
        ValueError: the page is invalid.
    """
    parser: Any = Xml.XMLPullParser(["end"])
    found: list[ObjectInfo] = []
    token: str | None = None
    try:
        for begin in range(0, len(page), _BITE):
            parser.feed(page[begin : begin + _BITE])
            for _, element in parser.read_events():
                if element.tag == "Blob":
                    if (info := _info(element)) is not None:
                        found.append(info)
                    element.clear()
                elif element.tag == "NextMarker":
                    token = element.text or ""
        parser.close()
    except Xml.ParseError as error:
        raise ValueError(f"the page of a listing is not XML: {error.msg}") from None
    if token is None:
        raise ValueError("the page of a listing does not say whether another page follows")
    return found, token


def _info(blob: Any) -> ObjectInfo | None:
    name = blob.find("Name")
    if name is None or not name.text:
        raise ValueError("the page of a listing has a blob without a name")
    key = unquote(name.text) if name.get("Encoded") == "true" else name.text
    metadata = {each.tag: each.text or "" for each in blob.iterfind("Metadata/*")}
    if metadata.get("hdi_isfolder") == "true":
        return None
    size, modified = (blob.findtext(f"Properties/{each}", "") for each in ("Content-Length", "Last-Modified"))
    return info_of(key, int(size), blob.findtext("Properties/Etag"), parse_http_date(modified), metadata)
