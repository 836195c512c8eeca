"""The counts of all sharded writers are exported to OpenTelemetry and Prometheus, which read them on any thread."""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any
from weakref import ref

import anyio
import anyio.to_thread
import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

import asyncrec
from asyncrec._shards.writing.totals import _Writers
from asyncrec.integrations.opentelemetry import instrument
from asyncrec.integrations.prometheus import Collector
from asyncrec.stats import ShardedWriterStats, writer_totals

pytestmark = pytest.mark.anyio

_STATS = ShardedWriterStats(**{field.name: 1 for field in fields(ShardedWriterStats)})  # type: ignore[arg-type]


class _Writer:
    def stats(self) -> ShardedWriterStats:
        return _STATS


async def test_totals_cover_all_writers_and_keep_counts_of_ended(tmp_path: Path) -> None:
    before = writer_totals()
    async with (
        asyncrec.open_sharded_writer(tmp_path / "a") as first,
        asyncrec.open_sharded_writer(tmp_path / "b") as second,
    ):
        await first.write_many([b"one"] * 3)
        await second.write(b"two")
        open_ = writer_totals()
        assert (open_.writers, open_.records) == (before.writers + 2, before.records + 4)
        assert open_.buffered_bytes > before.buffered_bytes
        assert open_.oldest_buffered_seconds >= 0
    after = writer_totals()
    assert (after.writers, after.records, after.committed_records, after.committed_shards) == (
        before.writers,
        before.records + 4,
        before.committed_records + 4,
        before.committed_shards + 2,
    )
    assert after.buffered_bytes == before.buffered_bytes


async def test_writer_is_counted_on_any_thread(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "a") as writer:
        await writer.write(b"one")
        here = writer.stats()
        there: ShardedWriterStats = await anyio.to_thread.run_sync(writer.stats)
        assert there.records == 1
        assert 0 <= there.oldest_uncommitted_seconds - here.oldest_uncommitted_seconds < 60
        assert (await anyio.to_thread.run_sync(writer_totals)).writers >= 1


async def test_forked_child_has_no_writers(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "a") as writer:
        await writer.write(b"one")
        child = os.fork()
        if child == 0:
            os._exit(writer_totals().writers + writer_totals().records)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def test_abandoned_writer_is_collected_but_its_counts_remain() -> None:
    """For example, its event loop ended while it was open, so its context was never exited."""
    writers = _Writers()

    def use() -> Iterator[None]:
        writer = _Writer()
        with writers.counted(writer.stats):
            yield

    abandoned = use()
    next(abandoned)
    cycle: list[Any] = [abandoned]
    cycle.append(cycle)
    assert (writers.totals().writers, writers.totals().records) == (1, 1)
    kept = ref(abandoned)
    del abandoned, cycle
    gc.collect()
    assert kept() is None
    assert (writers.totals().writers, writers.totals().records) == (0, 1)


def test_writer_may_end_during_summation_of_totals() -> None:
    """The garbage collector may end it in the thread that computes the totals."""
    writers = _Writers()

    class Asking:
        def stats(self) -> ShardedWriterStats:
            other.close()
            return _STATS

    def use() -> Iterator[None]:
        with writers.counted(ended.stats):
            yield

    ended, asking = _Writer(), Asking()
    other = use()
    next(other)
    with writers.counted(asking.stats):
        assert (writers.totals().writers, writers.totals().writers) == (2, 1)
    assert (writers.totals().writers, writers.totals().records) == (0, 2)


async def test_opentelemetry_collects_metrics(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    instrument(provider)
    async with asyncrec.open_sharded_writer(tmp_path / "a") as writer:
        await writer.write_many([b"one"] * 3)
        collected = await anyio.to_thread.run_sync(reader.get_metrics_data)
    assert collected is not None
    [scope] = collected.resource_metrics[0].scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("asyncrec", version("asyncrec"))
    found = {metric.name: (metric.unit, list(metric.data.data_points)) for metric in scope.metrics}
    unit, [point] = found["asyncrec.writer.records"]
    assert (unit, point.attributes) == ("{record}", {})
    assert point.value >= 3  # type: ignore[union-attr]  # a sum, not a histogram
    assert found["asyncrec.writers"][1][0].value == 1  # type: ignore[union-attr]
    assert found["asyncrec.writer.bytes"][0] == "By"
    provider.shutdown()


async def test_prometheus_scrapes_metrics(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(Collector())
    async with asyncrec.open_sharded_writer(tmp_path / "a") as writer:
        await writer.write_many([b"one"] * 3)
        text = (await anyio.to_thread.run_sync(generate_latest, registry)).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["asyncrec_writers"]) == 1
    assert float(lines["asyncrec_writer_records_total"]) >= 3
    assert {
        "asyncrec_writer_bytes_total",
        "asyncrec_writer_committed_bytes_total",
        "asyncrec_writer_buffered_bytes",
        "asyncrec_writer_oldest_buffered_seconds",
        "asyncrec_writer_wait_seconds_total",
    } <= lines.keys()
    assert "# TYPE asyncrec_writer_buffered_bytes gauge" in text
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Collector())


async def test_dashboard_and_alerts_use_only_existing_metrics() -> None:
    monitoring = Path(__file__).parents[2] / "examples/monitoring"
    board = json.loads((monitoring / "grafana.json").read_text())
    rules = yaml.safe_load((monitoring / "alerts.yml").read_text())["groups"][0]["rules"]
    registry = CollectorRegistry()
    registry.register(Collector())
    there = {sample.name for family in registry.collect() for sample in family.samples}
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for rule in rules]
    assert len(rules) == 3
    assert {name for each in asked for name in re.findall(r"asyncrec_\w+", each)} <= there
    assert all(re.search(r"asyncrec_\w+", each) for each in asked)
