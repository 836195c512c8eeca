"""The parts of an upload in transit.

`PartTasks` sends the parts, `PartSlots` limits their number, and `PartBuffers` and `fill_part` provide their memory.

Memory for parts is mapped rather than allocated by the C library, which would retain freed memory for each worker
thread, and fragment it: with four parts of 8 MiB in transit, a process grew by 75 to 100 MiB. Such memory would also
have to be cleared before the copy, which takes 5 ms on the event loop.
"""

from __future__ import annotations

import mmap
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec.storage._base import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ON_LOOP = 1 << 20  # copying this much takes a few tenths of a millisecond


class PartSlots:
    """Slots for parts in transit, shared by all sinks of a storage. A slot is for one chunk.

    A larger part occupies a slot for each chunk of its length, up to the total number of slots.
    """

    def __init__(self, count: int, chunk_size: int) -> None:
        self._count = count
        self._chunk = chunk_size
        self._free = anyio.Semaphore(count)
        # Only one caller acquires slots at a time, because two callers with half of the slots each would deadlock.
        self._turn = anyio.Lock()

    @property
    def waiting(self) -> bool:
        """Whether a caller is waiting for slots."""
        return self._turn.statistics().locked

    def of(self, size: int) -> int:
        """Return the number of slots that a part of ``size`` bytes occupies."""
        return min(self._count, -(-size // self._chunk))

    async def acquire(self, slots: int) -> None:
        """Acquire slots, waiting until enough are free. If cancelled, acquire none."""
        async with self._turn:
            taken = 0
            try:
                while taken < slots:
                    await self._free.acquire()
                    taken += 1
            except BaseException:
                self.release(taken)
                raise

    def release(self, slots: int) -> None:
        for _ in range(slots):
            self._free.release()


class PartBuffers:
    """A pool of buffers for parts. It never contains more buffers than there are parts in transit.

    Args:
        size: the size of each buffer in bytes. Larger buffers are not kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[mmap.mmap] = []
        self._out = 0

    def take(self, size: int) -> memoryview:
        """Return ``size`` bytes of memory, with undefined content."""
        self._out += 1
        if size > self._size:
            return memoryview(_mapped(size))
        return memoryview(self._free.pop() if self._free else _mapped(self._size))[:size]

    def give(self, view: memoryview, *, reusable: bool) -> None:
        """Return a buffer to the pool. A buffer is not ``reusable`` if a broken connection may still send from it."""
        self._out -= 1
        buffer = view.obj
        if reusable and isinstance(buffer, mmap.mmap) and len(buffer) == self._size:
            self._free.append(buffer)
        if not self._out:
            self._free.clear()


def _mapped(size: int) -> mmap.mmap:
    """Map private memory. Pages are allocated when they are first written, not by this call."""
    # The mapping is private because a forked process would otherwise share the memory.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # Linux only, and not in every kernel
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


async def fill_part(
    into: bytearray | memoryview,
    buffers: Sequence[Buffer],
    checksum: int | None,
    *,
    limiter: anyio.CapacityLimiter | None = None,
) -> int | None:
    """Copy a chunk into memory of its length, and return its checksum. Copy a chunk above 1 MiB in a thread.

    If cancelled, raise only after the copy has ended, so that the caller may reuse the memory.

    Args:
        checksum: the CRC32C of the preceding bytes, with which the computation continues; `None` for no checksum.
        limiter: the limiter for the thread; by default, the event loop's.
    """
    if len(into) <= _ON_LOOP:
        await anyio.lowlevel.checkpoint()
        return _fill(_bytes_of, into, buffers, checksum)
    return await in_thread(_fill, _array_of, into, buffers, checksum, limiter=limiter)


def _fill(view: Callable[[Buffer], Any], into: Buffer, buffers: Sequence[Buffer], checksum: int | None) -> int | None:
    part, end = view(into), 0
    for buffer in buffers:
        piece = view(buffer)
        begin, end = end, end + len(piece)
        part[begin:end] = piece
    return None if checksum is None else crc32c(into, checksum)


def _bytes_of(buffer: Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


def _array_of(buffer: Buffer) -> NDArray[np.uint8]:
    # NumPy releases the GIL while it copies. Copying through a memoryview does not, and blocked the event loop for 5 to
    # 20 ms while the kernel allocated the memory.
    return np.frombuffer(buffer, np.uint8)


class PartTasks:
    """The tasks of one upload. The first task that fails cancels the others, and its error is stored.

    Args:
        scope: the storage's scope, in which the tasks run.
        release: called with the number of slots of a task that has ended.

    Attributes:
        cancelled: whether `cancel` has been called.
    """

    def __init__(self, scope: TaskScope, release: Callable[[int], None]) -> None:
        self._scope = scope
        self._release = release
        self._error: Exception | None = None
        self.cancelled = False
        self._running = 0
        self._idle = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()

    def start(self, job: Callable[[], Awaitable[None]], slots: int) -> None:
        """Run ``job`` in a task, and release its slots when the task ends."""
        if not self._running:
            self._idle = anyio.Event()
        self._running += 1
        self._scope.start_soon(self._run, job, slots)

    def check(self) -> None:
        """Raise the error of the first task that failed, if any."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait until no task is running."""
        while self._running:
            await self._idle.wait()

    def cancel(self) -> None:
        """Cancel the running tasks, and all tasks that are started later."""
        self.cancelled = True
        for scope in list(self._scopes):
            scope.cancel()

    async def _run(self, job: Callable[[], Awaitable[None]], slots: int) -> None:
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        if self.cancelled or self._error is not None:
            scope.cancel()
        try:
            with scope:
                await job()
        except Exception as error:
            self._error = self._error or error
            for other in self._scopes - {scope}:
                other.cancel()
        finally:
            self._scopes.discard(scope)
            self._release(slots)
            self._running -= 1
            if not self._running:
                self._idle.set()
