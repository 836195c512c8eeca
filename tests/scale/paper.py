"""Calculates the requests that a crawl sends to its store: exactly for each writer, and event by event for a day.

This module does not import asyncrec, but follows the rules in `docs/scale.md`. `test_paper.py` compares its results
with those of real writers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile

Requests = Counter[str]

# The maximum number of keys in a response to a list request.
PAGE = 1000
_WRITES = {"PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "DeleteObject"}
_FREE = {"DeleteObject"}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in dollars of AWS S3 Standard in us-east-1. Uploads and traffic within the region are free."""

    thousand_writes: float = 0.005  # PUT, POST and LIST
    thousand_reads: float = 0.0004  # GET and HEAD
    gigabyte_month: float = 0.023

    def of(self, requests: Requests) -> float:
        """Return the price of these requests."""
        billed = Counter({kind: count for kind, count in requests.items() if kind not in _FREE})
        writes = sum(count for kind, count in billed.items() if is_write(kind) or kind == "ListObjectsV2")
        return writes / 1000 * self.thousand_writes + (billed.total() - writes) / 1000 * self.thousand_reads


def is_write(kind: str) -> bool:
    """Return whether S3 counts a request as a write of a prefix, or else as a read: for rate limits, not prices."""
    return kind in _WRITES


def put(size: int, part_bytes: int, *, exclusive: bool = False) -> Requests:
    """Return the requests that create an object."""
    return Requests(PutObject=1) if size < part_bytes else put_parts(math.ceil(size / part_bytes), exclusive=exclusive)


def put_parts(parts: int, *, exclusive: bool) -> Requests:
    """Return the requests that create an object from parts.

    The upload is followed by a look-up and, if the object must be new, also preceded by one.
    """
    looks = 2 if exclusive else 1
    return Requests(HeadObject=looks, CreateMultipartUpload=1, UploadPart=parts, CompleteMultipartUpload=1)


def get() -> Requests:
    """Return the request that reads an object; its response also contains the version."""
    return Requests(GetObject=1)


def list_(keys: int) -> Requests:
    """Return the requests that list this many keys."""
    return Requests(ListObjectsV2=max(1, math.ceil(keys / PAGE)))


MIB = 1 << 20
# The bytes of an entry in a segment, of one in a checkpoint, of a line of an index, and of a key.
ENTRY, ROW, LINE, KEY = 640, 54, 16, 16
CAUSES = ("shards", "indexes and keys", "commits", "beginning and end", "compaction")


