"""`create` lets exactly one of several callers create a small object, and finds out who won if it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from asyncrec._concurrency.deadline import Deadline
from asyncrec._shards.commit.exclusive import create
from asyncrec.errors import (
    ObjectExistsError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Call, T, _Around

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class Scripted(_Around):
    """A store with scripted results of publishing (``put``) and reading back (``get``): `None`, an error or "hang"."""

    def __init__(self, put: Any = None, get: Any = None, *, done: bool = False, there: bytes | None = None) -> None:
        super().__init__(MemoryStorage())
        self.put_is, self.get_is, self.done, self.there = put, get, done, there

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        does = {"publish": self.put_is, "open_source": self.get_is}.get(operation)
        if operation == "publish":
            if self.there is not None:
                await self._storage.put(key, self.there)
            if self.done or does is None:
                answer = await call()
            if does is None:
                return answer
        elif does is None:
            return await call()
        if does == "hang":
            await anyio.sleep_forever()
        raise does


LOST = TransientStorageError("no answer")
REFUSED = StoragePermissionError("refused")


async def outcome(storage: Storage, **options: Any) -> str:
    try:
        await create(storage, "key", b"own", **options)
    except UnsettledError:
        return "unsettled"
    except ObjectExistsError:
        return "taken"
    except StorageError as error:
        return str(error)
    return "created"


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (lambda: Scripted(), "created"),
        (lambda: Scripted(there=b"other"), "taken"),
        (lambda: Scripted(there=b"own"), "created"),  # created by an earlier attempt whose response was lost
        (lambda: Scripted(LOST, done=True), "created"),
        (lambda: Scripted(LOST), "unsettled"),  # the request may arrive after the check
        (lambda: Scripted(LOST, there=b"other"), "taken"),
        (lambda: Scripted(LOST, there=b"own but longer"), "taken"),
        (lambda: Scripted(REFUSED), "refused"),
        (lambda: Scripted(REFUSED, there=b"other"), "taken"),
        (lambda: Scripted(REFUSED, REFUSED), "unsettled"),
        (lambda: Scripted(LOST, REFUSED, done=True), "unsettled"),
        (lambda: Scripted("hang", done=True), "created"),
        (lambda: Scripted("hang"), "unsettled"),
        (lambda: Scripted("hang", "hang", done=True), "unsettled"),
        (lambda: Scripted("hang", there=b"other"), "taken"),
    ],
)
async def test_creation_outcome_follows_from_stored_object(storage: Callable[[], Storage], expected: str) -> None:
    assert await outcome(storage()) == expected


async def test_unsettled_error_is_chained_to_its_cause() -> None:
    with pytest.raises(
        UnsettledError, match="memory:///key: it is unknown whether this object was created, so the commit may"
    ) as caught:
        await create(Scripted(LOST), "key", b"own")
    assert caught.value.__cause__ is LOST


async def test_repeated_call_determines_outcome() -> None:
    storage = Scripted(LOST, REFUSED, done=True)
    assert await outcome(storage) == "unsettled"
    storage.put_is = storage.get_is = None
    assert await outcome(storage) == "created"
    await storage.delete("key")
    await storage.put("key", b"other")
    assert await outcome(storage) == "taken"


async def test_write_and_lookup_have_one_minute_each_within_deadline() -> None:
    begun = anyio.current_time()
    await outcome(Scripted("hang", "hang"))
    assert anyio.current_time() - begun == pytest.approx(120)
    deadline = Deadline()
    deadline.bring(anyio.current_time() + 5)
    begun = anyio.current_time()
    assert await outcome(Scripted("hang", "hang"), deadline=deadline) == "unsettled"
    assert anyio.current_time() - begun == pytest.approx(5)


@pytest.mark.parametrize("hangs", ["put", "get"])
async def test_shielded_creation_outlasts_cancellation(hangs: str) -> None:
    def storage() -> Scripted:
        return Scripted("hang" if hangs == "put" else LOST, "hang" if hangs == "get" else None)

    for shield, seconds in ((True, 60), (False, 1)):
        begun = anyio.current_time()
        result = ""
        with anyio.move_on_after(1) as scope:
            result = await outcome(storage(), shield=shield)
        assert anyio.current_time() - begun == pytest.approx(seconds)
        assert result == ("unsettled" if shield else "")
        assert scope.cancelled_caught is not shield
