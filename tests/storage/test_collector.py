"""The garbage collector does not look through everything while a client is opened."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from asyncrec.storage import SharedClients
from asyncrec.storage import _shared_clients as shared_clients
from asyncrec.storage._collector import put_off_full_collection


@pytest.fixture(autouse=True)
def as_in_a_program() -> Iterator[None]:
    """The tests freeze what they imported; most programs do not."""
    frozen, enabled = gc.get_freeze_count(), gc.isenabled()
    gc.unfreeze()
    gc.enable()
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()
    (gc.enable if enabled else gc.disable)()


def is_young(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects(generation=0))


def test_what_is_young_counts_as_old_and_the_count_begins_anew() -> None:
    thing = [object()]
    put_off_full_collection()
    assert not is_young(thing)
    assert gc.is_tracked(thing)
    assert not gc.get_freeze_count()
    assert gc.get_count()[2] == 0


class Ring:
    def __init__(self) -> None:
        self.next = self


def test_what_nobody_can_reach_is_still_collected() -> None:
    ring = Ring()
    seen = weakref.ref(ring)
    put_off_full_collection()
    del ring
    gc.collect()
    assert seen() is None


def test_a_program_that_turned_it_off_is_left_alone() -> None:
    gc.disable()
    thing = [object()]
    put_off_full_collection()
    assert is_young(thing)


def test_what_a_program_froze_stays_frozen() -> None:
    thing = [object()]
    gc.freeze()
    put_off_full_collection()
    assert not any(each is thing for each in gc.get_objects())  # which leaves out what is frozen


@pytest.mark.anyio
async def test_it_is_put_off_for_the_first_client_of_a_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(shared_clients, "put_off_full_collection", lambda: calls.append("put off"))

    async def make(key: str) -> str:
        calls.append(f"make {key}")
        return key

    async def close(client: str) -> None:
        calls.append(f"close {client}")

    clients = SharedClients("test-collector", make, close)
    for key in ("a", "b"):
        async with clients.use(key):
            pass
    assert calls == ["put off", "make a", "close a", "make b", "close b"]
