"""`Fates` records the state of each shard of a job. Each transition between states is a row of `TRANSITIONS`.

A job that fails has to decide about each of its shards: delete it, leave it to `asyncrec.recover`, or do nothing. The
naive way is to delete the shards that are published but not committed. Suppose A asks the store to publish a shard, and
gets no answer. A deletes the index and the keys; then the shard appears, and B recovers its records without their keys.
Or A deletes the shard as well, but B has committed it before the deletion arrives, so the manifest names a missing
shard.

So the state changes when the store is asked, and once more when it answers. A missing answer is not an event: the shard
stays in doubt. It is then deleted only behind the job's tombstone, after which no process can commit it any more.

With a spool, these are the states of the shard in the store: ``"sending"`` until it is whole in the spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

State = Literal["nothing", "sending", "sent", "doubtful", "published", "committed", "dropped"]
Event = Literal["begin", "finish", "ask", "answer", "keep", "commit", "drop", "bury"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    # A commit also names shards made by other processes: for a joint job, a copy, or the recovery of a dead writer.
    "nothing": {"begin": "sending", "commit": "committed"},
    # Some bytes have not yet arrived. An abandoned sink leaves no object, whatever the error was.
    "sending": {"finish": "sent", "drop": "dropped"},
    # All bytes are sent. The index and keys are published, or being published: without an answer they may still appear.
    # "keep": a failed disk has kept the unfinished file, and `recover` makes a shard of it with these keys.
    "sent": {"ask": "doubtful", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The store was asked to publish the shard. Only a rejection allows its index and keys to be deleted. Without an
    # answer, `recover` may find the shard and commit it, so none of its objects is deleted except behind a tombstone
    # ("bury"). "keep": the name is taken, perhaps by this shard's own lost answer; or a damaged shard could not be made
    # void, and `recover` may commit it before the deletion arrives. Its index and keys stay with it.
    "doubtful": {"ask": "doubtful", "answer": "published", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The shard, or an object of it, is in the store. An object that could not be deleted keeps this state and the job's
    # mark.
    "published": {"keep": "published", "commit": "committed", "drop": "dropped"},
    # A manifest names the shard, so it is never deleted.
    "committed": {},
    # None of its objects is in the store, and no commit will name it.
    "dropped": {},
}


class Fates:
    """The state of each shard of a job, by the shard's name.

    Attributes:
        asked: whether the store was asked to publish a shard. Such a request may take effect late, whatever its answer.
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
            AssertionError: the table has no such event in the shard's state.
        """
        before = self[shard]
        if event not in TRANSITIONS[before]:
            raise AssertionError(f"{shard}: {event!r} does not follow {before!r}; this is a bug in asyncrec")
        self._states[shard] = TRANSITIONS[before][event]
        self.asked = self.asked or event == "ask"

    def those(self, *states: State) -> list[str]:
        """List the shards that are in one of these states. Call this in a thread if there may be many shards."""
        return [shard for shard, state in self._states.items() if state in states]
