"""Follow the links in pages that earlier runs stored."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread

import asyncrec
from crawling.frontier import Frontier
from crawling.website import links_in

READ = ("url", "status", "headers", "content_type", "content")  # the features that links_in reads


async def add_links_of_stored(to: str, frontier: Frontier) -> int:
    """Add the links of every page in a data set to the frontier, and return the number of pages.

    A stored page is not fetched again, so its links would otherwise be lost. Call this after opening the writer, which
    adds the pages that a killed run left on the disk. Every page is read once, even from a remote store.
    """
    try:
        manifest = await asyncrec.read_manifest(to)
    except asyncrec.ObjectNotFoundError:
        return 0  # the first run
    if manifest.schema is None:
        return manifest.records  # not written by this crawler
    schema = asyncrec.Schema.from_json(manifest.schema)

    def links(records: Sequence[bytes]) -> list[str]:
        columns = schema.decode_batch(records)  # many times faster than record by record
        rows = zip(*(columns[name] for name in READ), strict=True)
        return [link for row in rows for link in links_in(dict(zip(READ, row, strict=True)))]

    for path in await asyncrec.list_shards(manifest):
        async with asyncrec.open_reader(path) as reader:
            async for records in reader.batches():
                frontier.add(await to_thread.run_sync(links, records))  # takes milliseconds for large pages
    return manifest.records
