"""`Shared` is the state shared by the sinks and sources of one storage, from the bucket to the slots for parts."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

import anyio
import anyio.lowlevel

from asyncrec.storage import TaskScope, shielded
from asyncrec.storage.http import PartBuffers, PartSlots, StreamSlots

from .bucket import Bucket
from .client import connect
from .options import Options


class Shared:
    """The resources that a storage opens on entering, for use by its sinks and sources until it exits.

    It owns the tasks that upload parts, so sinks may be opened and closed in any order, by any task. It belongs to the
    process and the event loop in which it was entered. In others, as after a fork, `check` raises an error, because the
    storage would hang.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.bucket: Bucket
        self.streams = StreamSlots(options.max_connections // 4)
        self.slots = PartSlots(options.max_concurrency, options.chunk_size)
        self.buffers = PartBuffers(options.chunk_size)
        # Threads for copies and checksums have their own limit, so that the user's blocking work cannot starve uploads.
        self.threads = anyio.CapacityLimiter(options.max_concurrency)
        self.tasks = TaskScope()
        self._stack = AsyncExitStack()
        self._owner: tuple[int, object] | None = None
        self._closed = False

    async def __aenter__(self) -> Shared:
        if self._owner is not None:
            raise RuntimeError(f"{self._shown} can only be entered once; open a new one")
        self._owner = (os.getpid(), anyio.lowlevel.current_token())
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(connect(self.options.client()))
            self.bucket = Bucket(connection, self.options)
            await stack.enter_async_context(self.tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        await self._stack.__aexit__(exc_type, exc, traceback)

    @property
    def _shown(self) -> str:
        return f"S3Storage({self.options.root!r})"

    def check(self) -> None:
        """Raise an error unless the storage can be used in this process and on this event loop.

        Raises:
            RuntimeError: the storage was opened in another process or on another event loop.
            anyio.ClosedResourceError: the storage is not open.
        """
        if self._owner is None or self._closed:
            raise anyio.ClosedResourceError(f"{self._shown} is not open")
        if self._owner[0] != os.getpid():
            raise RuntimeError(
                f"{self._shown} was opened before a fork, and its connections cannot be used in this process; open "
                "another storage"
            )
        if self._owner[1] != anyio.lowlevel.current_token():
            raise RuntimeError(f"{self._shown} was opened on another event loop; open a separate one on each loop")

    async def settle(self, job: Callable[[], Awaitable[None]], *, limit: float = math.inf) -> None:
        """Run ``job`` in a task of this storage, and wait until it has ended even if the caller is interrupted.

        If the caller is cancelled, the job is cancelled after ``limit`` seconds, or earlier, one second after a
        writer's ``exit_timeout`` has expired. ``job`` must handle its own errors. An interruption of the caller is
        raised afterwards. A scope's cancellation is not, because the next await raises it.
        """
        done = anyio.Event()
        shelter = anyio.CancelScope(shield=True)

        async def run() -> None:
            try:
                with shelter:
                    await job()
            finally:
                done.set()

        self.tasks.start_soon(run)
        interruption: BaseException | None = None
        interrupted = False
        while not done.is_set():
            try:
                if not interrupted:
                    await done.wait()
                    continue
                with shielded(limit):
                    await done.wait()
                shelter.cancel()  # has no effect if the job has ended
                with anyio.CancelScope(shield=True):
                    await done.wait()
            except BaseException as error:
                # asyncio's own cancellation ignores shields.
                if interrupted or anyio.current_effective_deadline() > -math.inf:
                    interruption = error
                interrupted = True
        if interruption is not None:
            raise interruption
