"""The public API as a type checker sees it: ``make lint`` checks this file, nothing runs it.

The names resolve on first use, which would make each of them `Any` if the package did not tell type checkers otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import asyncrec
from asyncrec import Manifest, ObjectInfo, RecordReader, RecordWriter, ShardedWriter, Storage


async def writing(path: Path) -> None:
    async with asyncrec.open_writer(path, compression="GZIP", mode="x") as writer:
        assert_type(writer, RecordWriter)
        await writer.write(b"")
        await writer.write(memoryview(b""))
        await writer.write("")  # type: ignore[arg-type]  # text is no record
        await writer.write_many([b"", bytearray()])
        await writer.flush()
    async with asyncrec.open_writer(path, mode="r"):  # type: ignore[arg-type]  # there is no such mode
        pass
    assert_type(await asyncrec.write_records(path, [b""]), ObjectInfo)


async def reading(path: Path, storage: Storage) -> None:
    async with asyncrec.open_reader(str(path), verify=False, storage=storage) as reader:
        assert_type(reader, RecordReader)
        async for record in reader:
            assert_type(record, bytes)
        async for records in reader.batches():
            assert_type(records, list[bytes])
    assert_type(await asyncrec.read_records(path, limit=3), list[bytes])


async def sharding(path: str) -> None:
    async with asyncrec.open_sharded_writer(
        path, num_shards=8, compression=asyncrec.CompressionOptions(type="GZIP")
    ) as writer:
        assert_type(writer, ShardedWriter)
        ticket = await writer.write(b"", key="k", partition="p")
        assert_type(ticket, int)
        await writer.wait(ticket, "committed")
    assert_type(await asyncrec.read_manifest(path), Manifest)


async def storing(url: str) -> None:
    async with asyncrec.open_storage(url) as storage:
        assert_type(storage, Storage)
        async for found in storage.list_objects("prefix/"):
            assert_type(found, ObjectInfo)


def errors(error: asyncrec.CorruptRecordError) -> None:
    assert_type(error.offset, int | None)
    as_value: ValueError = error
    as_ours: asyncrec.AsyncRecError = error
    del as_value, as_ours
