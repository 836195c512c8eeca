"""``asyncrec delete PATH --key KEY``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._show_records import Wheres, conditions
from asyncrec.cli._standard import STANDARD
from asyncrec.cli._standard_streams import complain
from asyncrec.cli._values import parse_options
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools import DeleteReport


def command(
    path: Path,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Delete all records with this key. Can be repeated.")
    ] = None,
    keys_from: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Delete the records with the keys in this file, one per line; - for stdin."),
    ] = None,
    where: Wheres = None,
    content: Annotated[
        bool, typer.Option("--content", help="Also delete all records that share a body with these, under any key.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the records that would be deleted, but change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete without asking; required if stdin is not a terminal.")
    ] = False,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Permanently delete records from the data set PATH, leaving no byte of them in its shards, indexes or keys.

    Shards that contain the records are rewritten without them, and the old shards are deleted. Other processes may
    write and read meanwhile, but a reader that has the data set open may have to reopen it. --json prints a receipt
    that lists the deletions with their times, and the places where copies may remain. If the command is interrupted,
    run it again.

    \b
    Example:
      asyncrec delete demo-data/pages --key https://example.org/ --dry-run
    """
    from asyncrec import tools

    keys = [*(key or ()), *(_lines(keys_from) if keys_from is not None else ())]
    chosen = conditions(where)
    if not keys and not chosen and keys_from is None:
        raise UsageError("nothing to delete was passed; add --key, --keys-from or --where")
    options: dict[str, Any] = {
        "keys": keys if key is not None or keys_from is not None else None,
        "where": chosen,
        "content": content,
        "storage_options": parse_options(storage_option),
    }

    def run(*, dry: bool) -> DeleteReport:
        with Bar("counting" if dry else "deleting") as bar:
            return run_async(lambda: tools.delete(path, dry_run=dry, progress=bar, **options))

    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise UsageError("deleted records cannot be restored; to delete them, add --yes; to count them, --dry-run")
        counted = run(dry=True)
        if not counted.records:
            say(_told(counted))
            return 0
        complain(_told(counted))
        if not typer.confirm("Delete them? They cannot be restored.", err=True):
            say("nothing was deleted")
            return 0
    report = run(dry=dry_run)
    if json:
        print_json(report.to_json())
        return 0
    say(_told(report))
    for job in report.unfinished:
        say(
            f"job {job.id} (process {job.pid} on {job.host}) has not ended, so its uncommitted records were not "
            "searched; run the command again when it has ended"
        )
    if report.uncommitted:
        say(f"not searched: {plural(len(report.uncommitted), 'object')} in no commit; see 'asyncrec verify'")
    if not dry_run:
        say("out of reach: " + "; ".join(report.out_of_reach[:-1]))
    return 0


def _told(report: DeleteReport) -> str:
    done = "would be deleted" if report.dry_run else "deleted"
    found = f", {report.keys_found:,} of {plural(report.keys, 'key')} found" if report.keys else ""
    shards = f"{plural(report.shards, 'shard')} of {human_bytes(report.bytes)}"
    return f"{report.path}: {plural(report.records, 'record')} {done}, in {shards}{found}"


def _lines(path: str) -> list[bytes]:
    """Return the lines of a file, or of stdin.

    Raises:
        UsageError: a line is empty, or the file cannot be read.
    """
    if path == STANDARD:
        content = sys.stdin.buffer.read()
    else:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise UsageError(
                f"--keys-from {path}: {error.strerror}; pass a file with one key in each line, or - for stdin"
            ) from error
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    if lines[-1] == b"":
        del lines[-1]
    if b"" in lines:
        raise UsageError(f"{path}: line {lines.index(b'') + 1} is empty, and a key cannot be empty; remove the line")
    return lines
