"""`gather` collects the findings of a report from the manifests, and from all records or a sample.

`plan` chooses the sample. It divides the data set into equal pieces and draws one stretch of consecutive records from
each, so that all parts are represented and few reads are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from random import Random

from asyncrec import Schema
from asyncrec.errors import SchemaError
from asyncrec.storage import in_thread
from asyncrec.tools import SelectedShard, Selection, at_once

from .findings import Fault, Findings, ShardFindings
from .profile import Profile
from .reading import MOST_FAULTS, Block, Part, PartRead
from .reading_ahead import read_parts

# The maximum size of a sample in bytes. Reading and counting its records takes a few seconds.
SAMPLE_BYTES = 256 << 20
# If the number of records is unknown, at most this many shards are read, from the beginning, with few requests each.
_BEGINNINGS = 1000

Progress = Callable[[int, "int | None"], None]


async def gather(
    selection: Selection,
    *,
    sample: int | None,
    class_feature: str | None,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Findings:
    """Read records and return the findings. A fault in a shard is a finding, and the other shards are still read.

    Args:
        sample: the maximum number of records to read, of at most `SAMPLE_BYTES` in total; `None` for all.
        jobs: the number of shards to read concurrently, which does not affect the findings; by default, the number of
            processors, or more for a remote store.

    Raises:
        StorageError: a store failed. A missing shard is a finding instead.
    """
    schema, notes = _schema(selection)
    findings = Findings(
        path=selection.path,
        selection=selection,
        shards=[_unread(shard) for shard in selection.shards],
        profile=Profile(schema, class_feature=class_feature, labels=_labels(selection)),
        notes=notes,
    )
    counting = _Counting(findings, progress)
    parts = _parts(findings, sample, counting)
    taken = 0

    def end(part: Part, read: PartRead) -> bool:
        nonlocal taken
        taken += 1
        return counting.end(part, read)

    await read_parts(selection, parts, counting.take, end, jobs=at_once(jobs, selection.storage))
    if taken < len(parts):
        findings.sampled = True
    return findings


def _parts(findings: Findings, sample: int | None, counting: _Counting) -> list[Part]:
    """Return the parts of shards to read."""
    shards = findings.selection.shards
    stretches = _plan(findings, sample)
    if stretches is not None:
        findings.sampled = True
        counting.total = sum(stretch.count for stretch in stretches)
        return _stretched(findings, stretches, counting.total)
    if findings.records is not None or sample is None:
        counting.total = findings.selection.records
        return [Part(place, shard) for place, shard in enumerate(shards)]
    # The number of records is unknown, so read the first records of each shard, or of evenly spaced shards.
    step = -(-len(shards) // _BEGINNINGS)
    places = range(0, len(shards), max(1, step))
    findings.sampled, findings.evenly = len(places) < len(shards), False
    most, room = max(1, sample // len(places)), SAMPLE_BYTES // len(places)
    return [Part(place, shards[place], most=most, room=room) for place in places]


def _stretched(findings: Findings, stretches: list[Stretch], total: int) -> list[Part]:
    """Return a part for each shard with stretches. If a shard has no index, its share is read from its beginning."""
    room = SAMPLE_BYTES // len(stretches)
    parts = []
    for place, of_shard in groupby(stretches, lambda stretch: stretch.shard):
        some = [(stretch.first, stretch.count) for stretch in of_shard]
        shard = findings.shards[place]
        share = total * (shard.records or 0) // max(1, findings.records or 0)
        parts.append(Part(place, shard.shard, some, most=max(some[0][1], share), room=room))
    return parts


def _unread(shard: SelectedShard) -> ShardFindings:
    entry = shard.entry
    return ShardFindings(shard, entry.records if entry else None, entry.compression if entry else None)


def _schema(selection: Selection) -> tuple[Schema | None, list[str]]:
    notes = [conflict for dataset in selection.datasets for conflict in dataset.manifest.conflicts][:MOST_FAULTS]
    if selection.schema is None:
        return None, notes
    try:
        return Schema.from_json(selection.schema), notes
    except SchemaError as error:
        return None, [*notes, f"The schema in the manifest cannot be read: {error}"]


def _labels(selection: Selection) -> list[str]:
    """Return the class names stored by `from_folder` and `from_csv`, or an empty list if the data sets disagree."""
    found = [dataset.manifest.metadata.get("labels") for dataset in selection.datasets]
    labels = found[0] if found and all(each == found[0] for each in found) else None
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _plan(findings: Findings, sample: int | None) -> list[Stretch] | None:
    """Return the stretches to read, or `None` to read shards from the beginning."""
    records = findings.records
    if sample is None or not records:
        return None
    mean = max(1, findings.bytes // records)
    return plan([shard.records or 0 for shard in findings.shards], max(1, min(sample, SAMPLE_BYTES // mean)))


class _Counting:
    """A counter of records that counts in worker threads, and updates the findings of shards. Blocks arrive in order.

    Attributes:
        total: the number of records to read; `None` if unknown.
    """

    def __init__(self, findings: Findings, progress: Progress) -> None:
        self.total: int | None = None
        self._findings = findings
        self._progress = progress
        self._start: tuple[int, int | None] = (-1, None)  # the current shard's index, and its first record

    async def take(self, part: Part, block: Block) -> None:
        profile = self._findings.profile
        number = self._number(part.place, block.first, len(block.records))
        await in_thread(profile.add, block.records, number, block.columns)
        self._progress(profile.records, self.total)

    def end(self, part: Part, read: PartRead) -> bool:
        """Update the shard's findings. Return whether to continue. Beginnings are read only up to the size limit."""
        findings = self._findings
        shard = findings.shards[part.place]
        shard.read, shard.payload = read.read, read.payload
        shard.compression = read.compression if read.compression is not None else shard.compression
        shard.missing, shard.faults = read.missing, read.faults
        if part.stretches is not None:
            findings.evenly &= not read.from_beginning
        elif read.ended:
            _note_count(shard)
        else:
            findings.sampled = True
        return part.room is None or part.stretches is not None or findings.profile.sizes.total <= SAMPLE_BYTES

    def _number(self, place: int, first: int | None, count: int) -> int:
        """Return the number of a shard's record among all records. If it is unknown, return a unique negative number.

        The number is unknown after damage, because any number of records may have been lost.
        """
        if self._start[0] != place:
            counts = [each.records for each in self._findings.shards[:place]]
            self._start = place, None if None in counts else sum(count or 0 for count in counts)
        start = self._start[1]
        return -self._findings.profile.records - count if start is None or first is None else start + first


