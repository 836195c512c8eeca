"""`report` creates an HTML page about a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import Storage, in_thread
from asyncrec.tools import check_jobs, selected

from .findings import Fault, Findings
from .gather import gather
from .page import render

# Reading this many records takes a second or two, and yields histograms and shares that are accurate to one percent.
SAMPLE = 20_000

Progress = Callable[[int, "int | None"], None]


@dataclass(slots=True, kw_only=True)
class PageReport:
    """A page, and a summary of its contents.

    Attributes:
        html: the page.
        records: the number of records; `None` if unknown.
        bytes: the stored size in bytes.
        read: the number of records read for the page.
        sampled: whether only some of the records were read.
        faults: the damage found while reading.
    """

    path: str
    html: str = field(repr=False)
    records: int | None
    shards: int
    bytes: int
    read: int
    sampled: bool
    faults: list[Fault]

    def to_json(self) -> dict[str, Any]:
        """Return the summary without the page."""
        return {
            "path": self.path,
            "records": self.records,
            "shards": self.shards,
            "bytes": self.bytes,
            "read": self.read,
            "sampled": self.sampled,
            "faults": [{"path": fault.path, "message": fault.message} for fault in self.faults],
        }


async def report(
    path: str | os.PathLike[str],
    *,
    sample: int | None = SAMPLE,
    class_feature: str | None = None,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PageReport:
    """Return an HTML page about a file, a folder, a pattern or a data set.

    The page shows the shards and their sizes, all features with their values, classes and images, any damage, and the
    writers and times of commits. It is a single file without scripts that loads nothing. Records are shown as text, and
    cannot contain active content.

    All records are read if there are at most ``sample`` records and 256 MiB. Otherwise, a sample is read: stretches of
    records drawn evenly from all shards if these have indexes, or else the beginnings of shards. The page states which.
    Memory use is bounded, regardless of the size of the data set.

    Args:
        sample: the maximum number of records to read; `None` for all.
        class_feature: the feature whose values are the classes; by default, a feature with a name such as "label",
            "class" or "category".
        jobs: the number of shards to read concurrently, while records are counted in another thread; by default, the
            number of processors available to this process, and at least 8 for a remote store. It does not affect the
            page. All shards share 256 MiB for reading ahead, and each shard also has a chunk of half a MiB. A shard is
            read ahead only up to any damage or record larger than 4 MiB. In its turn, such a shard is reopened and read
            from its beginning, so such shards are read one after the other.
        progress: a function to call with the number of records read and the number to read (`None` if unknown).

    Raises:
        ObjectNotFoundError, StoragePermissionError: nothing was found at the path, or it cannot be listed.
        ManifestError: a manifest cannot be read.
        ObjectChangedError: a shard was replaced while it was being read.
        StorageError: a store failed. Damaged and missing shards raise no error, but are listed on the page.
        ValueError: ``sample`` or ``jobs`` is less than 1, or none of the records read has the ``class_feature``.
    """
    check_jobs(jobs)
    if sample is not None and sample < 1:
        raise ArgumentValueError(f"sample must be at least 1, or None for all records, not {sample}")
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        findings = await gather(selection, sample=sample, class_feature=class_feature, jobs=jobs, progress=progress)
    profile = findings.profile
    if class_feature is not None and profile.records and class_feature not in profile.features:
        there = ", ".join(sorted(profile.features)[:30]) or "none"
        raise ArgumentValueError(
            f"{selection.path}: none of the records that were read has the feature {class_feature!r}; "
            f"their features are {there}"
        )
    return PageReport(
        path=findings.path,
        html=await in_thread(_render, findings),
        records=findings.records,
        shards=len(findings.shards),
        bytes=findings.bytes,
        read=profile.records,
        sampled=findings.sampled,
        faults=findings.faults,
    )


def _render(findings: Findings) -> str:
    return render(findings, made_at=datetime.now(UTC), version=version("asyncrec"))
