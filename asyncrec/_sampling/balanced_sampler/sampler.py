"""Balanced batches over random access, for classes scattered over all shards.

(For shards that each hold one class after another, `InterleaveSampler` reads in order instead.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.read_ahead import ReadAhead
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._sampling.balanced_sampler.class_column import ClassColumn, ClassFn, class_column
from asyncrec._sampling.balanced_sampler.order import BalancedOrder
from asyncrec._sampling.epochs.permutation import key_of
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["ClassBalancedSampler"]

_VERSION = 1
# Records read together, so that those that stand near each other share a read; twice as many are held.
_READ_RECORDS = 1024


class ClassBalancedSampler:
    """Batches of ``classes_per_batch`` distinct classes, ``per_class`` records of each; they come for ever.

    ::

        async with ClassBalancedSampler(dataset, 16, 2, class_feature="label", seed=1) as sampler:
            async for records in sampler:  # 32 records: two of one class, two of the next, ...
                ...

    Every class comes equally often, however many records it has, and within a class every record does. A class with
    fewer than ``per_class`` records gives some of them more than once in a batch.

    An async context: entering reads the class of every record, unless the column of them is there already (see
    `asyncrec._sampling.balanced_sampler.class_column`). Used by one task.

    Args:
        class_feature: the feature that says the class: one value of int64, float32 or bytes.
        class_fn: or a function from a record to its class, anything hashable; called in worker threads.
        worker: ``(i, n)``: worker i of n takes the batches whose number is i modulo n.

    Attributes:
        classes: the label of each class, sorted; once entered.

    Raises (on entering):
        ValueError: there are fewer classes than a batch needs.
        SchemaError: a record has no class, or several.
    """

    def __init__(
        self,
        dataset: Dataset,
        classes_per_batch: int,
        per_class: int,
        *,
        class_feature: str | None = None,
        class_fn: ClassFn | None = None,
        seed: int = 0,
        worker: tuple[int, int] = (0, 1),
    ) -> None:
        if (class_feature is None) == (class_fn is None):
            raise ArgumentTypeError("give class_feature, the name of a feature, or class_fn, a function of a record")
        if min(classes_per_batch, per_class) < 1:
            raise ArgumentValueError(
                f"classes_per_batch={classes_per_batch}, per_class={per_class}: both are at least 1"
            )
        self._worker, self._workers = worker
        if not 0 <= self._worker < self._workers:
            raise ArgumentValueError(f"worker={worker}: (i, n) is worker i of n, counted from 0")
        self.classes: tuple[Any, ...] = ()
        self._dataset = dataset
        self._class_fn = class_fn
        self._identity: dict[str, Any] = {
            "snapshot": dataset.manifest.id,
            "seed": seed,
            "classes_per_batch": classes_per_batch,
            "per_class": per_class,
            "class_feature": class_feature,
        }
        self._position = 0  # of all workers, in batches
        self._given = 0
        self._scope: TaskScope | None = None
        self._order: BalancedOrder
        self._ahead: ReadAhead[NDArray[np.int64], list[list[bytes]]] | None = None
        self._batches: deque[list[bytes]] = deque()
        self._forked = False
        on_fork(self)

    def forked(self) -> None:
        """In the child of a fork: whoever reads on is told."""
        self._forked = True
        self._batches.clear()

    async def __aenter__(self) -> ClassBalancedSampler:
        if self._scope is not None:
            raise RuntimeError("a sampler is entered once")
        self._forked = False  # made before a fork, and entered behind it
        column = await class_column(self._dataset, feature=self._identity["class_feature"], class_fn=self._class_fn)
        self.classes = column.labels
        wide = self._identity["classes_per_batch"]
        if len(column.labels) < wide:
            raise ArgumentValueError(
                f"{self._dataset.manifest.path}: {len(column.labels)} classes, and a batch needs {wide}: "
                "take fewer classes_per_batch"
            )
        self._order = await in_thread(self._ordered, column)
        self._scope = TaskScope()
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._scope is not None, "entered"
        self._ahead = None
        self._batches.clear()
        self._scope.cancel()
        await self._scope.__aexit__(exc_type, exc, traceback)

    def __aiter__(self) -> ClassBalancedSampler:
        return self

    async def __anext__(self) -> list[bytes]:
        if self._forked:
            raise forked_error(f"{self._dataset.manifest.path}: the sampler")
        if self._ahead is None:
            if self._scope is None or self._given:
                raise anyio.ClosedResourceError("a sampler is read inside its `async with`")
            self._ahead = ReadAhead(self._scope, self._numbers(), self._fetch)
        while not self._batches:
            self._batches.extend(await self._ahead.next() or ())
        self._given += 1
        return self._batches.popleft()

    def state_dict(self) -> dict[str, Any]:
        """How many batches all workers have had, as of the last one given out; JSON. Any number of workers goes on."""
        position = self._position + self._given * self._workers
        return {"version": _VERSION, "kind": "class_balanced", **self._identity, "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. Before iterating.

        Raises:
            ValueError: the state is of another data set, other classes or batches, or a later version.
            RuntimeError: something was given out already.
        """
        if self._ahead is not None or self._given:
            raise RuntimeError("load_state_dict comes before iterating; make another sampler")
        if state.get("version") != _VERSION or state.get("kind") != "class_balanced":
            raise ArgumentValueError(
                f"a state of kind {state.get('kind')!r}, version {state.get('version')!r}; "
                f"this is 'class_balanced', version {_VERSION}"
            )
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise ArgumentValueError(
                    f"the state was made with {name}={state.get(name)!r}, and this sampler has {value!r}"
                )
        if int(state["position"]) < 0:
            raise ArgumentValueError(f"position {state['position']}: at least 0")
        self._position = int(state["position"])

    def _ordered(self, column: ClassColumn) -> BalancedOrder:
        identity = self._identity
        return BalancedOrder(
            column.codes,
            classes_per_batch=identity["classes_per_batch"],
            per_class=identity["per_class"],
            key=key_of(identity["snapshot"], identity["seed"], "balanced"),
        )

    def _numbers(self) -> Iterator[NDArray[np.int64]]:
        """The numbers of this worker's batches, as many as are read together."""
        together = max(1, _READ_RECORDS // (self._identity["classes_per_batch"] * self._identity["per_class"]))
        start = self._position + self._worker
        while True:
            yield start + self._workers * np.arange(together)
            start += self._workers * together

    async def _fetch(self, numbers: NDArray[np.int64]) -> list[list[bytes]]:
        wanted = await in_thread(self._order.batches, numbers)
        records = await self._dataset.get_many(wanted.ravel())
        size = wanted.shape[1]
        return [records[at : at + size] for at in range(0, len(records), size)]