def _note_count(shard: ShardFindings) -> None:
    if shard.missing:
        return
    if shard.records is None:
        shard.records = shard.read
    elif shard.records != shard.read:
        message = f"{shard.read:,} records were found, but the manifest says {shard.records:,}"
        shard.faults.append(Fault(shard.shard.display_path, message))


# The maximum number of stretches. Each needs a request to a store, and in a GZIP shard, reading begins at a member.
_PLACES = 200


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of ``count`` records of a shard, beginning with the number ``first``."""

    shard: int
    first: int
    count: int


def plan(counts: Sequence[int], most: int) -> list[Stretch] | None:
    """Return the stretches to read from shards with ``counts`` records, or `None` to read all records.

    The stretches are in ascending order and do not overlap.
    """
    total = sum(counts)
    if total <= most:
        return None
    places = min(_PLACES, most)
    length = most // places
    starts = [0, *accumulate(counts)]
    random = Random(0)
    found: list[Stretch] = []
    shard = 0
    for place in range(places):
        low, high = total * place // places, total * (place + 1) // places
        first = low + random.randrange(max(1, high - low - length + 1))
        left = min(length, high - first)
        while left:  # a stretch may continue in the next shard
            while starts[shard + 1] <= first:
                shard += 1
            taken = min(left, starts[shard + 1] - first)
            found.append(Stretch(shard, first - starts[shard], taken))
            first += taken
            left -= taken
    return found
