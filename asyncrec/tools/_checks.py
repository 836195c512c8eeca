"""`check_shard` verifies every checksum of one shard, and compares the shard with its manifest, index and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.damage import Damage
from asyncrec._numpy import np
from asyncrec._records.index import RecordIndex, parse_index
from asyncrec._records.writing.write_batch import KEY_BYTES, digest_bytes
from asyncrec._shards.manifest.manifest import PUT_BACK
from asyncrec._shards.manifest.segment import Sidecar
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.tools._read_through import read_through
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedShard

# The maximum length of a line in an index. A line has three numbers of at most 20 digits each.
_MOST_LINE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with a shard.

    Attributes:
        kind: ``"damaged"`` (a wrong checksum or length, or a truncated file), ``"missing"``, ``"changed"`` (differs
            from the manifest), ``"index"`` or ``"keys"`` (that file is missing, unreadable or does not belong to the
            shard), or ``"unreadable"`` (the store did not return the shard, so its state is unknown).
        message: a sentence that describes the problem.
        offset: the position in the decompressed stream.
        record: the number of complete records in the shard before the problem.
    """

    kind: str
    message: str
    offset: int | None = None
    record: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, "offset": self.offset, "record": self.record}


@dataclass(slots=True, kw_only=True)
class ShardReport:
    """The result of `check_shard`.

    Attributes:
        records: the number of complete records in the shard.
        bytes: the size of the shard in the store.
        crc32c: the checksum of all bytes; `None` if the shard was not read to its end.
    """

    path: str
    records: int = 0
    bytes: int = 0
    crc32c: int | None = None
    compression: str = ""
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path records bytes crc32c compression problems",
            crc32c=None if self.crc32c is None else f"{self.crc32c:08x}",
        )


async def check_shard(
    storage: Storage, shard: SelectedShard, *, advance: Callable[[int], None] = lambda size: None
) -> ShardReport:
    """Read an entire shard, and compare it with its manifest entry, its index and its keys.

    ``advance`` is called with the number of bytes read since its last call. Problems are reported, not raised.
    """
    report = ShardReport(path=shard.display_path)
    indexed = shard.entry is not None and shard.entry.index is not None
    try:
        found = await read_through(storage, shard, sizes=indexed, advance=advance)
    except ObjectNotFoundError as error:
        advice = "" if shard.entry is None else "; " + PUT_BACK
        report.problems.append(Problem(kind="missing", message=f"{error}{advice}"))
        return report
    except StorageError as error:
        report.problems.append(Problem(kind="unreadable", message=str(error)))
        return report
    report.records = found.records
    report.compression = found.compression
    report.problems += map(_lost, found.damage)
    if found.error is not None:
        message = "; ".join(filter(None, (str(found.error.args[0]), found.error.command or found.error.remedy)))
        report.problems.append(
            Problem(kind="damaged", message=message, offset=found.error.offset, record=found.error.record)
        )
    if found.info is not None:
        report.bytes = found.info.size
        report.crc32c = found.crc32c
        stored = found.info.crc32c
        if None not in (found.crc32c, stored) and stored != found.crc32c:
            message = f"the CRC32C of the shard is {found.crc32c:08x}, but the store reports {stored:08x}"
            report.problems.append(Problem(kind="changed", message=message))
    _against_manifest(shard, report)
    if report.ok:
        if indexed:
            await _against_index(storage, shard, report, await in_thread(found.index))
        await _against_keys(storage, shard, report)
    return report


_REASONS = {
    "length": "a length and its checksum do not match",
    "data": "the data and its checksum do not match",
    "too_large": "a record is longer than max_record_bytes; if such records are intended, raise that limit",
    "truncated": "the file ends in the middle of a record",
    "compression": "the compressed stream is damaged",
    "ambiguous": "these records lie between two damaged places and may be part of one large record that was lost",
}


def _lost(damage: Damage) -> Problem:
    counted = " of decompressed data" if damage.member_offset is not None else ""
    message = f"{_REASONS[damage.reason]}: {damage.length:,} bytes{counted}"
    if damage.member_offset is not None:
        message += f", in the GZIP member at byte {damage.member_offset:,}"
    if damage.is_at_the_beginning:
        message += "; check that this is a TFRecord file and that its compression is correct"
    return Problem(kind="damaged", message=message, offset=damage.offset, record=damage.records_before)


