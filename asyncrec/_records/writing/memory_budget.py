"""`ByteBudget` limits the number of bytes that a writer keeps in memory, and queues the callers that wait for room.

Many tasks call one writer, and their records wait in memory until the store receives them. A `ByteBudget` limits the
total size of these records over all open objects. Its queue applies back-pressure to the callers, which ``await`` their
turn. Callers are served in order of arrival, so small records cannot starve a large one.

Every record needs room, so the code for callers that need not wait is short::

    used = budget.used + size
    if used <= budget.bound:
        budget.used = used
    else:
        await budget.take(size)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio
from anyio.lowlevel import checkpoint

from asyncrec.errors import ArgumentValueError

# A limit that may grow has room for chunks of this size. For smaller chunks, switching to a thread takes as long as the
# copy.
_SHARE = 256 << 10


class ByteBudget:
    """A limit on the number of bytes held at once, with a queue of the callers that wait for room.

    A request larger than the entire budget is admitted when nothing else is held.

    Bytes are pending in a queue until they fill a batch, and then in flight to a store, which releases them. If callers
    wait while nothing is in flight, the queues therefore send their pending batches (`when_starving`).

    Attributes:
        limit: the maximum number of bytes. It grows to four times the size of the reserved chunks, but not beyond
            ``most``.
        share: the maximum chunk size of each open object. Together, these chunks use a quarter of the limit.
        used: the number of bytes held now, not counting the reserved bytes.
        under_way: the number of held bytes that are in flight to a store.
        bound: the maximum of ``used`` for which a caller need not wait; negative if callers must call `take`.
        paused: whether `pause` keeps all callers waiting.
        seconds_waited: the total waiting time of all callers.
    """

    def __init__(self, limit: int, *, objects: int = 1, most: int = 0) -> None:
        """``most`` is the maximum to which the limit may grow; without it, the limit does not grow."""
        if limit <= 0:
            raise ArgumentValueError(f"memory_limit must be positive, not {limit:,}")
        self.limit = limit
        self.share = max(limit // (4 * objects), min(_SHARE, most // (4 * objects)))
        self._most = most
        self.used = 0
        self.under_way = 0
        self.reserved = 0
        self._set_aside = 0  # the part of the reserved bytes for chunks of open objects
        self.bound = limit
        self.seconds_waited = 0.0
        self._send: list[Callable[[], None]] = []
        self._waiting: deque[tuple[int, anyio.Event]] = deque()
        self._batches = 0
        self._yield_due = False
        self._released = False
        self.paused = False

    def when_starving(self, send: Callable[[], None]) -> None:
        """Call ``send`` whenever callers wait and nothing is in flight, so that each queue sends its pending batch."""
        self._send.append(send)

    def no_longer_when_starving(self, send: Callable[[], None]) -> None:
        """Stop calling ``send``."""
        self._send.remove(send)

    def reserve(self, size: int) -> None:
        """Set ``size`` bytes aside until `unreserve`, for a chunk that fills while an object is open.

        Raises:
            ValueError: more than three quarters of the limit would be set aside, which leaves too little for records.
                Bytes that only `account` has noted do not count, because their release does not depend on a caller.
        """
        self._refuse_beyond(self._set_aside + size)
        self._set_aside += size
        self.account(size, chunk=True)

    def unreserve(self, size: int) -> None:
        """Release ``size`` bytes that `reserve` has set aside."""
        self._set_aside -= size
        self.account(-size)

    def refuse_beyond(self, objects: int) -> None:
        """Raise the error of `reserve` if ``objects`` objects cannot each reserve as much as the first one has."""
        self._refuse_beyond(self._set_aside * objects)

    def account(self, change: int, *, chunk: bool = False) -> None:
        """Note that ``change`` more bytes are held in addition to the records. They are already allocated.

        ``change`` may be negative. For a ``chunk``, the limit may grow.
        """
        self.reserved += change
        if chunk:
            self.limit = self._limit_with(self.reserved)
        self._wake()

    def let_others_run(self) -> None:
        """Count a batch. After every second batch, make the next `take` yield to the event loop first.

        A caller that never waits must not block the loop. Two batches take 0.2 to 0.5 ms, and one iteration of the loop
        takes 0.05 ms.
        """
        self._batches += 1
        if self._batches % 2 == 0:
            self._yield_due = True
            self.bound = -1

    async def take(self, size: int) -> None:
        """Wait until there is room for ``size`` more bytes, and take it. If cancelled, take nothing.

        After `release_all`, return immediately. The caller must then check whether the writer has failed.
        """
        if self._yield_due:
            self._yield_due = False
            self._set_bound()
            await checkpoint()
        if not self._waiting and self._fits(size):
            self.used += size
            return
        granted = anyio.Event()
        waiter = (size, granted)
        self._waiting.append(waiter)
        self._wake()
        begun = anyio.current_time()
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.give(size)
            else:
                self._waiting.remove(waiter)
                self._wake()
            raise
        finally:
            self.seconds_waited += anyio.current_time() - begun

    def hold(self, size: int) -> None:
        """Count ``size`` more bytes without waiting, because they are already in memory."""
        self.used += size

    def give(self, size: int) -> None:
        """Hold ``size`` bytes less: they were taken, and are not needed."""
        self.used -= size
        if self._waiting:
            self._wake()

    def sent(self, size: int) -> None:
        """Note that ``size`` of the held bytes are in flight."""
        self.under_way += size

    def arrived(self, size: int) -> None:
        """Note that ``size`` bytes that were in flight are no longer held."""
        self.under_way -= size
        self.give(size)

    @property
    def callers_waiting(self) -> int:
        """The number of callers that wait for room."""
        return len(self._waiting)

    @property
    def starving(self) -> bool:
        """Whether callers wait for room while nothing is in flight, so no room will be released."""
        return bool(self._waiting) and not self.under_way

    def pause(self) -> None:
        """Admit no caller until `resume`, because the destination of the records is full."""
        self.paused = True
        self._set_bound()

    def resume(self) -> None:
        """End a pause."""
        if self.paused:
            self.paused = False
            self._wake()

    def release_all(self) -> None:
        """Admit all callers from now on, because the writer has failed or closed and raises an error in each call."""
        self._released = True
        self._wake()

    def _limit_with(self, reserved: int) -> int:
        return max(self.limit, min(self._most, 4 * reserved))

    def _refuse_beyond(self, set_aside: int) -> None:
        limit = self._limit_with(set_aside)
        if 4 * set_aside > 3 * limit:
            raise ArgumentValueError(
                f"memory_limit={limit} is too small: the chunks of the open shards alone take {set_aside:,} bytes; "
                "raise memory_limit, or open fewer shards at once"
            )

    def _fits(self, size: int) -> bool:
        if self.paused and not self._released:
            return False
        return self._released or self.used == 0 or self.used + size <= self.limit - self.reserved

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            self.used += size
            granted.set()
        self._set_bound()
        if self.starving:
            for send in self._send:
                send()

    def _set_bound(self) -> None:
        blocked = self._waiting or self._yield_due or self._released or self.paused
        self.bound = -1 if blocked else self.limit - self.reserved
