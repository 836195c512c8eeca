"""`AsyncLRUCache` caches the results of coroutines. Each value is made only once, even if many tasks request it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

import anyio

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AsyncLRUCache(Generic[K, V]):
    """A cache that discards the least recently used values when the total weight exceeds ``most``.

    The newest value is kept, however heavy it is, so that the tasks waiting for it can return it.
    """

    def __init__(self, most: int, weigh: Callable[[V], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._values: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, anyio.Event] = {}
        self.weight = 0

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """Return the value, awaiting ``make()`` if it is not cached. If ``make`` fails, the next waiting task tries."""
        while key not in self._values:
            making = self._making.get(key)
            if making is not None:
                await making.wait()
                continue
            done = self._making[key] = anyio.Event()
            try:
                value = await make()
                self._store(key, value)
                return value
            finally:
                del self._making[key]
                done.set()
        self._values.move_to_end(key)
        return self._values[key]

    def held(self, key: K) -> V | None:
        """Return the value if it is cached, else `None`. Safe to call from any thread."""
        value = self._values.get(key)
        if value is not None:
            with suppress(KeyError):  # another thread has discarded it
                self._values.move_to_end(key)
        return value

    def forget(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self.weight -= self._weigh(value)

    def _store(self, key: K, value: V) -> None:
        self.forget(key)
        self._values[key] = value
        self.weight += self._weigh(value)
        while self.weight > self._most and len(self._values) > 1:
            _, gone = self._values.popitem(last=False)
            self.weight -= self._weigh(gone)
