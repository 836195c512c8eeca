"""`asyncrec.write_splits_from_csv` replaces TFRecorder's factory, without its bugs, each of which has a test here."""

from __future__ import annotations

import csv
import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._datasets.from_csv.write import WrittenSplits, write_folds, write_splits_from_csv
from asyncrec._datasets.reading.tuples import generate_dataset, get_tfrecord_filepaths
from asyncrec.errors import DatasetError, SchemaError, StorageError
from asyncrec.example._declared import DeclaredExample, IgnoreExample, tfrecordable
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

Field = DeclaredExample.Field


class Toy(DeclaredExample):
    """An example with a name, a label, and an array that `load` derives from the name."""

    def __init__(self, name: str, label: int, data: Any = None) -> None:
        super().__init__()
        self.name = name
        self._label = label
        self._data = data

    @tfrecordable(dtype=Field.TYPE_STRING)
    def key(self) -> str:
        return self.name

    @tfrecordable(dtype=Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    @classmethod
    def from_csv_row(cls, row: list[str], **kwargs: Any) -> Any:  # type: ignore[override]  # a classmethod does as well
        return cls(row[0], int(row[1]))

    def to_csv_row(self) -> list[object]:
        return [self.name, self._label]

    def load(self, scale: float = 1, **kwargs: Any) -> Any:
        self.data = np.arange(4, dtype=np.float32).reshape(2, 2) * scale


def csv_of(count: int = 20) -> bytes:
    return "".join(f"n{i},{i % 5}\n" for i in range(count)).encode()


async def stored_csv(count: int = 20) -> MemoryStorage:
    storage = MemoryStorage()
    await storage.put("list.csv", csv_of(count))
    return storage


async def write(storage: Storage, kind: type[DeclaredExample] = Toy, **options: Any) -> WrittenSplits:
    return await write_splits_from_csv("out", kind, "list.csv", storage=storage, **options)


async def tuples(storage: Storage, split: str, kind: type[DeclaredExample] | None = None) -> list[Any]:
    paths = await get_tfrecord_filepaths(f"out/{split}", storage=storage)
    async with generate_dataset(paths, kind, storage=storage) as dataset:
        return [values async for values in dataset]


async def names(storage: Storage, split: str) -> list[str]:
    return [values[0] for values in await tuples(storage, split)]


async def listed(storage: Storage, split: str) -> list[list[str]]:
    return list(csv.reader((await storage.get(f"out/{split}/examples.csv")).decode().splitlines()))


async def contents(storage: Storage) -> dict[str, bytes]:
    return {info.key: await storage.get(info.key) async for info in storage.list_objects()}


# -- regular use ------------------------------------------------------------------------------------------------------


async def test_tfrecorder_usage_example_works_on_disk(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(csv_of(10))
    result = await write_splits_from_csv(tmp_path / "out", Toy, tmp_path / "list.csv", scale=2)
    assert result.examples == result.records == {"train": 8, "eval": 2}
    assert result.ignored == 0
    assert {name: manifest.records for name, manifest in result.manifests.items()} == result.records
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["eval", "train"]
    paths = await get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert all(Path(path).is_file() for path in paths)
    async with generate_dataset(paths) as dataset:
        assert dataset.names == ("key", "label", "data")
        found = [values async for values in dataset]
    assert len(found) == 8
    for key, label, data in found:
        assert label == int(key[1:]) % 5
        assert data.dtype == np.float32
        assert data.tolist() == [[0, 2], [4, 6]]


async def test_write_splits_accepts_storage_urls(anyio_backend_name: str) -> None:
    root = f"memory://tabular-{anyio_backend_name}/a"
    async with asyncrec.open_storage(root) as storage:
        await storage.put("list.csv", csv_of())
    result = await write_splits_from_csv(f"{root}/out", Toy, f"{root}/list.csv", compression="GZIP", storage_options={})
    assert result.manifests["eval"].path == f"{root}/out/eval/eval"
    paths = await get_tfrecord_filepaths(f"{root}/out/eval/")
    assert paths == await asyncrec.list_shards(result.manifests["eval"])
    async with generate_dataset(paths[0]) as dataset:
        assert len([values async for values in dataset]) == 4


async def test_example_belongs_to_one_split_listed_in_csv() -> None:
    storage = await stored_csv(30)
    result = await write(storage, ratios=[0.7, 0.2, 0.1])
    assert result.records == {"train": 21, "eval": 6, "test": 3}
    everything = []
    for split in result.records:
        found = await tuples(storage, split, Toy)
        assert await listed(storage, split) == [[key, str(label)] for key, label, _ in found]
        everything += [key for key, _, _ in found]
    assert sorted(everything) == sorted(f"n{i}" for i in range(30))


async def test_examples_csv_can_be_used_as_input() -> None:
    storage = await stored_csv()
    await write(storage)
    before = sorted(await names(storage, "train"))
    result = await write_splits_from_csv("again", Toy, "out/train/examples.csv", ratios=0.5, storage=storage)
    again = [row for split in result.records for row in await get_tfrecord_filepaths(f"again/{split}", storage=storage)]
    async with generate_dataset(again, storage=storage) as dataset:
        assert sorted([values[0] async for values in dataset]) == before


async def test_stratify_by_assigns_splits_equal_shares() -> None:
    storage = await stored_csv(50)
    for stratify_by in (1, lambda row: int(row[1])):
        await write(storage, stratify_by=stratify_by)
        assert Counter(row[1] for row in await listed(storage, "eval")) == dict.fromkeys("01234", 2)


async def test_class_without_to_csv_row_lists_source_rows() -> None:
    class Plain(DeclaredExample):
        def __init__(self, row: list[str]) -> None:
            self.row = row

        @tfrecordable(dtype=Field.TYPE_STRING)
        def text(self) -> str:
            return "|".join(self.row)

        @staticmethod
        def from_csv_row(row: list[str], **kwargs: Any) -> Any:
            return Plain(row)

    storage = MemoryStorage()
    await storage.put("list.csv", '"a\n1",é\nb,2\n'.encode("utf-16"))
    await write(storage, Plain, ratios=0.5, encoding="utf-16")
    texts = [values[0] for split in ("train", "eval") for values in await tuples(storage, split)]
    assert sorted(texts) == ["a\n1|é", "b|2"]
    again = [(await storage.get(f"out/{split}/examples.csv")).decode("utf-16") for split in ("train", "eval")]
    assert sorted(again) == ['"a\n1",é\r\n', "b,2\r\n"]


async def test_split_example_has_one_csv_row() -> None:
    class Split(Toy):
        def split(self, parts: int = 1, **kwargs: Any) -> Any:
            return (Split(f"{self.name}/{part}", self._label, self.data) for part in range(parts))

    storage = await stored_csv(4)
    result = await write(storage, Split, ratios=0.5, parts=3)
    assert result.examples == {"train": 2, "eval": 2}
    assert result.records == {"train": 6, "eval": 6}
    rows = await listed(storage, "train")
    assert await names(storage, "train") == [f"{row[0]}/{part}" for row in rows for part in range(3)]


async def test_split_method_may_return_same_example_twice() -> None:
    class Twice(Toy):
        def split(self, **kwargs: Any) -> Any:
            other = Twice("other", 0, self.data)
            return [self, other, self, other]

    storage = await stored_csv(2)
    assert (await write(storage, Twice, ratios=0.5)).records == {"train": 4, "eval": 4}


async def test_async_methods_run_on_event_loop() -> None:
    loop_thread = threading.get_ident()
    ran: dict[str, bool] = {}

    class Awaited(Toy):
        @staticmethod
        async def from_csv_row(row: list[str], **kwargs: Any) -> Any:
            await checkpoint()
            ran["from_csv_row"] = threading.get_ident() == loop_thread
            return Awaited(row[0], int(row[1]))

        async def load(self, **kwargs: Any) -> None:
            await checkpoint()
            ran["load"] = threading.get_ident() == loop_thread
            self.data = np.zeros(1, np.float32)

        async def split(self, **kwargs: Any) -> Any:
            await checkpoint()
            return [self]

        async def to_csv_row(self) -> Any:
            await checkpoint()
            return [self.name, self._label]

        async def release(self) -> None:
            await checkpoint()
            ran["release"] = self.data is not None

        def encode(self) -> bytes:
            ran["encode"] = threading.get_ident() == loop_thread
            return super().encode()

    storage = await stored_csv()
    result = await write(storage, Awaited)
    assert result.records == {"train": 16, "eval": 4}
    assert ran == {"from_csv_row": True, "load": True, "release": True, "encode": False}
    assert [row[0] for row in await listed(storage, "train")] == await names(storage, "train")


async def test_example_methods_run_in_tfrecorder_order() -> None:
    """Methods written for TFRecorder rely on its order."""
    order: dict[str, list[str]] = {}

    class Telling(Toy):
        def load(self, **kwargs: Any) -> None:
            super().load()
            order.setdefault(self.name, []).append("load")

        def to_csv_row(self) -> list[object]:
            order[self.name].append("to_csv_row")
            return super().to_csv_row()

        def split(self, **kwargs: Any) -> Any:
            order[self.name].append("split")
            return [self]

        def encode(self) -> bytes:
            order[self.name].append("encode")
            return super().encode()

        def release(self) -> None:
            order[self.name].append("release")
            super().release()

    await write(await stored_csv(), Telling)
    assert len(order) == 20
    assert set(map(tuple, order.values())) == {("load", "to_csv_row", "split", "encode", "release")}


async def test_loading_overlaps_within_limit_and_keeps_seeded_order() -> None:
    together, most = 0, 0
    lock = threading.Lock()
    meeting = threading.Barrier(3, timeout=10)

    class Slow(Toy):
        def load(self, **kwargs: Any) -> None:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            meeting.wait()  # blocks until three loads run at the same time
            super().load()
            with lock:
                together -= 1

    storage = await stored_csv(24)
    await write(storage, Slow, concurrency=3)
    assert most == 3
    order = await names(storage, "train")
    await write(storage, Toy, concurrency=1)
    assert await names(storage, "train") == order


async def test_ignore_example_omits_example(caplog: pytest.LogCaptureFixture) -> None:
    class Choosy(Toy):
        def load(self, **kwargs: Any) -> None:
            if self._label == 3:
                raise IgnoreExample("too blurred")
            super().load()

        def split(self, **kwargs: Any) -> Any:
            return [] if self._label == 4 else [self]

    storage = await stored_csv(20)
    with caplog.at_level("INFO", "asyncrec.datasets"):
        result = await write(storage, Choosy)
    assert result.ignored == 8
    assert sum(result.examples.values()) == 12
    rows = await listed(storage, "train") + await listed(storage, "eval")
    assert {row[1] for row in rows} == {"0", "1", "2"}
    assert sum("too blurred" in message for message in caplog.messages) == 4
    assert sum("split() returned no example" in message for message in caplog.messages) == 4


async def test_write_folds_writes_examples_of_each_dict_entry() -> None:
    storage = MemoryStorage()
    folds = {f"fold_{k}": [Toy(f"{k}/{i}", i) for i in range(4)] for k in range(3)}
    result = await write_folds("out", folds, storage=storage, scale=3)
    assert result.records == {"fold_0": 4, "fold_1": 4, "fold_2": 4}
    assert await names(storage, "fold_1") == ["1/0", "1/1", "1/2", "1/3"]
    assert await listed(storage, "fold_2") == [[f"2/{i}", str(i)] for i in range(4)]
    assert all(example.data is None for examples in folds.values() for example in examples), "released"


async def test_write_folds_rejects_invalid_folds() -> None:
    storage = MemoryStorage()
    with pytest.raises(DatasetError, match="the fold 'a' has no examples"):
        await write_folds("out", {"a": []}, storage=storage)
    with pytest.raises(ValueError, match="no folds"):
        await write_folds("out", {}, storage=storage)
    with pytest.raises(ValueError, match=r"'a/b': the name of a fold"):
        await write_folds("out", {"a/b": [Toy("a", 1)]}, storage=storage)
    with pytest.raises(
        TypeError, match="the examples of all folds must be instances of the same subclass of DeclaredExample"
    ):
        await write_folds("out", {"a": [Toy("a", 1), type("Other", (Toy,), {})("b", 2)]}, storage=storage)
    with pytest.raises(DatasetError, match=r"^'a', example 0: Toy\.load: TypeError"):
        await write_folds("out", {"a": [Toy("a", 1)], "b": [Toy("b", 1), Toy("c", 1)]}, storage=storage, scale=None)
    assert await contents(storage) == {}


# -- TFRecorder's bugs ------------------------------------------------------------------------------------------------


async def test_maximum_shard_size_is_respected() -> None:
    class Large(Toy):
        def load(self, **kwargs: Any) -> None:
            self.data = np.zeros(25_000, np.float32)

    storage = await stored_csv(60)
    result = await write(storage, Large)
    train = result.manifests["train"].shards
    assert len(train) > 3
    assert all(shard.bytes <= 1_000_000 for shard in train)
    assert all(shard.bytes > 800_000 for shard in train[:-1])
    result = await write(storage, Large, max_shard_bytes=300_000)
    assert all(shard.bytes <= 300_000 for shard in result.manifests["train"].shards)


async def test_write_accepts_ratios_with_rounding_error() -> None:
    assert 0.7 + 0.2 + 0.1 != 1
    storage = await stored_csv(10)
    assert (await write(storage, ratios=[0.7, 0.2, 0.1])).records == {"train": 7, "eval": 2, "test": 1}


async def test_written_arrays_are_released() -> None:
    """At any time, only the arrays of examples being processed are alive; in the end, none are left."""
    alive, most = 0, 0
    lock = threading.Lock()

    class Array(np.ndarray):  # type: ignore[type-arg]  # of any shape and type
        def __del__(self) -> None:
            nonlocal alive
            with lock:
                alive -= 1

    class Counted(Toy):
        def load(self, **kwargs: Any) -> None:
            nonlocal alive, most
            with lock:
                alive += 1
                most = max(most, alive)
            self.data = np.zeros(10, np.float32).view(Array)

    storage = await stored_csv(100)
    folds = {"all": [Counted(f"n{i}", 0) for i in range(100)]}
    await write_folds("out", folds, storage=storage, concurrency=4)
    assert 1 <= most <= 4
    assert alive == 0, "the examples are still there, their arrays are not"


async def test_subclass_fields_do_not_change_parent() -> None:
    class Scored(Toy):
        @tfrecordable(dtype=Field.TYPE_DOUBLE)
        def score(self) -> float:
            return 0.1

    storage = await stored_csv()
    await write(storage, Scored)
    assert {len(values) for values in await tuples(storage, "train")} == {4}
    await write(storage, Toy)
    assert {len(values) for values in await tuples(storage, "train")} == {3}


async def test_array_of_undeclared_dtype_is_rejected() -> None:
    class Wrong(Toy):
        def load(self, **kwargs: Any) -> None:
            self.data = np.array([1 + 2j])

    storage = await stored_csv()
    before = await contents(storage)
    with pytest.raises(DatasetError, match=r"Wrong\.encode: SchemaError: Wrong\.data: .*declared as float32") as caught:
        await write(storage, Wrong)
    assert isinstance(caught.value.__cause__, SchemaError)
    assert await contents(storage) == before


async def test_second_run_replaces_shards_and_csv() -> None:
    storage = await stored_csv(20)
    await write(storage)
    await write(storage)
    result = await write(storage, seed=5)
    assert result.records == {"train": 16, "eval": 4}
    assert len(await listed(storage, "train")) == len(await tuples(storage, "train")) == 16
    shards = [key for key in await contents(storage) if key.endswith(".tfrecord") and "_index" not in key]
    assert len(shards) == 2, "the replaced ones are gone"


async def test_shuffle_depends_on_seed() -> None:
    storage = await stored_csv(50)
    orders = []
    for seed in (1, 2, 1):
        await write(storage, seed=seed)
        orders.append((await names(storage, "train"), await names(storage, "eval")))
    assert orders[0] == orders[2] != orders[1]
    assert orders[0][0] != sorted(orders[0][0])


async def test_double_is_stored_exactly() -> None:
    class Precise(Toy):
        @tfrecordable(dtype=Field.TYPE_DOUBLE)
        def third(self) -> float:
            return 1 / 3

    storage = await stored_csv()
    await write(storage, Precise)
    assert {values[3] for values in await tuples(storage, "train")} == {1 / 3}


async def test_unloaded_value_raises_instead_of_storing_zero() -> None:
    class Forgetful(Toy):
        def load(self, **kwargs: Any) -> None:
            pass

    with pytest.raises(DatasetError, match=r"Forgetful\.data: the value is None; set it in load\(\)"):
        await write(await stored_csv(), Forgetful)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["from_csv_row", "load", "split", "to_csv_row", "release", "encode"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_method_error_names_row_and_keeps_earlier_dataset(method: str, is_async: bool) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("no such thing")

    async def fail_later(*args: Any, **kwargs: Any) -> Any:
        await checkpoint()
        raise KeyError("no such thing")

    if method == "encode" and is_async:
        is_async = False  # it has no async variant
    failing = fail_later if is_async else fail
    kind = type("Bad", (Toy,), {method: staticmethod(failing) if method == "from_csv_row" else failing})
    storage = await stored_csv(3)
    await write(storage, ratios=0.5)
    before = await contents(storage)
    with pytest.raises(DatasetError) as caught:
        await write(storage, kind, ratios=0.5, seed=1)
    assert str(caught.value).startswith("list.csv, line ")
    assert f": Bad.{method}: KeyError: 'no such thing'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert await contents(storage) == before


async def test_invalid_csv_row_is_named() -> None:
    storage = MemoryStorage()
    await storage.put("list.csv", b"a,1\nb\n")
    with pytest.raises(DatasetError, match=r"list\.csv, line 2, row \['b'\]: Toy\.from_csv_row: IndexError: [^.]*$"):
        await write(storage, ratios=0.5)
    await storage.put("list.csv", b"name,label\na,1\n")
    with pytest.raises(
        DatasetError, match=r"line 1, row .* ValueError: .*'label'\. If this row is a header, remove it"
    ):
        await write(storage, ratios=0.5)
    await storage.put("list.csv", b"a,1\nb\n")
    with pytest.raises(DatasetError, match=r"list\.csv, line 2, row \['b'\]: stratify_by=1: list index"):
        await write(storage, ratios=0.5, stratify_by=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"list\.csv: the file has no rows; write one row per example"),
        (b"a,1\n\xff,2\n", r"list\.csv, line 2: byte 0xff at offset 4 is not valid utf-8; pass the file's"),
        (
            b"a,1\n",
            r"list\.csv: 1 rows are too few for ratios=0\.8: the split 'eval' would get no example",
        ),
    ],
)
async def test_unusable_csv_changes_nothing(content: bytes, message: str) -> None:
    storage = await stored_csv()
    await write(storage)
    await storage.put("list.csv", content)
    before = await contents(storage)
    with pytest.raises(DatasetError, match=message):
        await write(storage)
    assert await contents(storage) == before


async def test_split_without_remaining_examples_raises() -> None:
    class Nothing(Toy):
        @classmethod
        def from_csv_row(cls, row: list[str], **kwargs: Any) -> Any:
            raise IgnoreExample

    storage = await stored_csv()
    with pytest.raises(
        DatasetError, match=r"memory://out: every example of the split 'train' was skipped \(IgnoreExample\), so"
    ):
        await write(storage, Nothing)
    assert list(await contents(storage)) == ["list.csv"]


async def test_split_returning_non_example_is_rejected() -> None:
    class Strange(Toy):
        def split(self, **kwargs: Any) -> Any:
            return ["no example"]

    with pytest.raises(
        DatasetError, match=r"Strange\.split: ArgumentTypeError: the method returned a str, which does not have"
    ):
        await write(await stored_csv(), Strange)


async def test_write_rejects_leftover_test_split_of_earlier_partition() -> None:
    storage = await stored_csv(30)
    await write(storage, ratios=[0.7, 0.2, 0.1])
    before = await contents(storage)
    with pytest.raises(DatasetError, match=r"out/test holds a split of an earlier partition"):
        await write(storage, ratios=0.8)
    assert await contents(storage) == before


async def test_misuse_raises_before_any_write() -> None:
    storage = await stored_csv()
    with pytest.raises(ValueError, match="sum to"):
        await write(storage, ratios=[0.5, 0.4])
    with pytest.raises(ValueError, match="concurrency must be"):
        await write(storage, concurrency=0)
    with pytest.raises(
        TypeError, match="DeclaredExample has no field declared with @tfrecordable; declare at least one"
    ):
        await write(storage, DeclaredExample)
    assert list(await contents(storage)) == ["list.csv"]


@pytest.mark.slow
@pytest.mark.parametrize(("anyio_backend", "when"), [("asyncio", "before"), ("trio", "after")])
async def test_storage_fault_leaves_each_split_entirely_old_or_new(when: Any) -> None:
    """All splits are old, unless a note names those that were already committed."""
    base = await stored_csv(6)
    await write(base, ratios=0.5)
    old = {split: await names(base, split) for split in ("train", "eval")}
    calm = FlakyStorage(await _copy(base))
    await write(calm, ratios=0.5, seed=1)
    new = {split: await names(calm, split) for split in ("train", "eval")}
    assert old["train"] != new["train"]
    for k in range(len(calm.operations)):
        storage = await _copy(base)
        flaky = FlakyStorage(storage, {k: Fault(when=when)})
        try:
            await write(flaky, ratios=0.5, seed=1)
        except StorageError as error:
            told = [note for note in getattr(error, "__notes__", ()) if "had already been committed" in note]
            for split in ("train", "eval"):
                expected = new if any(split in note for note in told) else old
                assert await names(storage, split) == expected[split], calm.operations[k]
        else:
            assert {split: await names(storage, split) for split in new} == new


async def _copy(storage: Storage) -> MemoryStorage:
    copy = MemoryStorage()
    for key, data in (await contents(storage)).items():
        await copy.put(key, data)
    return copy


async def test_full_disk_keeps_earlier_splits(tmp_path: Path) -> None:
    """The operating system reports the full disk after records were written to several shards."""
    (tmp_path / "list.csv").write_bytes(csv_of(40))
    async with asyncrec.open_storage(tmp_path) as storage:
        await write(storage, max_shard_bytes=500)
        before = await contents(storage)
        disk = _FullDisk(tmp_path, room=2000)
        with pytest.raises(StorageError, match="No space left on device"):
            await write(disk.storage, max_shard_bytes=500, seed=1)
        assert await contents(storage) == before
    assert [path.name for path in (tmp_path / "out").rglob("*.partial")] == []


class _FullDisk:
    """The operating system with a disk that has room for a limited number of bytes."""

    def __init__(self, folder: Path, room: int) -> None:
        self.room = room
        self.storage = LocalStorage(folder, system=self)

    def writev(self, descriptor: int, buffers: Any) -> int:
        self.room -= sum(map(len, buffers))
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.writev(descriptor, buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


async def test_missing_csv_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(asyncrec.ObjectNotFoundError, match=r"none\.csv"):
        await write_splits_from_csv(f"{tmp_path}/out/", Toy, tmp_path / "none.csv")
    (tmp_path / "list.csv").write_bytes(csv_of(10))
    await write_splits_from_csv(f"{tmp_path}/out/", Toy, f"{tmp_path}/list.csv")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["eval", "train"]


async def test_cancelled_write_leaves_nothing_behind() -> None:
    started = anyio.Event()

    class Endless(Toy):
        async def load(self, **kwargs: Any) -> None:
            started.set()
            await anyio.sleep_forever()

    storage = await stored_csv()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, storage, Endless)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert list(await contents(storage)) == ["list.csv"]


# -- reading back -----------------------------------------------------------------------------------------------------


async def test_paths_are_taken_from_manifest(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(csv_of())
    await write_splits_from_csv(tmp_path / "out", Toy, tmp_path / "list.csv")
    train = tmp_path / "out" / "train"
    paths = await get_tfrecord_filepaths(train)
    (train / "left-by-a-crash.tfrecord").write_bytes(b"")
    assert await get_tfrecord_filepaths(f"{train}/") == paths
    assert await get_tfrecord_filepaths(train.as_uri()) == [f"{train.as_uri()}/{Path(path).name}" for path in paths]


async def test_data_files_are_found_by_name_without_manifest(tmp_path: Path) -> None:
    record = Toy("a", 1, np.zeros(2, np.float32)).encode()
    for name in ("b.tfrecords", "a.tfrec", "_c.tfrecord", ".d.tfrecord", "e.txt", "below/f.tfrecord"):
        await asyncrec.write_records(tmp_path / name, [record])
    paths = await get_tfrecord_filepaths(tmp_path)
    assert paths == [f"{tmp_path}/a.tfrec", f"{tmp_path}/b.tfrecords"]
    async with generate_dataset(paths, Toy) as dataset:
        assert [values[:2] async for values in dataset] == [("a", 1)] * 2
    with pytest.raises(DatasetError, match=r"a\.tfrec: the file has no schema.*pass example_class"):
        async with generate_dataset(paths):
            pass
    with pytest.raises(asyncrec.ObjectNotFoundError, match="neither a manifest nor a file"):
        await get_tfrecord_filepaths(tmp_path / "none")
    with pytest.raises(
        DatasetError, match="the list of files is empty; use get_tfrecord_filepaths to find the files of a folder"
    ):
        async with generate_dataset([]):
            pass


async def test_files_with_different_schemas_are_rejected() -> None:
    class Scored(Toy):
        score = tfrecordable(dtype=Field.TYPE_DOUBLE)(lambda self: 0.5)

    storage = MemoryStorage()
    await write_folds("out", {"a": [Toy("a", 1)]}, storage=storage)
    await write_folds("out", {"b": [Scored("b", 1)]}, storage=storage)
    paths = [
        *await get_tfrecord_filepaths("out/a", storage=storage),
        *await get_tfrecord_filepaths("out/b", storage=storage),
    ]
    with pytest.raises(SchemaError, match="have different schemas"):
        async with generate_dataset(paths, storage=storage):
            pass


async def test_mismatching_record_raises_after_all_earlier_records() -> None:
    storage = MemoryStorage()
    good = Toy("a", 1, np.zeros(2, np.float32)).encode()
    await asyncrec.write_records("x.tfrecord", [good, good, asyncrec.encode_example({"key": "a"})], storage=storage)
    found = []
    with pytest.raises(SchemaError, match=r"^x\.tfrecord, record 2: feature 'label': missing"):
        async with generate_dataset("x.tfrecord", Toy, storage=storage) as dataset:
            async for values in dataset:
                found.append(values)
    assert len(found) == 2


async def test_readers_accept_splits_of_every_writer() -> None:
    """`open_split` reads splits made from CSV files, and reads those of DatasetWriter and ShardedWriter as tuples."""
    storage = await stored_csv(20)
    await write(storage)
    async with asyncrec.open_split("out/train", "train[:50%]", storage=storage) as reader:
        assert [features["key"] async for features in reader] == (await names(storage, "train"))[:8]

    def rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from ((i, {"id": i, "word": f"w{i}"}) for i in range(5))

    await asyncrec.DatasetWriter(rows, None, "made", "train", storage=storage).create_records()
    schema = asyncrec.Schema({"id": asyncrec.FixedLen((), "int64"), "word": asyncrec.FixedLen((), "str")})
    async with asyncrec.open_sharded_writer("sharded/train", storage=storage, schema=schema) as writer:
        for _, row in rows("train"):
            await writer.write(asyncrec.encode_example(row))
    for folder in ("made", "sharded"):
        paths = await asyncrec.list_shards(f"{folder}/train", storage=storage)
        async with generate_dataset(paths, storage=storage) as dataset:
            assert sorted([values async for values in dataset]) == [(i, f"w{i}") for i in range(5)]


async def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    await write(await stored_csv(20), progress=True)
    assert "20/20" in capsys.readouterr().err
    await write(await stored_csv(20))
    assert capsys.readouterr().err == "", "stderr is no terminal here"


async def test_dataset_can_be_closed_early() -> None:
    storage = await stored_csv(50)
    await write(storage, max_shard_bytes=300)
    paths = await get_tfrecord_filepaths("out/train", storage=storage)
    assert len(paths) > 10
    async with generate_dataset(paths, storage=storage) as dataset:
        async for _ in dataset:
            break


async def test_event_loop_runs_while_methods_block() -> None:
    """Each load returns only after the event loop has responded to it."""
    started, answered = threading.Semaphore(0), threading.Semaphore(0)

    class Blocking(Toy):
        def load(self, **kwargs: Any) -> None:
            started.release()
            assert answered.acquire(timeout=10), "the event loop is held"
            super().load()

    async def answer() -> None:
        while True:
            await checkpoint()
            if started.acquire(blocking=False):
                answered.release()

    storage = await stored_csv(10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await write(storage, Blocking, concurrency=2)
        tasks.cancel_scope.cancel()
    assert len(await names(storage, "train")) == 8


async def test_zero_ratio_omits_eval_and_rejects_earlier_split() -> None:
    storage = await stored_csv(10)
    result = await write(storage, ratios=[0.8, 0, 0.2])
    assert result.records == {"train": 8, "test": 2}
    assert result.manifests["test"].metadata["ratios"] == [0.8, 0, 0.2]
    with pytest.raises(DatasetError, match=r"out/test holds a split of an earlier partition"):
        await write(storage, ratios=0.8)
