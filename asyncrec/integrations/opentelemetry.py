"""Metrics of sharded writers for OpenTelemetry. After a call to `instrument`, an SDK exports all `METRICS`.

Only OpenTelemetry's API package is needed. There is no cost per record, because the SDK reads the values only when it
collects metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version

from asyncrec._shards.writing.totals import writer_totals
from asyncrec.integrations._metrics import METRICS, Metric
from asyncrec.integrations._needed import needed

with needed(__name__, "OpenTelemetry's API", "opentelemetry"):
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

__all__ = ["instrument"]


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Create an instrument for each metric of sharded writers, summed over this process.

    Call this once per provider, because instruments cannot be removed. The default is the process's global provider,
    even if it is set later.
    """
    meter = get_meter("asyncrec", version("asyncrec"), meter_provider)
    for metric in METRICS:
        _create(meter, metric)


def _create(meter: Meter, metric: Metric) -> None:
    create = {
        "counter": meter.create_observable_counter,
        "level": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }[metric.kind]
    create(metric.name, callbacks=[_observed(metric)], unit=metric.unit, description=metric.words)


def _observed(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(metric.of(writer_totals()))]

    return observe
