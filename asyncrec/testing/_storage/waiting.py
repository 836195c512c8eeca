"""Cases about an operation that waits for the store: other tasks go on, and it can be cancelled."""

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

# How late each answer is: long enough that a busy machine, which holds up every task now and then, does so less often.
_SLOW_SECONDS = 0.2
# The loop counts as held, and a cancellation as held up, if it was each time. A busy machine does not do so each time.
_ATTEMPTS = 5


class WaitingCases(StorageHooks):
    """The case of a store that takes its time."""

    async def test_the_loop_is_not_held(self) -> None:
        """While an answer of the store is awaited, other tasks run: what blocks is called in a thread.

        Of stores whose tests cannot make the store slow, `slowed` says so, and nothing is tried.
        """
        async with self.open_storage() as storage:
            if self.slowed(storage, 0.0) is None:
                nothing_to_try("slowed returns None, so it cannot be checked whether the event loop is held")
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
                    raise AssertionError(f"{name} held the event loop for {held:.2f} s while the store was slow")

    async def _held(self, storage: Storage, name: str, operation: Callable[[], Awaitable[object]]) -> float:
        """Return the longest time in seconds for which no other task ran."""
        longest, last = 0.0, time.perf_counter()

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await anyio.sleep(0.005)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        slow = self.slowed(storage, _SLOW_SECONDS)
        assert slow is not None, "slowed returned a context once and None another time"
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


# How late each answer is, when it is cancelled, and how much later it may then end: a shielded request ends later yet.
_LATE_SECONDS = 0.35
_CANCELLED_AFTER = 0.05
_HELD_UP_SECONDS = 0.15
# How late it is if no request can be given up: each is awaited, and nothing is asked of the time that takes.
_AWAITED_SECONDS = 0.1

Operation = Callable[["_Part"], Awaitable[object]]
SCOPE, TASK = "a cancel scope", "asyncio's task.cancel()"


class CancellingCases(StorageHooks):
    """The case of a caller that does not wait any longer."""

    cancellable_requests: bool = True
    """Whether a request that was sent can be given up. `False`, with a comment why, is for what runs in threads."""

    async def test_what_waits_can_be_cancelled(self) -> None:
        """While an answer is awaited a cancellation comes through, as itself: a scope's, and on asyncio a task's, too.

        What publishes may put it off to the next await (`asyncrec.storage.sheltered`). It needs the hook `slowed`.
        """
        async with self.open_storage() as storage:
            if self.slowed(storage, 0.0) is None:
                nothing_to_try("slowed returns None, so it cannot be checked whether a waiting call can be cancelled")
            chunk = content(await chunk_of(storage))
            await storage.put("c/there", b"x")

            async def send(part: _Part) -> None:
                with suppress(_Stop):
                    async with storage.open_sink("c/sent") as sink:
                        await sink.send(pieces(chunk))  # which may begin the upload: the next is nothing but a part
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
                        "the object that a cancelled put left does not have its data"
                    )
                    left = await self.raw_unfinished(storage)
                    assert not left, f"left behind when {name} was cancelled by {how}: {sorted(left)}"

    async def _try(self, storage: Storage, name: str, operation: Operation, how: str) -> None:
        for _ in range(_ATTEMPTS):
            slow = self.slowed(storage, _LATE_SECONDS if self.cancellable_requests else _AWAITED_SECONDS)
            assert slow is not None, "slowed returned a context once and None another time"
            part = _Part(slow)
            try:
                await part.interrupted(operation, how)
            except Exception as error:
                error.add_note(f"raised by {name} when it was cancelled by {how}, in place of the cancellation")
                raise
            assert not part.went_on, (
                f"{name} was cancelled by {how}, but its caller continued: the cancellation was swallowed. "
                "Raise it again; to delay it, use `asyncrec.storage.sheltered`"
            )
            if part.late < _HELD_UP_SECONDS or name == "put" or not self.cancellable_requests:
                return
        raise AssertionError(
            f"{name} held up its caller's cancellation, by {how}, for {part.late:.2f} s: it waited for a response "
            f"that took {_LATE_SECONDS:g} s. If requests cannot be cancelled, set `cancellable_requests = False` in "
            "the tests"
        )


class _Stop(Exception):
    """An error that makes a sink exit without publishing."""


class _Part:
    """The part of an operation that is cancelled, and its reaction."""

    def __init__(self, slow: AbstractContextManager[object]) -> None:
        self.went_on = False
        """Its caller was not cancelled, neither in it nor behind it."""
        self.late = 0.0
        """Seconds from the cancellation to its end."""
        self._slow = slow
        self._begun = anyio.Event()
        self._ended = False
        self._asked_at: float | None = None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make the call while the store is slow, then wait once more, so that a deferred cancellation can arrive."""
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
        """Run the operation, and cancel it while `run` waits. Raise its error, except the cancellation."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            try:
                if how == TASK:
                    task = asyncio.ensure_future(operation(self))
                    group.start_soon(self._ask, task.cancel)
                    try:
                        await asyncio.wait([task])
                    finally:
                        task.cancel()  # where the case is at its end
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
