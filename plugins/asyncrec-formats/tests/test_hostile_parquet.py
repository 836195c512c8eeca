"""A Parquet file made to exhaust memory uses no more than a few times the size allowed for a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asyncrec_formats.parquet_pages import pages_of
from asyncrec_formats.parquet_rows import rows_of

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Install an Arrow memory pool that knows pyarrow's peak memory."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    told = {"compression": "zstd", "use_dictionary": False, "row_group_size": 1 << 24, **options}
    pq.write_table(pa.table(columns), path, **told)
    return path


def converted(path: Path, most: int) -> tuple[int, list[str]]:
    records, bad = 0, []
    for found in rows_of(str(path), "x", most):
        records += len(found.records)
        bad += [f"{each.where}: {each.reason}" for each in found.bad]
    return records, bad


def varint(value: int) -> bytes:
    """Encode an integer as Thrift does."""
    value <<= 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@pytest.mark.parametrize("lies", [False, True])
def test_oversized_inflated_page_is_rejected_within_memory_limit(
    tmp_path: Path, pool: pa.MemoryPool, lies: bool
) -> None:
    values = pa.array([bytes(MIB)] * 64)
    path = write(tmp_path / "x", {"a": values}, data_page_size=1 << 30, write_batch_size=64)
    if lies:
        size = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
        content = path.read_bytes()
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        true = varint(size)
        small = varint(100)
        padded = bytes([*small[:-1], small[-1] | 0x80, *[0x80] * (len(true) - len(small) - 1), 0])
        assert true in content[footer:]
        path.write_bytes(content[:footer] + content[footer:].replace(true, padded))
        assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 100
    held = pool.max_memory()
    records, bad = converted(path, 16 * MIB)
    assert records == 0
    assert len(bad) == 1
    assert bad[0].startswith("rows 1 to 64: ")
    assert "data_page_size" in bad[0]
    assert pool.max_memory() - held < 4 * MIB
    assert converted(path, 128 * MIB) == (64, [])


@pytest.mark.parametrize("options", [{}, {"use_dictionary": True}, {"data_page_version": "2.0"}])
def test_reader_accepts_highly_compressed_uniform_columns(tmp_path: Path, options: Any) -> None:
    columns = {"n": [7] * 50_000, "t": ["the same text"] * 50_000, "z": [0.5] * 50_000}
    path = write(tmp_path / "x", columns, **options)
    assert converted(path, 256 * MIB) == (50_000, [])


def test_reader_bounds_memory_for_uneven_rows(tmp_path: Path, pool: pa.MemoryPool) -> None:
    values = pa.array([bytes(MIB)] * 100 + [b"x"] * 40_000)
    path = write(tmp_path / "x", {"a": values}, data_page_size=MIB, write_batch_size=1)
    del values
    held = pool.bytes_allocated()
    peak = 0
    for found in rows_of(str(path), "x", 16 * MIB):
        assert not found.bad
        peak = max(peak, pool.bytes_allocated() - held)
    assert peak < 48 * MIB


@pytest.mark.slow
def test_prefix_compressed_values_count_at_full_size(tmp_path: Path, pool: pa.MemoryPool) -> None:
    """The page has one MiB, but its values have one GiB."""
    values = pa.array([b"x" * MIB] * 1000, pa.large_binary())
    path = write(tmp_path / "x", {"a": values}, column_encoding={"a": "DELTA_BYTE_ARRAY"}, write_batch_size=1000)
    with pq.ParquetFile(path) as opened, open(path, "rb") as content:
        pages = pages_of(content, opened.metadata.row_group(0).column(0))
    assert pages.prefixed
    assert pages.inflated < 2 * MIB
    del values
    held = pool.bytes_allocated()
    peak = records = 0
    for found in rows_of(str(path), "x", 16 * MIB):
        records += len(found.records)
        peak = max(peak, pool.bytes_allocated() - held)
    assert records == 1000
    assert peak < 64 * MIB


def test_reader_rejects_columns_larger_than_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {"a": list(range(1000))})
    size = pq.read_metadata(path).row_group(0).column(0).total_compressed_size
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    more = varint(2 * len(content))
    assert len(more) == len(varint(size))
    path.write_bytes(content[:footer] + content[footer:].replace(varint(size), more))
    assert converted(path, MIB) == (
        0,
        ["row 1: the rest cannot be read: the columns would take more bytes than the file has"],
    )


def test_page_headers_match_sizes_written_by_pyarrow(tmp_path: Path) -> None:
    columns = {"n": list(range(50_000)), "t": [f"text {n % 100}" for n in range(50_000)], "l": [[1, 2]] * 50_000}
    for options in ({"use_dictionary": True}, {"data_page_version": "2.0", "write_page_checksum": True}):
        path = write(tmp_path / "x", columns, data_page_size=10_000, **options)
        with pq.ParquetFile(path) as opened, open(path, "rb") as content:
            for number in range(3):
                chunk = opened.metadata.row_group(0).column(number)
                pages = pages_of(content, chunk)
                assert pages.largest <= pages.inflated <= chunk.total_uncompressed_size
                assert pages.inflated > 0.9 * chunk.total_uncompressed_size
