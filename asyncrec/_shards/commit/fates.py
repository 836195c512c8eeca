"""`Fates` says what has become of each shard of a job. Every step from one state to the next is a row of `TRANSITIONS`.

A job that fails has to decide about each of its shards: delete it, leave it to `asyncrec.recover`, or do nothing. The
naive way is to delete what was published and is not committed. Suppose A asks the store to publish a shard, and gets no
answer. A deletes the index and the keys; then the shard appears, and B recovers its records without their keys. Or A
deletes the shard as well, but B has committed it before the deletion arrives: the manifest names a missing shard.

So the state changes when the store is asked, and once more when it answers. A missing answer is not an event: the shard
stays in doubt. It is then deleted only behind the job's tombstone, where no process can commit it any more.

With a spool, these are the states of the shard in the store: ``"sending"`` until it is whole in the spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

State = Literal["nothing", "sending", "sent", "doubtful", "published", "committed", "dropped"]
Event = Literal["begin", "finish", "ask", "answer", "keep", "commit", "drop", "bury"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    # A commit also names shards that others made: shares of a joint job, a copy, the dead writer of a recovery.
    "nothing": {"begin": "sending", "commit": "committed"},
    # Bytes are on their way. A sink that is abandoned leaves nothing, whatever the error was.
    "sending": {"finish": "sent", "drop": "dropped"},
    # All bytes are sent. Index and keys are published, or being published: without an answer they may still come.
    # "keep": a disk that failed has kept the unfinished file; `recover` makes a shard of it, with these keys.
    "sent": {"ask": "doubtful", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The store was asked to publish the shard. Only a "no" lets its index and keys go; without an answer `recover` may
    # find the shard and commit it, and so nothing of it is deleted but behind a tombstone ("bury").
    # "keep": the name is taken, by this shard's own lost answer, perhaps; or a damaged shard could not
    # be made void, and `recover` may commit it before the deletion arrives. Its index and keys stay with it.
    "doubtful": {"ask": "doubtful", "answer": "published", "keep": "published", "drop": "dropped", "bury": "dropped"},
    # The shard, or something of it, is in the store. What could not be deleted stays here, and keeps the job's mark.
    "published": {"keep": "published", "commit": "committed", "drop": "dropped"},
    # A manifest names it, so it is never deleted.
    "committed": {},
    # Nothing of it is in the store, and no commit will name it.
    "dropped": {},
}


class Fates:
    """What has become of each shard of a job, by the shard's name.

    Attributes:
        asked: whether the store was asked for a shard. Such a request may be granted late, whatever was answered.
    """

    def __init__(self) -> None:
        self.asked = False
        self._states: dict[str, State] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._states))

    def __getitem__(self, shard: str) -> State:
        return self._states.get(shard, "nothing")

    def move(self, shard: str, event: Event) -> None:
        """Move a shard on by an event.

        Raises:
            AssertionError: the table has no such event in the shard's state.
        """
        before = self[shard]
        if event not in TRANSITIONS[before]:
            raise AssertionError(f"{shard}: {event!r} does not follow {before!r}; this is a bug in asyncrec")
        self._states[shard] = TRANSITIONS[before][event]
        self.asked = self.asked or event == "ask"

    def those(self, *states: State) -> list[str]:
        """List the shards that are in one of these states. If there are many, call it in a thread."""
        return [shard for shard, state in self._states.items() if state in states]
