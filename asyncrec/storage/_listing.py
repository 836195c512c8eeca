"""Partial listings: the first objects (`list_some`), or those that match a pattern (`matching`).

A pattern may contain ``*``, ``?`` and ``[...]`` in the last part of a path, as in `fnmatch`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase

from asyncrec.storage._base import ObjectInfo, Storage

_SPECIAL = re.compile(r"[*?\[]")

# The number of objects in one page of a store's listing. A smaller number would waste requests.
LISTED = 1_000


@asynccontextmanager
async def closing_listing(listing: AsyncIterator[ObjectInfo]) -> AsyncIterator[AsyncIterator[ObjectInfo]]:
    """Close a listing when the context exits, even if it exits early, instead of leaving it to garbage collection."""
    try:
        yield listing
    finally:
        if isinstance(listing, AsyncGenerator):
            await listing.aclose()


async def list_some(storage: Storage, prefix: str, start_after: str) -> list[ObjectInfo]:
    """Return the first `LISTED` objects, or all if there are fewer. The listing is closed before this returns."""
    found: list[ObjectInfo] = []
    async with closing_listing(storage.list_objects(prefix, start_after=start_after)) as listing:
        async for info in listing:
            found.append(info)
            if len(found) == LISTED:
                break
    return found


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern rather than a literal name."""
    return _SPECIAL.search(name) is not None


def beginning_of(pattern: str) -> str:
    """Return the literal text before the pattern's first special character. Every matching name begins with it."""
    return _SPECIAL.split(pattern, maxsplit=1)[0]


async def matching(storage: Storage, pattern: str) -> AsyncIterator[ObjectInfo]:
    """List the objects whose keys match ``pattern``. The part before its last slash is literal.

    Only objects with the pattern's literal prefix are requested from the storage.
    """
    folder, slash, name = pattern.rpartition("/")
    prefix = folder + slash
    async for info in storage.list_objects(prefix + beginning_of(name)):
        below = info.key[len(prefix) :]
        if "/" not in below and fnmatchcase(below, name):
            yield info
