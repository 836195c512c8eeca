"""`list_manifest` lists the folder of a manifest, as it was at one moment or later.

Segments are deleted a minute after a checkpoint that covers them, at the earliest. A listing has the checkpoints after
the segments, so a listing that took half of that minute is checked by a second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import anyio

from asyncrec._shards.manifest.key_run import run_number
from asyncrec._shards.manifest.names import checkpoint_of, manifest_prefix, removal_of, segment_of, source_turn_of
from asyncrec.storage._base import ObjectInfo, Storage


@dataclass(frozen=True, slots=True)
class CoveredLogs:
    """The merged segments: of each log, those up to a number.

    Attributes:
        last: the number, by writer.
    """

    last: Mapping[str, int] = field(default_factory=dict)

    def __contains__(self, file: str) -> bool:
        found = segment_of(file)
        return found is not None and found[1] <= self.last.get(found[0], 0)

    def may_go(self, file: str) -> bool:
        """Return whether the segment with this name may be deleted: it is covered, and not the last of its log.

        The last segment stays, because its number determines the next one. Otherwise a writer that was stopped for a
        long time, or a process that ends it, could create a number that was used before.
        """
        found = segment_of(file)
        return found is not None and found[1] < self.last.get(found[0], 0)

    def plus(self, files: Iterable[str]) -> CoveredLogs:
        """Return these segments together with the named ones."""
        last = dict(self.last)
        for file in files:
            if found := segment_of(file):
                last[found[0]] = max(found[1], last.get(found[0], 0))
        return CoveredLogs(last)


# The longest time in seconds that a listing may take to be trusted: half of `loading.LEAST_GRACE`.
_LONG_LIST = 30.0


@dataclass(slots=True)
class ListedManifest:
    """The contents of a manifest's folder.

    Attributes:
        segments: the segments by name, without the folder.
        pointers: the pointers to checkpoints, by number.
        checkpoints: the checkpoints of each number, by maker; one of them counts.
        runs: the runs of keys by name, without the folder.
        turns: the turns of sources by name, without the folder.
        removal: the highest place in the log of removals; 0 if no place is taken.
    """

    segments: dict[str, ObjectInfo] = field(default_factory=dict)
    pointers: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoints: dict[int, dict[str, ObjectInfo]] = field(default_factory=dict)
    runs: dict[str, ObjectInfo] = field(default_factory=dict)
    turns: dict[str, ObjectInfo] = field(default_factory=dict)
    removal: int = 0

    @property
    def newest(self) -> int:
        """The number of the newest checkpoint; 0 if the data set has no checkpoint."""
        return max(self.pointers, default=0)

    def count_uncovered(self, covered: CoveredLogs) -> int:
        """Return how many segments a checkpoint does not cover. Call this in a thread if there are many."""
        return sum(each not in covered for each in self.segments)

    def old_turns(self, until: datetime) -> list[str]:
        """Return the turns won until ``until`` after which a later turn of their source is listed.

        The last turn stays forever, so that a late request for its number finds it taken.
        """
        last: dict[str, int] = {}
        for file in self.turns:
            source, turn = source_turn_of(file) or ("", 0)
            last[source] = max(turn, last.get(source, 0))
        found = {file: source_turn_of(file) or ("", 0) for file, info in self.turns.items() if info.modified <= until}
        return [file for file, (source, turn) in found.items() if turn < last[source]]

    def continues(self, earlier: ListedManifest) -> bool:
        """Return whether all objects listed earlier are unchanged, and no checkpoint is new. Slow for many segments."""
        if self.newest != earlier.newest or (
            self.newest and self.pointers[self.newest].etag != earlier.pointers[self.newest].etag
        ):
            return False
        here = self.segments
        return all(name in here and here[name].etag == info.etag for name, info in earlier.segments.items())


async def list_manifest(folder: Storage, name: str) -> ListedManifest:
    """List the manifest of a data set, as it was at one moment or later."""
    while True:
        quick = _quick()
        listed = ListedManifest()
        prefix = manifest_prefix(name)
        async for info in folder.list_objects(prefix):
            found = checkpoint_of(info.key)
            if found is None and run_number(info.key[len(prefix) :]) is not None:
                listed.runs[info.key[len(prefix) :]] = info
            elif found is None and segment_of(info.key[len(prefix) :]) is not None:
                listed.segments[info.key[len(prefix) :]] = info
            elif found is None and source_turn_of(info.key[len(prefix) :]) is not None:
                listed.turns[info.key[len(prefix) :]] = info
            elif found is None:
                listed.removal = max(listed.removal, removal_of(info.key[len(prefix) :]) or 0)
            elif found is not None and found[1] is None:
                listed.pointers[found[0]] = info
            elif found is not None:
                listed.checkpoints.setdefault(found[0], {})[found[1] or ""] = info
        if quick() or await newest_checkpoint(folder, name) == listed.newest:
            return listed


async def newest_checkpoint(folder: Storage, name: str) -> int:
    """Return the number of the newest checkpoint of a data set; 0 if it has no checkpoint."""
    last = -1
    while True:
        quick = _quick()
        found = [checkpoint_of(info.key) async for info in folder.list_objects(manifest_prefix(name) + "~")]
        newest = max((each[0] for each in found if each is not None and each[1] is None), default=0)
        if quick() or newest == last:
            return newest
        last = newest


def _quick() -> Callable[[], bool]:
    """Return a function that returns whether a listing begun now was fast enough to be trusted."""
    # The loop's clock stops while a machine sleeps.
    began, by_wall = anyio.current_time(), time.time()
    return lambda: max(anyio.current_time() - began, time.time() - by_wall) < _LONG_LIST
