"""``asyncrec recover PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli.exits import DAMAGE, FINE
from asyncrec.cli.options import Debug, Json, StorageOptions, parse_options, run_async
from asyncrec.cli.output import human_bytes, print_json, say


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A spool's folder, or a data set.")],
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Publish what writers left behind when they died: a spool's shards, and unfinished shards of a local data set.

    It may be run at any time, also while others write; twice does no harm. Exit code 1 when a journal was damaged.
    """
    import asyncrec
    from asyncrec.storage.url import redact
    from asyncrec.tools.selecting import selected

    options = parse_options(storage_option)

    async def run() -> asyncrec.Recovery:
        found = await asyncrec.recover(path, storage_options=options)
        if found == asyncrec.Recovery():
            async with selected(path, storage_options=options):  # where there is nothing at all, it was a mistake
                pass
        return found

    found = run_async(run)
    if json:
        print_json(
            {
                "path": redact(path),
                "records": found.records,
                "bytes": found.bytes,
                "shards": [shard.to_json() for shard in found.shards],
                "cut_bytes": found.cut_bytes,
                "damaged": list(found.damaged),
                "discarded": list(found.discarded),
                "in_use": list(found.in_use),
            }
        )
    else:
        for shard in found.shards:
            say(f"{shard.path}: {shard.records:,} records, {human_bytes(shard.bytes)}")
        for name in found.damaged:
            say(f"{name}: damaged: what came before is committed; 'asyncrec repair' may save more")
        for name in found.discarded:
            say(f"{name}: discarded: of a writer that publishes all or none, and had promised nothing")
        for writer in found.in_use:
            say(f"writer {writer} is running: what is its own was left alone")
        say(f"recovered {found.records:,} records; shards: {len(found.shards):,}; torn bytes cut: {found.cut_bytes:,}")
    return DAMAGE if found.damaged else FINE
