"""The command ``asyncrec report PATH -o report.html``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli import (
    DAMAGE,
    FINE,
    Bar,
    Debug,
    Jobs,
    Json,
    Path,
    SourceOptions,
    TargetOptions,
    human_bytes,
    parse_options,
    print_json,
    run_async,
    say,
)
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from .making import PageReport

# The maximum number of faults to print. --json lists all of them.
_MOST_SHOWN = 20


def command(
    path: Path,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Path or URL of the page to write.")
    ] = "report.html",
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="Read at most N records. Default: 20,000.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Read every record.")] = False,
    class_feature: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The feature that holds the class. Default: 'label' or a similar name."),
    ] = None,
    jobs: Jobs = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Create an HTML report on a data set: features and their values, images, classes, sizes, shards, damage and
    writers.

    The page is a single file without scripts or external resources. If the data set is large, the report is based on a
    sample, and says so. The exit code is 1 if damage was found.
    """
    from asyncrec import open_file

    from .making import SAMPLE, report

    if everything and sample is not None:
        raise UsageError("--all and --sample cannot be combined")
    options, target_options = parse_options(storage_option), parse_options(target_storage_option)

    async def make() -> PageReport:
        found = await report(
            path,
            sample=None if everything else sample or SAMPLE,
            class_feature=class_feature,
            jobs=jobs,
            progress=bar,
            storage_options=options,
        )
        async with open_file(output, storage_options=target_options) as file:
            await file.write(found.html.encode())
        return found

    with Bar("reading", of_bytes=False) as bar:
        made = run_async(make)
    if json:
        print_json({**made.to_json(), "output": output, "output_bytes": len(made.html.encode())})
    else:
        what = f"{made.read:,} records read" + (" (a sample)" if made.sampled else "")
        say(f"{output}: {human_bytes(len(made.html.encode()))}, {what}")
        for fault in made.faults[:_MOST_SHOWN]:
            say(f"{fault.path}: {fault.message}")
        if made.faults:
            say(f"DAMAGED: {len({fault.path for fault in made.faults}):,} of {made.shards:,} shards")
    return DAMAGE if made.faults else FINE
