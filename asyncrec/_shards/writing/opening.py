"""`Opening` is the state of a job that is being opened. `TRANSITIONS` lists every step.

An opening makes a mark, and perhaps a claim, and deletes both if it fails. The naive way is to delete the objects that
exist. Suppose A requests its mark, gets no answer, and finds nothing to delete. It releases the lock by which others
can prove it dead. Then the mark appears, so B finds a job that it can never prove dead, and a person has to intervene.

So, as with `asyncrec._shards.commit.fates`, a request is a step of its own, and a missing answer is not an event. If an
answer is missing, the proof of death is kept, even if there was nothing to delete.
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
    # "miss": the folder or bucket does not exist, so nothing can be in it, even if a read failed.
    # "undo" changes nothing, because a mark that was not found may still appear.
    "asking": {"grant": "marked", "refuse": "refused", "miss": "nothing", "take": "taken", "undo": "asking"},
    # The store rejected the request. But an earlier attempt of the backend may have succeeded, so the mark may exist
    # until an "undo" has looked for it.
    "refused": {"undo": "nothing"},
    # A mark with this id exists. It belongs to another job, or to an earlier request of this opening, whose mark may
    # also appear after the check.
    "taken": {"undo": "late"},
    "late": {},
    "marked": {"ask": "claiming", "open": "open", "undo": "nothing"},
    # The mark exists. The claim may still appear. Recovery deletes the claim if the mark's job is proven dead.
    "claiming": {"grant": "claimed", "refuse": "marked", "miss": "marked", "take": "marked", "undo": "claiming"},
    "claimed": {"open": "open", "undo": "nothing"},
    # `Job.end` releases the lock from here on.
    "open": {},
}


class Opening:
    """The state of one opening.

    Attributes:
        now: the current state.
    """

    def __init__(self, *, remote: bool) -> None:
        """With ``remote``, an abandoned request may still succeed later.

        A disk always answers, and the mark of a job on a disk is its locked header, which is created first.
        """
        self.now: State = "nothing" if remote else "marked"
        self._remote = remote

    @property
    def left(self) -> bool:
        """Whether a mark or claim exists, or may still appear, that the header has to outlive."""
        return self.now not in ("nothing", "late")

    def move(self, event: Event) -> None:
        """Move to the state that follows an event.

        Raises:
            AssertionError: the table has no such event in this state.
        """
        if event not in TRANSITIONS[self.now]:
            raise AssertionError(f"an opening: {event!r} does not follow {self.now!r}; this is a bug in asyncrec")
        self.now = TRANSITIONS[self.now][event]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Run the body, which requests a mark or a claim, and move to the state that follows from its outcome."""
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
