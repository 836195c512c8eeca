"""`asyncrec.DatasetWriter` writes a generator's examples to a split, completely or not at all, without datum's bugs."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._datasets.from_generator.writer import DatasetWriter
from asyncrec._datasets.reading.reader import open_split
from asyncrec._datasets.shuffling.shuffler import HashShuffler
from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.reading.reader import read_records
from asyncrec._shards.manifest.snapshot import read_manifest
from asyncrec._shards.ownership.listing import list_shards
from asyncrec._shards.recovery.recover import recover
from asyncrec.errors import (
    DatasetError,
    DuplicateKeyError,
    ObjectNotFoundError,
    SchemaError,
    StorageError,
    TransientStorageError,
)
from asyncrec.example._codec import decode_example, encode_example
from asyncrec.example._schema import FixedLen, Schema, Tensor, VarLen
from asyncrec.storage import _retry as retry
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

Datum = dict[str, Any]


def numbers(split: str, count: int = 100, start: int = 0) -> Iterator[tuple[str, Datum]]:
    for i in range(start, start + count):
        yield f"key {i}", {"id": i, "name": f"n{i}"}


async def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [info.key async for info in storage.list_objects(prefix)]


async def contents(storage: Storage) -> dict[str, bytes]:
    """Return all objects except the manifests, which contain the time."""
    found = [key for key in await keys(storage) if not key.startswith("_manifest/")]
    return {key: await storage.get(key) for key in found}


async def ids(storage: Storage, split: str = "train") -> list[int]:
    async with open_split("", split, storage=storage) as reader:
        return [features["id"] async for features in reader]


async def json_of(storage: Storage, key: str) -> Any:
    return json.loads(await storage.get(key))


def order_of(count: int, split: str = "train") -> list[int]:
    return sorted(range(count), key=lambda i: HashShuffler(split).digest(f"key {i}"))


class TestGenerators:
    async def test_generator_receives_split_and_keywords(self) -> None:
        storage = MemoryStorage()
        writer = DatasetWriter(numbers, None, "", "train", 7, storage=storage, count=7, start=3)
        await writer.create_records()
        assert sorted(await ids(storage)) == list(range(3, 10))
        assert writer.current_examples == 7

    async def test_writer_accepts_async_generator(self) -> None:
        storage = MemoryStorage()

        async def examples(split: str, count: int) -> AsyncIterator[tuple[str, Datum]]:
            for item in numbers(split, count):
                await checkpoint()
                yield item

        await DatasetWriter(examples, None, "", "train", storage=storage, count=700).create_records()
        assert await ids(storage) == order_of(700)

    async def test_writer_accepts_any_callable_returning_iterable(self) -> None:
        class Generator:
            def __call__(self, split: str) -> Iterator[tuple[str, Datum]]:
                yield from numbers(split, 5)

        async def fetched(split: str) -> list[tuple[str, Datum]]:
            await checkpoint()
            return list(numbers(split, 5))

        def listed(split: str) -> list[tuple[str, Datum]]:
            return list(numbers(split, 5))

        for generator in (Generator(), fetched, listed, partial(numbers, count=5)):
            storage = MemoryStorage()
            await DatasetWriter(generator, None, "", "train", storage=storage).create_records()  # type: ignore[arg-type]  # one of several kinds
            assert await ids(storage) == order_of(5)

    async def test_partial_passes_keyword_shadowed_by_option(self) -> None:
        seen = []

        def examples(split: str, compression: str) -> Iterator[tuple[str, Datum]]:
            seen.append(compression)
            yield from numbers(split, 3)

        generator = partial(examples, compression="theirs")
        await DatasetWriter(generator, None, "", "train", storage=MemoryStorage(), compression="GZIP").create_records()
        assert seen == ["theirs"]

    async def test_synchronous_generator_runs_in_single_other_thread(self) -> None:
        threads = set()

        def examples(split: str) -> Iterator[tuple[str, Datum]]:
            try:
                for item in numbers(split, 50):
                    threads.add(threading.get_ident())
                    yield item
            finally:
                threads.add(threading.get_ident())

        await DatasetWriter(examples, None, "", "train", storage=MemoryStorage()).create_records()
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize("kind", ["sync", "async", "partial", "object"])
    async def test_writer_accepts_any_kind_of_serializer(self, asynchronous: bool, kind: str) -> None:
        def sync(features: Datum) -> bytes:
            return encode_example({"id": features["id"], "twice": 2 * features["id"]})

        async def later(features: Datum) -> bytes:
            await checkpoint()
            return sync(features)

        class Later:
            def __call__(self, features: Datum) -> Any:
                return later(features)  # only calling it reveals that it is asynchronous

        async def examples(split: str) -> AsyncIterator[tuple[str, Datum]]:
            for item in numbers(split, 300):
                yield item

        serializer: Any = {"sync": sync, "async": later, "partial": partial(later), "object": Later()}[kind]
        generator: Any = examples if asynchronous else partial(numbers, count=300)
        storage = MemoryStorage()
        await DatasetWriter(generator, serializer, "", "train", storage=storage).create_records()
        async with open_split("", "train", storage=storage) as reader:
            assert [(f["id"], f["twice"]) async for f in reader] == [(i, 2 * i) for i in order_of(300)]

    async def test_generator_output_of_wrong_type_is_rejected(self) -> None:
        def no_pairs(split: str) -> Iterator[Any]:
            yield "a", {"id": 1}
            yield {"id": 2}

        with pytest.raises(TypeError, match=r"example 1 is .*a dict; the generator must yield \(key, features\)"):
            await DatasetWriter(no_pairs, None, "", "train", storage=MemoryStorage()).create_records()
        text: Any = lambda features: "text"  # noqa: E731  # the shortest wrong serializer
        with pytest.raises(TypeError, match="example 0: the serializer returned a str, not bytes"):
            await DatasetWriter(numbers, text, "", "train", storage=MemoryStorage()).create_records()
        nothing: Any = lambda split: None  # noqa: E731  # the shortest wrong generator
        with pytest.raises(TypeError, match="the generator returned a NoneType"):
            await DatasetWriter(nothing, None, "", "train", storage=MemoryStorage()).create_records()

    async def test_cancelled_write_closes_generator_and_leaves_nothing(self, tmp_path: Path) -> None:
        closed = threading.Event()
        begun = anyio.Event()

        def endless(split: str) -> Iterator[tuple[str, Datum]]:
            try:
                i = 0
                while True:
                    yield f"key {i}", {"id": i}
                    i += 1
                    if i == 5000:
                        anyio.from_thread.run_sync(begun.set)
            finally:
                closed.set()

        storage = MemoryStorage()
        writer = DatasetWriter(
            endless, None, "", "train", storage=storage, memory_limit=100_000, temporary_folder=tmp_path
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.create_records)
            await begun.wait()
            assert list(tmp_path.iterdir())
            tasks.cancel_scope.cancel()
        assert closed.is_set()
        assert list(tmp_path.iterdir()) == []
        assert await keys(storage) == []


class TestOrder:
    async def test_records_are_in_datum_order(self) -> None:
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train", storage=storage).create_records()
        assert await ids(storage) == order_of(100)

    async def test_output_bytes_are_independent_of_input_order_and_memory(self, tmp_path: Path) -> None:
        def shuffled(split: str, seed: int) -> Iterator[tuple[str, Datum]]:
            items = list(numbers(split, 500))
            random.Random(seed).shuffle(items)
            yield from items

        found = []
        for seed, memory_limit in ((0, 1 << 26), (1, 1 << 26), (2, 20_000), (3, 50_000)):
            storage = MemoryStorage()
            await DatasetWriter(
                shuffled, None, "", "train", storage=storage, num_shards=3, seed=seed,
                memory_limit=memory_limit, temporary_folder=tmp_path,
            ).create_records()  # fmt: skip
            # Indexes have the writer's id in their names, but their contents depend only on the shards.
            named = {
                re.sub("train-[0-9a-f]{20}-", "train-", key): data for key, data in (await contents(storage)).items()
            }
            found.append(named)
        assert found[0] == found[1] == found[2] == found[3]
        assert len(found[0]) == 3 + 3 + 2

    async def test_record_order_is_independent_of_shard_count(self) -> None:
        orders = []
        for num_shards in (1, 2, 7, 100, 200):
            storage = MemoryStorage()
            await DatasetWriter(numbers, None, "", "train", storage=storage, num_shards=num_shards).create_records()
            orders.append(await ids(storage))
            assert len(await list_shards("train", storage=storage)) == num_shards
        assert all(order == order_of(100) for order in orders)

    async def test_duplicates_follow_on_duplicate_option(self) -> None:
        def twice(split: str) -> Iterator[tuple[str, Datum]]:
            yield from numbers(split, 10)
            yield "key 3", {"id": 1003, "name": "again"}

        with pytest.raises(DuplicateKeyError, match="number 3 has 'key 3', number 10 has 'key 3'"):
            await DatasetWriter(twice, None, "", "train", storage=MemoryStorage()).create_records()
        for on_duplicate, expected in (("first", 3), ("last", 1003)):
            storage = MemoryStorage()
            writer = DatasetWriter(
                twice,
                None,
                "",
                "train",
                storage=storage,
                num_shards=2,
                on_duplicate=on_duplicate,  # type: ignore[arg-type]  # both are
            )
            await writer.create_records()
            assert await ids(storage) == [expected if i == 3 else i for i in order_of(10)]
            assert (await read_manifest("train", storage=storage)).records == 10


class TestWrittenFiles:
    async def test_writer_creates_shards_sidecars_manifest_and_index(self) -> None:
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train", storage=storage, num_shards=3).create_records()
        names = [f"train-{i:05d}-of-00003.tfrecord" for i in range(3)]
        (writer,) = (await read_manifest("train", storage=storage)).writers
        assert [key for key in await keys(storage) if not key.startswith("_manifest")] == [
            *(f"_index/train-{writer}{name.removeprefix('train')}.index" for name in names),
            "datum_to_type_and_shape_mapping.json",
            "shard_info.json",
            *names,
        ]
        counts = dict(zip(names, [33, 34, 33], strict=True))
        assert await json_of(storage, "shard_info.json") == {"train": counts}
        assert await json_of(storage, "datum_to_type_and_shape_mapping.json") == {
            "id": {"type": "int", "shape": [], "dense": True},
            "name": {"type": "string", "shape": [], "dense": True},
        }
        manifest = await read_manifest("train", storage=storage)
        assert {shard.path: shard.records for shard in manifest.shards} == counts
        assert manifest.schema is not None
        assert Schema.from_json(manifest.schema) == Schema({"id": FixedLen((), "int64"), "name": FixedLen((), "str")})

    async def test_writer_steps_can_be_called_separately(self) -> None:
        storage = MemoryStorage()
        writer = DatasetWriter(numbers, None, "", "train", storage=storage, num_shards=1)
        with pytest.raises(RuntimeError, match="call cache_records first"):
            await writer.flush_records()
        await writer.cache_records()
        assert await keys(storage) == []
        shard_info, size = await writer.flush_records()
        assert shard_info == {"train": {"train-00000-of-00001.tfrecord": 100}}
        assert size == sum(len(encode_example(datum)) for _, datum in numbers("train"))
        with pytest.raises(RuntimeError, match="train: there are no records to write; call cache_records first"):
            await writer.flush()
        await writer.save_shard_info({"other": {"other-00000-of-00001.tfrecord": 5}})
        assert await json_of(storage, "shard_info.json") == shard_info | {"other": {"other-00000-of-00001.tfrecord": 5}}

    @pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB", CompressionOptions(type="GZIP", level=1)])
    async def test_split_round_trips_compressed(self, compression: Any) -> None:
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train", storage=storage, compression=compression).create_records()
        assert await ids(storage) == order_of(100)
        found = await read_records("train-00000-of-00001.tfrecord", storage=storage)
        assert [decode_example(record)["id"] for record in found] == order_of(100)

    async def test_writer_accepts_folder_and_url(self, tmp_path: Path) -> None:
        await DatasetWriter(numbers, None, tmp_path / "data", "train").create_records()
        assert (await read_manifest(tmp_path / "data" / "train")).records == 100
        await DatasetWriter(numbers, None, (tmp_path / "url").as_uri() + "/", "train").create_records()
        assert (await read_manifest(tmp_path / "url" / "train")).records == 100
        async with asyncrec.open_storage("memory://bucket") as storage:
            await DatasetWriter(numbers, None, "deep/er", "train", storage=storage).create_records()
            assert "deep/er/shard_info.json" in await keys(storage)

    async def test_empty_path_means_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        await DatasetWriter(numbers, None, "", "train").create_records()
        assert (tmp_path / "train-00000-of-00001.tfrecord").exists()
        async with open_split("", "train[:5]") as reader:
            assert len([features async for features in reader]) == 5

    async def test_records_of_several_mebibytes_round_trip(self, tmp_path: Path) -> None:
        def large(split: str) -> Iterator[tuple[int, Datum]]:
            for i in range(5):
                yield i, {"id": i, "data": bytes([i]) * (2 << 20)}

        storage = MemoryStorage()
        await DatasetWriter(
            large, None, "", "train", storage=storage, memory_limit=3 << 20, temporary_folder=tmp_path, num_shards=2
        ).create_records()
        async with open_split("", "train", storage=storage) as reader:
            assert sorted([(f["id"], f["data"][:1], len(f["data"])) async for f in reader]) == [
                (i, bytes([i]), 2 << 20) for i in range(5)
            ]

    async def test_progress_is_shown_on_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        await DatasetWriter(numbers, None, "", "train", 100, storage=MemoryStorage(), progress=True).create_records()
        shown = capsys.readouterr().err
        assert "train: examples" in shown
        assert "100/100" in shown
        await DatasetWriter(numbers, None, "", "train", 100, storage=MemoryStorage()).create_records()
        assert capsys.readouterr().err == "", "stderr is no terminal here"

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"split": "a/b"}, ValueError),
            ({"split": "train[:5]"}, ValueError),
            ({"split": "_train"}, ValueError),
            ({"num_shards": 0}, ValueError),
            ({"memory_limit": 0}, ValueError),
            ({"compression": "LZ4"}, ValueError),
            ({"on_duplicate": "skip"}, ValueError),
            ({"sparse_features": "x"}, TypeError),
        ],
    )
    def test_writer_rejects_wrong_options_at_once(self, options: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            DatasetWriter(numbers, None, "", **{"split": "train", **options})


class TestReplacing:
    """Rewriting a split replaces it completely, or leaves the earlier one complete."""

    async def test_new_shards_replace_all_old_shards(self) -> None:
        storage = MemoryStorage()
        for count, num_shards in ((100, 3), (50, 3), (20, 2), (60, 4)):
            await DatasetWriter(
                numbers, None, "", "train", storage=storage, num_shards=num_shards, count=count
            ).create_records()
            assert await ids(storage) == order_of(count)
            shards = await list_shards("train", storage=storage)
            assert len(shards) == num_shards
            entries = (await read_manifest("train", storage=storage)).shards
            assert [key for key in await keys(storage) if key.endswith((".tfrecord", ".index"))] == sorted(
                key for entry in entries for key in entry.objects
            )
            assert all(entry.index is not None for entry in entries)
            info = await json_of(storage, "shard_info.json")
            assert sum(info["train"].values()) == count

    @pytest.mark.parametrize("num_shards", [3, 5])
    @pytest.mark.parametrize("failure", ["empty", "raises midway", "raises at once", "duplicate", "conflict", "None"])
    async def test_failing_generator_keeps_earlier_split(self, failure: str, num_shards: int) -> None:
        def failing(split: str) -> Iterator[tuple[str, Datum]]:
            if failure == "empty":
                return
            if failure == "raises at once":
                raise OSError("no such input")
            yield from numbers(split, 50)
            if failure == "raises midway":
                raise OSError("the input ended")
            if failure == "duplicate":
                yield "key 7", {"id": 7, "name": "n7"}
            if failure == "conflict":
                yield "another", {"id": 0.5, "name": "n"}
            if failure == "None":
                yield "another", {"id": None, "name": "n"}

        expected, message = {
            "empty": (DatasetError, "the generator yielded no example"),
            "raises midway": (OSError, "the input ended"),
            "raises at once": (OSError, "no such input"),
            "duplicate": (DuplicateKeyError, "number 7"),
            "conflict": (SchemaError, "feature 'id' is int64 in example 0 and float in example 50"),
            "None": (SchemaError, "feature 'id': the value is None; leave the feature out"),
        }[failure]
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train", storage=storage, num_shards=3).create_records()
        before = {key: await storage.get(key) for key in await keys(storage)}
        with pytest.raises(expected, match=message) as caught:
            await DatasetWriter(failing, None, "", "train", storage=storage, num_shards=num_shards).create_records()
        assert {key: await storage.get(key) for key in await keys(storage)} == before
        if failure == "raises midway":
            assert "after 50 examples; nothing was written" in caught.value.__notes__[0]

    @pytest.mark.slow
    @pytest.mark.parametrize("num_shards", [3, 4])
    async def test_storage_fault_leaves_old_or_new_split(
        self, num_shards: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The earlier split is not changed until the new one is complete, so one of them always exists."""
        monkeypatch.setattr(retry._jitter, "uniform", lambda low, high: 0.0)  # the back-off does not sleep

        async def first(storage: Storage) -> None:
            await DatasetWriter(numbers, None, "", "train", storage=storage, num_shards=3).create_records()

        async def second(storage: Storage) -> None:
            writer = DatasetWriter(
                numbers, None, "", "train", storage=storage, num_shards=num_shards, count=60, start=100
            )
            await writer.create_records()

        inner = MemoryStorage()
        await first(inner)
        everything = {key: await inner.get(key) for key in await keys(inner)}
        calm = FlakyStorage(inner)
        await second(calm)
        assert sorted(await ids(inner)) == list(range(100, 160))
        outcomes = set()
        for k in range(len(calm.operations)):
            inner = MemoryStorage()
            for key, data in everything.items():
                await inner.put(key, data)
            before = await contents(inner)
            flaky = FlakyStorage(inner, {k: Fault("error", error=TransientStorageError)})
            about = f"{calm.operations[k]} (number {k})"
            notes: list[str] | None = None
            try:
                await second(flaky)
            except StorageError as error:
                notes = getattr(error, "__notes__", [])
            if notes is None:
                outcomes.add("new")  # only removing the earlier split failed
            elif (await read_manifest("train", storage=inner)).records == 100:
                outcomes.add("as it was")
                assert await contents(inner) == before, about
                continue
            else:
                outcomes.add("new, and told that something beside it is not up to date")
                assert "was not updated" in "".join(notes), about
            assert sorted(await ids(inner)) == list(range(100, 160)), about
        assert outcomes == {"as it was", "new, and told that something beside it is not up to date", "new"}

    async def test_full_disk_keeps_earlier_split(self, tmp_path: Path) -> None:
        class Full:
            """Like `os`, but its disk is full after some writes."""

            def __init__(self, room: int) -> None:
                self.room = room

            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

            def writev(self, fd: int, buffers: Any) -> int:
                self.room -= sum(map(len, buffers))
                if self.room < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return os.writev(fd, buffers)

        await DatasetWriter(numbers, None, tmp_path, "train", num_shards=3).create_records()
        before = await contents(LocalStorage(tmp_path))
        for num_shards in (3, 4):
            for room in (0, 1000, 3000, 6000):
                storage = LocalStorage(tmp_path, chunk_size=500, system=Full(room))
                with pytest.raises(StorageError, match="No space left"):
                    await DatasetWriter(
                        numbers, None, "", "train", storage=storage, num_shards=num_shards, count=150
                    ).create_records()
                assert await contents(LocalStorage(tmp_path)) == before
                assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]

    async def test_cancelled_write_leaves_nothing_behind(self) -> None:
        inner = MemoryStorage()
        calm = FlakyStorage(inner)
        await DatasetWriter(numbers, None, "", "train", storage=calm, num_shards=3).create_records()
        publications = [k for k, (operation, *_) in enumerate(calm.operations) if operation in ("publish", "send")]
        for k in publications:
            if calm.operations[k][1].startswith(("_manifest/train/", "shard_info", "datum_to")):
                break  # from here on, it may be committed
            inner = MemoryStorage()
            flaky = FlakyStorage(inner, {k: Fault("hang")})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(DatasetWriter(numbers, None, "", "train", storage=flaky, num_shards=3).create_records)
                while len(flaky.operations) <= k:
                    await checkpoint()
                tasks.cancel_scope.cancel()
            assert await contents(inner) == {}
            # Requests without a response may still take effect: a tombstone, the claim and the first log object account
            # for them.
            assert all(key.startswith("_manifest/") for key in await keys(inner))
            with pytest.raises(ObjectNotFoundError):
                await read_manifest("train", storage=inner)
            await DatasetWriter(numbers, None, "", "train", storage=inner).create_records()
            assert await ids(inner) == order_of(100)
            await recover("train", storage=inner)
            assert [key for key in await keys(inner) if key.endswith("-000000.jsonl")] == []


