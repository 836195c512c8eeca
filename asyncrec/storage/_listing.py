"""`list_some` gives the beginning of a listing, to whoever hands it on in lists and holds nothing open meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from asyncrec.storage._base import ObjectInfo, Storage

# A page of the stores, so that no request is made for less than one.
LISTED = 1_000


async def list_some(storage: Storage, prefix: str, start_after: str) -> list[ObjectInfo]:
    """List the first objects, at most `LISTED`; fewer are all there are."""
    listing = storage.list_objects(prefix, start_after=start_after)
    found: list[ObjectInfo] = []
    try:
        async for info in listing:
            found.append(info)
            if len(found) == LISTED:
                break
    finally:
        if isinstance(listing, AsyncGenerator):
            await listing.aclose()
    return found
