"""`Opening`: every event in every state follows the transition table, and so does each response to a mark or claim."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.writing.opening import TRANSITIONS, Event, Opening, State
from asyncrec.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    UnsettledError,
)

# The events that lead from the initial state to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    "nothing": (),
    "asking": ("ask",),
    "refused": ("ask", "refuse"),
    "taken": ("ask", "take"),
    "late": ("ask", "take", "undo"),
    "marked": ("ask", "grant"),
    "claiming": ("ask", "grant", "ask"),
    "claimed": ("ask", "grant", "ask", "grant"),
    "open": ("ask", "grant", "open"),
}
EVENTS: tuple[Event, ...] = get_args(Event)
PAIRS = [(state, event) for state in get_args(State) for event in EVENTS]


def reached(state: State, *, remote: bool = True) -> Opening:
    opening = Opening(remote=remote)
    for event in WAYS[state] if remote else WAYS[state][2:]:
        opening.move(event)
    assert opening.now == state
    return opening


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_event_leads_to_tabled_state_or_is_rejected(state: State, event: Event) -> None:
    opening = reached(state)
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(AssertionError, match=f"'{event}' does not follow '{state}'"):
            opening.move(event)
    else:
        opening.move(event)
    assert opening.now == (following or state)


def test_transition_table_covers_every_state_and_event() -> None:
    assert set(TRANSITIONS) == set(get_args(State)) == set(WAYS)
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "mark", "claim"),
    [
        (UnsettledError, "asking", "claiming"),
        (StoragePermissionError, "refused", "marked"),
        (ObjectNotFoundError, "nothing", "marked"),
        (ObjectExistsError, "taken", "marked"),
        (ConflictError, "refused", "marked"),
    ],
)
async def test_response_drives_mark_and_claim_states(error: type[StorageError], mark: State, claim: State) -> None:
    for before, after in (("nothing", mark), ("marked", claim)):
        opening = reached(before)  # type: ignore[arg-type]
        with suppress(StorageError), opening.asking():
            raise error("as asked")
        assert opening.now == after


@pytest.mark.anyio
@pytest.mark.parametrize("remote", [True, False])
async def test_cancelled_claim_stays_pending_only_in_remote_store(remote: bool) -> None:
    opening = reached("marked", remote=remote)
    with anyio.CancelScope() as scope, opening.asking():
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert opening.now == ("claiming" if remote else "marked")
    opening.move("undo")
    assert opening.left == remote


@given(st.lists(st.sampled_from(EVENTS), max_size=12), st.booleans())
def test_event_sequences_never_forget_unanswered_requests(events: list[Event], remote: bool) -> None:
    """Only a response settles a request; an object disappears only if it is undone; an open writer stays open."""
    opening = Opening(remote=remote)
    for event in events:
        before = opening.now
        with suppress(AssertionError):
            opening.move(event)
            if before in ("asking", "claiming"):
                assert event in ("grant", "refuse", "miss", "take") or opening.now == before
            if before in ("marked", "claimed", "refused", "taken") and not opening.left:
                assert event == "undo"
            assert before not in ("open", "late")
        if before == "open":
            assert opening.now == "open"
