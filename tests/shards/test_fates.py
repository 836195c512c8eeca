"""`Fates`: every event in every state follows the transition table, and no sequence of events breaks the invariants."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.commit.fates import TRANSITIONS, Event, Fates, State

# The events that lead from the initial state to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    "nothing": (),
    "sending": ("begin",),
    "sent": ("begin", "finish"),
    "doubtful": ("begin", "finish", "ask"),
    "published": ("begin", "finish", "ask", "answer"),
    "committed": ("begin", "finish", "ask", "answer", "commit"),
    "dropped": ("begin", "drop"),
}
EVENTS: tuple[Event, ...] = get_args(Event)
PAIRS = [(state, event) for state in get_args(State) for event in EVENTS]
histories = st.lists(st.sampled_from(EVENTS), max_size=12)


def reached(state: State) -> Fates:
    fates = Fates()
    for event in WAYS[state]:
        fates.move("shard", event)
    assert fates["shard"] == state
    return fates


def lived(events: list[Event]) -> list[tuple[State, Event, State]]:
    """Return the transitions that these events cause in a shard, leaving out rejected events."""
    fates, steps = Fates(), []
    for event in events:
        before = fates["shard"]
        try:
            fates.move("shard", event)
        except AssertionError:
            assert fates["shard"] == before
        else:
            steps.append((before, event, fates["shard"]))
    return steps


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_event_follows_transition_table_or_is_rejected(state: State, event: Event) -> None:
    fates = reached(state)
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(AssertionError, match=f"shard: '{event}' does not follow '{state}'"):
            fates.move("shard", event)
    else:
        fates.move("shard", event)
    assert fates["shard"] == (following or state)


def test_transition_table_covers_every_state_and_event() -> None:
    assert set(TRANSITIONS) == set(get_args(State)) == set(WAYS)
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)


@given(histories)
def test_committed_shard_was_published_or_made_by_other_writer(events: list[Event]) -> None:
    for before, event, _ in lived(events):
        if event == "commit":
            assert before in ("published", "nothing")


@given(histories)
def test_committed_or_dropped_shard_never_changes_state(events: list[Event]) -> None:
    assert not [step for step in lived(events) if step[0] in ("committed", "dropped")]


@given(histories)
def test_doubtful_shard_is_dropped_only_by_rejection_or_tombstone(events: list[Event]) -> None:
    """A shard whose request got no response is neither committed nor forgotten until its outcome is known."""
    for before, event, after in lived(events):
        if before == "doubtful":
            assert after in ("doubtful", "published") or event in ("drop", "bury")


@given(histories)
def test_published_shard_was_requested_before(events: list[Event]) -> None:
    steps = lived(events)
    asked = [event for _, event, _ in steps].index("ask") if any(event == "ask" for _, event, _ in steps) else None
    for at, (_, event, _) in enumerate(steps):
        if event == "answer":
            assert asked is not None
            assert asked < at


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(EVENTS)), max_size=24))
def test_fates_of_shards_are_independent(events: list[tuple[str, Event]]) -> None:
    together = Fates()
    for shard, event in events:
        if event in TRANSITIONS[together[shard]]:
            together.move(shard, event)
    for name in "ab":
        steps = lived([event for shard, event in events if shard == name])
        assert together[name] == (steps[-1][2] if steps else "nothing")
    assert together.asked == any(
        event == "ask" for name in "ab" for _, event, _ in lived([each for shard, each in events if shard == name])
    )


def test_fates_list_shards_in_given_states() -> None:
    fates = Fates()
    for shard, state in (("a", "sent"), ("b", "published"), ("c", "doubtful"), ("d", "published")):
        for event in WAYS[state]:  # type: ignore[index]
            fates.move(shard, event)
    assert fates.those("published") == ["b", "d"]
    assert fates.those("sent", "doubtful") == ["a", "c"]
    assert fates.those("dropped") == []
