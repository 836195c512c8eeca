"""`ClassBalancedSampler` makes class-balanced batches by random access, for classes that are scattered across shards.

If the records of each class are stored together, use `InterleaveSampler`, which reads shards in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.read_ahead import ReadAhead
from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.balanced_sampler.class_column import ClassColumn, ClassFn, class_column
from asyncrec._sampling.epochs.permutation import key_of, mix64, permuted
from asyncrec._sampling.epochs.read_ahead_items import ReadAheadItems
from asyncrec._sampling.parameters import check_function, check_seed, new_seed, public_type, whole_number, worker_of
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._sampling.state_values import StateValues
from asyncrec._sampling.stream_state import ordered_state
from asyncrec.errors import ArgumentTypeError, ArgumentValueError

_KIND = "class_balanced"
_NO_COLUMN = ClassColumn(np.empty(0, np.int32), ())
_HINTS = {
    "asyncrec.blocking.Dataset": "; use asyncrec.blocking.ClassBalancedSampler for that",
    "str": "; pass its path to open_dataset",
}
_OTHER_CLASSES = "class_fn does not return the same classes as when the state was taken, so the order would differ"
# The maximum number of classes listed in a message.
_NAMED = 10
# The number of records requested together, so that neighbouring records share a read. Up to twice as many are in
# memory.
_READ_RECORDS = 1024


class ClassBalancedSampler:
    """An endless async iterator over batches of ``classes_per_batch`` distinct classes with ``per_class`` records each.

    ::

        async with ClassBalancedSampler(dataset, 16, 2, class_feature="label", seed=1) as sampler:
            async for records in sampler:  # 32 records: two of one class, two of the next, ...
                ...

    If the data set was opened with ``newest=``, batches contain only the newest version of each key.

    All classes appear equally often, regardless of their sizes, and so do all records of a class. If a class has fewer
    than ``per_class`` records, some of its records appear more than once in a batch.

    The sampler is an async context manager for use by a single task. On entry, it reads the class of every record,
    unless an earlier sampler has stored the classes.

    Args:
        class_feature: the name of the feature that holds the class as a single int64, float32 or bytes value.
        class_fn: alternatively, a function that returns the class of a record, which may be any hashable value. The
            function is called in worker threads. To resume from a state, it must return the same classes as before.
        seed: any int. If `None`, the sampler chooses a seed and stores it in the state. Several workers must pass the
            same seed, because they share an order.
        worker: ``(i, n)``: worker i of n returns the batches whose number is i modulo n.

    Attributes:
        classes: the labels of the classes, sorted, or in the order of their first records if labels cannot be sorted;
            empty until the sampler is entered.

    Raises (on entering):
        ValueError: there are fewer classes than a batch needs.
        ValueError: ``class_fn`` does not return the same classes as when the loaded state was taken.
        SchemaError: a record has no class, several classes, or a class that is not equal to itself (NaN).
        DecodeError: ``class_fn`` raised an exception. The message names the record.
    """

    def __init__(
        self,
        dataset: Dataset,
        classes_per_batch: int,
        per_class: int,
        *,
        class_feature: str | None = None,
        class_fn: ClassFn | None = None,
        seed: int | None = 0,
        worker: tuple[int, int] = (0, 1),
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise ArgumentTypeError(
                "ClassBalancedSampler takes a Dataset, which asyncrec.open_dataset returns, not "
                f"{public_type(dataset)}" + _HINTS.get(public_type(dataset), "")
            )
        if (class_feature is None) == (class_fn is None):
            raise ArgumentTypeError(
                "pass either class_feature (the name of a feature) or class_fn (a function of a record)"
            )
        if class_fn is not None:
            check_function(
                class_fn,
                "class_fn",
                "a function that returns the class of a record; to pass the name of a feature, use class_feature",
            )
        classes_per_batch = whole_number(classes_per_batch, "classes_per_batch", least=1)
        per_class = whole_number(per_class, "per_class", least=1)
        self._worker, self._workers = worker_of(worker)
        seed = check_seed(seed, workers=self._workers)
        self._chosen = seed is None
        self.classes: tuple[Any, ...] = ()
        self._dataset = dataset
        self._class_fn = class_fn
        self._identity: dict[str, Any] = {
            "snapshot": dataset.manifest.id,
            "newest": dataset.newest,
            "seed": new_seed() if seed is None else seed,
            "classes_per_batch": classes_per_batch,
            "per_class": per_class,
            "class_feature": class_feature,
        }
        # The digest of the classes that `class_fn` returned or, until the sampler is entered, the digest in the loaded
        # state. With `class_feature`, no digest is needed, because the snapshot determines the classes.
        self._classes_digest: str | None = None
        self._position = 0  # the position of all workers, in batches
        self._given = 0
        self._records: NDArray[np.int64] | None = None  # the records to draw from, or `None` for all records
        self._column = _NO_COLUMN  # released once the order has been computed
        self._order: BalancedOrder | None = None  # computed with the first batches, once a state may have set the seed
        self._ahead: ReadAheadItems[list[bytes]] = ReadAheadItems(path=dataset.manifest.path, what="sampler")

    async def __aenter__(self) -> ClassBalancedSampler:
        self._ahead.check_new()
        column = await class_column(self._dataset, feature=self._identity["class_feature"], class_fn=self._class_fn)
        chosen = await self._dataset.chosen()
        if chosen is not None:
            self._records = await in_thread(chosen.between, 0, len(self._dataset))
            column = await in_thread(column.of, self._records)
        self.classes = column.labels
        wide = self._identity["classes_per_batch"]
        if len(column.labels) < wide:
            path = self._dataset.manifest.path
            if not column.labels:
                raise ArgumentValueError(f"{path}: the data set has no records, but a batch needs {wide} classes")
            there = ", ".join(f"{label!r:.40}" for label in column.labels[:_NAMED])
            more = ", ..." if len(column.labels) > _NAMED else ""
            raise ArgumentValueError(
                f"{path}: the data set has {len(column.labels)} classes, but a batch needs {wide}; use a smaller "
                f"classes_per_batch. The classes are {there}{more}"
            )
        if self._class_fn is not None:
            digest = await in_thread(column.digest)
            if self._classes_digest not in (None, digest):
                raise ArgumentValueError(f"{self._dataset.manifest.path}: {_OTHER_CLASSES}")
            self._classes_digest = digest
        self._column = column
        await self._ahead.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._ahead.__aexit__(exc_type, exc, traceback)

    def __aiter__(self) -> ClassBalancedSampler:
        return self

    async def __anext__(self) -> list[bytes]:
        self._ahead.check_open()
        if not self._ahead.begun:
            self._ahead.begin(lambda scope: ReadAhead(scope, self._numbers(), self._fetch))
        await self._ahead.wait_for(1)
        self._given += 1
        return self._ahead.items.popleft()

    def state_dict(self) -> dict[str, Any]:
        """Return the shared position of all workers, counted in batches, as JSON.

        You can load the state with any number of workers. For files without a manifest, the state also records each
        file's version, which adds about 100 bytes per file.
        """
        return self.state_before(0)

    def state_before(self, unused: int) -> dict[str, Any]:
        """Return the state before the last ``unused`` batches."""
        position = self._position + (self._given - unused) * self._workers
        state = ordered_state(_KIND, self._identity, self._dataset.versions.packed, position=position)
        if self._classes_digest is not None:
            state["classes"] = self._classes_digest
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from this state. Call this method before iterating.

        If the sampler has not yet been entered, the classes that ``class_fn`` returns are checked on entry.

        Raises:
            ValueError: the state belongs to another data set, or to other classes or batches, or has another version.
            DatasetError: the files have no manifest, and a file was replaced since the state was taken.
            RuntimeError: iteration has begun.
        """
        if self._ahead.begun:
            raise RuntimeError("load_state_dict must be called before iterating; create a new sampler")
        identity = self._identity
        if self._chosen and isinstance(state, Mapping) and (seed := check_seed(state.get("seed"))) is not None:
            identity = {**identity, "seed": seed}
        self._dataset.versions.check_state(state, _KIND, identity)
        values = StateValues(state)
        position = values.whole("position")
        classes = None if self._class_fn is None else values.digest("classes", position=position)
        if None not in (classes, self._classes_digest) and classes != self._classes_digest:
            raise ArgumentValueError(f"{self._dataset.manifest.path}: {_OTHER_CLASSES}")
        self._classes_digest = self._classes_digest or classes
        self._identity = identity
        self._position = position

    def _ordered(self, column: ClassColumn) -> BalancedOrder:
        identity = self._identity
        return BalancedOrder(
            column.codes,
            classes_per_batch=identity["classes_per_batch"],
            per_class=identity["per_class"],
            key=key_of(identity["snapshot"], identity["seed"], "balanced"),
        )

    def _numbers(self) -> Iterator[NDArray[np.int64]]:
        """Yield arrays of the numbers of this worker's batches. The batches in one array are read together."""
        together = max(1, _READ_RECORDS // (self._identity["classes_per_batch"] * self._identity["per_class"]))
        start = self._position + self._worker
        while True:
            yield start + self._workers * np.arange(together)
            start += self._workers * together

    async def _fetch(self, numbers: NDArray[np.int64]) -> list[list[bytes]]:
        if self._order is None:
            self._order = await in_thread(self._ordered, self._column)
            self._column = _NO_COLUMN
        wanted = await in_thread(self._order.batches, numbers)
        numbers = wanted.ravel() if self._records is None else self._records[wanted.ravel()]
        records = await self._dataset.get_many(numbers)
        size = wanted.shape[1]
        return [records[at : at + size] for at in range(0, len(records), size)]


Indices = NDArray[np.int64]


class BalancedOrder:
    """The order of class-balanced batches. A batch's records depend only on the batch's number.

    Args:
        codes: int (n,), the class of each record, from 0 to the number of classes - 1. Each class has at least one
            record.
        classes_per_batch: the number of classes in each batch, at most the number of all classes.
    """

    def __init__(self, codes: NDArray[np.integer], *, classes_per_batch: int, per_class: int, key: int) -> None:
        self._members = np.argsort(codes, kind="stable")
        self._sizes = np.bincount(codes).astype(np.int64)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self._classes_per_batch = classes_per_batch
        self._per_class = per_class
        self._rounds_key = key_of(key, "classes")
        self._members_key = np.uint64(key_of(key, "members"))
        self._batches_in_round = len(self._sizes) // classes_per_batch

    def batches(self, numbers: Indices) -> Indices:
        """Return the numbers of the records in these batches, as int64 (len(numbers), classes_per_batch * per_class).

        In each batch, the records of a class are next to each other.
        """
        rounds, places = np.divmod(numbers, self._batches_in_round)
        wide = self._classes_per_batch
        rounds = np.repeat(rounds, wide)
        # A batch consists of the classes at its places in the round's permutation of all classes.
        places = (places[:, None] * wide + np.arange(wide)).ravel()
        round_keys = mix64(rounds.astype(np.uint64) ^ np.uint64(self._rounds_key))
        classes = permuted(places, len(self._sizes), round_keys)

        sizes = self._sizes[classes]
        turns = np.maximum(1, sizes // self._per_class)
        cycles, turn = np.divmod(rounds, turns)
        within = (turn[:, None] * self._per_class + np.arange(self._per_class)) % sizes[:, None]
        keys = mix64(mix64(classes.astype(np.uint64) ^ self._members_key) ^ cycles.astype(np.uint64))
        deep = self._per_class
        chosen = permuted(within.ravel(), np.repeat(sizes, deep), np.repeat(keys, deep))
        members = self._members[np.repeat(self._firsts[classes], deep) + chosen]
        return members.reshape(len(numbers), -1)
