"""Arguments such as sizes, compressions, keys and paths are accepted, or rejected with a message that helps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec import blocking, tools
from asyncrec._arguments import byte_count
from asyncrec.errors import ArgumentError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("67108864", 1 << 26), ("64MiB", 64 << 20), ("64Mi", 64 << 20), ("64mib", 64 << 20),
        ("64M", 64 * 10**6), ("64MB", 64 * 10**6), ("1 GB", 10**9), ("1.5GiB", 3 << 29), ("2k", 2000), ("2KiB", 2048),
        ("3T", 3 * 10**12), ("1Ti", 1 << 40), ("100B", 100), (" 7 ", 7),
    ],
)  # fmt: skip
def test_size_accepts_number_or_text(text: str, size: int) -> None:
    assert byte_count(text, "max_shard_bytes") == size
    assert byte_count(size, "max_shard_bytes") == size


def test_integral_float_is_accepted_as_size() -> None:
    assert byte_count(1e6, "x") == 10**6


@pytest.mark.parametrize(
    "value", ["", "x", "-1", "1 parsec", "64 M B", "1e6", "1.5", "1.5B", 1.5, True, None, b"64M", [1]]
)
def test_invalid_size_error_shows_valid_example(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"max_shard_bytes.*'64MiB'"):
        byte_count(value, "max_shard_bytes")


@given(st.text())
def test_any_text_is_parsed_as_size_or_rejected(text: str) -> None:
    with suppress(ArgumentError):
        assert byte_count(text, "x") >= 0


async def test_byte_arguments_accept_size_text_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "set"
    async with asyncrec.open_sharded_writer(
        path, max_shard_bytes="1KiB", memory_limit="8MB", spool_limit="1G"
    ) as writer:
        for number in range(100):
            await writer.write(bytes(84), key=str(number))
    assert len((await asyncrec.read_manifest(path)).shards) == 10
    async with asyncrec.open_dataset(path, cache=tmp_path / "cache", cache_bytes="1 GB") as dataset:
        async with dataset.shuffled(seed=1, buffer_bytes="1MiB") as stream:
            assert len([record async for record in stream]) == 100
    shards = await asyncrec.list_shards(path)
    async with asyncrec.interleave(shards, memory_limit="16MiB") as stream:
        assert len([record async for record in stream]) == 100
    async with asyncrec.open_reader(shards[0], max_record_bytes="1k", chunk_size="64Ki") as reader:
        assert len([record async for record in reader]) == 10
    assert asyncrec.ShuffleBuffer(5, 0, max_bytes="1k", size_of=len).push(b"x") is None
    report = await tools.reshard(path, tmp_path / "new", max_shard_bytes="10kB", memory_limit="1MB", shuffle=True)
    assert report.records == 100
    with pytest.raises(ValueError, match="max_shard_bytes='much'"):
        async with asyncrec.open_sharded_writer(tmp_path / "no", max_shard_bytes="much"):
            raise AssertionError
    with blocking.open_sharded_writer(str(tmp_path / "blocking"), max_shard_bytes="64M") as sharded:
        sharded.write(b"x")


async def test_compression_names_are_case_insensitive(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "x.tfrecord", [b"x"], compression="gzip")
    async with asyncrec.open_reader(tmp_path / "x.tfrecord", compression="gzip") as reader:
        assert reader.compression == "GZIP"


@pytest.mark.parametrize("key", [5, ("a", 1), 1.5])
async def test_key_of_wrong_type_error_explains_valid_keys(tmp_path: Path, key: Any) -> None:
    said = f"a key must be a str or bytes, not {type(key).__name__}; convert it to text"
    async with asyncrec.open_sharded_writer(tmp_path / "x", on_duplicate="skip") as writer:
        with pytest.raises(TypeError, match=said):
            await writer.write(b"x", key=key)
        with pytest.raises(TypeError, match=said):
            writer.has(key)
        await writer.write(b"x", key="x")
    with blocking.open_sharded_writer(str(tmp_path / "y")) as sharded:
        with pytest.raises(TypeError, match=said):
            sharded.write(b"x", key=key)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        with pytest.raises(TypeError, match=said):
            await dataset.find(key)


@pytest.mark.parametrize("name", ["pages.tfrecord", "pages-00000-of-00004.tfrecord", "pages-00003.tfrecords.gz"])
async def test_file_path_is_rejected_as_data_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"write to .*/pages, or use open_writer to write a single file"):
        async with asyncrec.open_sharded_writer(tmp_path / name):
            raise AssertionError
    assert not list(tmp_path.iterdir())
