"""`report` makes one page about a data set, to be looked at."""

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

# Histograms and shares of so many are right to a percent, and a second or two is what they take.
SAMPLE = 20_000

Progress = Callable[[int, "int | None"], None]


@dataclass(slots=True, kw_only=True)
class PageReport:
    """A page, and a summary of what is on it.

    Attributes:
        html: the page.
        records: in all; `None` where that is not known.
        bytes: as stored.
        read: records that were read for the page.
        sampled: those are not all.
        faults: the damage that was found in the records that were read.
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
        """Without the page."""
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
    """A page about a file, a folder, a pattern or a data set; nothing is written.

    It shows shards and sizes, every feature with its values, classes and images, the damage found, and what wrote it
    and when. The page is one text without a script, and loads nothing: it works from a file. What records hold is
    shown as text; nothing in them can run.

    Up to ``sample`` records, and 256 MiB, all is read. Of more, stretches of records are: drawn evenly from everywhere
    where there are indexes, else from the beginnings of shards. The page says so. Memory is bounded, whatever the size.

    Args:
        sample: records read at most; `None` reads all.
        class_feature: whose values are the classes; otherwise a feature named "label", "class", "category", ...
        jobs: shards that are read at once, while records are counted in another thread; as many as this process may use
            processors, and of a store that is far away 8 at least. What all of them have read ahead, or on its way,
            shares 256 MiB; beside that each has a chunk of half a MiB. Where a shard is damaged, or a record is larger
            than 4 MiB, it is read ahead up to there, and when its turn has come it is opened again and read from its
            beginning: shards of such records are read one after the other. The page is the same, whatever the number.
        progress: called with the records read, and how many it will be (`None` where that is not known).

    Raises:
        ObjectNotFoundError, StoragePermissionError: nothing was found at the path, or it cannot be listed.
        ManifestError: a manifest cannot be read.
        ObjectChangedError: a shard was replaced while it was being read.
        StorageError: a store failed. Damaged and missing shards are not errors: the page lists them.
        ValueError: ``sample`` or ``jobs`` is less than 1, or no record that was read has the ``class_feature``.
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
