"""`list_manifest` lists a manifest's folder: its state at one moment, possibly with some objects that were added later.

A segment is not deleted until a minute after the creation of the checkpoint that covers it. Checkpoints are listed
after segments. Therefore, a listing that took half a minute or more is verified by listing the checkpoints again.
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
    """The segments that were merged: in each log, those up to a certain number.

    Attributes:
        last: the number of the last merged segment, by writer.
    """

    last: Mapping[str, int] = field(default_factory=dict)

    def __contains__(self, file: str) -> bool:
        found = segment_of(file)
        return found is not None and found[1] <= self.last.get(found[0], 0)

    def may_go(self, file: str) -> bool:
        """Return whether the segment in ``file`` may be deleted: it must be covered, but not be the last of its log.

        The last segment is kept, because its number determines the next one. Otherwise, a writer that was suspended for
        a long time, or a process that ends the writer's job, could use a number a second time.
        """
        found = segment_of(file)
        return found is not None and found[1] < self.last.get(found[0], 0)

    def plus(self, files: Iterable[str]) -> CoveredLogs:
        """Return a copy that also includes the segments in these files."""
        last = dict(self.last)
        for file in files:
            if found := segment_of(file):
                last[found[0]] = max(found[1], last.get(found[0], 0))
        return CoveredLogs(last)


# A listing is trusted only if it took less time than this, in seconds: half of `loading.LEAST_GRACE`.
_LONG_LIST = 30.0


@dataclass(slots=True)
class ListedManifest:
    """The contents of a manifest's folder.

    Attributes:
        segments: the segments, by file name.
        pointers: the pointers to checkpoints, by number.
        checkpoints: the candidates for each checkpoint, by number and maker. Only one candidate per number counts.
        runs: the runs of keys, by file name.
        turns: the turns of sources, by file name.
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
        """Return the number of segments that are not covered. Call this in a thread if there are many segments."""
        return sum(each not in covered for each in self.segments)

    def old_turns(self, until: datetime) -> list[str]:
        """Return the turns that were won by the time ``until``, except the last listed turn of each source.

        The last turn is kept forever, so that a delayed request to create its number fails.
        """
        last: dict[str, int] = {}
        for file in self.turns:
            source, turn = source_turn_of(file) or ("", 0)
            last[source] = max(turn, last.get(source, 0))
        found = {file: source_turn_of(file) or ("", 0) for file, info in self.turns.items() if info.modified <= until}
        return [file for file, (source, turn) in found.items() if turn < last[source]]

    def continues(self, earlier: ListedManifest) -> bool:
        """Return whether all segments of an earlier listing are unchanged and there is no new checkpoint.

        This is slow if there are many segments.
        """
        if self.newest != earlier.newest or (
            self.newest and self.pointers[self.newest].etag != earlier.pointers[self.newest].etag
        ):
            return False
        here = self.segments
        return all(name in here and here[name].etag == info.etag for name, info in earlier.segments.items())


async def list_manifest(folder: Storage, name: str) -> ListedManifest:
    """List the folder of a manifest: its state at one moment, possibly with some objects that were added later."""
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
    """Start timing a listing. Return a function that tells whether the listing was fast enough to be trusted."""
    # The event loop's clock stops while the machine is suspended, so the wall clock is needed too.
    began, by_wall = anyio.current_time(), time.time()
    return lambda: max(anyio.current_time() - began, time.time() - by_wall) < _LONG_LIST
