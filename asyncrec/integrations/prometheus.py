"""Metrics of sharded writers for Prometheus. After ``REGISTRY.register(Collector())``, a scrape returns all `METRICS`.

There is no cost per record, because the registry reads the values on each scrape.
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
    """A collector of the metrics of sharded writers, summed over this process."""

    def collect(self) -> Iterator[Family]:
        """Yield the current value of each metric. The registry calls this in its own thread."""
        totals = writer_totals()
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            yield kind(_name(metric), metric.words, value=metric.of(totals))

    def describe(self) -> Iterator[Family]:
        """Return the metrics of `collect`, so that registering a second collector raises an error."""
        return self.collect()


def _name(metric: Metric) -> str:
    """Return the name in Prometheus, which ends with the unit. The client library adds ``_total`` to counters."""
    name = metric.name.replace(".", "_").removesuffix("_duration")
    unit = _UNITS.get(metric.unit, "")
    return name if name.endswith(unit) else name + unit
