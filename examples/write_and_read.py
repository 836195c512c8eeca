"""Write a data set from several tasks, and read it back: the smallest complete program.

    python examples/write_and_read.py [FOLDER]

It runs on asyncio. ``anyio.run(main, folder, backend="trio")`` runs it on trio.
"""

from __future__ import annotations

import hashlib
import sys

import anyio

import asyncrec

TASKS = 8
RECORDS = 10_000


async def produce(writer: asyncrec.ShardedWriter, task: int) -> None:
    """Write every ``TASKS``-th record. `write` waits only while the writer's memory is full."""
    for number in range(task, RECORDS, TASKS):
        await writer.write(hashlib.sha256(b"%d" % number).digest() * 8, key=str(number))


async def main(folder: str) -> None:
    dataset = f"{folder}/hashes"

    async with asyncrec.open_sharded_writer(dataset, max_shard_records=RECORDS // 4, compression="GZIP") as writer:
        async with anyio.create_task_group() as tasks:
            for task in range(TASKS):
                tasks.start_soon(produce, writer, task)

    manifest = await asyncrec.read_manifest(dataset)
    for shard, path in zip(manifest.shards, await asyncrec.list_shards(manifest), strict=True):
        found = 0
        async with asyncrec.open_reader(path) as reader:
            async for records in reader.batches():
                found += len(records)
        print(f"{path}: {found:,} records in {shard.bytes:,} bytes")
    print(f"{manifest.records:,} records in all")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo-data")
