"""``asyncrec verify PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._dead import SPOOL
from asyncrec.cli._exits import DAMAGE, FINE, STORAGE
from asyncrec.cli._options import Debug, Input, Jobs, Json, MaxRecordBytes, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import opened, parse_duration
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._orphans import Orphan
    from asyncrec.tools._verify import VerifyReport

# The maximum number of problems to show for a shard; --json shows up to a thousand.
_MOST_SHOWN = 20


def command(
    path: Input,
    adopt: Annotated[bool, typer.Option("--adopt", help="Add intact orphaned shards to the data set.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete orphans.")] = False,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help=(
                "Adopt or delete only orphans that are at least this old; a writer may be about to commit younger ones."
            ),
        ),
    ] = "1h",
    jobs: Jobs = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Check every checksum of every shard, and the counts, sizes, indexes and keys of data sets.

    All damage is listed, and all orphans (shards, indexes and keys files that no manifest lists). The exit code is 1 if
    there is damage or the manifest contradicts itself, and 3 if there is neither but something could not be read.

    \b
    Example:
      asyncrec verify demo-data/pages
    """
    from asyncrec import tools

    if adopt and delete:
        raise UsageError("--adopt and --delete cannot be combined")
    options = opened(path, storage_option, max_record_bytes)
    age = parse_duration(older_than)
    with Bar("verifying") as bar:
        report = run_async(
            lambda: tools.verify(path, jobs=jobs, adopt=adopt, delete=delete, min_age=age, progress=bar, **options)
        )
    if json:
        print_json(report.to_json())
    else:
        _show(report)
    return DAMAGE if report.damaged or report.conflicts else STORAGE if report.unreadable else FINE


def _show(report: VerifyReport) -> None:
    for shard in report.shards:
        if len(shard.problems) > _MOST_SHOWN:
            say(f"{shard.path}: {len(shard.problems):,} problems; the first {_MOST_SHOWN} are:")
        for problem in shard.problems[:_MOST_SHOWN]:
            where = "" if problem.record is None else f"record {problem.record:,}, "
            where += "" if problem.offset is None else f"offset {problem.offset:,}: "
            say(f"{shard.path}: {problem.kind}: {where}{problem.message}")
    for conflict in report.conflicts:
        say(f"{report.path}: conflict: {conflict}")
    for orphan in report.orphans:
        say(f"{orphan.path}: orphan: {_state(orphan, report)}")
    rate = f" ({human_bytes(int(report.bytes / report.seconds))}/s)" if report.seconds > 0 else ""
    shards, records = plural(len(report.shards), "shard"), plural(report.records, "record")
    say(f"{shards}, {records}, {human_bytes(report.bytes)} in {report.seconds:.1f} s{rate}")
    wrong = [f"DAMAGED: {len(report.damaged):,} of {shards}"] if report.damaged else []
    wrong += [f"NOT READ: {len(report.unreadable):,} of {shards}"] if report.unreadable else []
    wrong += [f"MANIFEST CONTRADICTS ITSELF in {plural(len(report.conflicts), 'place')}"] if report.conflicts else []
    if wrong:
        say("; ".join(wrong), "bad")
    elif report.shards or not report.spool:
        say(f"ok: every checksum in {report.path} matches", "good")
    if report.spool:
        checked = "" if report.shards else "nothing was checked: "
        say(checked + SPOOL.format(path=report.path))


def _state(orphan: Orphan, report: VerifyReport) -> str:
    if orphan.path in report.adopted:
        return "adopted"
    if orphan.path in report.deleted:
        return "deleted"
    if orphan.recent:
        return "not in the manifest; a writer may be about to commit it (see --older-than)"
    if orphan.refused is None:
        return "a shard that is not in the manifest; --adopt adds it to the data set, --delete removes it"
    what = {"shard": "a shard", "index": "an index", "keys": "keys"}[orphan.kind]
    return f"{what} not in the manifest that cannot be adopted: {orphan.refused}; --delete removes it"
