"""Anything opened before a fork raises an error in the child process and keeps working in the parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Runs in its own process: pytest's process has threads, and forking a process with threads is unsafe.
PROGRAM = """
import os, sys, threading, anyio, asyncrec

async def tried(what, call):
    try:
        with anyio.fail_after(20):
            await call()
    except RuntimeError as error:
        assert "before a fork" in str(error), error
        return
    os.write(2, f"{what} did not raise\\n".encode())
    os._exit(1)

def in_child(*calls):
    child = os.fork()
    if not child:
        async def each():
            for what, call in calls:
                await tried(what, call)
        def run():
            try:
                anyio.run(each, backend=BACKEND)
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(1)
            os._exit(0)
        thread = threading.Thread(target=run)  # this one has the parent's loop still
        thread.start()
        thread.join()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

async def main():
    records = [b"%d" % i for i in range(5000)]
    async with asyncrec.open_sharded_writer(FOLDER + "/pages", on_duplicate="skip") as shards:
        async with asyncrec.open_writer(FOLDER + "/one.tfrecord") as writer:
            ticket = await shards.write_many(records[:2000])
            await writer.write_many(records[:2000])
            await shards.write(b"", key="k", source="s", position=0)
            await shards.commit()  # after this, `release` has nothing to commit
            failed = in_child(
                ("ShardedWriter.write", lambda: shards.write(b"child")),
                ("ShardedWriter.write_many", lambda: shards.write_many([b"child"])),
                ("ShardedWriter.flush", shards.flush),
                ("ShardedWriter.commit", shards.commit),
                ("ShardedWriter.wait", lambda: shards.wait(ticket, "committed")),
                ("a known key", lambda: shards.write(b"child", key="k")),
                ("a known position", lambda: shards.write(b"child", source="s", position=0)),
                ("ShardedWriter.advance", lambda: shards.advance("s", 9)),
                ("ShardedWriter.take", lambda: shards.take("s")),
                ("ShardedWriter.release", lambda: shards.release("s")),
                ("RecordWriter.write", lambda: writer.write(b"child")),
                ("RecordWriter.flush", writer.flush),
                ("RecordWriter.write_many", lambda: writer.write_many([])),
            )
            await shards.write(b"", source="s", position=1)
            await shards.write_many(records[2000:])
            await writer.write_many(records[2000:])
    found = []
    async with asyncrec.open_reader(FOLDER + "/one.tfrecord", chunk_size=4096) as reader:
        found.append(await anext(reader))
        failed += in_child(("RecordReader", reader.__anext__), ("batches", reader.batches().__anext__))
        async for record in reader:
            found.append(record)
    assert found == records
    # Streams that have buffered records, or a task that exists only in the parent.
    paths = await asyncrec.list_shards(FOLDER + "/pages")
    async with asyncrec.interleave(paths) as stream:
        await anext(stream)
        failed += in_child(("InterleaveStream", stream.__anext__), ("batches", stream.batches(9).__anext__))
        await anext(stream)
    for prefetch in (0, 5):
        async with asyncrec.InterleaveSampler(FOLDER, bytes, prefetch_size=prefetch) as sampler:
            await anext(sampler)
            failed += in_child(("InterleaveSampler", sampler.__anext__))
            await anext(sampler)
    async with asyncrec.open_dataset(FOLDER + "/pages") as dataset:
        async with dataset.shuffled() as stream:
            await anext(stream)
            failed += in_child(("ShuffledStream", stream.__anext__), ("batches", stream.batches(9).__anext__))
            await anext(stream)
        async with asyncrec.ClassBalancedSampler(dataset, 2, 2, class_fn=lambda record: record[-1:]) as sampler:
            await anext(sampler)
            failed += in_child(("ClassBalancedSampler", sampler.__anext__))
            await anext(sampler)
    async with asyncrec.open_split(FOLDER, "pages") as reader:
        await anext(reader.batches())
        failed += in_child(("SplitReader", reader.batches().__anext__))
    manifest = await asyncrec.read_manifest(FOLDER + "/pages")
    assert (manifest.records, manifest.progress) == (5002, {"s": 1}), manifest
    sys.exit(failed)

anyio.run(main, backend=BACKEND)
"""


@pytest.mark.slow(but=["trio"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_forked_child_gets_error_and_parent_continues(tmp_path: Path, backend: str) -> None:
    values = f"FOLDER = {str(tmp_path)!r}; BACKEND = {backend!r}"
    done = subprocess.run(
        [sys.executable, "-c", values + PROGRAM], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
