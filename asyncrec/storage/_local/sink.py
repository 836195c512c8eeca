"""`LocalSink`, the async side of an `UnfinishedFile`, writes a file that is not visible until it is complete.

The disk operations are in `unfinished`. They run in worker threads that are always awaited, so that neither a
descriptor nor a file remains after a cancellation. Only small chunks are copied on the event loop, if the filesystem is
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel

from asyncrec.storage._base import Buffer, ByteSink
from asyncrec.storage._local.disk import Disk, mapped_errors
from asyncrec.storage._local.unfinished import Target, UnfinishedFile, nbytes
from asyncrec.storage._sink_state import SinkState

# If the filesystem is in memory, chunks up to this size are copied on the event loop, in about 0.6 ms. Such a write
# never waits for a disk, and a thread would only compete with the loop for the GIL.
_MOST_TO_MEMORY = 2 << 20
# The smallest chunk size, for hundreds of open shards. A write of this size still takes less time than processing its
# records.
_LEAST_CHUNK = 64 << 10
_SMALL = 64 << 10
# A lock that lets only one file copy a chunk in each iteration of the loop, because the chunks of many shards fill up
# at about the same time.
_turn: anyio.lowlevel.RunVar[anyio.Lock] = anyio.lowlevel.RunVar("asyncrec_turn_to_copy")


class LocalSink(ByteSink):
    """A `ByteSink` of one local file.

    An exception leaves no file, unless a `flush` has acknowledged bytes. In that case, the unfinished file is kept,
    with at least those bytes. If asyncio's own ``task.cancel()`` arrives while a thread publishes the file, the exit
    raises `CancelledError` although the complete object exists. `published` is then set.

    Args:
        target: the object to write, and its options.
        keep: whether flushed bytes survive an exception. If not, a flush acknowledges nothing.

    Attributes:
        on_sent: called after each `send` with the number of bytes written to the file.
    """

    def __init__(self, disk: Disk, target: Target, *, chunk_size: int, keep: bool = True) -> None:
        self.chunk_size = chunk_size
        self.on_sent: Callable[[int], None] | None = None
        self._disk = disk
        self._target = target
        self._keep = keep
        self._file = UnfinishedFile(disk, target)
        self._state = SinkState(target.shown)

    async def __aenter__(self) -> LocalSink:
        with self._state.entering(), mapped_errors("writing", self._target.shown):
            if self._target.exclusive or self._target.owner is not None:
                try:
                    await self._disk.in_thread(self._begin)
                except BaseException:
                    await self._clean_up()
                    raise
        return self

    def hold_at_most(self, size: int) -> None:
        self.chunk_size = min(self.chunk_size, max(size, _LEAST_CHUNK))

    def write_behind(self, other: LocalSink, tail: Callable[[], Sequence[Buffer]]) -> None:
        """Write the unsent bytes of ``other`` to its file before each write to this one, from now on.

        ``tail`` returns these bytes. As a result, after a crash of the process, every byte of this file has its
        counterpart in the other file. The same is true after a failure, because the other unfinished file is kept if
        this one is.
        """
        self._file.write_behind(other._file, tail)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working(), mapped_errors("writing", self._target.shown):
            if self._file.in_memory and (size := sum(map(nbytes, buffers))) <= _MOST_TO_MEMORY:
                # Copying a small chunk takes less time than waiting for the file's turn, which takes one iteration of
                # the loop per file.
                if size <= _SMALL:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    size = self._file.write(buffers)
                else:
                    async with _turn_to_copy():
                        size = self._file.write(buffers)
            else:
                size = await self._disk.in_thread(self._file.write, buffers)
        if self.on_sent is not None:
            self.on_sent(size)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        if not self._keep:
            return 0
        with self._state.working(), mapped_errors("writing", self._target.shown):
            return await self._disk.in_thread(self._file.flush, tail)

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        try:
            if self._state.leave(exc):
                with mapped_errors("publishing", self._target.shown):
                    await self._disk.in_thread(self._publish)
        finally:
            await self._clean_up()

    def _begin(self) -> None:
        if self._target.exclusive:
            self._file.refuse_existing()
        if self._target.owner is not None:
            self._file.create()

    def _publish(self) -> None:
        # Set `published` in the thread, so that it is set even if the await is cancelled. Closing here saves a thread
        # hop.
        self.published = self._file.publish()
        self._file.abandon()

    async def _clean_up(self) -> None:
        if self._file.there:
            # There is no time limit, because it could not interrupt a system call.
            await self._disk.surely_in_thread(self._file.abandon)


def _turn_to_copy() -> anyio.Lock:
    lock = _turn.get(None)
    if lock is None:
        lock = anyio.Lock()
        _turn.set(lock)
    return lock
