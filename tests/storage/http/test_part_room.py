"""Memory for parts that are being uploaded is reused, and is not touched until a part is copied into it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
from crc32c import crc32c

from asyncrec.storage.http import PartBuffers, fill_part

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def address(view: memoryview) -> int:
    return id(view.obj)


def test_returned_buffer_is_reused_while_others_are_in_use() -> None:
    buffers = PartBuffers(MIB)
    first, second = buffers.take(MIB), buffers.take(10)
    assert (len(first), len(second)) == (MIB, 10)
    buffers.give(second, reusable=True)
    assert address(buffers.take(MIB)) == address(second)


def test_possibly_still_sending_buffer_is_not_reused() -> None:
    buffers = PartBuffers(MIB)
    out, broken = buffers.take(MIB), buffers.take(MIB)
    buffers.give(broken, reusable=False)
    assert address(buffers.take(MIB)) not in (address(broken), address(out))


def test_last_returned_buffer_is_not_kept() -> None:
    buffers = PartBuffers(MIB)
    view = buffers.take(MIB)
    buffers.give(view, reusable=True)
    assert address(buffers.take(MIB)) != address(view)


def test_oversized_buffer_is_not_reused() -> None:
    buffers = PartBuffers(MIB)
    small, large = buffers.take(MIB), buffers.take(3 * MIB)
    assert len(large) == 3 * MIB
    buffers.give(large, reusable=True)
    assert address(buffers.take(MIB)) not in (address(large), address(small))


@pytest.mark.parametrize("size", [8, 2 * MIB])
async def test_part_equals_copied_bytes(size: int) -> None:
    rest = memoryview(bytes(range(256)) * (size // 256 + 1))[: size - 3]
    part = PartBuffers(size).take(size)
    checksum = await fill_part(part, [b"one", b"", bytearray(rest[:1]), rest[1:]], crc32c(b"before"))
    assert bytes(part) == b"one" + bytes(rest)
    assert checksum == crc32c(b"beforeone" + bytes(rest))
    assert await fill_part(part, [part], None) is None


async def test_event_loop_runs_during_copy_of_part() -> None:
    """The copying thread must release the GIL itself: the switch interval is so long that it is never forced to."""
    turns, copied = 0, False
    data, part = bytes(16 * MIB), PartBuffers(16 * MIB).take(16 * MIB)

    class Pieces(list[bytes]):
        turns_meanwhile = 0

        def __iter__(self) -> Iterator[bytes]:
            before = turns
            yield from super().__iter__()
            self.turns_meanwhile = turns - before

    async def turn() -> None:
        nonlocal turns
        while not copied:
            turns += 1
            await anyio.lowlevel.checkpoint()

    pieces, interval = Pieces([data]), sys.getswitchinterval()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        sys.setswitchinterval(1000)
        try:
            for _ in range(200):  # on a busy machine, the loop may not wake up in time
                await fill_part(part, pieces, None)
                if pieces.turns_meanwhile:
                    break
        finally:
            sys.setswitchinterval(interval)
            copied = True
    assert pieces.turns_meanwhile


def test_part_buffer_allocation_touches_no_memory() -> None:
    """Otherwise the kernel would clear the memory while it is allocated on the event loop, and block the loop."""
    # This runs in its own process, where nothing else allocates or frees memory. It measures current rather than peak
    # memory, because on Linux the peak includes the memory of the parent process.
    program = (
        "import psutil\n"
        "from asyncrec.storage.http._parts import PartBuffers\n"
        "held = lambda: psutil.Process().memory_info().rss\n"
        "buffers, before = PartBuffers(64 << 20), held()\n"
        "parts = [buffers.take(64 << 20) for _ in range(4)]\n"
        "taken = held()\n"
        "for part in parts:\n"
        "    part[::4096] = bytes(len(part) // 4096)\n"
        "print(taken - before, held() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    taken, touched = map(int, run.stdout.split())
    assert touched > 0
    assert taken < touched / 8
