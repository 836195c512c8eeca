"""`InterleaveSampler` makes class-balanced batches by interleaving shards, in a task that works ahead of the trainer.

The sampler is an async version of TensorFlow Similarity's ``TFRecordDatasetSampler``. It takes ``example_per_class``
records from each shard of a cycle in turn. If the records of a class are stored together, batches contain many classes.
If they are not, or if every batch must have the same composition, ``class_fn`` first sorts the examples by class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from types import TracebackType
from typing import Any

import anyio

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.tasks import TaskScope
from asyncrec._framing.compression import ReadingCompression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.reader import OnCorrupt
from asyncrec._sampling.damage import ShardDamage
from asyncrec._sampling.interleave.cycle_shards import MEMORY_LIMIT, READS_AT_ONCE, InterleavePlan
from asyncrec._sampling.interleave.shard_inputs import parse_reading_compression
from asyncrec._sampling.interleave.stream import check_plan
from asyncrec._sampling.interleave_sampler.batch_builder import BatchBuilder, BatchPlan, OnExhausted
from asyncrec._sampling.interleave_sampler.deserializer import Deserializer
from asyncrec._sampling.interleave_sampler.passes import Passes
from asyncrec._sampling.interleave_sampler.prefetch import Prefetcher
from asyncrec._sampling.interleave_sampler.shard_folder import ShardFolder
from asyncrec._sampling.parameters import check_function, check_same_seed, check_seed, new_seed, whole_number, worker_of
from asyncrec._sampling.stream_state import checked, enveloped, fingerprint, versions_in
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import CACHE_BYTES

_KIND = "asyncrec.InterleaveSampler"

# The number of examples that may wait until their class is complete. This is enough for four examples of each of a
# thousand classes, so few are dropped, and takes no more memory than a few batches of images.
_CLASS_BUFFER = 4096


@dataclass(frozen=True, slots=True)
class SamplerStats:
    """The progress of an `InterleaveSampler`, including waiting batches and the progress before a loaded state.

    Attributes:
        batches: the number of batches made.
        records: the number of records read for these batches.
        dropped: the number of examples dropped because the class buffer was full.
        epoch: the number of the current pass over the shards, from 0.
        seconds_waited: the time spent waiting for reads, since the sampler was entered.
        seconds_idle: the time that the caller spent waiting for batches, since the sampler was entered.
    """

    batches: int
    records: int
    dropped: int
    epoch: int
    seconds_waited: float
    seconds_idle: float


class InterleaveSampler:
    """An async context manager and async iterator over batches, which are lists of results of ``deserialization_fn``.

    ::

        async with asyncrec.InterleaveSampler("data", decode, shard_suffix="train-*.tfrecord", seed=1) as sampler:
            async for examples in sampler:
                ...

    The context may be exited before the iteration ends.

    Args:
        shard_path: the folder of the shards. Names that begin with ``_`` or ``.`` are never shards.
        deserialization_fn: a sync or async function that turns the bytes of a record into an example.
        example_per_class: the number of records taken from a shard before the next shard's turn; with ``class_fn``,
            the number of examples of each class in a batch.
        batch_size: the number of examples in a batch. With ``class_fn``, a batch has exactly ``batch_size //
            example_per_class`` classes, so ``batch_size=33`` with ``example_per_class=8`` makes batches of 32.
        shards_per_cycle: the number of shards open at once; `None` for all.
        compression: as for `open_reader`.
        parallelism: the number of threads or coroutines that decode; `None` means one.
        async_cycle: whether the shards of a cycle are read ahead concurrently, each by a task. `None`, the default,
            chooses the faster setting: `True` for a store, `False` for local files. Batches and states do not depend on
            this parameter. For the memory used, see `interleave`.
        prefetch_size: the number of batches that a task prepares in advance. With 0, there is no such task.
        shard_suffix: a pattern for the names of the shards, such as ``"train-*.tfrecord"`` for one of several data
            sets in a folder. If the shards belong to several data sets, they are read together, and a warning is
            logged.
        num_repeat: the number of passes over the shards; -1, the default, means forever. A batch may continue into the
            next pass.
        seed: the seed for the order of the shards, which differs in each pass. If `None`, the sampler chooses a seed
            and stores it in the state.
        deterministic: if `False`, there is no state and, with ``async_cycle``, ready records are returned first.
        class_fn: a function that returns the class of an example, which is any hashable value. Each batch then has
            exactly ``batch_size // example_per_class`` distinct classes, and ``example_per_class`` examples of each,
            one class after the other. Classes need not be known beforehand. Some examples may remain unused; see
            ``class_buffer``.
        class_buffer: the number of examples that may wait until there are enough of their class. The default is 4,096
            or 16 batches, whichever is larger. If the buffer is full, the oldest example of a class with many waiting
            examples is dropped; `stats` counts these examples.
        shuffle_buffer: the size of a `ShuffleBuffer` between reading and decoding; 0 means no buffer.
        drop_remainder: whether a short last batch is discarded. (With ``class_fn``, see ``on_exhausted``.)
        worker: ``(i, n)`` for worker i of n, which reads only every n-th shard in order of name, starting with number
            i. Workers and shards are numbered from 0.
        on_exhausted: with ``class_fn``, how to proceed at the end of the last pass, or after a whole pass with too few
            classes for a batch. ``"stop"`` ends the iteration, and raises an error if there was no batch; ``"short"``
            returns the complete classes, in batches of fewer classes; ``"repeat"`` continues for at most one more pass,
            until one more batch is complete.
        on_corrupt: how to handle damage, as for `open_reader`: ``"raise"`` (the default) raises an error; ``"skip"``
            returns every intact record; ``"stop"`` ends the shard at the damage. `damage` lists the lost ranges.
        max_record_bytes, cache, cache_bytes: as for `open_reader`.
        storage, storage_options: as for `open_reader`; with ``storage``, the folder is a key in it.

    Raises:
        ValueError: on creation or on entering, a number is out of range, or there are fewer shards than workers.
        ObjectNotFoundError: on entering, no shard matches; while iterating, a shard no longer exists.
        DecodeError: ``deserialization_fn`` or ``class_fn`` raised an exception, or a class is not equal to itself, such
            as NaN. The message names the record.
        DatasetError: no shard has a record; or, with ``class_fn``, a pass before the first batch had too few classes,
            or ``"repeat"`` found too few classes.
        FormatError, StorageError: while iterating, as for `open_reader`, after the batches before the error.
    """

    def __init__(
        self,
        shard_path: str | PathLike[str],
        deserialization_fn: Callable[[bytes], Any],
        example_per_class: int = 2,
        batch_size: int = 32,
        shards_per_cycle: int | None = None,
        compression: ReadingCompression = "auto",
        parallelism: int | None = None,
        async_cycle: bool | None = None,
        prefetch_size: int = 10,
        shard_suffix: str = "*.tfrec*",
        num_repeat: int = -1,
        *,
        seed: int | None = None,
        deterministic: bool = True,
        class_fn: Callable[[Any], Hashable] | None = None,
        class_buffer: int | None = None,
        shuffle_buffer: int = 0,
        drop_remainder: bool = False,
        worker: tuple[int, int] = (0, 1),
        on_exhausted: OnExhausted = "stop",
        on_corrupt: OnCorrupt = "raise",
        max_record_bytes: Size = MAX_RECORD_BYTES,
        cache: str | PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
        storage: Storage | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        batch_size = whole_number(batch_size, "batch_size", least=1)
        example_per_class = whole_number(example_per_class, "example_per_class", least=1)
        check_function(deserialization_fn, "deserialization_fn", "a function that turns bytes into an example")
        if class_fn is not None:
            check_function(class_fn, "class_fn", "a function that returns the class of an example")
        if not 1 <= example_per_class <= batch_size:
            raise ArgumentValueError(
                f"example_per_class={example_per_class}: must be from 1 to batch_size={batch_size}"
            )
        if parallelism is not None:
            parallelism = whole_number(parallelism, "parallelism", least=1, other="None")
        if shards_per_cycle is not None:
            shards_per_cycle = whole_number(shards_per_cycle, "shards_per_cycle", least=1, other="None")
        prefetch_size = whole_number(prefetch_size, "prefetch_size", least=0)
        if num_repeat != -1:
            num_repeat = whole_number(num_repeat, "num_repeat", least=1, other="-1 to repeat forever")
        shuffle_buffer = whole_number(shuffle_buffer, "shuffle_buffer", least=0)
        worker = worker_of(worker)
        if on_exhausted not in ("stop", "repeat", "short"):
            raise ArgumentValueError(f'on_exhausted={on_exhausted!r}: must be "stop", "repeat" or "short"')
        if class_buffer is None:
            class_buffer = max(_CLASS_BUFFER, 16 * batch_size)
        class_buffer = whole_number(class_buffer, "class_buffer", least=1, other="None")
        self._folder = ShardFolder(
            path=fspath(shard_path),
            pattern=shard_suffix,
            worker=worker,
            compression=parse_reading_compression(compression),
            on_corrupt=on_corrupt,
            max_record_bytes=record_limit(max_record_bytes),
            cache=cache,
            cache_bytes=byte_count(cache_bytes, "cache_bytes"),
            storage=storage,
            storage_options=storage_options,
        )
        self._deserializing = partial(Deserializer, deserialization_fn, parallelism or 1)
        self._seed = check_seed(seed)
        self._prefetch_size = prefetch_size
        reads = None if async_cycle is None else READS_AT_ONCE if async_cycle else 0
        self._plan = InterleavePlan(
            shards_per_cycle or 0, example_per_class, reads, deterministic, MEMORY_LIMIT, shuffle_buffer
        )
        self._batch_plan = BatchPlan(
            batch_size, example_per_class, class_fn, class_buffer, num_repeat, drop_remainder, on_exhausted
        )
        self._parameters: dict[str, Any] = {
            "batch_size": batch_size,
            "example_per_class": example_per_class,
            "shards_per_cycle": shards_per_cycle,
            "shuffle_buffer": shuffle_buffer,
            "class_buffer": class_buffer if class_fn is not None else None,
            "num_repeat": num_repeat,
            "drop_remainder": bool(drop_remainder) if class_fn is None else None,
            "on_exhausted": on_exhausted if class_fn is not None else None,
            "shard": list(worker),
        }
        self._identity = ""
        self._inputs = self._folder.inputs([])
        self._stack = AsyncExitStack()
        self._scope: TaskScope | None = None
        self._builder: BatchBuilder | None = None
        self._prefetch: Prefetcher | None = None
        self._forked = False
        on_fork(self)

    def forked(self) -> None:
        """Make any further reading raise an error. Called in a forked child."""
        self._forked = True
        self._prefetch = None

    async def __aenter__(self) -> InterleaveSampler:
        if self._builder is not None:
            raise RuntimeError("a sampler can only be entered once; create a new one")
        self._forked = False  # a sampler that was created before a fork may still be entered after it
        async with AsyncExitStack() as stack:
            names, self._inputs = await stack.enter_async_context(self._folder.open())
            inputs = self._inputs
            self._identity = fingerprint(names)
            plan = self._plan._replace(cycle_length=self._plan.cycle_length or len(names)).of(inputs)
            check_plan(plan, names)
            if self._prefetch_size or plan.parallelism:
                self._scope = await stack.enter_async_context(TaskScope())
            seed = new_seed() if self._seed is None else self._seed
            self._builder = BatchBuilder(
                inputs,
                Passes(inputs, plan, num_repeat=self._batch_plan.num_repeat, seed=seed, scope=self._scope),
                self._batch_plan,
                self._deserializing(inputs.path),
                state_cost=plan.cycle_length + plan.shuffle_buffer,
            )
            self._prefetch = Prefetcher(
                self._builder, size=self._prefetch_size, scope=self._scope, has_state=plan.deterministic
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scope is not None:
            self._scope.cancel()
        if self._prefetch is not None:
            self._stack.push_async_callback(self._prefetch.aclose)
        self._prefetch = None
        await self._stack.__aexit__(exc_type, exc, traceback)

    def __aiter__(self) -> InterleaveSampler:
        return self

    async def __anext__(self) -> list[Any]:
        prefetch = self._open()
        if not prefetch.batches:
            await prefetch.wait()
        return prefetch.take()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch returned, as JSON, for a sampler over the same shards.

        The state holds the positions of the open shards and of the records in the shuffle buffer and the class buffer,
        but no examples. It takes about 100 kB if the buffers hold a few thousand records. Batches that were prepared in
        advance are not in the state, and are made again.

        Raises:
            RuntimeError: the sampler was created with ``deterministic=False``.
        """
        return self.state_before(0)

    def state_before(self, unused: int) -> dict[str, Any]:
        """Return the state before the last ``unused`` batches, which is 0 or, after `keep_snapshots`, 1."""
        state = {**self._open().state_dict(unused), "versions": self._inputs.versions()}
        return enveloped(_KIND, self._identity, self._parameters, state)

    def keep_snapshots(self) -> None:
        """Keep what ``state_before(1)`` needs. Call this method before iterating."""
        self._open().keep_snapshots()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last batch returned before the state was taken. The buffered records are read again.

        Raises:
            ValueError: the state is damaged, or was taken with different shards, parameters or seed.
            DatasetError: a shard was replaced after the state was taken.
            RuntimeError: the iteration has begun, or the sampler was created with ``deterministic=False``.
        """
        prefetch = self._open()
        if prefetch.begun:
            raise RuntimeError("a state must be loaded before iterating")
        values = checked(state, _KIND, self._identity, self._parameters, difference=self._inputs.difference)
        check_same_seed(self._seed, values.whole("seed", least=None, most=None))
        self._inputs.check_known(versions_in(values, len(self._inputs)))
        prefetch.load(state, values)

    @property
    def damage(self) -> list[ShardDamage]:
        """With ``on_corrupt="skip"`` or ``"stop"``, the ranges skipped so far, including ranges read ahead."""
        return self._inputs.damage

    def stats(self) -> SamplerStats:
        prefetch, builder = self._open(), self._builder
        assert builder is not None, "the sampler is open"
        return SamplerStats(
            batches=builder.batches,
            records=builder.passes.records,
            dropped=builder.dropped,
            epoch=builder.passes.epoch,
            seconds_waited=builder.passes.seconds_waited,
            seconds_idle=prefetch.seconds_idle,
        )

    def _open(self) -> Prefetcher:
        if self._forked:
            raise forked_error(f"{self._folder.display_path}: the sampler")
        if self._prefetch is None:
            raise anyio.ClosedResourceError("a sampler must be used inside its `async with`")
        return self._prefetch
