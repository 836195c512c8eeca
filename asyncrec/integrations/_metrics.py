"""The metrics that the OpenTelemetry and Prometheus integrations export.

They have no labels, because labels such as paths, keys or writers' ids would create an unlimited number of time series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from asyncrec._shards.writing.totals import WriterTotals


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: the name in OpenTelemetry. In Prometheus, ``_`` replaces ``.``, and the name ends with the unit.
        kind: a counter only grows. A level rises and falls, and can be summed over processes. A gauge cannot be summed.
        unit: the unit in UCUM notation, as OpenTelemetry requires.
        words: the description.
        field: the name of the attribute of `WriterTotals` that has the value.
    """

    name: str
    kind: Literal["counter", "level", "gauge"]
    unit: str
    words: str
    field: str

    def of(self, totals: WriterTotals) -> float:
        """Return the metric's value, given the totals of all writers in the process."""
        value: float = getattr(totals, self.field)
        return value


METRICS = (
    Metric("asyncrec.writers", "level", "{writer}", "Sharded writers that are open.", "writers"),
    Metric("asyncrec.writer.records", "counter", "{record}", "Records taken.", "records"),
    Metric("asyncrec.writer.bytes", "counter", "By", "Bytes of frames accepted, uncompressed.", "bytes"),
    Metric(
        "asyncrec.writer.duplicates",
        "counter",
        "{record}",
        "Records dropped because their key had already been written.",
        "duplicates",
    ),
    Metric("asyncrec.writer.commits", "counter", "{shard}", "Shards committed.", "committed_shards"),
    Metric("asyncrec.writer.committed_records", "counter", "{record}", "Records committed.", "committed_records"),
    Metric("asyncrec.writer.committed_bytes", "counter", "By", "Bytes committed, as stored.", "committed_bytes"),
    Metric("asyncrec.writer.buffered", "level", "By", "Bytes held in memory.", "buffered_bytes"),
    Metric("asyncrec.writer.spooled", "level", "By", "Bytes in spools.", "spool_bytes"),
    Metric(
        "asyncrec.writer.callers_waiting",
        "level",
        "{caller}",
        "Callers that are waiting for memory.",
        "callers_waiting",
    ),
    Metric(
        "asyncrec.writer.oldest_uncommitted",
        "gauge",
        "s",
        "Age of the oldest record that is not committed.",
        "oldest_uncommitted_seconds",
    ),
    Metric(
        "asyncrec.writer.oldest_buffered",
        "gauge",
        "s",
        "Age of the oldest record that would be lost if the process were killed.",
        "oldest_buffered_seconds",
    ),
    Metric(
        "asyncrec.writer.wait.duration",
        "counter",
        "s",
        "Total time that callers have waited for memory.",
        "seconds_waiting",
    ),
    Metric(
        "asyncrec.writer.compress.duration",
        "counter",
        "s",
        "Time spent compressing finished shards.",
        "seconds_compressing",
    ),
    Metric(
        "asyncrec.writer.store.duration",
        "counter",
        "s",
        "Time spent writing finished shards to the disk or store.",
        "seconds_storing",
    ),
    Metric(
        "asyncrec.writer.upload_retries",
        "counter",
        "{upload}",
        "Uploads from spools that were retried.",
        "upload_retries",
    ),
)