class TestFaultsOfDatum:
    """One test for each bug of datum's writer, to show that ours does not have it."""

    async def test_rewritten_split_updates_counts(self) -> None:
        storage = MemoryStorage()
        for count in (100, 40):
            await DatasetWriter(numbers, None, "", "train", storage=storage, count=count).create_records()
        (shard,) = await list_shards("train", storage=storage)
        assert await json_of(storage, "shard_info.json") == {"train": {shard: 40}}

    async def test_other_splits_keep_their_counts_on_any_storage(self, tmp_path: Path) -> None:
        """datum looked for the file on the local disk, whatever the storage was."""
        for storage in (MemoryStorage(), LocalStorage(tmp_path)):
            for split, count in (("train", 100), ("test", 20), ("train", 50)):
                await DatasetWriter(numbers, None, "", split, storage=storage, count=count).create_records()
            info = await json_of(storage, "shard_info.json")
            assert {split: sum(files.values()) for split, files in info.items()} == {"train": 50, "test": 20}
            assert len(await ids(storage, "train+test")) == 70

    async def test_concurrent_splits_keep_each_others_counts(self) -> None:
        storage = MemoryStorage()
        async with anyio.create_task_group() as tasks:
            for i in range(8):
                tasks.start_soon(DatasetWriter(numbers, None, "", f"s{i}", storage=storage, count=i + 1).create_records)
        info = await json_of(storage, "shard_info.json")
        assert {split: sum(files.values()) for split, files in info.items()} == {f"s{i}": i + 1 for i in range(8)}

    async def test_schema_covers_all_examples_and_splits(self) -> None:
        def ragged(split: str, extra: bool) -> Iterator[tuple[int, Datum]]:
            yield 0, {"tags": ["a", "b"], "x": 1, **({"more": 1.5} if extra else {})}
            yield 1, {"tags": ["a"], "x": 1}

        storage = MemoryStorage()
        await DatasetWriter(ragged, None, "", "train", storage=storage, extra=True).create_records()
        await DatasetWriter(ragged, None, "", "test", storage=storage, extra=False).create_records()
        assert await json_of(storage, "datum_to_type_and_shape_mapping.json") == {
            "more": {"type": "float", "shape": [], "dense": False},
            "tags": {"type": "string", "shape": [-1], "dense": False},
            "x": {"type": "int", "shape": [], "dense": True},
        }
        manifest = await read_manifest("train", storage=storage)
        assert manifest.schema is not None
        assert Schema.from_json(manifest.schema) == Schema(
            {"more": VarLen("float32"), "tags": VarLen("str"), "x": FixedLen((), "int64")}
        )

    async def test_empty_generator_raises_dataset_error(self) -> None:
        with pytest.raises(DatasetError, match="train: the generator yielded no example; nothing was written"):
            await DatasetWriter(numbers, None, "", "train", storage=MemoryStorage(), count=0).create_records()

    async def test_multidimensional_strings_round_trip(self) -> None:
        """datum took them for JPEGs."""

        def grids(split: str) -> Iterator[tuple[int, Datum]]:
            for i in range(3):
                yield i, {"id": i, "two": [["a", "b"], ["c", str(i)]], "three": [[[b"x\0"]]]}

        storage = MemoryStorage()
        await DatasetWriter(grids, None, "", "train", storage=storage).create_records()
        async with open_split("", "train", storage=storage) as reader:
            async for features in reader:
                assert features["two"].tolist() == [["a", "b"], ["c", str(features["id"])]]
                assert features["three"].tolist() == [[[b"x\0"]]]

    async def test_temporary_files_stay_in_given_folder(self, tmp_path: Path) -> None:
        """datum put them into the parent folder of the target."""
        seen = []

        def examples(split: str) -> Iterator[tuple[str, Datum]]:
            for item in numbers(split, 2000):
                seen.append(sorted(os.listdir(tmp_path)))
                yield item

        (tmp_path / "data").mkdir()
        await DatasetWriter(
            examples, None, tmp_path / "data", "train", temporary_folder=tmp_path / "scratch", memory_limit=50_000
        ).create_records()
        assert seen[-1] == ["data", "scratch"]
        assert os.listdir(tmp_path / "scratch") == []

    async def test_duplicate_key_raises_on_arrival(self, tmp_path: Path) -> None:
        taken = []

        def examples(split: str) -> Iterator[tuple[str, Datum]]:
            for item in numbers(split, 3000):
                taken.append(item[0])
                yield ("key 5", {"id": 5, "name": ""}) if item[0] == "key 1500" else item

        with pytest.raises(DuplicateKeyError, match="number 5 has 'key 5', number 1500 has 'key 5'"):
            await DatasetWriter(
                examples, None, "", "train", storage=MemoryStorage(), memory_limit=50_000, temporary_folder=tmp_path
            ).create_records()
        assert taken[-1] == "key 1500"
        assert list(tmp_path.iterdir()) == []

    async def test_shard_count_handles_few_examples_of_any_size(self) -> None:
        """datum never returned for 1,500 examples of 2 TiB in total, and wrote 1,000 of 600 GiB to one shard."""
        from asyncrec._datasets.from_generator.publishing import shard_count

        assert shard_count(2 << 40, 1500) == 1500
        assert shard_count(600 << 30, 1000) in range(600, 1001)

    @pytest.mark.slow
    async def test_fifty_thousand_examples_need_few_mebibytes_and_files(self, tmp_path: Path) -> None:
        """datum kept up to 1,000 files open. This test writes 50,000 examples; tests/benchmarks writes a million."""
        limit = 4 << 20
        payload = random.Random(0).randbytes(1 << 20)
        before = len(os.listdir("/proc/self/fd"))
        most = 0

        def examples(split: str) -> Iterator[tuple[int, Datum]]:
            nonlocal most
            for i in range(50_000):
                if i % 500 == 0:
                    most = max(most, len(os.listdir("/proc/self/fd")))
                yield i, {"id": i, "data": payload[i : i + 1000]}

        writer = DatasetWriter(
            examples, None, tmp_path / "data", "train", num_shards=16, memory_limit=limit, temporary_folder=tmp_path
        )
        await writer.cache_records()
        assert writer._shuffler.spilled_bytes > 40 << 20
        assert writer._shuffler.most_held_bytes <= limit + 2000
        assert most - before <= 10
        await writer.flush_records()
        async with open_split(tmp_path / "data", "train") as reader:
            assert len(reader) == 50_000
            async for batch in reader.batches():
                assert batch
        assert sorted(os.listdir(tmp_path)) == ["data"]

    async def test_split_can_be_compressed(self) -> None:
        """datum did not support compression."""
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train", storage=storage, compression="GZIP").create_records()
        assert (await storage.get("train-00000-of-00001.tfrecord"))[:2] == b"\x1f\x8b"


