"""`SinkState` tracks the state of a sink and rejects invalid calls. It is for authors who implement a `ByteSink`.

A sink is entered once, accepts chunks, and is exited once. After a call that failed or was cancelled, the object can
only be abandoned, even if the caller swallows the exception, because the store may have received part of a chunk. The
table `TRANSITIONS` maps each state and allowed event to the next state. Any other event raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import anyio

from asyncrec.errors import StorageError

State = Literal["new", "entering", "open", "busy", "failed", "closed"]
Event = Literal["enter", "begin", "succeed", "fail", "leave"]

TRANSITIONS: dict[State, dict[Event, State]] = {
    "new": {"enter": "entering"},
    "entering": {"succeed": "open", "fail": "closed"},
    "open": {"begin": "busy", "leave": "closed"},
    "busy": {"succeed": "open", "fail": "failed", "leave": "closed"},
    "failed": {"leave": "closed"},
    # A call that another task made may still be running when the sink is exited.
    "closed": {"succeed": "closed", "fail": "closed"},
}


class SinkState:
    """The state of one `ByteSink`, updated by the sink's own methods::

        class ListSink(ByteSink):
            def __init__(self, key):
                self._state = SinkState(key)
                ...

            async def __aenter__(self):
                with self._state.entering():
                    ...  # begin an upload that is not visible
                return self

            async def send(self, buffers):
                with self._state.working():
                    ...  # send the chunk

            async def __aexit__(self, exc_type, exc, traceback):
                try:
                    if self._state.leave(exc):
                        self.published = ...  # publish the object, in one step
                finally:
                    if self.published is None:
                        ...  # discard the upload

    Args:
        what: the object, as it appears in errors: its URL, without credentials.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._now: State = "new"
        self._cause: BaseException | None = None

    def __repr__(self) -> str:
        return f"<SinkState of {self._what}: {self._now}>"

    @property
    def now(self) -> State:
        """The state: ``"new"``, ``"entering"``, ``"open"``, ``"busy"`` (in a call), ``"failed"`` or ``"closed"``."""
        return self._now

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Run the body of ``__aenter__``. If it raises, the sink is closed, because ``__aexit__`` is not called.

        Raises:
            RuntimeError: the sink was entered before.
        """
        self._move("enter")
        try:
            yield
        except BaseException:
            self._move("fail")
            raise
        self._move("succeed")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run the body of `send` or `flush`. If it raises any exception, including a cancellation, the sink has failed.

        Raises:
            ClosedResourceError: the context was not entered, or has exited.
            StorageError: an earlier call failed or was cancelled. Its exception is the cause.
            BusyResourceError: a call by another task is in progress.
        """
        self._move("begin")
        try:
            yield
        except BaseException as error:
            self._cause = error
            self._move("fail")
            raise
        self._move("succeed")

    def check(self) -> None:
        """Raise the errors that `working` would raise, for a sink that checks its arguments first."""
        if "begin" not in TRANSITIONS[self._now]:
            raise self._refusal("begin")

    def leave(self, error: BaseException | None) -> bool:
        """Close the sink at the beginning of ``__aexit__``. Return whether to publish the object.

        Args:
            error: the exception raised by the ``async with`` body: the second argument of ``__aexit__``.

        Returns:
            `True` after a clean exit; `False` on an error, in which case the object must be abandoned.

        Raises:
            StorageError: a call failed or was cancelled, but the body swallowed the exception. The object must also be
                abandoned.
        """
        before, cause = self._now, self._cause
        self._move("leave")
        self._cause = None  # its traceback would keep the chunk alive
        if error is not None:
            return False
        if before != "open":
            raise StorageError(
                f"{self._what}: the object was not published, because an earlier write failed or was cancelled; "
                "write it again"
            ) from cause
        return True

    def _move(self, event: Event) -> None:
        following = TRANSITIONS[self._now].get(event)
        if following is None:
            raise self._refusal(event)
        self._now = following

    def _refusal(self, event: Event) -> Exception:
        """Return the error for an event that the table does not allow."""
        if event == "begin" and self._now == "failed":
            failure = StorageError(
                f"{self._what}: an earlier write failed or was cancelled, so the object can only be abandoned; "
                "write it again"
            )
            failure.__cause__ = self._cause
            return failure
        if event == "begin" and self._now == "busy":
            return anyio.BusyResourceError(f"writing to {self._what}")
        if event == "begin":
            return anyio.ClosedResourceError(f"{self._what}: this object must be used inside its `async with`")
        if event == "enter":
            return RuntimeError(f"{self._what}: a sink can only be entered once; open a new one")
        return RuntimeError(f"{self._what}: {event!r} does not follow {self._now!r}")
