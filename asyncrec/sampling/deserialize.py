"""`Deserializer`: a user's function over many records: inline, in worker threads, or as coroutines side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from asyncrec.errors import DecodeError
from asyncrec.sampling.origin import Taken
from asyncrec.tasks import TaskScope, in_thread

__all__ = ["Deserializer"]

# Records between two looks at the event loop: at 10 us each, what a fast one takes, less than a millisecond.
_AT_ONCE = 64


class _FailedAt(Exception):
    """The number of the record at which it failed; the error itself is the cause."""


class Deserializer:
    """Whether the function is a coroutine function shows in what it gives for the first record, which is run inline.

    Args:
        parallelism: more than 1 runs a sync function in so many threads, and an async one so many times at once.
            Otherwise a sync one holds the event loop for as long as 64 records take it.
        path: of an input, for messages.
    """

    def __init__(self, function: Callable[[bytes], Any], parallelism: int, path: Callable[[int], str]) -> None:
        self._function = function
        self._parallelism = parallelism
        self._path = path
        self._is_async: bool | None = None
        self._threads = anyio.CapacityLimiter(parallelism)

    async def run(self, taken: Taken) -> list[Any]:
        """What the function gives, in the order of the records.

        Raises:
            DecodeError: it raised; says for which record of which shard, and the error is the cause.
        """
        records = taken.records
        if not records:
            return []
        try:
            return await self._run(records)
        except _FailedAt as failed:
            index: int = failed.args[0]
            cause = failed.__cause__
            raise self.error(taken, index, "deserialization_fn", cause) from cause

    def error(self, taken: Taken, index: int, what: str, cause: BaseException | None) -> DecodeError:
        source, position = taken.origin(index)
        return DecodeError(
            f"{self._path(source)}, record {position.record}: {what} raised {type(cause).__name__}: {cause}"
        )

    async def _run(self, records: Sequence[bytes]) -> list[Any]:
        examples: list[Any] = []
        if self._is_async is None:
            examples = self._apply(records[:1], 0)
            self._is_async = isawaitable(examples[0])
            if self._is_async:
                examples = [await self._awaited(examples[0], 0)]
        done = len(examples)
        if self._parallelism > 1 and len(records) - done > 1:
            return examples + await self._side_by_side(records, done)
        if self._is_async:
            for index in range(done, len(records)):
                examples.append(await self._await_one(records, index))
            return examples
        for begin in range(done, len(records), _AT_ONCE):
            examples += self._apply(records[begin : begin + _AT_ONCE], begin)
            await checkpoint()
        return examples

    async def _side_by_side(self, records: Sequence[bytes], done: int) -> list[Any]:
        results: dict[int, list[Any]] = {}
        failures: list[_FailedAt] = []
        # Threads get one piece each: a hop costs more than most functions. Coroutines come one by one.
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
        if failures:
            raise min(failures, key=lambda failed: int(failed.args[0]))
        return [example for begin in sorted(results) for example in results[begin]]

    def _apply(self, records: Sequence[bytes], begin: int) -> list[Any]:
        function = self._function
        examples: list[Any] = []
        try:
            for record in records:
                examples.append(function(record))  # how far it came says which is at fault
        except Exception as error:
            raise _FailedAt(begin + len(examples)) from error
        return examples

    async def _await_one(self, records: Sequence[bytes], index: int) -> Any:
        (example,) = self._apply(records[index : index + 1], index)
        return await self._awaited(example, index)

    async def _awaited(self, example: Awaitable[Any], index: int) -> Any:
        try:
            return await example
        except Exception as error:
            raise _FailedAt(index) from error
