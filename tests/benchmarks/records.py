"""Framing and files: records of 128 B, 4 KiB and 1 MiB, and 4 KiB with GZIP, written and read.

Writing and reading use asyncrec's public API, include opening and closing, and verify checksums. The names
of other contenders state what they skip ("no CRC"). The floor copies the same bytes with plain ``write`` and
``readinto``, 1 MiB at a time.
"""

from __future__ import annotations

import gzip
import os
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
from harness import MIB, Case, Extras, Job, Target
from heartbeat import Heartbeat

# There are few distinct source records, so that reading them from memory costs all contenders equally little.
_DISTINCT_BYTES = 4 * MIB


def records(case: Case) -> list[bytes]:
    """Return ``case.count`` random records, or texts of random words for GZIP (`CASES` says how compressible)."""
    distinct = max(2, min(case.count, _DISTINCT_BYTES // case.size))
    source = random.Random(case.size)
    if "GZIP" in case.name:
        words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _ in range(8001)]
        # A large record repeats one text at a distance beyond deflate's window, so this does not make it more
        # compressible. Words are from a vocabulary of thousands, the n-th about 1/n as frequent as the first (Zipf),
        # with numbers in between.
        pool = [_page(source, words, min(case.size, MIB)) * (case.size // MIB or 1) for _ in range(distinct)]
    else:
        pool = [source.randbytes(case.size) for _ in range(distinct)]
    return [pool[i % distinct] for i in range(case.count)]


def _page(source: random.Random, words: list[str], size: int) -> bytes:
    text = []
    length = 0
    while length <= size:
        word = str(source.getrandbits(24)) if source.random() < 0.1 else words[int(8000 ** source.random())]
        text.append(word)
        length += len(word) + 1
    return " ".join(text).encode()[:size]


def batches(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield lists of 1,024 records, or of about 4 MiB, as a pipeline passes them on."""
    step = max(1, min(1024, 4 * MIB // size))
    return (items[i : i + step] for i in range(0, len(items), step))


def compression(case: Case) -> str:
    return "GZIP" if "GZIP" in case.name else ""


# asyncrec -----------------------------------------------------------------------------------------------------------

Main = Callable[[Path], Awaitable[None]]


def timed(make: Callable[[Case], Main]) -> Callable[[Case], Job]:
    """Return a contender for an async function of the path; its time includes starting a new event loop each time."""

    def maker(case: Case) -> Job:
        main = make(case)
        return lambda path: anyio.run(main, path)

    return maker


def watched(make: Callable[[Case], Main]) -> Callable[[Case], Job]:
    """Return a separate contender whose heartbeat measures how long the loop is blocked, because that slows it down."""

    def maker(case: Case) -> Job:
        main = make(case)

        async def with_heartbeat(path: Path) -> Extras:
            async with Heartbeat() as heartbeat:
                await main(path)
            return heartbeat.figures()

        return lambda path: anyio.run(with_heartbeat, path)

    return maker


def write_batches(case: Case) -> Main:
    import asyncrec

    items = records(case)

    async def main(path: Path) -> None:
        async with asyncrec.open_writer(str(path), compression=compression(case)) as writer:
            for batch in batches(items, case.size):
                await writer.write_many(batch)

    return main


def write_each(case: Case) -> Main:
    import asyncrec

    items = records(case)

    async def main(path: Path) -> None:
        async with asyncrec.open_writer(str(path), compression=compression(case)) as writer:
            for record in items:
                await writer.write(record)

    return main


def read_batches(case: Case) -> Main:
    import asyncrec

    async def main(path: Path) -> None:
        count = 0
        async with asyncrec.open_reader(str(path)) as reader:
            async for batch in reader.batches():
                count += len(batch)
        expect(count, case)

    return main


def read_each(case: Case) -> Main:
    import asyncrec

    async def main(path: Path) -> None:
        count = 0
        async with asyncrec.open_reader(str(path)) as reader:
            async for _record in reader:
                count += 1
        expect(count, case)

    return main


def expect(count: int, case: Case) -> None:
    if count != case.count:
        raise ValueError(f"read {count} records of {case.count}")


# The others ---------------------------------------------------------------------------------------------------------


def tensorflow_write(case: Case) -> Job:
    import tensorflow as tf

    items = records(case)

    def job(path: Path) -> None:
        with tf.io.TFRecordWriter(str(path), compression(case)) as writer:
            for record in items:
                writer.write(record)

    return job


def tensorboardx_write(case: Case) -> Job:
    from tensorboardX.record_writer import RecordWriter

    items = records(case)

    def job(path: Path) -> None:
        writer = RecordWriter(str(path))
        for record in items:
            writer.write(record)
        writer.close()

    return job


def tfrecord_write(case: Case) -> Job:
    from tfrecord.writer import TFRecordWriter

    # It writes only Examples; without its serializer, only the framing is left.
    TFRecordWriter.serialize_tf_example = staticmethod(lambda record: record)
    items = records(case)

    def job(path: Path) -> None:
        writer = TFRecordWriter(str(path))
        for record in items:
            writer.write(record)
        writer.close()

    return job


def tfrecords_write(case: Case) -> Job:
    import tfrecords

    items = records(case)

    def job(path: Path) -> None:
        with tfrecords.TFRecordWriter(str(path), options=compression(case)) as writer:
            for batch in batches(items, case.size):
                writer.write_batch(batch)

    return job


def tensorflow_iterator(case: Case) -> Job:
    import tensorflow as tf

    kinds = tf.compat.v1.io.TFRecordCompressionType
    options = tf.compat.v1.io.TFRecordOptions(kinds.GZIP if compression(case) else kinds.NONE)

    def job(path: Path) -> None:
        expect(sum(1 for _ in tf.compat.v1.io.tf_record_iterator(str(path), options)), case)

    return job


def tensorflow_dataset(case: Case) -> Job:
    import tensorflow as tf

    def job(path: Path) -> None:
        data = tf.data.TFRecordDataset(str(path), compression(case)).batch(max(1, min(1024, 4 * MIB // case.size)))
        expect(sum(int(batch.shape[0]) for batch in data), case)

    return job


def tfrecord_read(case: Case) -> Job:
    from tfrecord.reader import tfrecord_iterator

    def job(path: Path) -> None:
        records = tfrecord_iterator(str(path), compression_type="gzip" if compression(case) else None)
        expect(sum(1 for _ in records), case)

    return job


def tfrecords_read(case: Case) -> Job:
    import tfrecords

    def job(path: Path) -> None:
        expect(sum(1 for _ in tfrecords.tf_record_iterator(str(path), options=compression(case))), case)

    return job


# The floor ----------------------------------------------------------------------------------------------------------


def floor_write(case: Case) -> Job:
    block = bytes(MIB)
    total = case.count * (case.size + 16)

    def job(path: Path) -> None:
        with open(path, "wb", buffering=0) as file:
            for _ in range(total // MIB):
                file.write(block)
            file.write(block[: total % MIB])

    return job


def floor_read(case: Case) -> Job:
    block = bytearray(MIB)

    def job(path: Path) -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(block):
                pass

    return job


# Cases --------------------------------------------------------------------------------------------------------------


def prepare(case: Case, path: Path) -> None:
    """Write the file that readers share, framed with struct and the crc32c package, not by a contender's code."""
    from crc32c import crc32c

    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", case.size)
    header = length + masked(length)
    frames: dict[int, bytes] = {}
    with open(path, "wb") if not compression(case) else gzip.open(path, "wb", compresslevel=6) as file:
        for record in records(case):
            frame = frames.get(id(record))
            if frame is None:
                frame = frames[id(record)] = header + record + masked(record)
            file.write(frame)


def check(case: Case, path: Path) -> str | None:
    wanted = case.count * (case.size + 16)
    size = os.path.getsize(path)
    if compression(case):
        size = 0
        with gzip.open(path) as file:
            while block := file.read(MIB):
                size += len(block)
    return None if size == wanted else f"{path.name} holds {size} bytes of frames, not {wanted}"


_SIZES = [("1M x 128 B", 1_000_000, 128), ("200k x 4 KiB", 200_000, 4096), ("2k x 1 MiB", 2_000, MIB)]
_GZIP = ("50k x 4 KiB GZIP", 50_000, 4096)
_LARGE = [("16 x 64 MiB", 16), ("4 x 64 MiB GZIP", 4)]  # not for speed: here, the loop may be blocked

_WRITERS = {"asyncrec batches": write_batches, "asyncrec each": write_each}
_READERS = {"asyncrec batches": read_batches, "asyncrec each": read_each}
_OUR_WRITERS = {name: timed(make) for name, make in _WRITERS.items()}
_OUR_READERS = {name: timed(make) for name, make in _READERS.items()}
_HELD_WRITERS = {f"{name} + heartbeat": watched(make) for name, make in _WRITERS.items()}
_HELD_READERS = {f"{name} + heartbeat": watched(make) for name, make in _READERS.items()}

CASES = [
    *(
        Case(
            name=f"write {name}",
            count=count,
            size=size,
            contenders={
                "floor: write": floor_write,
                **_OUR_WRITERS,
                "TensorFlow TFRecordWriter": tensorflow_write,
                "tfrecords write_batch": tfrecords_write,
                "tensorboardX RecordWriter": tensorboardx_write,
                "tfrecord TFRecordWriter": tfrecord_write,
                **_HELD_WRITERS,
            },
            check=check,
        )
        for name, count, size in _SIZES
    ),
    Case(
        name=f"write {_GZIP[0]}",
        count=_GZIP[1],
        size=_GZIP[2],
        contenders={
            **_OUR_WRITERS,
            "TensorFlow TFRecordWriter": tensorflow_write,
            "tfrecords write_batch": tfrecords_write,
            **_HELD_WRITERS,
        },
        check=check,
        rounds=3,
        note="words and numbers, which zlib 6 makes 2.5 times smaller, isal 2 2.4 times; default levels",
    ),
    *(
        Case(
            name=f"read {name}",
            count=count,
            size=size,
            contenders={
                "floor: readinto": floor_read,
                **_OUR_READERS,
                "TensorFlow tf_record_iterator": tensorflow_iterator,
                "TensorFlow TFRecordDataset.batch": tensorflow_dataset,
                "tfrecords iterator": tfrecords_read,
                "tfrecord iterator (no CRC)": tfrecord_read,
                **_HELD_READERS,
            },
            prepare=prepare,
        )
        for name, count, size in _SIZES
    ),
    Case(
        name=f"read {_GZIP[0]}",
        count=_GZIP[1],
        size=_GZIP[2],
        contenders={
            **_OUR_READERS,
            "TensorFlow tf_record_iterator": tensorflow_iterator,
            "TensorFlow TFRecordDataset.batch": tensorflow_dataset,
            "tfrecords iterator": tfrecords_read,
            "tfrecord iterator (no CRC)": tfrecord_read,
            **_HELD_READERS,
        },
        prepare=prepare,
        note="one member of zlib 6, 2.5 times smaller",
    ),
    *(
        Case(
            name=f"write {name}",
            count=count,
            size=64 * MIB,
            contenders={**_OUR_WRITERS, "TensorFlow TFRecordWriter": tensorflow_write, **_HELD_WRITERS},
            check=check,
            rounds=3,
        )
        for name, count in _LARGE
    ),
    *(
        Case(
            name=f"read {name}",
            count=count,
            size=64 * MIB,
            contenders={**_OUR_READERS, "TensorFlow tf_record_iterator": tensorflow_iterator, **_HELD_READERS},
            prepare=prepare,
            rounds=3,
        )
        for name, count in _LARGE
    ),
]

_WRITER, _ITERATOR = "TensorFlow TFRecordWriter", "TensorFlow tf_record_iterator"

TARGETS = [
    Target("write 1M x 128 B", "asyncrec batches", _WRITER, 1.8),
    Target("write 200k x 4 KiB", "asyncrec batches", _WRITER, 1.6),
    Target("write 2k x 1 MiB", "asyncrec batches", _WRITER, 2.2),
    Target("write 50k x 4 KiB GZIP", "asyncrec batches", _WRITER, 5.0),
    Target("read 1M x 128 B", "asyncrec batches", _ITERATOR, 1.0),
    Target("read 1M x 128 B", "asyncrec batches", "TensorFlow TFRecordDataset.batch", 3.0),
    Target("read 200k x 4 KiB", "asyncrec batches", _ITERATOR, 1.3),
    Target("read 2k x 1 MiB", "asyncrec batches", _ITERATOR, 2.0),
    Target("read 50k x 4 KiB GZIP", "asyncrec batches", _ITERATOR, 1.1),
]
