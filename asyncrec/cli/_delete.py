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
        typer.Option(metavar="FILE", help="Delete the records whose keys are the lines of this file; - for stdin."),
    ] = None,
    where: Wheres = None,
    content: Annotated[
        bool, typer.Option("--content", help="Delete also all records that share a body with these, under any key.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be deleted, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking; needed outside a terminal.")] = False,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Delete records of the data set PATH for good: no byte of them is left in its shards, indexes and keys.

    The shards that have such records are written anew without them, and the old ones are deleted. Others may write and
    read meanwhile; a reader that has the data set open may have to open it again. --json prints a receipt: what was
    deleted and when, and where else the records may be. If the command was stopped, run it again.

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
            f"job {job.id} (process {job.pid} on {job.host}) has not ended: what it has not committed was not looked "
            "at; when it has ended, run the command again"
        )
    if report.uncommitted:
        say(f"{plural(len(report.uncommitted), 'object')} that no commit names, not looked at; see 'asyncrec verify'")
    if not dry_run:
        say("not reached: " + "; ".join(report.out_of_reach[:-1]))
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
