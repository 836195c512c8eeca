"""`Opening` says how far the opening of a job has come, and so what an error leaves. `TRANSITIONS` has every step.

An opening makes a mark, and perhaps a claim, and deletes both if it fails. The naive way is to delete what was made.
Suppose A asks for its mark, no answer comes, and A finds nothing to delete; it releases the lock that proves it dead.
Then the mark appears: B finds a job that it can never prove dead, and a person has to look.

So, as with `asyncrec._shards.commit.fates`, asking is a step of its own, and no answer is not an event. If an answer is
missing, the proof of death is kept, even if there was nothing to delete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import anyio

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, UnsettledError

State = Literal["nothing", "asking", "refused", "taken", "late", "marked", "claiming", "claimed", "open"]
Event = Literal["ask", "grant", "refuse", "miss", "take", "undo", "open"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    "nothing": {"ask": "asking", "undo": "nothing"},
    # "miss": there is no such folder or bucket, so that nothing can be in it, even if a look failed.
    # "undo" changes nothing: a mark that was not found may still come.
    "asking": {"grant": "marked", "refuse": "refused", "miss": "nothing", "take": "taken", "undo": "asking"},
    # The store said no. An earlier request of the backend's may have been granted: until it was looked for, it counts.
    "refused": {"undo": "nothing"},
    # Another mark has the id; or this opening's own has, by an earlier request, which may also come after the look.
    "taken": {"undo": "late"},
    "late": {},
    "marked": {"ask": "claiming", "open": "open", "undo": "nothing"},
    # The mark is there. The claim may come: recovery deletes it, if the mark's job is proven dead.
    "claiming": {"grant": "claimed", "refuse": "marked", "miss": "marked", "take": "marked", "undo": "claiming"},
    "claimed": {"open": "open", "undo": "nothing"},
    # `Job.end` releases the lock from here on.
    "open": {},
}


class Opening:
    """The state of one opening.

    Attributes:
        now: its state.
    """

    def __init__(self, *, remote: bool) -> None:
        """With ``remote``, a request that was given up may be granted late.

        A disk always answers, and the mark of a job on it is its locked header, which is there first.
        """
        self.now: State = "nothing" if remote else "marked"
        self._remote = remote

    @property
    def left(self) -> bool:
        """Whether something is left, or may still appear, for which a header has to stay."""
        return self.now not in ("nothing", "late")

    def move(self, event: Event) -> None:
        """Move on by an event.

        Raises:
            AssertionError: the table has no such event in this state.
        """
        if event not in TRANSITIONS[self.now]:
            raise AssertionError(f"an opening: {event!r} does not follow {self.now!r}; this is a bug in asyncrec")
        self.now = TRANSITIONS[self.now][event]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Run the request for a mark or a claim, and move on by its answer."""
        self.move("ask")
        try:
            yield
        except BaseException as error:
            if isinstance(error, ObjectExistsError):
                self.move("take")
            elif isinstance(error, ObjectNotFoundError):
                self.move("miss")
            elif not (self._remote and isinstance(error, (UnsettledError, anyio.get_cancelled_exc_class()))):
                self.move("refuse")
            raise
        self.move("grant")
