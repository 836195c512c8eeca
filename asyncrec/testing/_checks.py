"""Helpers that generate, send, receive and compare content for the checks of sinks and sources.

They raise `AssertionError` with the expected value, and do not need pytest.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import crc32c

from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo

Read = Callable[[str], Awaitable[bytes | None]]


def content(size: int, seed: int = 0) -> bytes:
    """Return ``size`` pseudorandom bytes, determined by ``size`` and ``seed``."""
    return random.Random(f"{seed}/{size}").randbytes(size)


def pieces(chunk: Buffer) -> list[Buffer]:
    """Split ``chunk`` into up to three buffers of different lengths and types, which a sink must join."""
    view = memoryview(chunk)
    cuts = (0, len(view) // 5, len(view) // 2, len(view))
    kinds: Sequence[Callable[[memoryview], Buffer]] = (bytes, bytearray, memoryview)
    return [kind(view[a:b]) for kind, a, b in zip(kinds, cuts, cuts[1:], strict=False) if a < b]


async def send_all(sink: ByteSink, data: Buffer) -> None:
    """Send ``data`` as the contract requires, in chunks of the sink's `chunk_size`, which may change with each call."""
    view = memoryview(data)
    while view:
        size = sink.chunk_size
        await sink.send(pieces(view[:size]))
        view = view[size:]


async def receive_all(source: ByteSource, max_bytes: int = 1 << 18) -> bytes:
    """Return the rest of ``source``. Check that no call returns more than ``max_bytes``, or any bytes after the end."""
    blocks = []
    while block := await source.receive(max_bytes):
        assert len(block) <= max_bytes, f"receive({max_bytes}) returned {len(block)} bytes"
        blocks.append(block)
    assert await source.receive(max_bytes) == b"", "receive returned bytes again after the end"
    return b"".join(blocks)


def check_info(info: ObjectInfo, key: str, data: bytes) -> None:
    """Check that ``info`` describes ``data`` under ``key``."""
    assert info.key == key, f"info of {key!r} has the key {info.key!r}"
    assert info.size == len(data), f"{key}: info.size is {info.size}, the object has {len(data)} bytes"
    assert info.etag, f"{key}: the etag is empty"
    right = crc32c.crc32c(data)
    assert info.crc32c in (None, right), f"{key}: info.crc32c is {info.crc32c}, but the CRC32C of the data is {right}"
    assert info.modified.tzinfo is not None, f"{key}: info.modified has no time zone"


def check_equal(got: bytes | None, expected: bytes | None, what: str) -> None:
    if got == expected:
        return
    if got is None or expected is None:
        raise AssertionError(f"{what}: {'nothing is there' if got is None else 'an object is there'}")
    at = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected)))
    raise AssertionError(f"{what}: got {len(got)} bytes, expected {len(expected)}; they differ from byte {at} on")
