"""Run work in the calling thread if the interpreter is shutting down and can no longer start threads.

A program that exits with a writer still open has data left to upload. During shutdown, Python 3.12.0 and 3.12.1 start
no threads, later versions start none once only daemon threads are left, and `concurrent.futures` accepts no work once
the main thread has ended. At that point, only the code that closes the event loop is still waiting, so the work may
block the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def is_refused_by_the_end(error: BaseException) -> bool:
    """Return whether ``error`` is, or was caused by, a failure to start a thread because Python is shutting down.

    Only the error's message shows this: "can't create new thread at interpreter shutdown" or "cannot schedule new
    futures after interpreter shutdown".
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
    """A default executor that lets an event loop resolve host names even while Python shuts down.

    If no thread can be started, `submit` calls the function directly.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        claim = threading.Lock()

        def work() -> None:
            # If no thread can be started, the work also stays in the executor's queue, and another thread may run it.
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
