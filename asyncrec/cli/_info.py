"""``asyncrec info PATH``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from asyncrec.cli._dead import SPOOL, of_the_dead
from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, pairs, print_json, say, table
from asyncrec.cli._values import parse_options

if TYPE_CHECKING:
    from asyncrec.tools._info import DatasetInfo, InfoReport

# The maximum number of files, sources, writers or orphans to show; --json shows all.
_MOST_SHOWN = 20


def command(path: Path, storage_option: StorageOptions = None, json: Json = False, debug: Debug = False) -> int:
    """Summarize a file, folder or data set: shards, records, bytes, schema, writers, orphans.

    The command reads manifests, indexes and the first records. If a file is in no manifest and has no index, its
    records are counted only if it is small.

    \b
    Example:
      asyncrec info demo-data/pages
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    report = run_async(lambda: tools.info(path, storage_options=options))
    if json:
        print_json(report.to_json())
    else:
        _show(report)
    return 1 if report.damage else 0


def _show(report: InfoReport) -> None:
    kinds = sorted(kind or "none" for kind in report.compression)
    pairs(
        {
            "path": report.path,
            "kind": report.kind,
            "shards" if report.kind != "file" else "files": f"{report.shards:,}",
            "records": f"{report.records:,}" if report.records is not None else "not counted (use 'asyncrec count')",
            "bytes": f"{report.bytes:,} ({human_bytes(report.bytes)})",
            "compression": ", ".join(kinds) or None,
            "content": _content(report),
            "damage": report.damage,
        }
    )
    if report.spool:
        say()
        say(SPOOL.format(path=report.path))
    for dataset in report.datasets:
        _show_dataset(dataset, named=report.kind != "data set")
    if report.files and (len(report.files) > 1 or report.kind != "file"):
        say()
        table(
            ["file", "records", "bytes", "compression", "modified"],
            (
                (each.path, each.records, each.bytes, each.compression or "none", f"{each.modified:%Y-%m-%d %H:%M:%S}")
                for each in report.files[:_MOST_SHOWN]
            ),
        )
        _more(len(report.files))
    if report.schema is not None:
        say()
        show_schema(report.schema)


def _content(report: InfoReport) -> str | None:
    if report.content == "Example" and report.inferred:
        return f"Examples (the schema is inferred from the first {report.inferred:,} records)"
    return {"Example": "Examples", "bytes": "bytes, not Examples", "empty": "no records"}.get(report.content or "")


def _show_dataset(dataset: DatasetInfo, *, named: bool) -> None:
    manifest = dataset.manifest
    say()
    states = Counter(writer.state for writer in dataset.writers)
    pairs(
        {
            "data set": dataset.path if named else None,
            "shards": f"{len(manifest.shards):,}" if named else None,
            "records": f"{manifest.records:,}" if named else None,
            "bytes": human_bytes(manifest.bytes) if named else None,
            "snapshot": manifest.id,
            "last commit": dataset.last_commit,
            "writers": f"{len(dataset.writers):,}: {', '.join(f'{n:,} {state}' for state, n in states.items())}",
            "metadata": ", ".join(manifest.metadata) or None,
            "conflicts": "\n".join(manifest.conflicts) or None,
        }
    )
    if manifest.progress:
        say()
        table(["source", "position"], islice(manifest.progress.items(), _MOST_SHOWN))
        _more(len(manifest.progress))
    if dataset.writers:
        say()
        table(
            ["writer", "state", "shards", "records", "last commit"],
            (
                (each.id, each.state, each.shards, each.records, each.last_commit or "")
                for each in dataset.writers[:_MOST_SHOWN]
            ),
        )
        _more(len(dataset.writers))
        dead = [each.job for each in dataset.writers if each.state == "dead"]
        if dead:
            say()
            for sentence in of_the_dead(dataset.path, [(job.kind, job.spool) for job in dead if job is not None]):
                say(sentence)
    if dataset.orphans:
        say()
        say(f"not in the manifest: {len(dataset.orphans):,} (run 'asyncrec verify' for details)")
        table(["orphan", "bytes"], ((each.path, each.size) for each in dataset.orphans[:_MOST_SHOWN]))
        _more(len(dataset.orphans))


def _more(count: int) -> None:
    if count > _MOST_SHOWN:
        say(f"... and {count - _MOST_SHOWN:,} more (--json lists all)")


def show_schema(schema: Mapping[str, Any]) -> None:
    """Print the features of a schema, one per line."""
    features = schema.get("features")
    entries = features if isinstance(features, Mapping) else {}
    table(
        ["feature", "type", "shape", "kind"],
        (
            (name, str(entry.get("dtype", "")), _shape(entry), str(entry.get("kind", "")))
            for name, entry in entries.items()
            if isinstance(entry, Mapping)
        ),
    )


def _shape(entry: Mapping[str, Any]) -> str:
    shape = entry.get("shape")
    if not isinstance(shape, list):
        return ""
    return "x".join(map(str, shape)) or "one value"