@dataclass(frozen=True, kw_only=True)
class Crawl:
    """A crawl; each field is an option of ``make scale``.

    Attributes:
        rate: records per second of each writer.
        record_bytes: the size of a stored record, including its frame.
        shard_bytes, shard_seconds: `max_shard_bytes` and `max_shard_seconds`; 0 for no limit.
        compact_seconds: the time between two runs of ``asyncrec compact``; 0 for never.
        restarts: how often each writer is restarted during the crawl, one writer after another.
        ramp_seconds: the time within which all writers start.
        part_bytes: the size of a part of an upload.
    """

    writers: int = 1000
    hours: float = 24.0
    rate: float = 5.0
    record_bytes: int = 20_000
    shard_bytes: int = 256 * MIB
    shard_seconds: float = 0.0
    compact_seconds: float = 3600.0
    restarts: int = 1
    ramp_seconds: float = 60.0
    part_bytes: int = 8 * MIB

    @property
    def seconds(self) -> float:
        return self.hours * 3600

    @property
    def records_a_shard(self) -> int:
        """Return how many records a shard gets if they arrive evenly."""
        by_bytes = max(1, self.shard_bytes // self.record_bytes)
        return min(by_bytes, math.floor(self.shard_seconds * self.rate) + 1) if self.shard_seconds else by_bytes

    @property
    def commit_seconds(self) -> float:
        """Return the time between two commits of a writer."""
        return self.records_a_shard / self.rate


@dataclass(frozen=True, kw_only=True)
class Found:
    """The contents of the manifest's folder when the data set is opened.

    Attributes:
        listed: the number of keys in the folder.
        checkpoint: the size of the newest checkpoint in bytes.
        singles: the number of segments that it does not cover, each with one commit of a writer that is still open.
        closings: the sizes in bytes of the closing segments that it does not cover.
    """

    listed: int = 0
    checkpoint: int = 0
    singles: int = 0
    closings: tuple[int, ...] = ()

    @property
    def segments(self) -> int:
        """Return how many segments are read on opening."""
        return self.singles + len(self.closings)


@dataclass(frozen=True, kw_only=True, eq=False)
class Life:
    """A writer, from its opening to its end."""

    writer: int
    begin: float
    end: float
    records: int


def opening(found: Found) -> Requests:
    """Return the requests that read the manifest."""
    return list_(found.listed) + Requests(GetObject=bool(found.checkpoint) + found.singles + len(found.closings))


def shard(crawl: Crawl, records: int) -> dict[str, Requests]:
    """Return the requests for a shard with this many records and for everything that belongs to it."""
    sidecars = put(LINE * records, crawl.part_bytes) + put(KEY * records, crawl.part_bytes)
    return {
        "shards": put(records * crawl.record_bytes, crawl.part_bytes, exclusive=True),
        "indexes and keys": sidecars,
        "commits": put(ENTRY, crawl.part_bytes),
    }


def life(crawl: Crawl, records: int, found: Found) -> dict[str, Requests]:
    """Return all requests of a writer: for its mark, for reading the manifest, for its shards, and for its end."""
    requests = {cause: Requests() for cause in CAUSES}
    full, rest = divmod(records, crawl.records_a_shard)
    for number, size in ((full, crawl.records_a_shard), (1, rest)):
        for cause, each in shard(crawl, size).items() if number and size else ():
            requests[cause] += Requests({kind: number * count for kind, count in each.items()})
    mark, closing, deletion = Requests(PutObject=1), Requests(PutObject=1), Requests(DeleteObject=1)
    requests["beginning and end"] += mark + opening(found) + closing + deletion
    return requests


# The same limits as in asyncrec/_shards/commit/key_runs.py, and the size of an entry.
_RATIO, _LEAST_ENTRIES, _SORTED, _BLOCK, _LEAST_STEP, _ENTRY = 4, 1 << 16, 1 << 20, 512, 64, 24


def merging(crawl: Crawl, runs: list[int], shards: int, records: int) -> tuple[list[int], Requests]:
    """Return the runs of keys after merging new shards, by their numbers of entries, and the requests for the merge."""
    fresh = [*[_SORTED] * (records // _SORTED), records % _SORTED]
    stay, merged, more = [], fresh[:-1], records
    for entries in sorted(runs):
        (stay if entries >= max(_RATIO * more, _LEAST_ENTRIES) else merged).append(entries)
        more += entries
    whole = sum(merged) + fresh[-1]
    step = _BLOCK * max(_LEAST_STEP, _SORTED // _BLOCK // max(1, len(merged)) // 4)
    reads = len(runs) + shards + sum(math.ceil(entries / step) for entries in merged)
    requests = Requests(GetObject=reads, DeleteObject=len(fresh) - 1)
    for entries in (*fresh[:-1], whole) if records or merged else ():
        requests += put(_ENTRY * entries, crawl.part_bytes)
    return [*stay, *[whole] * bool(whole)], requests


def compaction(crawl: Crawl, found: Found, size: int, deleted: int, *, old: bool, runs: Requests) -> Requests:
    """Return the requests of one run of ``compact`` that makes a checkpoint of ``size`` bytes.

    ``old`` says whether there is an earlier checkpoint; ``runs`` are the requests for the runs of keys.
    """
    requests = runs + opening(found) + put(size, crawl.part_bytes) + get() + Requests(PutObject=1)
    requests += list_(found.listed + 3) + list_(found.listed + 3 - deleted)
    requests += Requests(DeleteObject=deleted, GetObject=1)
    return requests + Requests(GetObject=2) if old else requests


def watching(writers: int, listed: int) -> Requests:
    """Return the requests of one look of ``asyncrec watch`` without new commits: two lists, and the marks."""
    return list_(writers) + list_(listed) + Requests(GetObject=writers)


def lives(crawl: Crawl) -> Iterator[Life]:
    """Yield all writers; restarts are spread evenly over the time between two restarts of the same writer."""
    for writer in range(crawl.writers):
        begin = crawl.ramp_seconds * writer / crawl.writers
        each = crawl.seconds / max(1, crawl.restarts)
        ends = [each * (number + (writer + 1) / (crawl.writers + 1)) for number in range(crawl.restarts)]
        for end in (*ends, crawl.seconds):
            yield Life(writer=writer, begin=begin, end=end, records=int((end - begin) * crawl.rate))
            begin = end


@dataclass(kw_only=True)
class Day:
    """The totals of a crawl.

    Attributes:
        requests: the requests by cause.
        shards, records, bytes: the contents of the data set.
        listed: the number of keys in the manifest's folder at the end.
        most_segments: the most segments that a writer read on opening; each takes a request for its version and one for
            its data.
        end: what a reader finds at the end.
    """

    requests: dict[str, Requests]
    shards: int = 0
    records: int = 0
    bytes: int = 0
    most_segments: int = 0
    end: Found

    @property
    def total(self) -> Requests:
        """Return the requests by kind."""
        return sum(self.requests.values(), Requests())


class _Manifest:
    """The manifest of a crawl while its events are processed."""

    def __init__(self) -> None:
        self.uncovered: dict[Life, int] = {}  # commits of each writer that is open
        self.singles = 0  # the total of these
        self.closings: list[int] = []  # sizes of closing segments that no checkpoint covers
        self.ended = self.committed = self.covered = self.checkpoint = self.checkpoints = 0
        self.fresh = 0  # single segments in no checkpoint
        self.waiting = 0  # single segments in the newest checkpoint, which the next run deletes
        self.shards_of: dict[Life, int] = {}
        self.runs: list[int] = []
        self.merged = 0  # commits whose keys are in runs

    def found(self) -> Found:
        listed = self.fresh + self.waiting + self.ended + 2 * self.checkpoints + len(self.runs)
        return Found(listed=listed, checkpoint=self.checkpoint, singles=self.singles, closings=tuple(self.closings))

    def commit(self, life: Life) -> None:
        self.uncovered[life] = self.uncovered.get(life, 0) + 1
        self.shards_of[life] = self.shards_of.get(life, 0) + 1
        self.singles += 1
        self.fresh += 1
        self.committed += 1

    def close(self, life: Life) -> None:
        self.singles -= self.uncovered.pop(life, 0)
        self.closings.append(ENTRY * self.shards_of.pop(life, 0))
        self.ended += 1

    def compact(self, crawl: Crawl) -> tuple[int, Requests]:
        """Process a compaction; return the number of deleted objects, and the requests for the runs of keys."""
        deleted, self.waiting, self.fresh = self.waiting, self.fresh, 0
        new = self.committed - self.merged
        before, self.merged = self.runs, self.committed
        self.runs, runs = merging(crawl, before, new, new * crawl.records_a_shard)
        deleted += len([each for each in before if each not in self.runs])
        if self.checkpoints:
            deleted += 2
        self.checkpoints = 1
        self.checkpoint = self.committed * ROW
        self.uncovered.clear()
        self.singles = 0
        self.closings.clear()
        return deleted, runs


def the_day(crawl: Crawl) -> Day:
    """Process all openings, commits, ends and compactions of a crawl in chronological order."""
    all_lives = list(lives(crawl))
    events: list[tuple[float, str, Life | None]] = []
    for each in all_lives:
        shards = math.ceil(each.records / crawl.records_a_shard)
        commits = (each.begin + crawl.commit_seconds * (number + 1) for number in range(shards))
        events += [(min(at, each.end), "commit", each) for at in commits]
        events += [(each.begin, "open", each), (each.end, "end", each)]
    if crawl.compact_seconds:
        times = takewhile(lambda at: at < crawl.seconds, (crawl.compact_seconds * number for number in count(1)))
        events += [(at, "all compact", None) for at in times]
    # At the same moment, commits come first, then compactions, then writers that end, and then writers that start.
    order = {"commit": 0, "all compact": 1, "end": 2, "open": 3}
    events.sort(key=lambda event: (event[0], order[event[1]]))
    day = Day(requests={cause: Requests() for cause in CAUSES}, end=Found())
    manifest, found = _Manifest(), {}
    for _, what, one in events:
        if one is None:
            if (here := manifest.found()).listed:
                old = manifest.checkpoints > 0
                deleted, runs = manifest.compact(crawl)
                day.requests["compaction"] += compaction(crawl, here, manifest.checkpoint, deleted, old=old, runs=runs)
        elif what == "open":
            found[one] = manifest.found()
            day.most_segments = max(day.most_segments, found[one].segments)
        elif what == "commit":
            manifest.commit(one)
        else:
            manifest.close(one)
    for each in all_lives:
        for cause, requests in life(crawl, each.records, found[each]).items():
            day.requests[cause] += requests
        day.records += each.records
    day.shards, day.bytes, day.end = manifest.committed, day.records * crawl.record_bytes, manifest.found()
    return day
