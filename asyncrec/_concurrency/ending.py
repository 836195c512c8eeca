"""While Python ends, it may refuse to start a thread: what one would have done is then done without it.

A program that reaches its end with a writer open still has something to upload. Python 3.12.0 and 3.12.1 start no
thread from then on, later ones none once the last thread but daemons has ended; `concurrent.futures` takes no work once
the main thread has ended. Nobody but whoever ends the event loop waits for it at that time, so it may be held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def is_refused_by_the_end(error: BaseException) -> bool:
    """Tell whether a thread could not be had because Python is ending, or ``error`` comes from that.

    Python says it in words only: "can't create new thread at interpreter shutdown", "cannot schedule new futures after
    interpreter shutdown".
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, RuntimeError) and "interpreter shutdown" in str(cause):
            return True
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return False


class LastExecutor(ThreadPoolExecutor):
    """A default executor for an event loop that lives until Python ends: it still resolves names then.

    What no thread can be had for is called by `submit` itself.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        claim = threading.Lock()

        def work() -> None:
            # A thread that could not be started leaves its work in the queue, where another finds it.
            if claim.acquire(blocking=False) and future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        try:
            super().submit(work)
        except RuntimeError as error:
            if not is_refused_by_the_end(error):
                raise
            work()
        return future
