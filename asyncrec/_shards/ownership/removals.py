"""The log of removals decides which of several jobs that remove or replace shards wins: each takes one place in it.

A place is a number, won by exclusive creation. Appending never takes a place. A job that removes or replaces takes one
just before it commits, and its closing segment names the place. So a place counts once its job's closing segment is
there, and is void once its job was abandoned; before that, no other job can take the next place. If two jobs replace
the same data set, the second therefore sees the commit of the first.
"""

from __future__ import annotations

import json
from contextlib import suppress

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.names import manifest_prefix, removal_key, removal_of
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

# Between a place and its closing segment lie two small requests, each with its retries for a minute.
_PATIENCE_SECONDS = 130
_POLL_SECONDS = 0.25
_MOST_BYTES = 1 << 16


async def take_place(folder: Storage, name: str, writer: str, *, since: int, deadline: Deadline | None = None) -> int:
    """Win the next place in the log, for the job ``writer``; ``since`` is the last that its snapshot knew of.

    ``deadline`` ends what is shielded in it.

    Raises:
        ConflictError: another job removed or replaced since; or is about to, and has not ended.
    """
    display_path = join(folder.root, name)
    patience = anyio.current_time() + _PATIENCE_SECONDS
    settled = since
    met: set[int] = set()  # seen when another job created them; a listing need not show them at once
    while True:
        places = sorted(met.union(await _places(folder, name)))
        for place in (each for each in places if each > settled):
            holder = await _holder(folder, name, place)
            if holder == writer:
                return place  # taken by an attempt whose answer was lost
            closing = await load_closing(folder, name, holder) if holder else None
            if closing is not None and closing.removal == place:
                raise ConflictError(
                    f"{display_path}: the writer {holder} replaced this data set first, or shards of it, at "
                    f"{closing.time}; no record of this writer is in it"
                )
            if closing is None and holder:
                with suppress(ConflictError):  # it is alive, or that is unknown
                    if await settle_dead(folder, name, holder):
                        break
                if anyio.current_time() >= patience:
                    raise ConflictError(
                        f"{display_path}: the writer {holder} is replacing this data set too and has not ended; no "
                        "record of this writer is in it. If that writer is dead, run "
                        f"{recover_command(display_path)} to end it"
                    )
                await anyio.sleep(_POLL_SECONDS)
                break
            settled = place  # it was abandoned
        else:
            place = max(settled, places[-1] if places else 0) + 1
            record = json.dumps({"version": 2, "writer": writer}).encode() + b"\n"
            try:
                await create(folder, removal_key(name, place), record, deadline=deadline)
            except ObjectExistsError:
                met.add(place)
                continue
            return place


async def _places(folder: Storage, name: str) -> set[int]:
    prefix = manifest_prefix(name)
    keys = [info.key[len(prefix) :] async for info in folder.list_objects(f"{prefix}_removal-")]
    return {place for key in keys if (place := removal_of(key)) is not None}


async def _holder(folder: Storage, name: str, place: int) -> str:
    """Return the owner of a place; ``""`` if what is there cannot be read."""
    try:
        data = json.loads(await folder.get(removal_key(name, place), max_bytes=_MOST_BYTES))
        writer = data["writer"]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return writer if isinstance(writer, str) else ""
