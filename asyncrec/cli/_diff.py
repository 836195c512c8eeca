"""``asyncrec diff FIRST SECOND``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._dedupe import known_by
from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import Debug, Json, MaxRecordBytes, StorageOptions, feature_option, path_argument, run_async
from asyncrec.cli._output import clean, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import opened

if TYPE_CHECKING:
    from asyncrec.tools import DiffReport

# The maximum number of records of each kind to show; --json shows up to a thousand.
_MOST_SHOWN = 10


def command(
    first: Annotated[str, path_argument("FIRST", "A file, folder, pattern or data set.")],
    second: Annotated[str, path_argument("SECOND", "A file, folder, pattern or data set.")],
    by_key: Annotated[bool, typer.Option("--by-key", help="Match records by key.")] = False,
    by: Annotated[str | None, feature_option("Match records by the value of this feature.")] = None,
    ignore: Annotated[
        list[str] | None, feature_option("Ignore differences in this feature, such as date. Can be repeated.")
    ] = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show which records differ between two data sets, regardless of order. The exit code is 1 if any differ.

    Records are matched by key if both data sets have keys, otherwise by their bytes; --by matches by a feature. To see
    a record, pass its number to 'asyncrec cat --record'.

    \b
    Example:
      asyncrec diff demo-data/pages demo-data/pages
    """
    from asyncrec import tools

    options = opened(first, storage_option, max_record_bytes)
    what = known_by(by_key, by)
    with Bar("comparing") as bar:
        report = run_async(lambda: tools.diff(first, second, by=what, ignore=ignore or (), progress=bar, **options))
    if json:
        print_json(report.to_json())
    else:
        _show(report)
    return FINE if report.same else DAMAGE


def _show(report: DiffReport) -> None:
    pairs = [f"{a:,} -> {b:,}" if a != b else f"{a:,}" for a, b in report.changed_numbers]
    for kind, title, count, shown in (
        ("only_first", f"only in {report.first}", report.only_first, _numbers(report.only_first_numbers)),
        ("only_second", f"only in {report.second}", report.only_second, _numbers(report.only_second_numbers)),
        ("changed", "changed", report.changed, pairs),
    ):
        if count:
            say(f"{title}: {plural(count, 'record')}: {_listed(shown, report.keys.get(kind, ()), count)}")
    if not report.same_schema:
        say("the schemas differ; to see them, run 'asyncrec schema'")
    by = f"feature {report.by.removeprefix('feature:')}" if report.by.startswith("feature:") else report.by
    if report.same:
        say(f"the same {plural(report.first_records, 'record')}, matched by {by}", "good")
    else:
        say(
            f"DIFFERENT: {report.first_records:,} and {plural(report.second_records, 'record')}, matched by {by}", "bad"
        )


def _numbers(numbers: Sequence[int]) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _listed(numbers: Sequence[str], keys: Sequence[str], count: int) -> str:
    named = zip_longest(numbers[:_MOST_SHOWN], (clean(key, line=True) for key in keys), fillvalue="")
    return "; ".join(f"{number} {key}".rstrip() for number, key in named) + ("; ..." if count > _MOST_SHOWN else "")
