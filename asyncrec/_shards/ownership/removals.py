"""The log of removals decides which job wins if several jobs remove or replace shards.

Each of these jobs takes one place in the log just before it commits. A place is a number, which a job wins by creating
an object exclusively. A job that only appends does not take a place. The job's closing segment names its place, so the
place counts once the closing segment exists, and no longer counts once the job was abandoned. Until one of these has
happened, no other job can take the next place. Thus, if two jobs replace a data set, the second sees the first commit.
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

# A job that has taken a place creates its closing segment with two small requests, each retried for up to a minute.
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
    """Win the next place in the log for the job ``writer``. ``since`` is the last place in the job's snapshot.

    With ``removes``, other jobs may have removed shards since that place, as long as they did not remove these; after
    this call, no other job can remove them. The other jobs' removals are read from the ends of their logs and not from
    a listing, which may lag behind. ``rule`` states which record of each key is kept. Jobs with different rules
    conflict, because together they could remove all records of a key. ``deadline`` also limits the shielded requests.

    Raises:
        ConflictError: another job has removed or replaced shards since then, or is about to do so and has not ended.
    """
    display_path = join(folder.root, name)
    patience = anyio.current_time() + _PATIENCE_SECONDS
    settled = since
    met: set[int] = set()  # places that are already taken, although a listing may not show them yet
    while True:
        places = sorted(met.union(await _places(folder, name)))
        for place in (each for each in places if each > settled):
            holder, others_rule = await _holder(folder, name, place)
            if holder == writer:
                return place  # an earlier attempt won it, but the response was lost
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
    """Return when each job that removed shards committed, in seconds since 1970 by the store's clock."""
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
    """Return the latest of these times at which a shard was removed, or 0. ``key`` names the shard or its sidecar."""
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
    """Return the job that has a place, and the job's rule. Both are ``""`` if the place's object cannot be read."""
    try:
        content = await get_listed(folder, removal_key(name, place), max_bytes=_MOST_BYTES)
        data = {} if content is None else json.loads(content)
        writer, rule = data["writer"], data.get("rule", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    return (writer, rule if isinstance(rule, str) else "") if isinstance(writer, str) else ("", "")
