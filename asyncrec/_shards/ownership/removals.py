"""The log of removals decides which of several jobs that remove or replace shards wins.

Each such job takes one place in the log. A place is a number, won by exclusive creation. A job that only appends takes
no place. A job takes its place just before it commits, and its closing segment names the place. So a place counts once
the closing segment exists, and is void once the job was abandoned. Until then, no other job can take the next place.
So if two jobs replace the same data set, the second sees the commit of the first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._numpy import np
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.listed_object import get_listed
from asyncrec._shards.manifest.names import manifest_prefix, removal_key, removal_of, segment_of
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec.errors import ConflictError, ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

# Two small requests lie between a place and its closing segment, each with up to a minute of retries.
_PATIENCE_SECONDS = 130
_POLL_SECONDS = 0.25
_MOST_BYTES = 1 << 16


async def take_place(
    folder: Storage,
    name: str,
    writer: str,
    *,
    since: int,
    removes: Collection[str] | None = None,
    rule: str = "",
    deadline: Deadline | None = None,
) -> int:
    """Win the next place in the log for the job ``writer``. ``since`` is the last place in its snapshot.

    With ``removes``, other jobs may have removed shards since, but not these; after this call, no other job can remove
    them any more. The removals of other jobs are read from the ends of their logs rather than from a listing, which may
    be late. ``rule`` states which record of each key is kept. Jobs with different rules conflict, because together they
    could remove all records of a key. ``deadline`` also limits the shielded requests.

    Raises:
        ConflictError: another job has removed or replaced shards since, or is about to and has not ended.
    """
    display_path = join(folder.root, name)
    patience = anyio.current_time() + _PATIENCE_SECONDS
    settled = since
    met: set[int] = set()  # places found taken; a listing may not yet show them
    while True:
        places = sorted(met.union(await _places(folder, name)))
        for place in (each for each in places if each > settled):
            holder, others_rule = await _holder(folder, name, place)
            if holder == writer:
                return place  # won by an attempt whose answer was lost
            closing = await load_closing(folder, name, holder) if holder else None
            mine = removes is None or closing is None or not set(removes).isdisjoint(closing.remove)
            if closing is not None and closing.removal == place and (mine or (rule and others_rule not in ("", rule))):
                raise ConflictError(
                    f"{display_path}: the writer {holder} already replaced this data set or shards of it at "
                    f"{closing.time}; no record of this writer is in it"
                )
            if closing is None and holder:
                with suppress(ConflictError):  # the holder is alive, or its state is unknown
                    if await settle_dead(folder, name, holder):
                        break
                if anyio.current_time() >= patience:
                    raise ConflictError(
                        f"{display_path}: the writer {holder} is also replacing this data set and has not ended; no "
                        "record of this writer is in it. If that writer is dead, run "
                        f"{recover_command(display_path)} to end it"
                    )
                await anyio.sleep(_POLL_SECONDS)
                break
            settled = place  # the holder was abandoned
        else:
            place = max(settled, places[-1] if places else 0) + 1
            content = {"version": 1, "writer": writer, **({"rule": rule} if rule else {})}
            record = json.dumps(content).encode() + b"\n"
            try:
                await create(folder, removal_key(name, place), record, deadline=deadline)
            except ObjectExistsError:
                met.add(place)
                continue
            return place


async def times_of_removals(folder: Storage, name: str, history: History) -> dict[str, float]:
    """Return the commit time of each job that removed shards, in seconds since 1970 by the store's clock."""
    numbers = np.unique(history.commits["writer"][history.removed_by]).tolist()
    times = {history.writers[number]: 0.0 for number in numbers}
    if not times:
        return {}
    prefix = manifest_prefix(name)
    async for info in folder.list_objects(prefix):
        found = segment_of(info.key[len(prefix) :])
        if found is not None and found[0] in times:
            times[found[0]] = max(times[found[0]], info.modified.timestamp())
    return times


def removed_at(history: History, key: str, times: Mapping[str, float]) -> float:
    """Return the latest of these times at which a shard, or the shard of an index or keys, was removed, or 0."""
    found = 0.0
    for path in {history.shards.paths[row] for row in history.rows_naming(key)}:
        low, high = history.removed.range_of(path.encode("utf-8", "surrogatepass"))
        for writer in history.commits["writer"][history.removed_by[low:high]].tolist():
            found = max(found, times.get(history.writers[writer], 0.0))
    return found


async def _places(folder: Storage, name: str) -> set[int]:
    prefix = manifest_prefix(name)
    keys = [info.key[len(prefix) :] async for info in folder.list_objects(f"{prefix}_removal-")]
    return {place for key in keys if (place := removal_of(key)) is not None}


async def _holder(folder: Storage, name: str, place: int) -> tuple[str, str]:
    """Return the owner of a place, and its rule; ``""`` if the object there cannot be read."""
    try:
        content = await get_listed(folder, removal_key(name, place), max_bytes=_MOST_BYTES)
        data = {} if content is None else json.loads(content)
        writer, rule = data["writer"], data.get("rule", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    return (writer, rule if isinstance(rule, str) else "") if isinstance(writer, str) else ("", "")
