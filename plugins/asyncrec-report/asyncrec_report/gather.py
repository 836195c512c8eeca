"""`gather` reads for a report: what the manifests say, and the records, all of them or some at many places."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from asyncrec import Damage, ObjectNotFoundError, RecordIndex, Schema
from asyncrec.errors import FormatError, SchemaError
from asyncrec.storage import in_thread
from asyncrec.tools import SelectedShard, Selection, open_shard, shard_index

from .findings import Fault, Findings, ShardFindings
from .profile import Profile
from .sampling import Stretch, plan

__all__ = ["SAMPLE_BYTES", "gather"]

# Of records, in a sample: what is read and counted in some seconds.
SAMPLE_BYTES = 256 << 20
# An index of this many bytes is read whole to find where a record is; it has a million lines and more.
_INDEX_BYTES = 32 << 20
_LINE_BYTES = 30
# Shards whose beginnings are read where nobody says how many records there are: each is a request or two.
_BEGINNINGS = 1000
# Of one shard no more are told.
_FAULTS = 100

Progress = Callable[[int, "int | None"], None]


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
        shards=[_unread(shard) for shard in selection.shards],
        profile=Profile(schema, class_feature=class_feature, labels=_labels(selection)),
        notes=notes,
    )
    stretches = _plan(findings, sample)
    reading = _Reading(findings, progress)
    if stretches is not None:
        findings.sampled = True
        reading.total = sum(stretch.count for stretch in stretches)
        for stretch in stretches:
            await reading.stretch(stretch, SAMPLE_BYTES // len(stretches))
    elif findings.records is not None or sample is None:
        reading.total = selection.records
        for shard in findings.shards:
            await reading.whole(shard)
    else:
        # How many there are is not known: the first ones of each shard, or of some shards that lie evenly among all.
        shards = findings.shards[:: -(-len(findings.shards) // _BEGINNINGS)]
        findings.sampled, findings.evenly = len(shards) < len(findings.shards), False
        for shard in shards:
            if findings.profile.sizes.total > SAMPLE_BYTES:  # each gives a record, however large
                findings.sampled = True
                break
            await reading.beginning(shard, max(1, sample // len(shards)), SAMPLE_BYTES // len(shards))
    return findings


def _unread(shard: SelectedShard) -> ShardFindings:
    entry = shard.entry
    return ShardFindings(shard, entry.records if entry else None, entry.compression if entry else None)


def _schema(selection: Selection) -> tuple[Schema | None, list[str]]:
    notes = [conflict for dataset in selection.datasets for conflict in dataset.manifest.conflicts][:_FAULTS]
    if selection.schema is None:
        return None, notes
    try:
        return Schema.from_json(selection.schema), notes
    except SchemaError as error:
        return None, [*notes, f"The schema in the manifest cannot be read: {error}"]


def _labels(selection: Selection) -> list[str]:
    """The names of the classes, as `from_folder` and `from_csv` leave them; none where data sets disagree."""
    found = [dataset.manifest.metadata.get("labels") for dataset in selection.datasets]
    labels = found[0] if found and all(each == found[0] for each in found) else None
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _plan(findings: Findings, sample: int | None) -> list[Stretch] | None:
    """What to read; `None` for every shard from its beginning."""
    records = findings.records
    if sample is None or not records:
        return None
    mean = max(1, findings.bytes // records)
    return plan([shard.records or 0 for shard in findings.shards], max(1, min(sample, SAMPLE_BYTES // mean)))


class _Reading:
    """Reads shards one after the other, and counts their records in worker threads.

    Attributes:
        total: how many records it will be, where that is known.
    """

    def __init__(self, findings: Findings, progress: Progress) -> None:
        self.total: int | None = None
        self._findings = findings
        self._progress = progress
        self._index: tuple[str, RecordIndex | None] = ("", None)
        self._starts: tuple[str, int | None] | None = None  # of the shard being read

    async def whole(self, shard: ShardFindings) -> None:
        if await self._read(shard):
            self._ended(shard)

    async def beginning(self, shard: ShardFindings, most: int, room: int) -> None:
        if await self._read(shard, most=most, room=room):
            self._ended(shard)
        else:
            self._findings.sampled = True

    async def stretch(self, stretch: Stretch, room: int) -> None:
        shard = self._findings.shards[stretch.shard]
        if shard.missing:
            return
        index = await self._index_of(shard)
        if index is None:
            # Only its beginning is found without reading what is before: what was to be read of it is read there.
            self._findings.evenly = False
            if not shard.read:
                of_shard = (self.total or 0) * (shard.records or 0) // max(1, self._findings.records or 0)
                await self._read(shard, most=max(stretch.count, of_shard), room=room)
        else:
            await self._read(shard, first=stretch.first, index=index, most=stretch.count, room=room)

    def _ended(self, shard: ShardFindings) -> None:
        if shard.missing:
            return
        if shard.records is None:
            shard.records = shard.read
        elif shard.records != shard.read:
            message = f"{shard.read:,} records are found, and the manifest says {shard.records:,}"
            shard.faults.append(Fault(shard.shard.display_path, message))

    def _number(self, shard: ShardFindings, first: int | None, count: int) -> int:
        """The number, among all records, of a shard's record; below 0, and no other's, where that is not known.

        Behind damage nobody knows how many were lost.
        """
        if self._starts is None or self._starts[0] != shard.shard.key:
            before = list(takewhile(lambda each: each is not shard, self._findings.shards))
            known = all(each.records is not None for each in before)
            start = sum(each.records or 0 for each in before) if known else None
            self._starts = shard.shard.key, start
        start = self._starts[1]
        return -self._findings.profile.records - count if start is None or first is None else start + first

    async def _index_of(self, shard: ShardFindings) -> RecordIndex | None:
        if self._index[0] != shard.shard.key:
            entry = shard.shard.entry
            index = None
            if entry is not None and entry.records * _LINE_BYTES <= _INDEX_BYTES:
                index = await shard_index(self._findings.selection, shard.shard)
            self._index = (shard.shard.key, index)
        return self._index[1]

    async def _read(
        self,
        shard: ShardFindings,
        *,
        first: int = 0,
        index: RecordIndex | None = None,
        most: int | None = None,
        room: int | None = None,
    ) -> bool:
        """Count up to ``most`` records of up to ``room`` bytes, but one at least; whether the end was reached."""
        taken = size = 0
        selection, path = self._findings.selection, shard.shard.display_path
        try:
            async with open_shard(selection, shard.shard, first=first, index=index, on_corrupt="skip") as reader:
                try:
                    shard.compression = reader.compression
                    async for batch in reader.batches():
                        records = batch if most is None else batch[: most - taken]
                        if room is not None:
                            records = _within(records, room - size) or records[: not taken]
                        if records:
                            taken += len(records)
                            size += sum(map(len, records))
                            place = None if reader.damage else first + taken - len(records)
                            number = self._number(shard, place, len(records))
                            await in_thread(self._findings.profile.add, records, number)
                            self._progress(self._findings.profile.records, self.total)
                        if len(records) < len(batch) or taken == most:
                            return False
                    return True
                finally:
                    shard.read += taken
                    shard.payload += size
                    _note(shard, reader.damage)
        except FormatError as error:  # salvage gives up, too
            message = "; ".join([str(error.args[0]), *getattr(error, "__notes__", ())])
            shard.faults.append(Fault(path, message))
        except ObjectNotFoundError:
            shard.missing = True
            shard.faults.append(Fault(path, "is not there"))
        return True


_REASONS = {
    "length": "a length does not match its checksum",
    "data": "the data of a record do not match their checksum",
    "too_large": "a record is larger than any that is read",
    "truncated": "it ends too soon",
    "compression": "it does not decompress",
    "ambiguous": "records were found by search, and may be the content of one that was lost",
}


def _note(shard: ShardFindings, damage: list[Damage]) -> None:
    """Add what is new: two stretches may pass the same place."""
    for each in damage[:_FAULTS]:
        fault = _fault(shard.shard.display_path, each)
        if fault not in shard.faults and len(shard.faults) < _FAULTS:
            shard.faults.append(fault)


def _fault(path: str, damage: Damage) -> Fault:
    where = "" if damage.member_offset is None else f" of the member at byte {damage.member_offset:,}"
    lost = "in doubt" if damage.reason == "ambiguous" else "lost"
    text = f"{_REASONS[damage.reason]}: {damage.length:,} bytes {lost} from byte {damage.offset:,}{where} on"
    return Fault(path, f"{text}, after {damage.records_before:,} records")


def _within(records: list[bytes], room: int) -> list[bytes]:
    """The first of them that have no more bytes together."""
    for taken, record in enumerate(records):
        room -= len(record)
        if room < 0:
            return records[:taken]
    return records