def _against_manifest(shard: SelectedShard, report: ShardReport) -> None:
    entry = shard.entry
    if entry is None:
        return
    said = {
        "bytes": (entry.bytes, report.bytes),
        "records": (entry.records, report.records),
        "compression": (entry.compression, report.compression),
        "crc32c": (entry.crc32c, report.crc32c),
    }
    if any(problem.kind == "damaged" for problem in report.problems):
        del said["records"]  # the reported damage already explains missing records
    if not report.bytes:
        del said["compression"]  # an empty file is valid with any compression
    for name, (expected, found) in said.items():
        if expected is not None and found is not None and expected != found:
            texts = [f"{value:08x}" if name == "crc32c" else value for value in (found, expected)]
            message = f"{name} is {texts[0]!r}, but the manifest says {texts[1]!r}"
            report.problems.append(Problem(kind="changed", message=message))


async def _against_index(storage: Storage, shard: SelectedShard, report: ShardReport, right: RecordIndex) -> None:
    """Check the index that the manifest names. Any other index file is ignored."""
    sidecar = shard.entry.index if shard.entry is not None else None
    assert sidecar is not None, "the shard has an index"
    name = sidecar.path
    key = shard.folder + name
    try:
        text = await storage.get(key, max_bytes=_MOST_LINE * (report.records + 1))
        problem = await in_thread(_difference, text, right) or await in_thread(_other_than, sidecar, text)
    except ObjectNotFoundError:
        problem = "missing"
    except (StorageError, ValueError) as error:  # FormatError is a ValueError
        problem = str(error)
    if problem:
        message = f"{name}: {problem}; to replace the index, run 'asyncrec index --force'"
        report.problems.append(Problem(kind="index", message=message))


def _difference(text: bytes, right: RecordIndex) -> str:
    if text == right.encode():  # the usual case; encoding takes a fifth of the time that parsing takes
        return ""
    index = parse_index(text)
    if len(index) != len(right):
        return f"the index has {len(index):,} records, but the shard has {len(right):,}"
    if not len(right):
        return ""
    if (index.members is None) != (right.members is None):
        return "the index is for another compression"
    wrong = np.zeros(len(right), np.bool_)
    for found, expected in ((index.offsets, right.offsets), (index.sizes, right.sizes), (index.members, right.members)):
        if found is not None and expected is not None:
            wrong |= np.asarray(found) != np.asarray(expected)
    return f"the index is wrong for record {int(wrong.argmax()):,}" if wrong.any() else ""


async def _against_keys(storage: Storage, shard: SelectedShard, report: ShardReport) -> None:
    sidecar = shard.entry.keys if shard.entry is not None else None
    if sidecar is None:
        return
    try:
        size = (await storage.head(shard.folder + sidecar.path)).size
        if not digest_bytes(size, report.records):
            problem = (
                f"the file has {size:,} bytes, but the keys of {report.records:,} records take {KEY_BYTES} bytes each, "
                "or twice that with contents"
            )
        else:
            content = await storage.get(shard.folder + sidecar.path, max_bytes=size)
            problem = await in_thread(_other_than, sidecar, content)
    except ObjectNotFoundError:
        problem = "missing"
    except (StorageError, ValueError) as error:
        problem = str(error)
    if problem:
        report.problems.append(Problem(kind="keys", message=f"{sidecar.path}: {problem}"))


def _other_than(sidecar: Sidecar, content: bytes) -> str:
    """Describe how an index or keys file differs from the manifest. Return ``""`` if it matches."""
    if sidecar.bytes not in (None, len(content)):
        return f"the file has {len(content):,} bytes, but the manifest says {sidecar.bytes:,}"
    found = crc32c(content)
    if sidecar.crc32c not in (None, found):
        return f"the file's CRC32C is {found:08x}, but the manifest says {sidecar.crc32c:08x}"
    return ""
