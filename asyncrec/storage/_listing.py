"""A part of a listing: its beginning (`list_some`), or the names that match a pattern (`matching`).

A pattern may have ``*``, ``?`` and ``[...]`` in the last part of a path, as in `fnmatch`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from fnmatch import fnmatchcase

from asyncrec.storage._base import ObjectInfo, Storage

_SPECIAL = re.compile(r"[*?\[]")

# One page of a store's listing, so that no request is made for less than a page.
LISTED = 1_000


async def list_some(storage: Storage, prefix: str, start_after: str) -> list[ObjectInfo]:
    """Return the first objects, at most `LISTED`; fewer if there are no more. The listing is closed on return."""
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


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern rather than a literal name."""
    return _SPECIAL.search(name) is not None


def beginning_of(pattern: str) -> str:
    """Return the literal prefix of every matching name."""
    return _SPECIAL.split(pattern, maxsplit=1)[0]


async def matching(storage: Storage, pattern: str) -> AsyncIterator[ObjectInfo]:
    """List the objects whose keys match. The part before the last slash of ``pattern`` is literal.

    Only objects with the pattern's literal prefix are listed.
    """
    folder, slash, name = pattern.rpartition("/")
    prefix = folder + slash
    async for info in storage.list_objects(prefix + beginning_of(name)):
        below = info.key[len(prefix) :]
        if "/" not in below and fnmatchcase(below, name):
            yield info
