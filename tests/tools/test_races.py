"""When exclusive writers race, the result names the winners and agrees with what the store contains."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from asyncrec.errors import StorageError
from asyncrec.storage._base import ByteSink
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._checks import content
from asyncrec.tools._probes import race

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [0, 16, 3 << 20])
async def test_race_stores_content_of_single_winner(size: int) -> None:
    storage = MemoryStorage()
    bodies = [content(size, 1), content(size, 2), content(size, 3)]
    (won,) = await race(storage, "x", bodies)
    assert await storage.get("x") == bodies[won]
    assert await race(storage, "x", bodies) == [], "it is there already"
    assert await storage.get("x") == bodies[won]


async def test_race_raises_other_failure_without_waiting() -> None:
    class Refusing(MemoryStorage):
        refused = False

        def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
            if not self.refused:
                self.refused = True
                raise StorageError("refused")
            return super().open_sink(key, exclusive=exclusive)

    storage = Refusing()
    with pytest.raises(StorageError, match="refused"):
        await race(storage, "x", [b"a", b"b"])
    assert await storage.get("x") in (b"a", b"b"), "of the other, whichever came first"


async def test_first_failure_is_raised_alone_after_all_fail() -> None:
    class Refusing(MemoryStorage):
        refused = 0

        def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
            self.refused += 1
            raise StorageError(f"refused {self.refused}")

    with pytest.raises(StorageError, match="refused 1"):
        await race(Refusing(), "x", [b"a", b"b"])
