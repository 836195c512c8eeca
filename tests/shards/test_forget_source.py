"""A forgotten source starts over, even if a writer takes it while it is being forgotten."""

from __future__ import annotations

import pytest

from asyncrec import tools
from asyncrec._shards.manifest.loading import load_history
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._memory import MemoryStorage

from . import mortal
from .consuming import SOURCE, Consumer
from .test_flush_races import Act, Meeting

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def stored_up_to_two(storage: MemoryStorage) -> Consumer:
    consumer = await Consumer(storage, "w").begin()
    await consumer.consume()
    return consumer


async def test_forgotten_source_starts_over() -> None:
    storage = MemoryStorage()
    owner = await stored_up_to_two(storage)
    assert await tools.forget_source("pages", SOURCE, storage=storage) == 2
    await owner.commit()
    assert owner.acknowledged == [0, 1, 2]
    other = await Consumer(storage, "a").begin()
    assert await other.take()
    assert other.taken is not None
    assert other.taken.position == -1
    await other.commit(2)
    assert other.acknowledged == [0, 1]
    assert (await load_history(storage, "pages")).progress[SOURCE] == (other.taken.turn, 1)


@pytest.mark.parametrize("source", ["another", SOURCE])
async def test_source_without_stored_records_cannot_be_forgotten(source: str) -> None:
    storage = MemoryStorage()
    await stored_up_to_two(storage)
    await tools.forget_source("pages", SOURCE, storage=storage)
    before = [info.key async for info in storage.list_objects()]
    with pytest.raises(ObjectNotFoundError, match=f"no record of the source '{source}' is stored"):
        await tools.forget_source("pages", source, storage=storage)
    assert [info.key async for info in storage.list_objects()] == before


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("place", range(20))
async def test_source_acquired_during_forget_ends_in_consistent_state(place: int, done: bool) -> None:
    """Either the call forgets the source, which starts over, or the call fails, and the source continues."""
    storage = MemoryStorage()
    await stored_up_to_two(storage)
    other = await Consumer(storage, "a").begin()
    seen = 0

    def meet(what: str, key: str, was_done: bool) -> Act | None:
        nonlocal seen
        seen += was_done == done
        return other.consume if was_done == done and seen == place + 1 else None

    try:
        await tools.forget_source("pages", SOURCE, storage=Meeting(storage, meet))
        is_forgotten = True
    except ConflictError:
        is_forgotten = False
    last = await Consumer(storage, "b").begin()
    assert await last.take()
    assert last.taken is not None
    if seen > place and other.acknowledged:
        assert other.acknowledged in ([0, 1, 2], [3, 4, 5])
    assert is_forgotten == (last.taken.position == -1 or other.acknowledged == [0, 1, 2])


async def test_source_can_be_acquired_after_interrupted_forget() -> None:
    storage = MemoryStorage()
    await stored_up_to_two(storage)
    process = mortal.Process(storage, "-000001.jsonl")
    with pytest.raises(StorageError):
        await tools.forget_source("pages", SOURCE, storage=process.storage)
    assert process.late is not None
    other = await Consumer(storage, "a").begin()
    assert await other.take()
    assert other.taken is not None
    assert other.taken.position == 2
    with pytest.raises(ObjectExistsError):
        await storage.put(*process.late, exclusive=True)
