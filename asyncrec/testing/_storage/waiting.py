"""This case asks whether other tasks go on while the store keeps an operation waiting."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

from asyncrec.storage._base import Storage
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, keys_of

# How late each answer is: long enough that a busy machine, which holds up every task now and then, does so less often.
_SLOW_SECONDS = 0.2
# The loop counts as held if it was each time. A plugin that holds it does so each time; a busy machine does not.
_ATTEMPTS = 5


class WaitingCases(StorageHooks):
    """The case of a store that takes its time."""

    async def test_the_loop_is_not_held(self) -> None:
        """While an answer of the store is awaited, other tasks run: what blocks is called in a thread.

        Of stores whose tests cannot make the store slow, `slowed` says so, and nothing is tried.
        """
        async with self.open_storage() as storage:
            if self.slowed(storage, 0.0) is None:
                nothing_to_try("slowed gives None: whether the event loop is held cannot be seen")
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
        """Give the longest time in seconds for which no other task ran."""
        longest, last = 0.0, time.perf_counter()

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await anyio.sleep(0.005)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        slow = self.slowed(storage, _SLOW_SECONDS)
        assert slow is not None, "slowed gave a context once and None another time"
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
