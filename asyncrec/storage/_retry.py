"""Back-off: how often and when an operation is retried after transient faults, and what is logged.

A backend wraps each request in `retrying`, and a reader that resumes after a fault uses the same `Backoff`. Only a
`TransientStorageError` is retried. All other errors propagate immediately.

The delays are exponential with full jitter (uniform below a bound), so that tasks that were throttled together do not
retry together. See Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import anyio

from asyncrec._concurrency.deadline import current_deadline
from asyncrec._concurrency.ending import is_refused_by_the_end
from asyncrec.errors import TransientStorageError
from asyncrec.storage._url import redact

T = TypeVar("T")
OnRetry = Callable[[TransientStorageError, int, float], None]

logger = logging.getLogger("asyncrec.storage")
# A separate generator, because using the global one would make results after a user's `random.seed` depend on timing.
_jitter = random.Random()


@dataclass(frozen=True)
class RetryPolicy:
    """The limits on the number, delay and total time of retries.

    Attributes:
        attempts: the maximum number of calls, including the first. With 10 attempts, the delays add up to about 40 s on
            average. That is longer than S3 throttles a prefix that it is splitting, or a gateway takes to restart.
        base: the bound of the first delay in seconds: about the time of one request, so that a single reset delays
            little.
        cap: the limit of every delay, and of a store's ``Retry-After``, in seconds. A longer delay would fill a
            writer's memory without any error.
        total: the time in seconds from the first fault after which no further attempt is made, so that an exit that
            waits raises the error within about two minutes.
    """

    attempts: int = 10
    base: float = 0.2
    cap: float = 30.0
    total: float = 120.0


DEFAULT = RetryPolicy()
# A policy for requests made after a failure that has already exhausted its retries. The delays add up to a second or
# two.
BRIEF = RetryPolicy(attempts=4, cap=2.0, total=10.0)

_patience: ContextVar[RetryPolicy] = ContextVar("asyncrec_patience", default=DEFAULT)


@contextmanager
def patience(policy: RetryPolicy) -> Iterator[None]:
    """Retry this task's requests with ``policy``, not `DEFAULT`. Do not use this for requests that write records."""
    token = _patience.set(policy)
    try:
        yield
    finally:
        _patience.reset(token)


_on_fault: ContextVar[Callable[[float], None] | None] = ContextVar("asyncrec_on_fault", default=None)


@contextmanager
def telling_faults(listener: Callable[[float], None] | None) -> Iterator[None]:
    """Call ``listener`` whenever a request of this task, or of a task that it starts, fails and will be retried.

    ``listener`` receives the seconds until the next attempt. It may be called in another thread.
    """
    token = _on_fault.set(listener)
    try:
        yield
    finally:
        _on_fault.reset(token)


def fault_listener() -> Callable[[float], None] | None:
    """Return the listener that `telling_faults` has set for this task, or `None`."""
    return _on_fault.get()


class Backoff:
    """The state of one series of attempts.

    Args:
        what: the operation and its object, for the log and the error's note. Secrets in a URL are removed.
        on_retry: called with the error, the number of failed attempts and the delay, before each wait.
    """

    def __init__(self, what: str, policy: RetryPolicy = DEFAULT, *, on_retry: OnRetry | None = None) -> None:
        self.what = redact(what)
        self.policy = _patience.get() if policy is DEFAULT else policy
        self.failed = 0
        self._on_retry = on_retry
        self._began: float | None = None

    def reset(self) -> None:
        """Start a new series, because progress was made."""
        self.failed = 0
        self._began = None

    async def wait(self, error: TransientStorageError) -> None:
        """Sleep until the next attempt is due.

        Raises:
            TransientStorageError: ``error`` itself, with a note, if the attempts or the time (since the first fault of
                the series) are exhausted. The error is raised immediately if Python is shutting down and starts no more
                threads, or if the deadline of the writer's exit has passed.
        """
        if is_refused_by_the_end(error):
            raise error
        now = anyio.current_time()
        if self._began is None:
            self._began = now
        self.failed += 1
        policy = self.policy
        bound = min(policy.cap, policy.base * 2.0 ** (self.failed - 1))
        delay = _jitter.uniform(0.0, bound)
        if error.retry_after is not None:
            # Add the jitter, because otherwise all clients that received the same delay would retry together.
            delay = min(policy.cap, max(0.0, error.retry_after) + min(delay, policy.base))
        spent = now - self._began
        deadline = current_deadline()
        ended = deadline is not None and deadline.passed
        attempts = min(policy.attempts, BRIEF.attempts) if error.lasting else policy.attempts
        if ended or self.failed >= attempts or spent + delay > policy.total:
            if self.failed > 1:
                error.add_note(f"{self.what}: asyncrec gave up after {self.failed} attempts in {spent:.1f} s")
            raise error
        if self.failed >= 2:
            logger.warning(
                "%s: attempt %d of %d failed; the next one starts in %.1f s: %s",
                self.what,
                self.failed,
                attempts,
                delay,
                str(error).removeprefix(f"{self.what}: "),
                extra={"operation": self.what, "attempt": self.failed, "seconds": delay},
            )
        if self._on_retry is not None:
            self._on_retry(error, self.failed, delay)
        if (listener := _on_fault.get()) is not None:
            listener(delay)
        await anyio.sleep(delay)


async def retrying(
    operation: Callable[[], Awaitable[T]], *, what: str, policy: RetryPolicy = DEFAULT, on_retry: OnRetry | None = None
) -> T:
    """Call ``operation`` until it returns, raises a non-transient error, or the attempts are exhausted.

    ``operation`` must be safe to repeat after a fault whose effect is unknown. A request that is not (a Complete, an
    exclusive put) must first look at the store to determine the effect. Cancellation is not delayed::

        async def head(self, key):  # self._ask raises TransientStorageError for a timeout, a reset, a 429 or a 5xx
            return await retrying(lambda: self._ask("HEAD", key), what=f"looking at {self.root}/{key}")

    Raises:
        TransientStorageError: the last fault, with a note of the number of attempts and their total time.
    """
    backoff = Backoff(what, policy, on_retry=on_retry)
    while True:
        try:
            return await operation()
        except TransientStorageError as error:
            fault = error
        # Wait outside the handler, so that an error of the next attempt is not chained to this one.
        await backoff.wait(fault)
