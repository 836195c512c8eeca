"""``asyncrec repair SOURCE TARGET``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import Debug, Json, MaxRecordBytes, SourceOptions, TargetOptions, run_async
from asyncrec.cli._output import human_bytes, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import parse_compression, stores

_MOST_SHOWN = 20


def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The damaged file. It is not changed.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The new file for the intact records.")],
    compression: Annotated[
        Literal["auto", "none", "gzip", "zlib"],
        typer.Option(help="Compression of the source, if it cannot be detected.", case_sensitive=False),
    ] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Write every intact record of a damaged file to a new file, and report what was lost.

    The exit code is 1 if anything was lost; the new file contains all other records.

    \b
    Example:
      asyncrec sample demo-data/pages - | head -c 500 > torn.tfrecord
      asyncrec repair torn.tfrecord whole.tfrecord
    """
    from asyncrec import tools

    opening = stores(source, storage_option, target, target_storage_option, max_record_bytes)
    kind: Any = "auto" if compression == "auto" else parse_compression(compression)
    with Bar("repairing", of_bytes=False) as bar:
        report = run_async(
            lambda: tools.repair(source, target, compression=kind, overwrite=overwrite, progress=bar, **opening)
        )
    if json:
        print_json(report.to_json())
    else:
        for damage in report.damage[:_MOST_SHOWN]:
            member = "" if damage.member_offset is None else f" of the member at byte {damage.member_offset:,}"
            say(
                f"{report.source}: after {damage.records_before:,} records, offset {damage.offset:,}{member}: "
                f"{damage.length:,} bytes ({damage.reason})"
            )
        if len(report.damage) > _MOST_SHOWN:
            say(f"... and {report.lost_ranges + report.ambiguous_ranges - _MOST_SHOWN:,} more")
        lost = "nothing was lost" if report.ok else f"{human_bytes(report.lost_bytes)} lost"
        say(f"{report.target}: {report.records:,} intact records, {human_bytes(report.bytes)}; {lost}")
    return FINE if report.ok else DAMAGE
