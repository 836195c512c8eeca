"""`ChunkWriter`: how it splits written buffers into chunks, and what it does after failures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage._base import Buffer, ByteSink
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


class Sink(ByteSink):
    """A sink that keeps each chunk, can be told to fail, and can change its chunk size."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.chunks: list[bytes] = []
        self.lists: list[int] = []
        self.tails: list[bytes] = []
        self.fail: BaseException | None = None
        self.durable = 0

    @property
    def chunk_size(self) -> int:  # type: ignore[override]  # read before each chunk
        return self.sizes[min(len(self.chunks), len(self.sizes) - 1)]

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await anyio.lowlevel.checkpoint()
        if self.fail is not None:
            raise self.fail
        self.lists.append(len(buffers))
        self.chunks.append(b"".join(buffers))

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        self.tails.append(b"".join(tail))
        return self.durable


def run(data: list[bytes], calls: int, *sizes: int) -> Sink:
    sink = Sink(*sizes)

    async def write() -> None:
        chunks = ChunkWriter(sink)
        step = max(1, -(-len(data) // calls))
        for first in range(0, len(data), step):
            await chunks.write(data[first : first + step])
            assert chunks._held_size == sum(map(len, chunks._held)) < sink.chunk_size
        await chunks.finish()
        assert chunks.size == sum(map(len, data))
        assert chunks.crc32c == crc32c(b"".join(data))

    anyio.run(write)
    return sink


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9_000).map(lambda n: bytes(n % 251 for n in range(n))), max_size=30),
    st.integers(1, 5),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=4),
)
def test_chunks_have_exact_sizes_for_any_input(data: list[bytes], calls: int, sizes: list[int]) -> None:
    """Each chunk has the size requested before it, the last has the remainder, and together they equal the input."""
    sizes = [max(size, sum(map(len, data)) // 200 + 1) for size in sizes]  # no more than a few hundred chunks
    sink = run(data, calls, *sizes)
    assert b"".join(sink.chunks) == b"".join(data)
    expected = [sizes[min(n, len(sizes) - 1)] for n in range(len(sink.chunks))]
    assert [len(chunk) for chunk in sink.chunks[:-1]] == expected[:-1]
    assert all(0 < len(chunk) <= size for chunk, size in zip(sink.chunks, expected, strict=True))


async def test_buffers_of_any_kind_are_measured_in_bytes() -> None:
    sink = Sink(10_000)
    chunks = ChunkWriter(sink)
    numbers = np.arange(2_500, dtype="<i4")
    await chunks.write([memoryview(numbers), bytearray(b"xyz"), memoryview(b"uvw"), b""])
    assert chunks.size == 10_006
    await chunks.finish()
    assert b"".join(sink.chunks) == numbers.tobytes() + b"xyzuvw"
    assert [len(chunk) for chunk in sink.chunks] == [10_000, 6]


async def test_large_buffers_are_not_copied_and_tiny_buffers_joined() -> None:
    sink = Sink(1 << 20)
    chunks = ChunkWriter(sink)
    await chunks.write([bytes(100_000)] * 10)
    await chunks.write([b"tiny"] * 10_000)
    assert len(chunks._held) == 11
    assert all(held is chunks._held[0] for held in chunks._held[:10])


async def test_chunk_remainder_does_not_keep_long_buffer_alive() -> None:
    class Large(bytearray):
        pass

    sink = Sink(1 << 20)
    chunks = ChunkWriter(sink)
    large = Large(3 << 20)
    alive = weakref.ref(large)
    await chunks.write([memoryview(large)[: (1 << 20) + 300_000]])
    del large
    gc.collect()
    assert alive() is None
    assert chunks._held_size == 300_000


async def test_large_write_checksum_in_thread_matches_crc32c() -> None:
    data = np.random.default_rng(1).bytes(5 << 20)
    chunks = ChunkWriter(Sink(8 << 20))
    await chunks.write([data[:17], data[17:]])
    assert chunks.crc32c == crc32c(data)


async def test_flush_offers_tail_and_returns_durable_byte_count() -> None:
    sink = Sink(1_000)
    chunks = ChunkWriter(sink)
    assert await chunks.flush() == 0
    await chunks.write([bytes(2_300)])
    assert await chunks.flush() == 2_000
    sink.durable = 256
    assert await chunks.flush() == 2_256
    assert sink.tails == [b"", bytes(300), bytes(300)]
    await chunks.write([bytes(900)])
    await chunks.finish()
    assert [len(chunk) for chunk in sink.chunks] == [1_000, 1_000, 1_000, 200]


async def test_empty_writes_send_no_chunks() -> None:
    sink = Sink(1_000)
    chunks = ChunkWriter(sink)
    await chunks.write([])
    await chunks.write([b""])
    await chunks.finish()
    await chunks.finish()
    assert sink.chunks == []
    assert (chunks.size, chunks.crc32c) == (0, 0)


async def test_chunk_writer_is_closed_after_finish() -> None:
    chunks = ChunkWriter(Sink(1_000))
    await chunks.finish()
    with pytest.raises(anyio.ClosedResourceError):
        await chunks.write([b"x"])
    with pytest.raises(anyio.ClosedResourceError):
        await chunks.flush()


async def test_failed_chunk_writer_repeats_error_in_every_call() -> None:
    sink = Sink(1_000)
    chunks = ChunkWriter(sink)
    sink.fail = TransientStorageError("gone")
    with pytest.raises(TransientStorageError, match="gone"):
        await chunks.write([bytes(1_500)])
    sink.fail = None
    for call in (chunks.flush, chunks.finish, lambda: chunks.write([b""])):
        with pytest.raises(TransientStorageError, match="gone"):
            await call()
    assert sink.chunks == []


async def test_cancelled_chunk_writer_reports_cancellation_in_later_calls() -> None:
    sink = Sink(1_000)
    chunks = ChunkWriter(sink)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await chunks.write([bytes(1_500)])
    assert scope.cancelled_caught
    with pytest.raises(
        StorageError, match="an earlier write was cancelled, so the object can only be abandoned; write it again"
    ):
        await chunks.finish()


async def test_sizes_around_chunk_size_round_trip_through_store() -> None:
    storage = MemoryStorage(chunk_size=1 << 20)
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, (3 << 20) + 1, (3 << 20) - 1):
        data = np.random.default_rng(size).bytes(size)
        async with storage.open_sink("x") as sink:
            chunks = ChunkWriter(sink)
            for first in range(0, size, 300_001):
                await chunks.write([memoryview(data)[first : first + 300_001]])
            await chunks.finish()
        assert await storage.get("x") == data
        assert sink.published is not None
        assert sink.published.crc32c == chunks.crc32c
