"""`Deserializer` applies a user's function to many records, inline, in threads, or as concurrent coroutines."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._sampling.interleave.provenance import TracedRecords
from asyncrec.errors import DecodeError

# The maximum number of records between clock reads. Reading the clock costs as much as one call of a fast function. The
# actual number starts at one, and is adapted to the time that the previous records took.
_AT_ONCE = 64
# The time in seconds to work before other tasks get a turn. A turn takes as long as a hundred calls of a fast function.
_SECONDS_AT_ONCE = 0.0005


class _FailedAt(Exception):
    """Raised if the function fails for record ``index``. ``before`` contains the results for the earlier records."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index
        self.before: list[Any] = []


class Deserializer:
    """A user's function, applied to records inline, in threads, or as concurrent coroutines.

    The function is called inline for the first record, to find out whether it is async.

    Args:
        parallelism: if above 1, a sync function runs in this many threads, or this many calls of an async function run
            at once. Otherwise, a sync function blocks the event loop for half a millisecond at a time, or for one
            record if that takes longer; use threads for such a function.
        path: returns the path of the shard with a given number, for messages.
    """

    def __init__(self, function: Callable[[bytes], Any], parallelism: int, path: Callable[[int], str]) -> None:
        self._function = function
        self._parallelism = parallelism
        self._path = path
        self._is_async: bool | None = None
        self._threads = anyio.CapacityLimiter(parallelism)
        self._at_once = 1

    async def run(self, traced: TracedRecords) -> tuple[list[Any], DecodeError | None]:
        """Return the function's results in the order of the records, and `None` as the error.

        If the function fails for a record, return the results for the records before it, and an error that names the
        record and its shard. The cause of the error is the function's exception.
        """
        records = traced.records
        if not records:
            return [], None
        try:
            return await self._run(records), None
        except _FailedAt as failed:
            error = self.error(traced, failed.index, "deserialization_fn", failed.__cause__)
            error.__cause__ = failed.__cause__
            return failed.before, error

    def error(self, traced: TracedRecords, index: int, what: str, cause: BaseException | None) -> DecodeError:
        shard, position = traced.source_of(index)
        return DecodeError(
            f"{self._path(shard)}, record {position.record}: {what} raised {type(cause).__name__}: {cause}"
        )

    async def _run(self, records: Sequence[bytes]) -> list[Any]:
        examples: list[Any] = []
        try:
            if self._is_async is None:
                first = self._apply(records[:1], 0)
                self._is_async = isawaitable(first[0])
                examples = [await self._awaited(first[0], 0)] if self._is_async else first
            if self._parallelism > 1 and len(records) - len(examples) > 1:
                await self._side_by_side(records, examples)
            elif self._is_async:
                for index in range(len(examples), len(records)):
                    examples.append(await self._await_one(records, index))
            else:
                await self._inline(records, examples)
        except _FailedAt as failed:
            failed.before = examples + failed.before
            raise
        return examples

    async def _inline(self, records: Sequence[bytes], examples: list[Any]) -> None:
        began = now = time.perf_counter()
        done = len(examples)
        while done < len(records):
            some = records[done : done + self._at_once]
            examples += self._apply(some, done)
            done += len(some)
            before, now = now, time.perf_counter()
            took = now - before
            if took > _SECONDS_AT_ONCE / 2:
                self._at_once = max(1, int(len(some) * _SECONDS_AT_ONCE / 2 / took))
            elif took < _SECONDS_AT_ONCE / 4:
                self._at_once = min(2 * self._at_once, _AT_ONCE)
            if now - began > _SECONDS_AT_ONCE:
                await checkpoint()
                began = now = time.perf_counter()

    async def _side_by_side(self, records: Sequence[bytes], examples: list[Any]) -> None:
        done = len(examples)
        results: dict[int, list[Any]] = {}
        failures: list[_FailedAt] = []
        # Each thread gets a single large piece, because a thread hop takes longer than most functions. A coroutine gets
        # one record at a time.
        step = 1 if self._is_async else -(-(len(records) - done) // self._parallelism)
        begins = iter(range(done, len(records), step))

        async def work() -> None:
            for begin in begins:
                try:
                    if self._is_async:
                        results[begin] = [await self._await_one(records, begin)]
                    else:
                        piece = records[begin : begin + step]
                        results[begin] = await in_thread(self._apply, piece, begin, limiter=self._threads)
                except _FailedAt as failed:
                    failures.append(failed)
                    return

        async with TaskScope() as scope:
            for _ in range(min(self._parallelism, len(records) - done)):
                scope.start_soon(work)
        failed = min(failures, key=lambda each: each.index, default=None)
        for begin in sorted(results):
            if failed is None or begin < failed.index:
                examples += results[begin]
        if failed is not None:
            raise failed

    def _apply(self, records: Sequence[bytes], begin: int) -> list[Any]:
        examples: list[Any] = []
        try:
            # `extend` keeps the results before an error, and their number shows which record failed.
            examples.extend(map(self._function, records))
        except Exception as error:
            failed = _FailedAt(begin + len(examples))
            failed.before = examples
            raise failed from error
        return examples

    async def _await_one(self, records: Sequence[bytes], index: int) -> Any:
        (example,) = self._apply(records[index : index + 1], index)
        return await self._awaited(example, index)

    async def _awaited(self, example: Awaitable[Any], index: int) -> Any:
        try:
            return await example
        except Exception as error:
            raise _FailedAt(index) from error
