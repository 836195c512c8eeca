"""`ls` lists what is stored; `tail` returns the last records, and each one that is committed later."""

from __future__ import annotations

import anyio
import pytest
from tool_data import example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError, ObjectNotFoundError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def test_ls_of_folder_lists_data_sets_and_files(storage: Storage) -> None:
    await write_pages(storage, "some/pages", compression="GZIP")
    await asyncrec.write_records("some/x.tfrecord", [b"x"], storage=storage)
    report = await tools.ls("some", storage=storage)
    pages, file = report.entries
    assert (pages.path, pages.kind, pages.shards, pages.records) == ("some/pages", "data set", 3, 30)
    assert (pages.compression, pages.bytes > 0, pages.changed is not None) == ("GZIP", True, True)
    assert (file.path, file.kind, file.bytes, file.records) == ("some/x.tfrecord", "file", 17, None)
    assert report.to_json()["entries"][1]["path"] == "some/x.tfrecord"


async def test_ls_of_data_set_lists_shards(storage: Storage) -> None:
    await write_pages(storage)
    report = await tools.ls("pages", storage=storage)
    assert [(entry.kind, entry.records) for entry in report.entries] == [("shard", 10)] * 3
    with pytest.raises(ObjectNotFoundError):
        await tools.ls("nothing", storage=storage)


@pytest.mark.parametrize("path", ["pages", "pages-*.tfrecord"])
async def test_tail_returns_last_records_with_numbers(storage: Storage, path: str) -> None:
    await write_pages(storage)
    async with tools.open_tail(path, records=13, storage=storage) as stream:
        found = [found async for records in stream for found in records]
    assert [(each.number, each.data) for each in found] == [(n, example(n)) for n in range(17, 30)]
    where = [tools.Where("label", "0")]
    async with tools.open_tail(path, records=13, where=where, storage=storage) as stream:
        assert [found.number async for records in stream for found in records] == [18, 21, 24, 27]


async def test_followed_tail_yields_each_new_commit_once(storage: Storage) -> None:
    await write_pages(storage)
    with anyio.fail_after(60):
        async with tools.open_tail("pages", records=2, follow=True, interval=0, storage=storage) as stream:
            assert [each.data for each in await anext(stream)] == [example(28), example(29)]
            for begin in (100, 200):
                async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
                    for number in range(begin, begin + 3):
                        await writer.write(example(number))
                found = await anext(stream)
                assert [each.data for each in found] == [example(n) for n in range(begin, begin + 3)]
                for each in found:
                    got = await tools.get_record("pages", record=each.number, storage=storage)
                    assert got.data == each.data


async def test_tail_follows_only_data_sets(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"x"], storage=storage)
    with pytest.raises(DatasetError, match="only a data set"):
        async with tools.open_tail("x.tfrecord", follow=True, storage=storage):
            raise AssertionError
    with pytest.raises(ValueError, match="must not be negative"):
        async with tools.open_tail("x.tfrecord", records=-1, storage=storage):
            raise AssertionError
