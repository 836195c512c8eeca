"""`ConvertReport` is the result of `convert`. `ConvertedBefore` finds earlier conversions in a data set's metadata.

A file is identified by its name, and its version by size and etag. A file whose version has changed is rejected. It is
neither skipped nor converted again, which would add its new records to the old ones. If a writer has replaced the data
set since a file was converted, the file's old records are gone, and it counts as a file that was never converted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncrec.errors import DatasetError
from asyncrec.plugins._kinds import BadMember, Converted
from asyncrec.storage._base import ObjectInfo
from asyncrec.tools._report_json import json_of

# The maximum number of invalid parts that a report lists. The others are only counted.
_MOST_TOLD = 1000


@dataclass(slots=True, kw_only=True)
class ConvertReport:
    """The result of `convert`.

    Attributes:
        records: the number of records that this call wrote.
        files: the files that this call read; ``done_before`` lists the files converted by earlier calls.
        bad_before: the number of skipped invalid parts, for each file in ``done_before`` that has any.
        passed: the number of skipped members of types that are not converted, such as WARC requests.
        bad: the first thousand invalid parts that were skipped; ``bad_count`` is the number of all invalid parts.
    """

    source: str
    target: str
    records: int = 0
    files: list[str] = field(default_factory=list)
    done_before: list[str] = field(default_factory=list)
    bad_before: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    bad: list[BadMember] = field(default_factory=list)
    bad_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "source target records files done_before bad_before passed bad_count bad")

    def note(self, converted: Converted) -> None:
        self.passed += converted.passed
        self.bad_count += len(converted.bad)
        self.bad += converted.bad[: _MOST_TOLD - len(self.bad)]

    def join(self, other: ConvertReport) -> None:
        """Merge the report on the next files into this report."""
        self.records += other.records
        self.files += other.files
        self.done_before += other.done_before
        self.bad_before |= other.bad_before
        self.passed += other.passed
        self.bad_count += other.bad_count
        self.bad += other.bad[: _MOST_TOLD - len(self.bad)]


class ConvertedBefore:
    """The files that were converted into a data set, from the entries ``source <id>`` in its metadata.

    Attributes:
        replaced: the ids of the jobs whose records are gone, because another writer has replaced the data set.
    """

    def __init__(
        self, metadata: Mapping[str, Any], *, source: str, target: str, replaced: Collection[str] = ()
    ) -> None:
        self.target = target
        self.replaced = replaced
        self._source = source
        self._versions: dict[str, list[Mapping[str, Any]]] = {}
        for name, value in metadata.items():
            if name.startswith("source ") and isinstance(value, Mapping) and isinstance(value.get("file"), str):
                self._versions.setdefault(value["file"], []).append(value)

    def check(self, files: Sequence[tuple[str, ObjectInfo]]) -> None:
        """Check that no earlier version of these files has been converted into the data set.

        Raises:
            DatasetError: a different version of a file was converted.
        """
        changed = [found for found in files if found[0] in self._versions and self.done(*found) is None]
        if changed:
            raise self._changed(*changed[0], others=len(changed) - 1)

    def done(self, file: str, info: ObjectInfo) -> ConvertReport | None:
        """Return the report on a file if its current version has been converted; otherwise `None`."""
        for version in self._versions.get(file, ()):
            if version.get("bytes") == info.size and version.get("etag") == info.etag:
                report = ConvertReport(source=file, target=self.target, done_before=[file])
                bad = version.get("bad")
                if isinstance(bad, int) and bad > 0:
                    report.bad_before[file] = bad
                return report
        return None

    def ended(self, file: str, info: ObjectInfo, metadata: Mapping[str, Any]) -> ConvertReport:
        """Return the report on a file that another process has converted. ``metadata`` is the metadata of that job.

        Raises:
            DatasetError: the job converted a different version of the file.
        """
        other = ConvertedBefore(metadata, source=self._source, target=self.target)
        other.check([(file, info)])
        return other.done(file, info) or ConvertReport(source=file, target=self.target, done_before=[file])

    def _changed(self, file: str, info: ObjectInfo, *, others: int) -> DatasetError:
        version = self._versions[file][-1]
        size, records = version.get("bytes"), version.get("records")
        had = f"{size:,} bytes" if isinstance(size, int) else "another size"
        now = f"{info.size:,} bytes"
        if size == info.size:
            now = f"the same size, but another version, of {info.modified:%Y-%m-%d %H:%M:%S %Z}"
        of_then = f"Its {records:,} records" if isinstance(records, int) else "Its records"
        more = f" {others:,} other files have changed, too." if others else ""
        return DatasetError(
            f"{self._source}: {file} has changed since it was converted into {self.target}: it had {had}, and now "
            f"has {now}. {of_then} from the earlier conversion are still in the data set, and nothing new was "
            f"written.{more} Convert into a new data set, or pass a pattern that excludes the changed files"
        )
