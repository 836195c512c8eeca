"""Reading for a report: what the manifests say, and the records, all of them or some of many places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from asyncrec.errors import FormatError, ObjectNotFoundError, SchemaError
from asyncrec.example.schema import Schema
from asyncrec.framing.frames import FRAME_OVERHEAD
from asyncrec.records.index import RecordIndex
from asyncrec.records.position import BEGINNING, Position
from asyncrec.records.reader import open_reader_at
from asyncrec.sampling.indexes import read_index
from asyncrec.storage.prefixed import PrefixedStorage
from asyncrec.tasks import in_thread
from asyncrec.tools.reporting.profile import Profile
from asyncrec.tools.reporting.sampling import Stretch, plan
from asyncrec.tools.selecting import SelectedShard, Selection

__all__ = ["SAMPLE_BYTES", "Fault", "Findings", "ShardFindings", "gather"]

# Of records, in a sample: what is read and counted in some seconds.
SAMPLE_BYTES = 256 << 20
# An index of this many bytes is read whole to find where a record is; it has a million lines and more.
_INDEX_BYTES = 32 << 20
_LINE_BYTES = 30

Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with a shard."""

    path: str
    message: str
    offset: int | None = None
    record: int | None = None


@dataclass(slots=True)
class ShardFindings:
    """What is known of one shard.

    Attributes:
        records: as the manifest says, or as counted; `None` where neither is known.
        read: records read.
        payload: bytes of the records read.
        whole: it was read to its end.
        faults: what was found wrong.
    """

    shard: SelectedShard
    records: int | None
    compression: str
    read: int = 0
    payload: int = 0
    whole: bool = False
    faults: list[Fault] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def bytes(self) -> int:
        return self.shard.size


