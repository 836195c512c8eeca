"""Sharded writing: 200,000 records of 1 KiB to 16 shards, in lists and one by one with a key, compared with one file.

TensorFlow has no sharded writer, so it writes to 16 files in turn, as its users do. asyncrec's shards have an index,
and those of `write` have keys; all are fsynced, listed in a manifest and verified. The floor is an awaited method that
appends a record and its key to a shard's lists; asyncrec's C code frames and hashes the lists.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from harness import Case, Job, Target
from records import Main, batches, records, timed, watched, write_batches

from asyncrec._framing.encoding import encode_frames
from asyncrec._shards.writing.keys import join_digests

SHARDS = 16
NAME = "write 1 KiB, 16 shards"


def sharded_batches(case: Case) -> Main:
    import asyncrec

    items = records(case)

    async def main(path: Path) -> None:
        async with asyncrec.open_sharded_writer(path / "records", num_shards=SHARDS) as writer:
            for batch in batches(items, case.size):
                await writer.write_many(batch)

    return main


def sharded_each_with_key(case: Case) -> Main:
    import asyncrec

    items = records(case)
    keys = [f"https://example.org/pages/{number:012d}/index.html" for number in range(case.count)]

    async def main(path: Path) -> None:
        async with asyncrec.open_sharded_writer(path / "records", num_shards=SHARDS) as writer:
            for record, key in zip(items, keys, strict=True):
                await writer.write(record, key=key)

    return main


class _Bare:
    """Files without an index, a manifest, an fsync or a memory limit."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.shards = [(open(path / f"{n}.tfrecord", "wb", buffering=0), [], []) for n in range(SHARDS)]  # noqa: SIM115
        self.turns = cycle(self.shards)

    async def write(self, record: bytes, *, key: str) -> None:
        shard = next(self.turns)
        shard[1].append(record)
        shard[2].append(key)
        if len(shard[1]) == 512:
            self.put_out(shard)

    def put_out(self, shard: tuple[Any, list[bytes], list[str]]) -> None:
        file, records, keys = shard
        file.write(b"".join(encode_frames(records)))
        join_digests(keys)
        records.clear()
        keys.clear()


def floor(case: Case) -> Main:
    items = records(case)
    keys = [f"https://example.org/pages/{number:012d}/index.html" for number in range(case.count)]

    async def main(path: Path) -> None:
        writer = _Bare(path)
        for record, key in zip(items, keys, strict=True):
            await writer.write(record, key=key)
        for shard in writer.shards:
            writer.put_out(shard)
            shard[0].close()

    return main


def one_file(case: Case) -> Main:
    main = write_batches(case)

    async def into_folder(path: Path) -> None:
        await main(path / "one.tfrecord")

    return into_folder


def tensorflow_in_turn(case: Case) -> Job:
    import tensorflow as tf

    items = records(case)

    def job(path: Path) -> None:
        path.mkdir()
        writers = [tf.io.TFRecordWriter(str(path / f"{shard}.tfrecord")) for shard in range(SHARDS)]
        for number, record in enumerate(items):
            writers[number % SHARDS].write(record)
        for writer in writers:
            writer.close()

    return job


def check(case: Case, path: Path) -> str | None:
    size = sum(each.stat().st_size for each in path.glob("*.tfrecord"))
    wanted = case.count * (case.size + 16)
    return None if size == wanted else f"{size:,} bytes were written, not {wanted:,}"


CONTENDERS: dict[str, Callable[[Case], Job]] = {
    "asyncrec write_many": timed(sharded_batches),
    "asyncrec write with key": timed(sharded_each_with_key),
    "floor: a bare write with key": timed(floor),
    "asyncrec one file": timed(one_file),
    "TensorFlow into 16 files": tensorflow_in_turn,
    "asyncrec write_many + heartbeat": watched(sharded_batches),
}

CASES = [Case(name=NAME, count=200_000, size=1024, contenders=CONTENDERS, check=check)]
TARGETS = [
    Target(NAME, "asyncrec write_many", "TensorFlow into 16 files", 1.5),
    Target(NAME, "asyncrec write_many", "asyncrec one file", 0.8),
]
