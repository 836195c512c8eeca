"""The sections of the page about storage: shards, writers, commits and metadata. This module does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from xml.etree.ElementTree import Element

from .charts import area, columns, meter
from .findings import Findings, ShardFindings
from .html import Child, el
from .humans import amount, count, moment, number, size, span

# The maximum number of columns in a chart, and of rows in a table. Readers would not look at more individually.
_COLUMNS = 96
_ROWS = 200


def shards_section(findings: Findings) -> Element | None:
    shards = findings.shards
    if not shards:
        return None
    charts: list[Child] = []
    if len(shards) > 1:
        charts.append(_skyline(shards, "Bytes", [shard.bytes for shard in shards], size))
        if findings.records is not None:
            charts.append(_skyline(shards, "Records", [shard.records or 0 for shard in shards], number))
    return el(
        "section",
        el("h2", "Shards"),
        el("div", charts, class_="pair") if charts else None,
        el(
            "details",
            el("summary", "The shards, one by one" if len(shards) > 1 else "The shard"),
            _shard_table(findings),
            open="open" if len(shards) <= 12 else None,
        ),
    )


def _skyline(
    shards: Sequence[ShardFindings], name: str, values: Sequence[int], text: Callable[[float], str]
) -> Element:
    groups = -(-len(shards) // _COLUMNS)
    bars = []
    for first in range(0, len(shards), groups):
        part = values[first : first + groups]
        bad = any(shard.faults for shard in shards[first : first + groups])
        which = shards[first].name if groups == 1 else f"shards {first + 1:,} to {first + len(part):,}, on average"
        mean = sum(part) / len(part)
        bars.append((float(mean), f"{which}: {text(mean)}" + (", damaged" if bad else ""), "bad" if bad else ""))
    facts = [("smallest", min(values)), ("mean", sum(values) / len(values)), ("largest", max(values))]
    order = "in the order of their names" if groups == 1 else f"in the order of their names, {groups} to a column"
    return el(
        "div",
        el("h3", f"{name} of each shard"),
        el("div", columns(bars, f"{name} of each shard"), el("p", order, class_="note"), class_="plot"),
        el("dl", [el("div", el("dt", what), el("dd", text(float(value)))) for what, value in facts], class_="facts"),
        class_="card",
    )


def _shard_table(findings: Findings) -> list[Child]:
    shards = findings.shards
    most = max(shard.bytes for shard in shards)
    rows = [
        el(
            "tr",
            el("td", el("code", shard.name), el("span", "damaged", class_="chip bad") if shard.faults else None),
            el("td", "?" if shard.records is None else f"{shard.records:,}", class_="number"),
            el("td", size(shard.bytes), class_="number"),
            el("td", meter(shard.bytes, most), class_="wide"),
            el("td", "?" if shard.compression is None else shard.compression or "plain", class_="wide"),
            el(
                "td",
                moment(shard.shard.entry.committed) if shard.shard.entry else "not in the manifest",
                class_="wide quiet",
            ),
        )
        for shard in shards[:_ROWS]
    ]
    heads = (("Shard", ""), ("Records", "number"), ("Size", "number"), ("", "wide"), ("Compression", "wide"))
    head = el(
        "tr", [el("th", text, class_=kind or None, scope="col") for text, kind in (*heads, ("Committed", "wide"))]
    )
    more = f"and {count(len(shards) - _ROWS, 'shard')} more" if len(shards) > _ROWS else None
    return [
        el("div", el("table", el("thead", head), el("tbody", rows)), class_="table"),
        el("p", more, class_="note") if more else None,
    ]


def history_section(findings: Findings) -> Element | None:
    datasets = findings.selection.datasets
    if not datasets:
        return None
    writers = [(dataset, writer) for dataset in datasets for writer in dataset.manifest.writers.values()]
    several = len(datasets) > 1
    rows = [
        el(
            "tr",
            el("td", dataset.name) if several else None,
            el("td", el("code", writer.id or "–"), el("span", "closed" if writer.closed else "open", class_="chip")),
            el("td", writer.shards, class_="number"),
            el("td", writer.records, class_="number"),
            el("td", moment(writer.last_commit), class_="quiet"),
        )
        for dataset, writer in writers[:_ROWS]
    ]
    names = [*["Data set"] * several, "Writer", "Shards", "Records", "Last commit"]
    numbers = ("Shards", "Records")
    head = el("tr", [el("th", name, scope="col", class_="number" if name in numbers else None) for name in names])
    metadata = {
        f"{dataset.name}: {name}" if several else name: value
        for dataset in datasets
        for name, value in dataset.manifest.metadata.items()
    }
    return el(
        "section",
        el("h2", "Writers and commits"),
        _timeline(findings),
        el("div", el("table", el("thead", head), el("tbody", rows)), class_="table"),
        el("p", f"and {count(len(writers) - _ROWS, 'writer')} more", class_="note") if len(writers) > _ROWS else None,
        _metadata(metadata),
        el("p", [_snapshot(dataset.name, dataset.manifest.id) for dataset in datasets[:20]], class_="note"),
    )


def _snapshot(name: str, id: str) -> Iterator[Child]:
    yield f"Snapshot of {name}: "
    yield el("code", id)
    yield ". "


def _metadata(metadata: dict[str, object]) -> Element | None:
    if not metadata:
        return None
    pairs = [
        el("div", el("dt", name[:80]), el("dd", text[:400] + ("…" if len(text) > 400 else "")))
        for name, value in list(metadata.items())[:40]
        for text in [value if isinstance(value, str) else repr(value)]
    ]
    return el(
        "details",
        el("summary", "Metadata"),
        el("dl", pairs, class_="metadata"),
        open="open" if len(pairs) < 4 else None,
    )


def _timeline(findings: Findings) -> Element | None:
    entries = [shard.shard.entry for shard in findings.shards if shard.shard.entry]
    commits = sorted((entry.committed, entry.records) for entry in entries if entry.committed > "1971")
    if len({committed for committed, _ in commits}) < 3 or _seconds(commits[-1][0]) - _seconds(commits[0][0]) < 1:
        return None  # all commits were made at about the same time, so there is nothing to draw
    points: list[tuple[float, float]] = []
    total = 0
    for committed, records in commits:
        total += records
        points.append((_seconds(committed), float(total)))
    # Reduce many commits to a few per column, and keep the last commit.
    points = points[:: -(-len(points) // (4 * _COLUMNS))] + points[-1:]
    length = points[-1][0] - points[0][0]
    label = f"Records committed, from {moment(commits[0][0])} to {moment(commits[-1][0])}"
    return el(
        "div",
        el("h3", f"Records committed: {amount(total)} within {span(length)}"),
        el(
            "div",
            area(points, label),
            el("div", el("span", moment(commits[0][0])), el("span", moment(commits[-1][0])), class_="axis"),
            class_="plot",
        ),
        class_="card",
    )


def _seconds(committed: str) -> float:
    return datetime.fromisoformat(committed).timestamp()