@dataclass(slots=True)
class Findings:
    """What a report shows.

    Attributes:
        sampled: not all records were read.
        evenly: those that were come from everywhere; else they are the first ones of each shard.
    """

    path: str
    selection: Selection
    shards: list[ShardFindings]
    profile: Profile
    sampled: bool = False
    evenly: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> int | None:
        """In all; `None` where some shard was neither counted nor is in a manifest."""
        counts = [shard.records for shard in self.shards if shard.records is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def bytes(self) -> int:
        """As stored."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def faults(self) -> list[Fault]:
        return [fault for shard in self.shards for fault in shard.faults]

    @property
    def unpacked(self) -> float | None:
        """Bytes of all records with their frames, decompressed: counted, or by the mean of those read."""
        if self.records is None or not self.profile.records:
            return None
        mean = sum(shard.payload for shard in self.shards) / self.profile.records
        return (mean + FRAME_OVERHEAD) * self.records


async def gather(
    selection: Selection,
    *,
    sample: int | None,
    class_feature: str | None,
    progress: Progress = lambda done, total: None,
) -> Findings:
    """Read, and count. What is wrong with a shard is in the findings, and the others are read all the same.

    ``sample``: records at most, and `SAMPLE_BYTES` of them; `None` for all.

    Raises:
        StorageError: a store failed. A shard that is not there is a finding.
    """
    schema, notes = _schema(selection)
    findings = Findings(
        path=selection.path,
        selection=selection,
        shards=[
            ShardFindings(
                shard, shard.entry.records if shard.entry else None, shard.entry.compression if shard.entry else ""
            )
            for shard in selection.shards
        ],
        profile=Profile(schema, class_feature=class_feature),
        notes=notes,
    )
    stretches = _plan(findings, sample)
    total = sum(stretch.count for stretch in stretches) if stretches is not None else selection.records
    allowance = None if sample is None else SAMPLE_BYTES // max(1, len(stretches or findings.shards))
    reading = _Reading(findings, progress, total)
    if stretches is None:
        findings.sampled = False
        for number in range(len(findings.shards)):
            await reading.shard(number, sample, allowance)
    else:
        findings.sampled = True
        for stretch in stretches:
            await reading.stretch(stretch, allowance)
    return findings


def _unread(shard: SelectedShard) -> ShardFindings:
    entry = shard.entry
    return ShardFindings(shard, entry.records if entry else None, entry.compression if entry else "")


def _schema(selection: Selection) -> tuple[Schema | None, list[str]]:
    notes = [conflict for dataset in selection.datasets for conflict in dataset.manifest.conflicts]
    if selection.schema is None:
        return None, notes
    try:
        return Schema.from_json(selection.schema), notes
    except SchemaError as error:
        return None, [*notes, f"The schema in the manifest cannot be read: {error}"]


def _plan(findings: Findings, sample: int | None) -> list[Stretch] | None:
    """What to read; `None` for every shard from its beginning."""
    records = findings.records
    if sample is None or not records:
        return None
    mean = max(1, findings.bytes // records)
    return plan([shard.records or 0 for shard in findings.shards], max(1, min(sample, SAMPLE_BYTES // mean)))


class _Reading:
    """Reads shards one after the other, and counts their records in worker threads."""

    def __init__(self, findings: Findings, progress: Progress, total: int | None) -> None:
        self._findings = findings
        self._progress = progress
        self._total = total
        self._index: tuple[int, RecordIndex | None] = (-1, None)

    async def shard(self, number: int, most: int | None, allowance: int | None) -> None:
        """From its beginning to its end, or until as much was read as there is to be of one shard."""
        shard = self._findings.shards[number]
        if most is not None and shard.records is None:
            most = max(1, most // len(self._findings.shards))
        ended = await self._read(shard, BEGINNING, most, allowance)
        if not ended:
            self._findings.sampled, self._findings.evenly = True, False
            return
        shard.whole = True
        if shard.records is None:
            shard.records = shard.read
        elif shard.records != shard.read and not shard.faults:
            message = f"holds {shard.read:,} records, and the manifest says {shard.records:,}"
            shard.faults.append(Fault(shard.shard.shown, message))

    async def stretch(self, stretch: Stretch, allowance: int | None) -> None:
        shard = self._findings.shards[stretch.shard]
        if any(fault.record is None for fault in shard.faults):
            return  # it is not there
        index = await self._index_of(stretch.shard)
        if index is None:
            # Without an index nothing but the beginning is found without reading all before.
            if not shard.read:
                share = [shard.records or 0 for shard in self._findings.shards]
                await self._read(shard, BEGINNING, max(stretch.count, self._total_of(share, stretch)), allowance)
                self._findings.evenly = False
            return
        if index.members is None:
            position = Position(int(index.offsets[stretch.first]), 0, stretch.first)
        else:
            member = index.members[stretch.first]
            position = Position(int(member), stretch.first - int(index.members.searchsorted(member)), stretch.first)
        await self._read(shard, position, stretch.count, allowance)

    def _total_of(self, counts: list[int], stretch: Stretch) -> int:
        """As many records as all stretches of a shard have together, about."""
        return (self._total or 0) * counts[stretch.shard] // max(1, sum(counts))

    async def _index_of(self, number: int) -> RecordIndex | None:
        if self._index[0] != number:
            shard = self._findings.shards[number].shard
            index = None
            if shard.entry is not None and shard.entry.index and shard.entry.records * _LINE_BYTES <= _INDEX_BYTES:
                folder = shard.folder
                store = self._findings.selection.storage
                index = await read_index(PrefixedStorage(store, folder) if folder else store, shard.entry)
            self._index = (number, index)
        return self._index[1]

    async def _read(self, shard: ShardFindings, position: Position, most: int | None, allowance: int | None) -> bool:
        """Whether the shard's end was reached."""
        path = shard.shard.shown
        taken = size = 0
        try:
            reader = await open_reader_at(self._findings.selection.storage, shard.shard.key, position, path=path)
            try:
                shard.compression = reader.compression
                async for batch in reader.batches():
                    records = batch if most is None else batch[: most - taken]
                    if allowance is not None and taken:
                        records = _within(records, allowance - size)
                    if records:
                        taken += len(records)
                        size += sum(map(len, records))
                        await in_thread(self._findings.profile.add, records)
                        self._progress(self._findings.profile.records, self._total)
                    if len(records) < len(batch) or taken == most or (allowance is not None and size >= allowance):
                        return taken == shard.records and position == BEGINNING
            finally:
                shard.read += taken
                shard.payload += size
                await reader.aclose()
        except FormatError as error:
            message = "; ".join([str(error.args[0]), *getattr(error, "__notes__", ())])
            shard.faults.append(Fault(path, message, error.offset, error.record))
        except ObjectNotFoundError:
            shard.faults.append(Fault(path, "is not there"))
        return True


def _within(records: list[bytes], room: int) -> list[bytes]:
    """The first of them that have no more bytes together."""
    taken = 0
    for taken, record in enumerate(records):
        room -= len(record)
        if room < 0:
            return records[:taken]
    return records
