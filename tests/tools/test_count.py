"""Records are counted by manifests, indexes and lengths."""

from __future__ import annotations

import pytest
from tool_data import change, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import FormatError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def test_counts_are_of_manifests_indexes_and_lengths(storage: Storage) -> None:
    await write_pages(storage, "d/pages")
    await asyncrec.write_records("d/a.tfrecord", [b"x"] * 3, storage=storage)
    await asyncrec.write_records("d/z.tfrecord", [b"x"] * 5, compression="ZLIB", storage=storage)
    report = await tools.count("d", storage=storage)
    assert report.records == 38
    assert report.shards[-2:] == [("d/a.tfrecord", 3), ("d/z.tfrecord", 5)]
    assert (await tools.count("d/pages", storage=storage)).records == 30
    await change(storage, "d/a.tfrecord", 0)
    with pytest.raises(FormatError, match=r"a\.tfrecord"):
        await tools.count("d/a.tfrecord", storage=storage)
