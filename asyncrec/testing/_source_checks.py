"""Checks of a `ByteSource`, without pytest. `StorageConformance` runs the same checks.

Each check takes a function that opens a source of one object, and the content of that object. The check raises
`AssertionError` with the expected result, or the source's own error.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio

from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.testing._cancellation import cancel_at_checkpoint
from asyncrec.testing._checks import check_equal, receive_all


class OpenSource(Protocol):
    """A function like `Storage.open_source`, but without the key, because it always opens the same object."""

    def __call__(
        self, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]: ...


async def check_source(open_source: OpenSource, expected: bytes) -> None:
    """Check the complete contract of a `ByteSource`. The content, ``expected``, must have at least 1,000 bytes."""
    await check_ranges(open_source, expected)
    await check_short_reads(open_source, expected)
    await check_receive_cancelled(open_source, expected)
    await check_closed_source(open_source)


async def check_ranges(open_source: OpenSource, expected: bytes) -> None:
    """Check that each range returns its bytes, even if the range is empty or extends past the end of the object.

    Also check that `receive` never returns more bytes than requested.
    """
    size = len(expected)
    assert size >= 1_000, "check_source needs an object of at least 1,000 bytes"
    ranges: list[tuple[int, int | None]] = [
        (0, None), (0, size), (0, 1), (0, size + 1_000), (1, 2), (17, 519), (size // 2, None), (size - 1, None),
        (size - 1, size), (size - 10, size + 10), (0, 0), (5, 5), (size, None), (size, size), (size, size + 1),
        (size + 1, None), (size + 1_000, size + 2_000),
    ]  # fmt: skip
    for start, end in ranges:
        async with open_source(start=start, end=end) as source:
            assert source.info.size == size, (
                f"[{start}, {end}): info.size is {source.info.size}, not the object's {size}"
            )
            check_equal(await receive_all(source), expected[start:end], f"the range [{start}, {end}) of {size} bytes")
    async with open_source(end=100) as source:
        check_equal(await receive_all(source, max_bytes=7), expected[:100], "the range [0, 100) in answers of 7 bytes")
    async with open_source() as source:
        first = await source.receive(10)
        assert 1 <= len(first) <= 10, f"receive(10) returned {len(first)} bytes"
    async with open_source(info=source.info) as pinned:
        check_equal(await receive_all(pinned), expected, "the object opened by its own etag")


async def check_short_reads(open_source: OpenSource, expected: bytes) -> None:
    """Check that receives of different sizes return every byte once, and ``b""`` only at the end."""
    size = len(expected)
    for start, sizes in ((0, (1, 64 << 10, 7, 1 << 20, size // 3 + 1)), (size // 2, (size, 3)), (size - 20, (1,))):
        got = bytearray()
        async with open_source(start=start) as source:
            for n in range(size):
                asked = sizes[n % len(sizes)]
                block = await source.receive(asked)
                assert len(block) <= asked, f"receive({asked}) returned {len(block)} bytes"
                if not block:
                    break
                got += block
            assert await source.receive(1) == b"", "receive returned bytes again after the end"
        check_equal(bytes(got), expected[start:], f"the data from byte {start} on, requested in pieces of {sizes}")


async def check_receive_cancelled(open_source: OpenSource, expected: bytes) -> None:
    """Check that a cancelled `receive` loses no bytes, because the next receive returns the same bytes."""
    for n in range(1, 1_000):
        async with open_source() as source:
            got = await source.receive(100)
            kept = [got]

            async def receive(source: ByteSource = source, kept: list[bytes] = kept) -> None:
                kept.append(await source.receive(100))

            reached = await cancel_at_checkpoint(receive, n)
            kept.append(await receive_all(source))
        check_equal(b"".join(kept), expected, f"an object whose second receive was cancelled at checkpoint {n}")
        if not reached:
            return
    raise AssertionError("receive(100) is still waiting after 1,000 awaits")


async def check_closed_source(open_source: OpenSource) -> None:
    """Check that `receive` raises `ClosedResourceError` outside the context, which may exit before the end is read."""
    opening = open_source()
    if isinstance(opening, ByteSource):  # the source is its own context manager
        await _check_refusal(opening, "before the context was entered")
    async with opening as source:
        await source.receive(1)
    await _check_refusal(source, "after the context exited")


async def _check_refusal(source: ByteSource, when: str) -> None:
    try:
        await source.receive(1)
    except anyio.ClosedResourceError:
        return
    raise AssertionError(f"receive {when} did not raise ClosedResourceError")
