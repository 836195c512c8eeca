"""`Opening` keeps track of the state of a job while it is being opened. `TRANSITIONS` lists all possible steps.

Opening a job creates a mark, and sometimes a claim, which must be deleted if the opening fails. Deleting the objects
that are found to exist is not enough. Suppose process A sends a request to create its mark, gets no response, and finds
nothing to delete. A releases the lock by which other processes can prove A dead. If the mark appears after that,
process B finds a job that it can never prove dead, and a person has to intervene.

Therefore, as in `asyncrec._shards.commit.fates`, sending a request is a separate step, and a missing response is not an
event. If a response is missing, the file that can prove the job dead is kept, even if there was nothing to delete.
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
    # "miss": the folder or bucket does not exist, so it cannot contain anything, even if a read failed.
    # "undo" does not change the state, because a mark that was not found may still appear.
    "asking": {"grant": "marked", "refuse": "refused", "miss": "nothing", "take": "taken", "undo": "asking"},
    # The store rejected the request. But an earlier attempt by the backend may have succeeded, so the mark may exist
    # until an "undo" has checked for it.
    "refused": {"undo": "nothing"},
    # A mark with this id exists. It was created by another job, or by an earlier request of this opening. In the second
    # case, it may also appear only after the check.
    "taken": {"undo": "late"},
    "late": {},
    "marked": {"ask": "claiming", "open": "open", "undo": "nothing"},
    # The mark exists, and the claim may still appear. Recovery deletes the claim once the job is proven dead.
    "claiming": {"grant": "claimed", "refuse": "marked", "miss": "marked", "take": "marked", "undo": "claiming"},
    "claimed": {"open": "open", "undo": "nothing"},
    # From here on, `Job.end` is responsible for releasing the lock.
    "open": {},
}


class Opening:
    """The state of one job while it is being opened.

    Attributes:
        now: the current state.
    """

    def __init__(self, *, remote: bool) -> None:
        """With ``remote``, the mark is an object in the store, and an abandoned request for it may still succeed later.

        Otherwise, the mark is the job's locked header on a disk. It is created first, and a disk always responds.
        """
        self.now: State = "nothing" if remote else "marked"
        self._remote = remote

    @property
    def left(self) -> bool:
        """Whether the header must be kept because a mark or a claim exists, or may still appear."""
        return self.now not in ("nothing", "late")

    def move(self, event: Event) -> None:
        """Update the state after an event.

        Raises:
            AssertionError: `TRANSITIONS` does not allow the event in the current state.
        """
        if event not in TRANSITIONS[self.now]:
            raise AssertionError(f"an opening: {event!r} does not follow {self.now!r}; this is a bug in asyncrec")
        self.now = TRANSITIONS[self.now][event]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Run the body, which requests a mark or a claim, and update the state according to its outcome."""
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
