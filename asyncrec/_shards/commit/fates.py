"""`Fates` records the state of each shard of a job. `TRANSITIONS` is the table of all transitions between states.

A failed job must decide for each of its shards whether to delete it, leave it to `asyncrec.recover`, or do nothing.
Deleting all shards that are published but not committed would be wrong. Suppose A requests the publication of a shard
and gets no answer. A deletes the index and the keys; then the shard appears, and B recovers its records without their
keys. Or A deletes the shard as well, but B commits it before the deletion takes effect, so the manifest names a missing
shard.

So the state changes when the request is sent, and again when the store answers. Without an answer, the shard stays in
doubt. It is then deleted only after the job's tombstone exists, because from then on no process can commit it.

With a spool, these are the states of the shard in the store: ``"sending"`` until the shard is complete in the spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

State = Literal["nothing", "sending", "sent", "doubtful", "published", "committed", "dropped"]
Event = Literal["begin", "finish", "ask", "answer", "keep", "commit", "drop", "bury"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    # A commit may also name shards of other processes: in a joint job, a copy, or the recovery of a dead writer.
    "nothing": {"begin": "sending", "commit": "committed"},
    # Some bytes have not yet been sent. An abandoned sink leaves no object, whatever the error was.
    "sending": {"finish": "sent", "drop": "dropped"},
    # All bytes were sent. The index and keys are in the store, or may still appear there if no answer was received.
    # "keep": the unfinished file is still on a failed disk, and `recover` makes a shard from it, with these keys.
    "sent": {"ask": "doubtful", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The publication of the shard was requested. Only a rejection allows its index and keys to be deleted. Without an
    # answer, `recover` may find the shard and commit it, so its objects are deleted only after a tombstone exists
    # ("bury"). "keep": the name is taken, perhaps by this shard itself if its answer was lost; or a damaged shard could
    # not be made void, and `recover` may commit it before a deletion takes effect. Its index and keys are kept.
    "doubtful": {"ask": "doubtful", "answer": "published", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The shard or one of its sidecars is in the store. If one cannot be deleted, the shard keeps this state, and the
    # job its mark.
    "published": {"keep": "published", "commit": "committed", "drop": "dropped"},
    # A manifest names the shard, so it is never deleted.
    "committed": {},
    # None of its objects is in the store, and no commit will name it.
    "dropped": {},
}


class Fates:
    """The state of each shard of a job, by the shard's name.

    Attributes:
        asked: whether the publication of a shard was requested. The request may take effect late, whatever the answer.
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
            AssertionError: the event is not allowed in the shard's state.
        """
        before = self[shard]
        if event not in TRANSITIONS[before]:
            raise AssertionError(f"{shard}: {event!r} does not follow {before!r}; this is a bug in asyncrec")
        self._states[shard] = TRANSITIONS[before][event]
        self.asked = self.asked or event == "ask"

    def those(self, *states: State) -> list[str]:
        """Return the shards that are in one of these states. Call this in a thread if there may be many shards."""
        return [shard for shard, state in self._states.items() if state in states]
