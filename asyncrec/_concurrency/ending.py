"""Do the work of a thread in the calling thread if Python is ending and refuses to start one.

A program that reaches its end with a writer open still has something to upload. From then on Python 3.12.0 and 3.12.1
start no thread; later versions start none once only daemon threads are left; `concurrent.futures` takes no work once
the main thread has ended. At that time, only the code that ends the event loop waits for it, so it may be held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def is_refused_by_the_end(error: BaseException) -> bool:
    """Return whether a thread could not be started because Python is ending, or ``error`` comes from that.

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
    """A default executor for an event loop that lives until Python ends, and still resolves names then.

    `submit` itself calls a function for which no thread can be started.
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
