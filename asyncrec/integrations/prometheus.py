"""Sharded writers as Prometheus metrics: ``REGISTRY.register(Collector())``, and a scrape has what `METRICS` lists.

Nothing is done per record: the registry asks when it is scraped.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncrec._shards.writing.totals import writer_totals
from asyncrec.integrations._metrics import METRICS, Metric
from asyncrec.integrations._needed import needed

with needed(__name__, "prometheus-client", "prometheus_client"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector as _Collector

__all__ = ["Collector"]

_UNITS = {"By": "_bytes", "s": "_seconds"}


class Collector(_Collector):
    """A collector of what the sharded writers of this process count, all together."""

    def collect(self) -> Iterator[Family]:
        """Give each number as it is now. Called by the registry, on its thread."""
        totals = writer_totals()
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            yield kind(_name(metric), metric.words, value=metric.of(totals))

    def describe(self) -> Iterator[Family]:
        """Return the same names, so that registering the collector twice raises an error."""
        return self.collect()


def _name(metric: Metric) -> str:
    """Make the name as Prometheus has it: its unit at the end, once; a counter's ``_total`` is added for us."""
    name = metric.name.replace(".", "_").removesuffix("_duration")
    unit = _UNITS.get(metric.unit, "")
    return name if name.endswith(unit) else name + unit