class TestOfDatum:
    """Splits written by datum can be rewritten."""

    async def test_rewriting_datum_split_keeps_other_splits(self) -> None:
        storage = MemoryStorage()
        for name in ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "val-00000-of-00001.tfrecord"):
            await storage.put(name, b"")
        theirs = {
            "train": {f"train-0000{i}-of-00002.tfrecord": 0 for i in (0, 1)},
            "val": {"val-00000-of-00001.tfrecord": 0},
        }
        await storage.put("shard_info.json", json.dumps(theirs).encode())
        table = {"old": {"type": "int", "shape": [], "dense": True}}
        await storage.put("datum_to_type_and_shape_mapping.json", json.dumps(table).encode())
        await DatasetWriter(numbers, None, "", "train", storage=storage).create_records()
        assert await json_of(storage, "shard_info.json") == {
            "train": {"train-00000-of-00001.tfrecord": 100},
            "val": theirs["val"],
        }
        assert (await json_of(storage, "datum_to_type_and_shape_mapping.json")).keys() == {"old", "id", "name"}
        with pytest.raises(ObjectNotFoundError):
            await storage.head("train-00001-of-00002.tfrecord")

    async def test_foreign_entries_in_shard_info_are_not_deleted(self) -> None:
        storage = MemoryStorage()
        await DatasetWriter(numbers, None, "", "train-extra", storage=storage).create_records()
        lie = {"train": {"train-extra-00000-of-00001.tfrecord": 1, "shard_info.json": 1}}
        await storage.put("shard_info.json", json.dumps(lie).encode())
        await DatasetWriter(numbers, None, "", "train", storage=storage).create_records()
        assert len(await ids(storage, "train-extra+train")) == 200

    async def test_sparse_features_round_trip_with_shape(self) -> None:
        def examples(split: str) -> Iterator[tuple[int, Datum]]:
            for i in range(1, 5):
                yield i, {"i": i, "m": np.arange(2 * i, dtype=np.int32).reshape(2, i), "v": list(range(i))}

        storage = MemoryStorage()
        writer = DatasetWriter(examples, None, "", "train", sparse_features=["m", "v"], storage=storage)
        assert writer.add_shape_fields({"m": [[1, 2]], "v": [1]}) == {"m": [[1, 2]], "v": [1], "m_shape": [1, 2]}
        await writer.create_records()
        manifest = await read_manifest("train", storage=storage)
        assert manifest.schema is not None
        assert Schema.from_json(manifest.schema).features == {
            "i": FixedLen((), "int64"), "m": Tensor("int32"), "v": VarLen("int64")
        }  # fmt: skip
        table = await json_of(storage, "datum_to_type_and_shape_mapping.json")
        assert table["m"] == {"type": "int", "shape": [2, -1], "dense": False}
        assert table["m_shape"] == {"type": "int", "shape": [2], "dense": True}
        async with open_split("", "train", storage=storage) as reader:
            async for features in reader:
                i = features["i"]
                assert features["m"].tolist() == np.arange(2 * i).reshape(2, i).tolist()
                assert features["v"].tolist() == list(range(i))
