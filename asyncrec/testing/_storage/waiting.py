"""Cases for operations that wait for the store. Other tasks must run during the wait, which must be cancellable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress

import anyio
import anyio.lowlevel

from asyncrec.storage._base import Storage
from asyncrec.storage._other_loop import on_asyncio
from asyncrec.testing._checks import content, pieces
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, chunk_of, keys_of

# The delay of each response in seconds. A busy machine rarely blocks a task for this long.
_SLOW_SECONDS = 0.2
# A blocked loop or a delayed cancellation is reported only if it occurs in every attempt, because a busy machine does
# not delay them all.
_ATTEMPTS = 5


class WaitingCases(StorageHooks):
    """The case for a slow store."""

    async def test_loop_not_blocked(self) -> None:
        """While an operation awaits the store's response, other tasks run. Blocking calls must be made in a thread.

        Skipped if `slowed` returns `None`.
        """
        async with self.open_storage() as storage:
            if self.slowed(storage, 0.0) is None:
                nothing_to_try("slowed returns None, so the case cannot check whether the event loop is blocked")
            await storage.put("w/there", b"x")
            operations: Mapping[str, Callable[[], Awaitable[object]]] = {
                "put": lambda: storage.put("w/new", b"x"),
                "get": lambda: storage.get("w/there"),
                "head": lambda: storage.head("w/there"),
                "list_objects": lambda: keys_of(storage, "w/"),
                "delete": lambda: storage.delete("w/new"),
            }
            for name, operation in operations.items():
                held = 0.0
                for _ in range(_ATTEMPTS):
                    held = await self._held(storage, name, operation)
                    if held < 0.9 * _SLOW_SECONDS:
                        break
                else:
                    raise AssertionError(f"{name} blocked the event loop for {held:.2f} s while the store was slow")

    async def _held(self, storage: Storage, name: str, operation: Callable[[], Awaitable[object]]) -> float:
        """Return the longest time, in seconds, during which no other task ran."""
        longest, last = 0.0, time.perf_counter()

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await anyio.sleep(0.005)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        slow = self.slowed(storage, _SLOW_SECONDS)
        assert slow is not None, "slowed returned a context in one call and None in another"
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            begun, virtual = last, anyio.current_time()
            with slow:
                await operation()
            ended = time.perf_counter()
            took = max(ended - begun, anyio.current_time() - virtual)
            longest = max(longest, ended - last)
            group.cancel_scope.cancel()
        assert took >= 0.9 * _SLOW_SECONDS, f"{name} took {took:.2f} s: slowed delayed none of its requests"
        return longest


# In seconds: the delay of each response, the time until the operation is cancelled, and the time within which it must
# then end. An operation that shields its request takes longer.
_LATE_SECONDS = 0.35
_CANCELLED_AFTER = 0.05
_HELD_UP_SECONDS = 0.15
# The delay of each response if requests cannot be cancelled. In that case, the time at which the operation ends is not
# checked.
_AWAITED_SECONDS = 0.1

Operation = Callable[["_Part"], Awaitable[object]]
SCOPE, TASK = "a cancel scope", "asyncio's task.cancel()"


class CancellingCases(StorageHooks):
    """The case for a caller that is cancelled while it waits for the store."""

    cancellable_requests: bool = True
    """Whether a sent request can be abandoned. Set this to `False`, and explain why, if requests run in threads."""

    async def test_waiting_call_cancellable(self) -> None:
        """An operation that awaits a response can be cancelled through a cancel scope or, on asyncio, through its task.

        An operation that publishes may defer the cancellation to the next await (`asyncrec.storage.sheltered`). Skipped
        if `slowed` returns `None`.
        """
        async with self.open_storage() as storage:
            if self.slowed(storage, 0.0) is None:
                nothing_to_try("slowed returns None, so the case cannot check whether a waiting call can be cancelled")
            chunk = content(await chunk_of(storage))
            await storage.put("c/there", b"x")

            async def send(part: _Part) -> None:
                with suppress(_Stop):
                    async with storage.open_sink("c/sent") as sink:
                        await sink.send(pieces(chunk))  # may begin the upload; the next send is one part
                        await part.run(lambda: sink.send(pieces(content(sink.chunk_size, seed=2))))
                        raise _Stop

            operations: Mapping[str, Operation] = {
                "head": lambda part: part.run(lambda: storage.head("c/there")),
                "get": lambda part: part.run(lambda: storage.get("c/there")),
                "list_objects": lambda part: part.run(lambda: keys_of(storage, "c/")),
                "send": send,
                "put": lambda part: part.run(lambda: storage.put("c/new", b"new")),
            }
            for how in (SCOPE, TASK) if on_asyncio() else (SCOPE,):
                for name, operation in operations.items():
                    await self._try(storage, name, operation, how)
                    assert await self.raw_get(storage, "c/sent") is None, (
                        "an object exists although its send was cancelled"
                    )
                    assert await self.raw_get(storage, "c/new") in (None, b"new"), (
                        "a cancelled put left an object with other data"
                    )
                    left = await self.raw_unfinished(storage)
                    assert not left, f"left behind when {name} was cancelled by {how}: {sorted(left)}"

    async def _try(self, storage: Storage, name: str, operation: Operation, how: str) -> None:
        for _ in range(_ATTEMPTS):
            slow = self.slowed(storage, _LATE_SECONDS if self.cancellable_requests else _AWAITED_SECONDS)
            assert slow is not None, "slowed returned a context in one call and None in another"
            part = _Part(slow)
            try:
                await part.interrupted(operation, how)
            except Exception as error:
                error.add_note(f"raised by {name} when it was cancelled by {how}, instead of the cancellation")
                raise
            assert not part.went_on, (
                f"{name} was cancelled by {how}, but its caller continued: the cancellation was swallowed. "
                "Raise it again; to delay it, use `asyncrec.storage.sheltered`"
            )
            if part.late < _HELD_UP_SECONDS or name == "put" or not self.cancellable_requests:
                return
        raise AssertionError(
            f"{name} delayed its caller's cancellation, by {how}, for {part.late:.2f} s: it waited for a response "
            f"that took {_LATE_SECONDS:g} s. If requests cannot be cancelled, set `cancellable_requests = False` in "
            "the tests"
        )


class _Stop(Exception):
    """An error that makes a sink exit without publishing."""


class _Part:
    """The call within an operation that is to be cancelled, and how it reacted to the cancellation."""

    def __init__(self, slow: AbstractContextManager[object]) -> None:
        self.went_on = False
        """Whether the caller continued because neither the call nor the await after it raised the cancellation."""
        self.late = 0.0
        """The seconds from the cancellation to the end of the call."""
        self._slow = slow
        self._begun = anyio.Event()
        self._ended = False
        self._asked_at: float | None = None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await the call while the store is slow, then wait once more so that a deferred cancellation is raised."""
        self._begun.set()
        try:
            with self._slow:
                await call()
        finally:
            self._ended = True
            if self._asked_at is not None:
                self.late = time.perf_counter() - self._asked_at
        await anyio.lowlevel.checkpoint()
        self.went_on = self._asked_at is not None

    async def interrupted(self, operation: Operation, how: str) -> None:
        """Run the operation and cancel it while `run` waits. Raise its error unless it is the cancellation."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            try:
                if how == TASK:
                    task = asyncio.ensure_future(operation(self))
                    group.start_soon(self._ask, task.cancel)
                    try:
                        await asyncio.wait([task])
                    finally:
                        task.cancel()  # in case the test itself is cancelled
                    if not task.cancelled():
                        task.result()
                else:
                    with anyio.CancelScope() as scope:
                        group.start_soon(self._ask, scope.cancel)
                        await operation(self)
            except Exception as error:
                failed = error
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _ask(self, cancel: Callable[[], object]) -> None:
        await self._begun.wait()
        await anyio.sleep(_CANCELLED_AFTER)
        if not self._ended:
            self._asked_at = time.perf_counter()
            cancel()
