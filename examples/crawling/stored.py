"""What earlier runs stored: the links in it are still to be followed."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread

import asyncrec
from crawling.frontier import Frontier
from crawling.website import links_in

READ = ("url", "status", "headers", "content_type", "content")  # of a page, by links_in


async def add_links_of_stored(to: str, frontier: Frontier) -> int:
    """Give the frontier the links of every page that a data set holds; returns how many pages that are.

    A page that is there is not fetched again, so its links would not be seen again. Call it with the writer open: what
    a killed run had on the disk is part of the data set from then on. Every page is read once, from a store too.
    """
    try:
        manifest = await asyncrec.read_manifest(to)
    except asyncrec.ObjectNotFoundError:
        return 0  # the first run
    if manifest.schema is None:
        return manifest.records  # no crawler wrote them
    schema = asyncrec.Schema.from_json(manifest.schema)

    def links(records: Sequence[bytes]) -> list[str]:
        columns = schema.decode_batch(records)  # many times faster than one record at a time
        rows = zip(*(columns[name] for name in READ), strict=True)
        return [link for row in rows for link in links_in(dict(zip(READ, row, strict=True)))]

    for path in await asyncrec.list_shards(manifest):
        async with asyncrec.open_reader(path) as reader:
            async for records in reader.batches():
                frontier.add(await to_thread.run_sync(links, records))  # milliseconds, in large pages
    return manifest.records
