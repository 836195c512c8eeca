"""`Intake` admits records to a writer once there is room, unless the writer has failed."""

from __future__ import annotations

from collections.abc import Callable

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec.storage._base import Buffer


class Intake:
    """The admission of records to a writer. Callers wait for room, and get an error if the writer fails or closes."""

    def __init__(self, budget: ByteBudget, check: Callable[[], None]) -> None:
        """``check`` raises an error if the writer accepts no more records."""
        self._budget = budget
        self._check = check

    async def take(self, size: int) -> None:
        """Wait for room in the budget, and take it. After an error or a cancellation, no room is taken."""
        await self._budget.take(size)
        self._check_or_give(size)

    async def frame_large(self, record: bytes) -> list[Buffer]:
        """Frame a large record in a worker thread. An error or a cancellation releases the room of its frame."""
        size = len(record) + FRAME_OVERHEAD
        try:
            frames = await in_thread(encode_frames, [record])
        except BaseException:
            self._budget.give(size)
            raise
        self._check_or_give(size)
        return frames

    def _check_or_give(self, size: int) -> None:
        try:
            self._check()
        except BaseException:
            self._budget.give(size)
            raise
