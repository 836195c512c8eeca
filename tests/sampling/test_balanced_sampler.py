"""`asyncrec.ClassBalancedSampler` draws every class equally often, from records scattered over all shards."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec._sampling.balanced_sampler.sampler import BalancedOrder
from asyncrec.errors import CorruptRecordError, DecodeError, SchemaError, StoragePermissionError
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage

pytestmark = pytest.mark.anyio


def chance_of(counts: Any) -> float:
    """Return by how many standard deviations the counts differ from equal ones; 3.09 corresponds to P = 0.001.

    The chi-square statistic is converted with the approximation by Wilson and Hilferty, "The distribution of
    chi-square", PNAS 1931.
    """
    counts = np.asarray(counts, float)
    freedom = len(counts) - 1
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    spread = 2 / (9 * freedom)
    return float(((chi_square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


def sizes(classes: int) -> list[int]:
    """Return very unequal class sizes, from 1 to about three hundred records."""
    return [1 + (number * number) % 311 for number in range(classes)]


def codes_of(counts: list[int], seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    codes = [code for code, count in enumerate(counts) for _ in range(count)]
    random.Random(seed).shuffle(codes)
    return np.array(codes, np.int32)


def test_batches_contain_distinct_classes_with_equal_frequency() -> None:
    codes = codes_of(sizes(1000))
    order = BalancedOrder(codes, classes_per_batch=16, per_class=3, key=5)
    batches = order.batches(np.arange(10_000))
    classes = codes[batches].reshape(10_000, 16, 3)
    assert (classes == classes[:, :, :1]).all()
    assert all(len(set(batch)) == 16 for batch in classes[:, :, 0].tolist())
    assert chance_of(np.bincount(classes[:, :, 0].ravel(), minlength=1000)) < 3.09


def test_records_of_class_are_drawn_evenly_without_repeats() -> None:
    codes = codes_of([7, 50, 2, 300, 3])
    order = BalancedOrder(codes, classes_per_batch=2, per_class=3, key=5)
    batches = order.batches(np.arange(30_000))
    for code in (0, 1, 3, 4):
        of_class = [part for part in batches.reshape(-1, 3).tolist() if codes[part[0]] == code]
        assert all(len(set(part)) == 3 for part in of_class)
        counts = Counter(record for part in of_class for record in part)
        assert len(counts) == (codes == code).sum()
        if len(counts) > 3:
            assert chance_of(list(counts.values())) < 3.09
    few = [part for part in batches.reshape(-1, 3).tolist() if codes[part[0]] == 2]
    assert all(len(set(part)) == 2 for part in few), "both of them, one twice"


def test_batches_depend_only_on_their_number() -> None:
    order = BalancedOrder(codes_of(sizes(40)), classes_per_batch=7, per_class=2, key=1)
    whole = order.batches(np.arange(100))
    for number in (0, 1, 5, 57, 99):
        assert order.batches(np.array([number])).tolist() == [whole[number].tolist()]


async def stored(storage: MemoryStorage, label: Any = int, *, classes: int = 20) -> dict[bytes, int]:
    codes = codes_of([1 + code for code in range(classes)])
    found = {}
    async with asyncrec.open_sharded_writer("pages", max_shard_records=30, storage=storage) as writer:
        for number, code in enumerate(codes.tolist()):
            record = asyncrec.encode_example({"label": label(code), "number": number})
            found[record] = code
            await writer.write(record)
    return found


@pytest.mark.parametrize("label", [int, float, lambda code: b"class %02d\0" % code])
async def test_class_feature_may_have_any_type(label: Any) -> None:
    storage = MemoryStorage()
    of = await stored(storage, label)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for _ in range(2):  # the records are read first, the stored column of classes after that
            async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label") as sampler:
                assert sampler.classes == tuple(label(code) for code in range(20))
                for _ in range(30):
                    batch = [of[record] for record in await anext(sampler)]
                    assert batch[::2] == batch[1::2]
                    assert len(set(batch)) == 5


async def test_class_column_is_stored_and_reused() -> None:
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label"):
            pass
    (kept,) = [info.key async for info in storage.list_objects("_classes/")]
    assert kept.startswith("_classes/pages-")
    counting = FlakyStorage(storage)
    async with asyncrec.open_dataset("pages", storage=counting) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label"):
            pass
    assert not [key for kind, key in counting.operations if kind == "receive" and key.endswith(".tfrecord")]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut short"])
async def test_damaged_class_column_is_rebuilt(content: bytes) -> None:
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label"):
            (kept,) = [info async for info in storage.list_objects("_classes/")]
        await storage.put(kept.key, content)
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label") as sampler:
            assert len(sampler.classes) == 20
        assert (await storage.head(kept.key)).crc32c is not None
        assert len(await storage.get(kept.key)) == kept.size


async def test_read_only_store_only_prevents_storing_class_column() -> None:
    storage = MemoryStorage()
    of = await stored(storage)
    flaky = FlakyStorage(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_fn=of.__getitem__) as sampler:
            expected = [await anext(sampler) for _ in range(3)]
    assert [info async for info in storage.list_objects("_classes/")] == [], "that of a function is not kept"

    original = flaky.perform

    async def refusing(operation: str, key: str, call: Any, **short: Any) -> Any:
        if operation == "open_sink":
            raise StoragePermissionError(f"{key}: read only")
        return await original(operation, key, call, **short)

    flaky.perform = refusing  # type: ignore[method-assign]  # a store that may only be read
    async with asyncrec.open_dataset("pages", storage=flaky) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 5, 2, class_feature="label") as sampler:
            assert [await anext(sampler) for _ in range(3)] == expected


@pytest.mark.slow
async def test_sampler_resumes_at_every_batch_with_any_workers() -> None:
    storage = MemoryStorage()
    await stored(storage)
    options = {"class_feature": "label", "seed": 4}
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 3, 2, **options) as sampler:
            states = [json.dumps(sampler.state_dict())]
            whole = []
            for _ in range(60):
                whole.append(await anext(sampler))
                states.append(json.dumps(sampler.state_dict()))
        for k in range(0, 48, 1):
            for workers in (1, 4):
                parts = []
                for worker in range(workers):
                    sampler = asyncrec.ClassBalancedSampler(dataset, 3, 2, worker=(worker, workers), **options)
                    sampler.load_state_dict(json.loads(states[k]))
                    async with sampler:
                        parts.append([await anext(sampler) for _ in range(8 // workers)])
                        assert sampler.state_dict() == json.loads(states[k + 8])
                assert [batch for each in zip(*parts, strict=True) for batch in each] == whole[k : k + 8]


async def test_state_is_rejected_after_class_fn_changes_classes() -> None:
    storage = MemoryStorage()
    of = await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:

        def made(class_fn: Any) -> asyncrec.ClassBalancedSampler:
            return asyncrec.ClassBalancedSampler(dataset, 4, 2, class_fn=class_fn, seed=1)

        async with made(of.__getitem__) as sampler:
            await anext(sampler)
            state = json.loads(json.dumps(sampler.state_dict()))
            expected = await anext(sampler)
        for others in (lambda record: of[record] // 2, lambda record: -of[record], lambda record: of[record] * 3):
            async with made(lambda record, others=others: f"k{others(record) % 7}") as sampler:
                with pytest.raises(
                    ValueError, match="pages: class_fn does not return the same classes as when the state was taken, so"
                ):
                    sampler.load_state_dict(state)
            sampler = made(lambda record, others=others: f"k{others(record) % 7}")
            sampler.load_state_dict(state)
            assert sampler.state_dict() == state
            with pytest.raises(
                ValueError, match="pages: class_fn does not return the same classes as when the state was taken, so"
            ):
                await sampler.__aenter__()
        for class_fn in (of.__getitem__, lambda record: f"class {of[record]:02}"):  # other labels, same records
            async with made(class_fn) as sampler:
                sampler.load_state_dict(state)
                assert await anext(sampler) == expected


async def test_set_classes_have_same_order_despite_slow_threads() -> None:
    storage = MemoryStorage()
    of = await stored(storage, classes=8)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        first, last = await dataset.get(0), await dataset.get(len(dataset) - 1)
        found = []
        for waits in (False, True):
            began = threading.Event()

            def class_fn(record: bytes, waits: bool = waits, began: threading.Event = began) -> frozenset[int]:
                if record == last:
                    began.set()
                elif record == first and waits:
                    assert began.wait(60), "another thread gets the last shard"
                return frozenset([of[record]])

            async with asyncrec.ClassBalancedSampler(dataset, 4, 2, class_fn=class_fn, seed=1) as sampler:
                found.append((sampler.classes, [await anext(sampler) for _ in range(8)]))
        assert found[0] == found[1]


async def test_class_fn_error_names_record() -> None:
    storage = MemoryStorage()
    of = await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        last = await dataset.get(len(dataset) - 1)
        shard = dataset.manifest.shards[-1]
        place = f"{shard.path}, record {shard.records - 1}"

        def class_fn(record: bytes) -> Any:
            return of[record] if record != last else []

        with pytest.raises(DecodeError, match=f"{place}: class_fn raised TypeError: ") as raised:
            async with asyncrec.ClassBalancedSampler(dataset, 3, 2, class_fn=class_fn):
                pass
        assert isinstance(raised.value.__cause__, TypeError)


async def test_misuse_is_rejected_with_specific_errors() -> None:
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(TypeError, match="class_feature"):
            asyncrec.ClassBalancedSampler(dataset, 3, 2)
        with pytest.raises(ValueError, match="per_class=0"):
            asyncrec.ClassBalancedSampler(dataset, 3, 0, class_feature="label")
        with pytest.raises(ValueError, match="worker"):
            asyncrec.ClassBalancedSampler(dataset, 3, 2, class_feature="label", worker=(1, 1))
        with pytest.raises(ValueError, match="20 classes, but a batch needs 21"):
            async with asyncrec.ClassBalancedSampler(dataset, 21, 2, class_feature="label"):
                pass
        with pytest.raises(
            SchemaError, match=r"a record has no feature 'colour', .*; its features are: .*\blabel\b"
        ) as raised:
            async with asyncrec.ClassBalancedSampler(dataset, 3, 2, class_feature="colour"):
                pass
        assert "pages-" in str(raised.value)
        async with asyncrec.ClassBalancedSampler(dataset, 3, 2, class_feature="label") as sampler:
            state = sampler.state_dict()
            for change in [{"version": 9}, {"kind": "x"}, {"seed": 1}, {"snapshot": "0"}, {"position": -1}]:
                with pytest.raises(ValueError, match=next(iter(change))):
                    sampler.load_state_dict(state | change)
            await anext(sampler)
            with pytest.raises(RuntimeError, match="before iterating"):
                sampler.load_state_dict(state)


async def test_storage_error_during_sampling_is_raised() -> None:
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with asyncrec.ClassBalancedSampler(dataset, 3, 2, class_feature="label") as sampler:
            await anext(sampler)
            for shard in dataset.manifest.shards:
                await storage.delete(shard.path)
            with pytest.raises(FileNotFoundError, match="pages-"):
                while True:
                    await anext(sampler)


async def test_too_few_classes_are_rejected_with_class_names(tmp_path: Path) -> None:
    async def refused(records: list[bytes]) -> str:
        await asyncrec.write_records(tmp_path / "files.tfrecord", records)
        async with asyncrec.open_dataset(tmp_path / "files.tfrecord") as dataset:
            with pytest.raises(ValueError, match=r"files\.tfrecord: ") as caught:
                async with asyncrec.ClassBalancedSampler(dataset, 20, 2, class_feature="label"):
                    pass
        return str(caught.value).partition("tfrecord: ")[2]

    assert await refused([]) == "the data set has no records, but a batch needs 20 classes"
    three = [asyncrec.encode_example({"label": label}) for label in (b"a", b"b", b"c" * 60)]
    assert await refused(three) == (
        "the data set has 3 classes, but a batch needs 20; use a smaller classes_per_batch. "
        "The classes are b'a', b'b', b'" + "c" * 38
    )
    twelve = [asyncrec.encode_example({"label": label}) for label in range(12)]
    assert (await refused(twelve)).endswith("The classes are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"hello, no example at all", "class_feature works only for Examples; .* pass class_fn"),
        (asyncrec.encode_example({"other": 1}), "a record has no feature 'label', .* its features are: other"),
    ],
)
async def test_records_without_class_are_named_with_whole_path(record: bytes, words: str, tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "files.tfrecord", [record] * 3)
    async with asyncrec.open_dataset(tmp_path / "files.tfrecord") as dataset:
        with pytest.raises((DecodeError, SchemaError), match=words) as caught:
            async with asyncrec.ClassBalancedSampler(dataset, 2, 2, class_feature="label"):
                pass
    assert str(caught.value).startswith(f"{tmp_path}/files.tfrecord, among the records 0 to 2: ")


async def test_damaged_shard_is_named_with_whole_path(tmp_path: Path) -> None:
    path = tmp_path / "files.tfrecord"
    await asyncrec.write_records(path, [asyncrec.encode_example({"label": 1})] * 3)
    path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    async with asyncrec.open_dataset(path) as dataset:
        with pytest.raises(CorruptRecordError) as caught:
            async with asyncrec.ClassBalancedSampler(dataset, 1, 2, class_feature="label"):
                pass
    assert caught.value.path == str(path)
