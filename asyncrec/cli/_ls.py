"""``asyncrec ls PATH``."""

from __future__ import annotations

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, print_json, say, table
from asyncrec.cli._values import parse_options


def command(path: Path = ".", storage_option: StorageOptions = None, json: Json = False, debug: Debug = False) -> int:
    """List the data sets and files in a folder, or the shards of a data set, without opening any file.

    \b
    Example:
      asyncrec ls demo-data
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    report = run_async(lambda: tools.ls(path, storage_options=options))
    if json:
        print_json(report.to_json())
        return 0
    if not report.entries:
        say(f"{report.path}: the folder contains no data set and no record file")
        return 0
    table(
        ["path", "kind", "shards", "records", "bytes", "compression", "modified"],
        (
            (
                entry.path,
                entry.kind,
                entry.shards,
                entry.records,
                human_bytes(entry.bytes),
                None if entry.compression is None else entry.compression or "none",
                None if entry.changed is None else entry.changed[:19].replace("T", " "),
            )
            for entry in report.entries
        ),
    )
    return 0
