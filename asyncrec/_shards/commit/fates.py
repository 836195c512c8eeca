"""`Fates` records the state of each shard of a job. `TRANSITIONS` lists all transitions between states.

A failed job must decide for each of its shards whether to delete it, leave it to `asyncrec.recover`, or do nothing. It
would be wrong to delete every shard that is published but not committed. Suppose process A requests the publication of
a shard and gets no response. If A deletes the index and the keys, and then the shard appears, process B recovers its
records without their keys. If A also deletes the shard, B may commit it before the deletion takes effect, so that the
manifest names a missing shard.

Therefore, the state changes when the request is sent, and again when the store responds. Without a response, the shard
remains in doubt. It is then deleted only after the job's tombstone exists, because after that no process can commit it.

With a spool, these are the states of the shard in the store. The state is ``"sending"`` until the shard is complete in
the spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

State = Literal["nothing", "sending", "sent", "doubtful", "published", "committed", "dropped"]
Event = Literal["begin", "finish", "ask", "answer", "keep", "commit", "drop", "bury"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    # A commit may also name shards made by other processes: in a joint job, in a copy, or when a dead writer is
    # recovered.
    "nothing": {"begin": "sending", "commit": "committed"},
    # Some bytes have not been sent yet. An abandoned sink leaves no object behind, whatever the error was.
    "sending": {"finish": "sent", "drop": "dropped"},
    # All bytes were sent. The index and keys are in the store, or may still appear there if the store did not respond.
    # "keep": the unfinished file is still on a failed disk, and `recover` makes a shard from it, with these keys.
    "sent": {"ask": "doubtful", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The publication of the shard was requested. Its index and keys may be deleted only if the request was rejected. If
    # there was no response, `recover` may find the shard and commit it, so its objects are deleted only after a
    # tombstone exists ("bury"). "keep": the name is taken, perhaps by this shard itself if the response was lost; or a
    # damaged shard could not be made void, and `recover` may commit it before a deletion takes effect. The index and
    # keys are then kept.
    "doubtful": {"ask": "doubtful", "answer": "published", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The shard or one of its sidecars is in the store. If one of them cannot be deleted, the shard keeps this state,
    # and the job keeps its mark.
    "published": {"keep": "published", "commit": "committed", "drop": "dropped"},
    # A manifest names the shard, so it is never deleted.
    "committed": {},
    # None of the shard's objects is in the store, and no commit will name the shard.
    "dropped": {},
}


class Fates:
    """The states of a job's shards, by shard name.

    Attributes:
        asked: whether the publication of any shard was requested. Such a request may take effect late, whatever the
            response was.
    """

    def __init__(self) -> None:
        self.asked = False
        self._states: dict[str, State] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._states))

    def __getitem__(self, shard: str) -> State:
        return self._states.get(shard, "nothing")

    def move(self, shard: str, event: Event) -> None:
        """Move a shard to the state that follows an event.

        Raises:
            AssertionError: `TRANSITIONS` does not allow the event in the shard's state.
        """
        before = self[shard]
        if event not in TRANSITIONS[before]:
            raise AssertionError(f"{shard}: {event!r} does not follow {before!r}; this is a bug in asyncrec")
        self._states[shard] = TRANSITIONS[before][event]
        self.asked = self.asked or event == "ask"

    def those(self, *states: State) -> list[str]:
        """Return the shards that are in one of these states. Call this in a thread if there may be many shards."""
        return [shard for shard, state in self._states.items() if state in states]
