"""`SinkState`: every event in every state follows the transition table. One place rejects all other calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import get_args

import anyio
import pytest

from asyncrec.errors import StorageError
from asyncrec.storage import Buffer, ByteSink, MemoryStorage, SinkState
from asyncrec.storage._sink_state import TRANSITIONS, Event, State
from asyncrec.testing import check_sink

pytestmark = pytest.mark.anyio

REFUSED: dict[tuple[State, Event], type[Exception]] = {
    **{(state, "enter"): RuntimeError for state in ("entering", "open", "busy", "failed", "closed")},
    ("new", "begin"): anyio.ClosedResourceError,
    ("entering", "begin"): anyio.ClosedResourceError,
    ("busy", "begin"): anyio.BusyResourceError,
    ("failed", "begin"): StorageError,
    ("closed", "begin"): anyio.ClosedResourceError,
}
ERROR = ValueError("the store is down")


class Driven:
    """A sink's state together with the contexts that are currently open in it."""

    def __init__(self) -> None:
        self.state = SinkState("s3://bucket/key")

    def do(self, event: Event) -> None:
        if event == "leave":
            self.state.leave(ERROR)
        elif event in ("enter", "begin"):
            context = self.state.entering() if event == "enter" else self.state.working()
            context.__enter__()
            self.context = context
        elif event == "succeed":
            self.context.__exit__(None, None, None)
        else:
            with suppress(ValueError):
                self.context.__exit__(ValueError, ERROR, None)


# The events that lead to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    "new": (),
    "entering": ("enter",),
    "open": ("enter", "succeed"),
    "busy": ("enter", "succeed", "begin"),
    "failed": ("enter", "succeed", "begin", "fail"),
    "closed": ("enter", "succeed", "leave"),
}


def reached(state: State) -> Driven:
    driven = Driven()
    for event in WAYS[state]:
        driven.do(event)
    assert driven.state.now == state
    return driven


@pytest.mark.parametrize(("state", "event"), [(state, event) for state in TRANSITIONS for event in TRANSITIONS[state]])
def test_sink_event_leads_to_tabled_state(state: State, event: Event) -> None:
    driven = reached(state)
    if state == "closed":  # the call began before the exit
        driven = reached("busy")
        driven.do("leave")
    driven.do(event)
    assert driven.state.now == TRANSITIONS[state][event]


@pytest.mark.parametrize(("state", "event"), sorted(REFUSED))
def test_untabled_sink_call_is_rejected(state: State, event: Event) -> None:
    driven = reached(state)
    with pytest.raises(REFUSED[state, event], match="s3://bucket/key"):
        driven.do(event)
    assert driven.state.now == state


def test_transition_table_and_rejections_cover_enter_and_begin() -> None:
    known = {(state, event) for state in TRANSITIONS for event in TRANSITIONS[state]} | set(REFUSED)
    assert {(state, event) for state in get_args(State) for event in ("enter", "begin")} <= known


@pytest.mark.parametrize("state", ["new", "entering", "closed"])
def test_unentered_sink_cannot_be_exited(state: State) -> None:
    with pytest.raises(RuntimeError, match="'leave' does not follow"):
        reached(state).state.leave(None)


def test_open_sink_publishes_on_clean_exit_only() -> None:
    assert reached("open").state.leave(None) is True
    assert reached("open").state.leave(ERROR) is False


@pytest.mark.parametrize("state", ["busy", "failed"])
def test_clean_exit_after_failed_call_raises_and_closes(state: State) -> None:
    driven = reached(state)
    with pytest.raises(
        StorageError, match="s3://bucket/key: the object was not published, because an earlier write failed or"
    ) as caught:
        driven.state.leave(None)
    assert caught.value.__cause__ is (ERROR if state == "failed" else None)
    assert driven.state.now == "closed"


@pytest.mark.parametrize("state", ["busy", "failed"])
def test_exit_on_error_adds_no_second_error(state: State) -> None:
    assert reached(state).state.leave(ERROR) is False


def test_later_call_names_first_error_as_cause() -> None:
    with pytest.raises(StorageError, match="only be abandoned") as caught:
        reached("failed").state.check()
    assert caught.value.__cause__ is ERROR
    reached("open").state.check()


def test_failed_call_raises_own_error() -> None:
    state = reached("open").state
    with pytest.raises(ValueError, match="the store is down"), state.working():
        raise ERROR
    assert state.now == "failed"


def test_failed_opening_closes_permanently() -> None:
    state = SinkState("x")
    with pytest.raises(ValueError, match="the store is down"), state.entering():
        raise ERROR
    assert state.now == "closed"
    with pytest.raises(RuntimeError, match="entered once"), state.entering():
        pass


def test_closed_sink_keeps_no_chunk_alive() -> None:
    class Chunk:
        pass

    state = reached("open").state

    def call(chunk: Chunk) -> weakref.ref[Chunk]:
        with suppress(ValueError), state.working():
            raise ValueError
        return weakref.ref(chunk)

    chunk = call(Chunk())
    state.leave(ERROR)
    gc.collect()
    assert chunk() is None


async def test_cancelled_call_counts_as_failed() -> None:
    state = reached("open").state
    with anyio.CancelScope() as scope:
        with state.working():
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert state.now == "failed"


async def test_sink_built_on_sink_state_keeps_contract() -> None:
    """The sink follows the pattern in the docstring of `SinkState`, and stores its data in a dict."""
    objects = MemoryStorage()
    begun: set[str] = set()

    class Sink(ByteSink):
        def __init__(self, key: str) -> None:
            self.chunk_size = 1_000
            self._key = key
            self._sent = b""
            self._state = SinkState(key)

        async def __aenter__(self) -> ByteSink:
            with self._state.entering():
                await anyio.lowlevel.checkpoint()
                begun.add(self._key)
            return self

        async def send(self, buffers: Sequence[Buffer]) -> None:
            with self._state.working():
                await anyio.lowlevel.checkpoint()
                self._sent += b"".join(buffers)

        async def flush(self, tail: Sequence[Buffer]) -> int:
            with self._state.working():
                await anyio.lowlevel.checkpoint()
            return 0

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None:
            try:
                if self._state.leave(exc):
                    self.published = await objects.put(self._key, self._sent)
            finally:
                begun.discard(self._key)

    async def read(key: str) -> bytes | None:
        there = [info.key async for info in objects.list_objects(key)]
        return await objects.get(key) if key in there else None

    async def unfinished() -> list[str]:
        return sorted(begun)

    await check_sink(Sink, read=read, unfinished=unfinished)
