"""TensorFlow reads every file that asyncrec writes, and asyncrec every file that TensorFlow writes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import pytest
import tensorflow as tf

import asyncrec

COMPRESSIONS = ["", "GZIP", "ZLIB"]
MIB = 1 << 20


def mixed() -> list[bytes]:
    """Records of every length at a buffer boundary, with empty ones first, last and in a row."""
    source = random.Random(1)
    edges = [
        1, 2, 7, 8, 11, 12, 15, 16, 17, 255, 256, 4095, 4096, 65_535, 65_536, 256 * 1024 - 16, 256 * 1024, MIB,
        5 * MIB,
    ]  # fmt: skip
    lengths = [0, 0, *edges, 0, *(source.randint(0, 3000) for _ in range(500)), 0]
    return [source.randbytes(length) for length in lengths]


def text() -> list[bytes]:
    """Return 30 MiB of records that compress well."""
    source = random.Random(2)
    words = [source.randbytes(4).hex() for _ in range(2000)]
    return [" ".join(source.choices(words, k=source.randint(1, 900))).encode() for _ in range(7500)]


CONTENTS: dict[str, Callable[[], list[bytes]]] = {
    "no record": list,
    "one empty record": lambda: [b""],
    "mixed lengths": mixed,
    "many small": lambda: [b"%d" % i for i in range(200_000)],
    "text": text,
    "64 MiB of zeros between small ones": lambda: [b"before", bytes(64 * MIB), b"after"],
    "64 MiB at random": lambda: [random.Random(3).randbytes(64 * MIB)],
}


@pytest.fixture(params=list(CONTENTS))
def records(request: pytest.FixtureRequest) -> list[bytes]:
    return CONTENTS[request.param]()


def tensorflow_wrote(path: Path, records: Iterable[bytes], options: object) -> None:
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)


def tensorflow_reads(path: Path, compression: str, **options: object) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path), compression, **options)]


def tensorflow_iterates(path: Path, compression: str) -> list[bytes]:
    kinds = tf.compat.v1.io.TFRecordCompressionType
    options = tf.compat.v1.io.TFRecordOptions({"": kinds.NONE, "GZIP": kinds.GZIP, "ZLIB": kinds.ZLIB}[compression])
    return list(tf.compat.v1.io.tf_record_iterator(str(path), options))


def asyncrec_wrote(path: Path, records: Iterable[bytes], **options: object) -> None:
    async def main() -> None:
        with anyio.fail_after(120):  # so that a hang becomes a failure
            await asyncrec.write_records(str(path), records, **options)

    anyio.run(main)


def asyncrec_reads(path: Path, **options: object) -> list[bytes]:
    async def main() -> list[bytes]:
        async with asyncrec.open_reader(str(path), **options) as reader:
            return [record async for record in reader]

    return anyio.run(main)


def members(path: Path) -> int:
    """Count the GZIP members of a file."""
    data, count = path.read_bytes(), 0
    while data:
        member = zlib.decompressobj(31)
        member.decompress(data)
        assert member.eof
        data, count = member.unused_data, count + 1
    return count


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_asyncrec_files(tmp_path: Path, records: list[bytes], compression: str) -> None:
    asyncrec_wrote(tmp_path / "ours", records, compression=compression)
    assert tensorflow_reads(tmp_path / "ours", compression) == records
    assert tensorflow_iterates(tmp_path / "ours", compression) == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_files_are_read(tmp_path: Path, records: list[bytes], compression: str) -> None:
    """This works with the compression given, and with the compression detected."""
    tensorflow_wrote(tmp_path / "theirs", records, compression)
    assert asyncrec_reads(tmp_path / "theirs", compression=compression) == records
    assert asyncrec_reads(tmp_path / "theirs") == records


def test_uncompressed_files_match_tensorflow_byte_for_byte(tmp_path: Path, records: list[bytes]) -> None:
    asyncrec_wrote(tmp_path / "ours", records)
    tensorflow_wrote(tmp_path / "theirs", records, "")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_tensorflow_reads_all_gzip_members(tmp_path: Path) -> None:
    records = text()
    asyncrec_wrote(tmp_path / "ours", records, compression="GZIP")
    assert members(tmp_path / "ours") > 3
    assert tensorflow_reads(tmp_path / "ours", "GZIP") == records
    assert tensorflow_reads(tmp_path / "ours", "GZIP", buffer_size=1000) == records


def test_all_members_of_joined_tensorflow_files_are_read(tmp_path: Path) -> None:
    parts = [[b"a", b""], [], [bytes(MIB)], [b"z" * 17]]
    for number, part in enumerate(parts):
        tensorflow_wrote(tmp_path / f"{number}", part, "GZIP")
    joined = tmp_path / "joined"
    joined.write_bytes(b"".join((tmp_path / f"{number}").read_bytes() for number in range(len(parts))))
    assert asyncrec_reads(joined) == [record for part in parts for record in part]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_flushes_during_writing_do_not_affect_tensorflow_reader(tmp_path: Path, compression: str) -> None:
    records = [b"%d" % i * i for i in range(300)]

    async def main() -> None:
        async with asyncrec.open_writer(str(tmp_path / "ours"), compression=compression) as writer:
            for number, record in enumerate(records):
                await writer.write(record)
                if number % 7 == 0:
                    await writer.flush()

    anyio.run(main)
    assert tensorflow_reads(tmp_path / "ours", compression) == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_file_is_readable_while_being_written(tmp_path: Path, compression: str) -> None:
    records = [b"%d" % i * i for i in range(300)]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs"), compression) as writer:
        for number, record in enumerate(records):
            writer.write(record)
            if number % 7 == 0:
                writer.flush()
    assert asyncrec_reads(tmp_path / "theirs") == records


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tensorflow_reads_file_after_asyncrec_appends(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "shared"
    tensorflow_wrote(path, [b"first", b""], compression)
    asyncrec_wrote(path, [b"second", b"", bytes(MIB)], mode="a", compression=compression)
    assert tensorflow_reads(path, compression) == [b"first", b"", b"second", b"", bytes(MIB)]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("level", [0, 1, 3, 6, 9])
def test_every_compression_level_is_readable_by_other_library(tmp_path: Path, compression: str, level: int) -> None:
    records = text()[:500]
    options = tf.io.TFRecordOptions(compression, compression_level=level)
    tensorflow_wrote(tmp_path / "theirs", records, options)
    assert asyncrec_reads(tmp_path / "theirs") == records
    asyncrec_wrote(tmp_path / "ours", records, compression=asyncrec.CompressionOptions(type=compression, level=level))
    assert tensorflow_reads(tmp_path / "ours", compression) == records


def test_tensorflow_reports_same_damage(tmp_path: Path) -> None:
    """A bit of the second of three records is flipped: both libraries return the first record, and then raise."""
    path = tmp_path / "damaged"
    asyncrec_wrote(path, [b"one", b"two", b"three"])
    data = bytearray(path.read_bytes())
    data[19 + 12] ^= 1
    path.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        tensorflow_reads(path, "")
    with pytest.raises(asyncrec.CorruptRecordError, match=r"record 1, offset 19") as caught:
        asyncrec_reads(path)
    assert caught.value.part == "data"


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    "options", [{"num_shards": 5}, {"max_shard_records": 700}, {"max_shard_bytes": 2 * MIB, "open_shards": 3}], ids=str
)
def test_tf_data_reads_sharded_data_set_by_glob(tmp_path: Path, compression: str, options: dict[str, int]) -> None:
    """The glob matches only the shards, although the index, keys and manifest are in the same folder."""
    records = [b"%d:" % i + bytes(i % 3000) for i in range(5000)]

    async def main() -> None:
        path = str(tmp_path / "pages")
        async with asyncrec.open_sharded_writer(path, compression=compression, **options) as writer:
            for number, record in enumerate(records):
                await writer.write(record, key=f"{number}", partition=f"{number % 17}")

    anyio.run(main)
    found = sorted(str(path) for path in tmp_path.rglob("*.tfrecord*") if not path.parent.name.startswith("_"))
    assert sorted(tf.io.gfile.glob(str(tmp_path / "*.tfrecord*"))) == found
    assert len(found) >= 3
    shards = tf.data.Dataset.list_files(str(tmp_path / "pages-*.tfrecord"), shuffle=False)
    data = shards.interleave(lambda shard: tf.data.TFRecordDataset(shard, compression), cycle_length=4)
    assert sorted(record.numpy() for record in data) == sorted(records)
    assert sorted(record for path in found for record in asyncrec_reads(Path(path))) == sorted(records)
