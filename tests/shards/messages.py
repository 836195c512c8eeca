"""Messages of some queues, a consumer that writes them with their positions, and checks of the stored records."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import asyncrec
from asyncrec._shards.manifest.names import manifest_prefix
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage import Storage

SOURCES = ("orders/0", "orders/1", "clicks/0")
LAST = 4


def records_of(source: str, position: int) -> list[bytes]:
    """Return the records of a message, which may have one, several or none."""
    return [f"{source} {position} {number}".encode() for number in range((1, 3, 0, 2)[position % 4])]


async def progress_of(storage: Storage, name: str = "pages") -> dict[str, tuple[int, int]]:
    """Return the progress of each source according to the segments of a data set."""
    found: dict[str, tuple[int, int]] = {}
    closed: set[str] = set()
    keys = [info.key async for info in storage.list_objects(manifest_prefix(name)) if info.key.endswith(".jsonl")]
    for key in sorted(keys, reverse=True):  # if a log was closed, its last segment lists everything
        head = json.loads((await storage.get(key)).partition(b"\n")[0])
        if head.get("writer") in closed or "shards" not in head:
            continue
        if head["closed"] and not head["abandoned"]:
            closed.add(head["writer"])
        for source, (turn, position) in head.get("progress", {}).items():
            found[source] = max((turn, position), found.get(source, (0, -1)))
    return found


async def consume(storage: Storage, *, since: dict[str, tuple[int, int]], **options: Any) -> None:
    """Write the messages that follow the positions in ``since``, flushing now and then."""
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for position in range(LAST + 1):
            for source in SOURCES:
                if position > since.get(source, (0, -1))[1]:
                    await writer.write_many(records_of(source, position), source=source, position=position)
            if position % 2:
                await writer.flush()


async def stored(storage: Storage) -> Counter[bytes]:
    """Count how often each record occurs in the data set."""
    found: Counter[bytes] = Counter()
    shards: list[str] = []
    with suppress(ObjectNotFoundError):
        shards = await asyncrec.list_shards("pages", storage=storage)
    for shard in shards:
        found.update(await asyncrec.read_records(shard, storage=storage))
    return found


def once() -> Counter[bytes]:
    """Return the expected counts: every record of every message exactly once."""
    return Counter(
        record for source in SOURCES for position in range(LAST + 1) for record in records_of(source, position)
    )
