"""`interleave` returns the records of many shards in tf.data's order, as one stream that can be resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any

import anyio

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.tasks import TaskScope
from asyncrec._framing.compression import ReadingCompression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.reader import OnCorrupt
from asyncrec._sampling.damage import ShardDamage
from asyncrec._sampling.interleave.cycle_shards import MEMORY_LIMIT, InterleavePlan
from asyncrec._sampling.interleave.provenance import TracedRecords, pack_sources
from asyncrec._sampling.interleave.shard_inputs import ShardInputs, inputs_at, parse_reading_compression
from asyncrec._sampling.interleave.single_pass import NO_STATE, PassState, SinglePass
from asyncrec._sampling.parameters import check_same_seed, check_seed, new_seed, whole_number, worker_of
from asyncrec._sampling.stream_state import ShardVersion, checked, enveloped, fingerprint, versions_in
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import CACHE_BYTES, cache_at
from asyncrec.storage._url import redact

_KIND = "asyncrec.interleave"

# The number of records that `__anext__` takes from memory at a time, because taking records one by one would take
# longer than reading them. The state contains the positions of the taken records that have not yet been returned.
_AT_ONCE = 64

# The number of records that `asyncrec.blocking` transfers at a time. Its state may be the state before such a transfer,
# with a ``list_position``: the number of these records that have been returned.
TRANSFERRED = 256


@dataclass(frozen=True, slots=True)
class InterleaveStats:
    """The progress of an `InterleaveStream`, including the progress before the state from which it resumed.

    Attributes:
        records: the number of records returned.
        shards: the number of shards that were read to their end.
        seconds_waited: the time spent waiting for reads since the stream was opened.
    """

    records: int
    shards: int
    seconds_waited: float


class InterleaveStream:
    """A stream of the records of many shards, made by `interleave`. Only one task may read it, and only once.

    ``async for record in stream`` yields single records; ``async for records in stream.batches(1024)`` yields lists of
    records, which is faster. Each loop continues where the previous one stopped. A cancelled read loses no records.
    """

    def __init__(
        self,
        single_pass: SinglePass,
        inputs: ShardInputs,
        identity: str,
        parameters: dict[str, Any],
        *,
        seed: int | None,
        has_state: bool,
    ) -> None:
        self._seed = seed  # `None` if no seed was passed
        self._has_state = has_state
        self._single_pass = single_pass
        self._inputs = inputs
        self._identity = identity
        self._parameters = parameters
        self._buffered = TracedRecords()  # records taken together for `__anext__`, or the last batch
        self._buffered_index = 0
        self._loaded: Mapping[str, Any] | None = None
        self._start: tuple[PassState, list[ShardVersion]] | None = None  # the loaded state, parsed
        self._left_out = 0  # the number of records to read and discard before the first record
        self._begun = False
        self._forked = False
        on_fork(self)

    def forked(self) -> None:
        """Make any further reading raise an error. Called in a forked child."""
        self._forked = True
        self._buffered, self._buffered_index = TracedRecords(), 0

    def __aiter__(self) -> InterleaveStream:
        return self

    async def __anext__(self) -> bytes:
        if self._buffered_index == len(self._buffered.records):
            self._buffered = await self._take(_AT_ONCE, buffered_only=True)
            self._buffered_index = 0
            if not self._buffered.records:
                raise StopAsyncIteration
        record = self._buffered.records[self._buffered_index]
        self._buffered_index += 1
        return record

    def batches(self, batch_size: int) -> AsyncIterator[list[bytes]]:
        """Iterate over lists of ``batch_size`` records. Only the last list, or the list before an error, is shorter.

        Raises:
            ValueError: ``batch_size`` is below 1.
        """
        return Batches(partial(self._next_batch, whole_number(batch_size, "batch_size", least=1)))

    def state_dict(self) -> dict[str, Any]:
        """Return the current position as JSON, for `load_state_dict` of a stream over the same shards.

        The state holds a position for each open shard and for each buffered record, but no records.

        Raises:
            RuntimeError: the stream was opened with ``deterministic=False``.
        """
        return self.state_before(0)

    def state_before(self, unused: int) -> dict[str, Any]:
        """Return the state before the last ``unused`` records, which must all be of the last batch."""
        if self._forked:
            raise forked_error("the stream")
        if self._loaded is not None and not self._begun:
            return dict(self._loaded)
        state = self._single_pass.state_dict()
        first = self._buffered_index - unused
        sources = self._buffered.sources() if first < len(self._buffered.records) else []
        left = pack_sources(sources[first:])
        state["pending"] = left + state["pending"]
        state["records"] -= len(left)
        state["versions"] = self._inputs.versions(_stands_in(state))
        return enveloped(_KIND, self._identity, self._parameters, state)

    def with_versions(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return an earlier state of this stream, plus the versions of the shards that the stream has opened since.

        A reader that resumes from the earlier state, and skips the records returned since, also reads these shards.
        """
        told = {packed[0]: packed for packed in state.get("versions", ())}
        coming = range(state["order"]["next_input"], len(self._inputs))
        known = {packed[0]: packed for packed in self._inputs.versions([*_stands_in(state), *coming])}
        return {**state, "versions": [packed for _, packed in sorted({**known, **told}.items())]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from this state. Call this method before reading.

        The first read also reads the records of the shuffle buffer again. If a shard was replaced since the state was
        taken, the first read raises DatasetError.

        Raises:
            ValueError: the state is damaged, or was taken with other shards, other parameters, or another seed than the
                ``seed`` that was passed.
            RuntimeError: reading has begun, or the stream was opened with ``deterministic=False``.
        """
        if self._begun:
            raise RuntimeError("a state must be loaded before the first record is read")
        if not self._has_state:
            raise RuntimeError(NO_STATE)
        values = checked(state, _KIND, self._identity, self._parameters)
        start = self._single_pass.parsed(values)
        if start.shuffle is not None:
            check_same_seed(self._seed, start.shuffle.seed)
        listed = "list_position" in values
        self._left_out = values.whole("list_position", most=TRANSFERRED - 1) if listed else 0
        self._start = start, versions_in(values, len(self._inputs))
        self._loaded = state

    @property
    def damage(self) -> list[ShardDamage]:
        """With ``on_corrupt="skip"`` or ``"stop"``, the ranges skipped so far, including ranges read ahead."""
        return self._inputs.damage

    def stats(self) -> InterleaveStats:
        single_pass = self._single_pass
        records = single_pass.records - (len(self._buffered.records) - self._buffered_index)
        return InterleaveStats(records, single_pass.shards, single_pass.seconds_waited)

    async def _next_batch(self, size: int) -> list[bytes]:
        first = self._buffered_index
        missing = first + size - len(self._buffered.records)
        if missing > 0:
            more = await self._take(missing)
            _, batch = self._buffered.split(first) if first else (None, self._buffered)
            batch.extend(more)
            if not batch.records:
                raise StopAsyncIteration
            self._buffered, first = batch, 0
        self._buffered_index = min(first + size, len(self._buffered.records))
        return self._buffered.records[first : self._buffered_index]

    async def _take(self, count: int, *, buffered_only: bool = False) -> TracedRecords:
        if self._forked:
            raise forked_error("the stream")
        if self._single_pass.closed:
            raise anyio.ClosedResourceError("the stream is closed; read inside its `async with`")
        if not self._begun:
            if self._start is not None:
                start, versions = self._start
                await self._inputs.check(versions)
                await self._single_pass.load(start)
                self._start = None
            while self._left_out:
                taken = await self._single_pass.take(self._left_out)
                self._left_out -= len(taken.records) or self._left_out
            self._begun = True
        return await self._single_pass.take(count, buffered_only=buffered_only)


def _stands_in(state: Mapping[str, Any]) -> set[int]:
    """Return the shards for which a state records a position."""
    return {packed[0] for packed in (*state["open"], *state["pending"], *state.get("shuffled", ()))}


@asynccontextmanager
async def interleave(
    paths: Sequence[str | PathLike[str]],
    *,
    cycle_length: int = 16,
    block_length: int = 1,
    parallelism: int | None = None,
    deterministic: bool = True,
    compression: ReadingCompression = "auto",
    on_corrupt: OnCorrupt = "raise",
    shuffle_buffer: int = 0,
    seed: int | None = None,
    worker: tuple[int, int] = (0, 1),
    memory_limit: Size = MEMORY_LIMIT,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    cache: str | PathLike[str] | None = None,
    cache_bytes: Size = CACHE_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[InterleaveStream]:
    """Iterate over the records of ``paths``, interleaved exactly as ``tf.data.Dataset.interleave`` does.

    You may exit the context before the stream ends.

    Args:
        paths: the shards, in the order in which they are opened; see `list_shards`.
        cycle_length: the number of shards that are open at once.
        block_length: the number of records that are taken from one shard before the next shard's turn.
        parallelism: the number of concurrent reads, by tasks that read ahead, one for each shard of the cycle. With 0,
            shards are read when their records are needed. `None`, the default, chooses the fastest value: 0 for local
            files, and 32 for a store, where each read waits for a response. Neither the order nor the state depends on
            this value.
        deterministic: if `False`, shards are skipped while they have no records ready (only if shards are read ahead).
            The order then depends on timing, and the stream has no state.
        compression: as for `open_reader`; ``"auto"`` detects it for each shard.
        on_corrupt: how to handle damage, as for `open_reader`: ``"raise"`` (the default) raises an error; ``"skip"``
            returns every intact record; ``"stop"`` ends the shard at the damage. `InterleaveStream.damage` lists the
            lost ranges.
        shuffle_buffer: the size of a `ShuffleBuffer` after the interleave; 0, the default, means no buffer.
        seed: the seed of that buffer. If `None`, the stream chooses a seed and stores it in the state.
        worker: ``(i, n)``: the share of worker i of n, which is every n-th of ``paths``, starting with number i.
        memory_limit: the maximum size in bytes of the records of all open shards, read ahead or not; 64 MiB by default.
            Each shard of the cycle gets an equal share, of at least 64 KiB. If the store does not send a shard in one
            long response, each request is for a quarter of that share, at most 4 MiB.
        max_record_bytes, cache, cache_bytes: as for `open_reader`.

    Raises:
        ValueError: there are no paths, there are fewer paths than workers, or a number is out of range.
        ObjectNotFoundError, FormatError, StorageError: raised while reading, after the records before the error. The
            message names the shard.
    """
    memory_limit = byte_count(memory_limit, "memory_limit")
    plan = InterleavePlan(cycle_length, block_length, parallelism, deterministic, memory_limit, shuffle_buffer)
    share = worker_share([fspath(path) for path in check_plan(plan, paths)], worker)
    seed = check_seed(seed)
    parameters = {
        "cycle_length": cycle_length,
        "block_length": block_length,
        "shuffle_buffer": shuffle_buffer,
        "shard": list(worker),
    }
    disk_cache = await cache_at(cache, cache_bytes)
    opening = inputs_at(
        share,
        compression=parse_reading_compression(compression),
        on_corrupt=on_corrupt,
        max_record_bytes=record_limit(max_record_bytes),
        cache=disk_cache,
        storage=storage,
        storage_options=storage_options,
    )
    async with opening as inputs, AsyncExitStack() as stack:
        plan = plan.of(inputs)
        scope = await stack.enter_async_context(TaskScope()) if plan.parallelism else None
        single_pass = SinglePass(
            inputs, range(len(share)), plan, scope=scope, seed=new_seed() if seed is None else seed
        )
        stream = InterleaveStream(
            single_pass, inputs, fingerprint(map(redact, share)), parameters, seed=seed, has_state=deterministic
        )
        try:
            yield stream
        finally:
            if scope is not None:
                scope.cancel()
            await single_pass.aclose()


def check_plan(plan: InterleavePlan, paths: Sequence[Any]) -> Sequence[Any]:
    """Return ``paths``. Raise ValueError or TypeError if the list of shards or a parameter of the plan is invalid."""
    if isinstance(paths, (str, bytes, PathLike)):
        raise ArgumentTypeError(
            "paths must be a list of shards; to list the shards of a data set, use asyncrec.list_shards"
        )
    if not paths:
        raise ArgumentValueError("the list of shards is empty; pass at least one shard")
    for name in ("cycle_length", "block_length", "memory_limit"):
        whole_number(getattr(plan, name), name, least=1)
    whole_number(plan.shuffle_buffer, "shuffle_buffer", least=0)
    if plan.parallelism is not None:
        whole_number(plan.parallelism, "parallelism", least=0, other="None")
    return paths


def worker_share(paths: Sequence[str], worker: tuple[int, int]) -> Sequence[str]:
    """Return the paths that worker i of n reads.

    Raises:
        ValueError: the worker does not exist, or there are fewer shards than workers. In distributed training, all
            other workers would wait for a worker without shards.
    """
    index, count = worker_of(worker)
    if len(paths) < count:
        raise ArgumentValueError(
            f"{len(paths)} shards cannot be divided among {count} workers: write more shards, or use open_dataset, "
            "which divides records"
        )
    return paths[index::count]
