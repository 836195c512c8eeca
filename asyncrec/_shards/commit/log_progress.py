"""`LogProgress` tracks the progress of a writer's sources, which the writer's log states along with its commits.

All records of a source go through one queue, whose shards are committed in order. When a shard is committed, all
earlier records of its sources are already in committed shards, so the commit may state the shard's positions. Each
segment states the changes since the previous segment, and the last segment of the log states all positions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import Positions
from asyncrec._shards.manifest.listed_object import get_listed
from asyncrec._shards.manifest.names import manifest_prefix, segment_of
from asyncrec._shards.manifest.segment import MAX_SEGMENT_BYTES, ShardEntry, parse_segment
from asyncrec.storage._base import Storage

Forget = Callable[[], Awaitable[None]]


class LogProgress:
    """The positions that one log has stated or will state.

    Attributes:
        stated: the turn and the last position of each source, as stated by the log.
        lift: a function that takes the positions that a commit will state, and adds any later positions that have no
            record but may be stated too.
    """

    def __init__(self) -> None:
        self.stated: Positions = {}
        self.lift: Callable[[Positions], Positions] = lambda positions: positions
        self._shards: dict[str, tuple[Positions, Forget | None]] = {}

    def note(self, shard: str, positions: Positions, forget: Forget | None = None) -> None:
        """Record the positions of a shard that will be committed. ``forget`` removes the copy beside the shard."""
        self._shards[shard] = positions, forget

    def of(self, shards: Iterable[ShardEntry], *, all: bool = False) -> Positions:
        """Return the positions that the commit of these shards must state; with ``all``, also those stated before."""
        latest: Positions = {}
        for shard in shards:
            positions, _ = self._shards.get(shard.path, ({}, None))
            for source, pair in positions.items():
                latest[source] = max(pair, latest.get(source, pair))
        latest = {source: pair for source, pair in self.lift(latest).items() if pair > self.stated.get(source, (0, -1))}
        return {**self.stated, **latest} if all else latest

    def won(self, progress: Mapping[str, tuple[int, int]]) -> None:
        """Record the positions that a new segment states."""
        self.stated.update(progress)

    async def forget(self, shard: str) -> None:
        """Remove the positions that are stored next to a committed shard."""
        _, forget = self._shards.pop(shard, (None, None))
        if forget is not None:
            await forget()


async def load_stated(folder: Storage, name: str, writer: str) -> Positions:
    """Load the positions stated by a log's uncovered segments. A process that ends the log must state them again."""
    prefix = manifest_prefix(name)
    listed = [info.key async for info in folder.list_objects(f"{prefix}{writer}-")]
    stated: Positions = {}
    for key in listed:
        if (segment_of(key[len(prefix) :]) or ("", 0))[0] == writer:
            content = await get_listed(folder, key, max_bytes=MAX_SEGMENT_BYTES)
            if content is None:  # a checkpoint now covers the segment
                continue
            segment = await in_thread(partial(parse_segment, content, name=key))
            for source, reached in segment.progress.items():
                stated[source] = max(reached, stated.get(source, reached))
    return stated
