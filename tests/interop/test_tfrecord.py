"""The `tfrecord` package reads our files and indexes, and asyncrec reads the files that it writes."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import numpy as np
import pytest
import tfrecord
from tfrecord.tools import tfrecord2idx

import asyncrec

MIB = 1 << 20


def records() -> list[bytes]:
    source = random.Random(5)
    return [source.randbytes(length) for length in [0, 1, 0, 16, 4096, 3 * MIB, *source.choices(range(900), k=800), 0]]


def write_shards(folder: Path, compression: str = "") -> list[Path]:
    """Write `records` to three shards in turn; return the shards' paths."""

    async def main() -> None:
        async with asyncrec.open_sharded_writer(
            str(folder / "pages"), num_shards=3, compression=compression, index=True
        ) as writer:
            for number, record in enumerate(records()):
                await writer.write(record, partition=f"{number}")

    anyio.run(main)
    return sorted(folder.glob("pages-*.tfrecord"))


def index_of(shard: Path) -> Path:
    """Return the path of a shard's index according to the manifest."""

    async def main() -> Path:
        entries = (await asyncrec.read_manifest(shard.parent / "pages")).shards
        (index,) = (entry.index for entry in entries if entry.path == shard.name)
        assert index is not None
        return shard.parent / index.path

    return anyio.run(main)


def read(path: Path) -> list[bytes]:
    async def main() -> list[bytes]:
        return await asyncrec.read_records(str(path))

    return anyio.run(main)


@pytest.mark.parametrize(("compression", "theirs"), [("", None), ("GZIP", "gzip")])
def test_tfrecord_reads_files_written_by_asyncrec(tmp_path: Path, compression: str, theirs: str | None) -> None:
    async def main() -> None:
        await asyncrec.write_records(str(tmp_path / "ours"), records(), compression=compression)

    anyio.run(main)
    found = tfrecord.tfrecord_iterator(str(tmp_path / "ours"), compression_type=theirs)
    assert [bytes(view) for view in found] == records()  # it reuses one buffer for all records


def test_asyncrec_records_round_trip_through_tfrecord(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "theirs"))
    for number in range(300):
        writer.write(
            {"number": (number, "int"), "text": (b"%d" % number * number, "byte"), "point": ([0.5] * 8, "float")}
        )
    writer.close()
    examples = [tfrecord.example_pb2.Example.FromString(record) for record in read(tmp_path / "theirs")]
    assert [example.features.feature["number"].int64_list.value[0] for example in examples] == list(range(300))


def test_index_matches_tfrecord_index_byte_for_byte(tmp_path: Path) -> None:
    """DALI uses the same text format."""
    shards = write_shards(tmp_path)
    assert len(shards) == 3
    for shard in shards:
        theirs = tmp_path / "theirs.index"
        tfrecord2idx.create_index(str(shard), str(theirs))
        assert index_of(shard).read_bytes() == theirs.read_bytes()


def test_workers_split_shard_by_asyncrec_index(tmp_path: Path) -> None:
    for shard in write_shards(tmp_path):
        index = index_of(shard)
        parts = [
            [bytes(view) for view in tfrecord.tfrecord_iterator(str(shard), str(index), shard=(worker, 4))]
            for worker in range(4)
        ]
        assert all(parts)
        assert [record for part in parts for record in part] == read(shard)


def test_gzip_index_lists_frame_sizes_in_second_column(tmp_path: Path) -> None:
    """`tfrecord` reads the index with NumPy, which also reads the third column."""
    for shard in write_shards(tmp_path, "GZIP"):
        index = np.loadtxt(index_of(shard), dtype=np.int64)
        assert index.shape[1] == 3
        assert index[:, 1].tolist() == [len(record) + 16 for record in read(shard)]
