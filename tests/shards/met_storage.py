"""A store that lets a test act between any two requests of a process, and make objects look older without waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from asyncrec.storage import ObjectInfo, Storage
from asyncrec.testing import FlakyStorage

__all__ = ["MetAtStep", "MetStorage"]

Meet = Callable[[str, str], Awaitable[None]]


async def _nobody(operation: str, key: str) -> None:
    return None


class MetStorage(FlakyStorage):
    """A store that awaits `before` and `after` around each operation, passing its name and key.

    Attributes:
        before, after: callbacks that may act on the wrapped store (`beneath`).
    """

    def __init__(self, storage: Storage, *, before: Meet = _nobody, after: Meet = _nobody) -> None:
        super().__init__(storage)
        self.beneath = storage
        self.before, self.after = before, after
        self._aged: dict[str, timedelta] = {}

    async def perform(self, operation: str, key: str, call: Any, **options: Any) -> Any:
        await self.before(operation, key)
        found = await super().perform(operation, key, call, **options)
        await self.after(operation, key)
        return found

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            yield replace(info, modified=info.modified - self._aged.get(info.key, timedelta()))

    async def age(self, hours: float) -> None:
        """Make all objects appear older by this many hours."""
        async for info in self.beneath.list_objects():
            self._aged[info.key] = self._aged.get(info.key, timedelta()) + timedelta(hours=hours)


class MetAtStep:
    """Call ``act`` once, before the request with the number ``step``.

    Attributes:
        storage: the store to give to the tested process.
        done: whether ``act`` was called.
    """

    def __init__(self, storage: Storage, act: Callable[[Storage], Awaitable[None]], step: int) -> None:
        self.storage = MetStorage(storage, before=self._meet)
        self.done = False
        self._act = act
        self._step = step

    async def _meet(self, operation: str, key: str) -> None:
        if len(self.storage.operations) + 1 >= self._step and not self.done:
            self.done = True
            await self._act(self.storage.beneath)
