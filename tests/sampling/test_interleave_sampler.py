"""`asyncrec.InterleaveSampler` yields class-balanced batches from interleaved shards, and resumes after any batch."""

from __future__ import annotations

import ast
import itertools
import json
import logging
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._sampling.interleave_sampler.shard_folder import folder_of
from asyncrec.errors import DecodeError, ObjectChangedError
from asyncrec.storage import ObjectInfo
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import SlowStorage

pytestmark = pytest.mark.anyio


def class_of(record: bytes) -> bytes:
    return record.partition(b":")[0]


async def folder(shards: list[list[bytes]], compression: Any = "") -> MemoryStorage:
    storage = MemoryStorage()
    for number, records in enumerate(shards):
        await asyncrec.write_records(f"data/s{number:03}.tfrecord", records, compression=compression, storage=storage)
    return storage


async def unequal(classes: int, records: int, shards: int) -> MemoryStorage:
    """Write records whose class sizes follow Zipf's law, scattered over several shards."""
    source = random.Random(2)
    weights = [1 / (number + 10) for number in range(classes)]
    drawn = source.choices(range(classes), weights, k=records)
    return await folder([[b"%d:%d" % (cls, i) for i, cls in enumerate(drawn)][n::shards] for n in range(shards)])


def sampler_of(storage: asyncrec.storage.Storage, function: Callable[[bytes], Any] = bytes, **options: Any) -> Any:
    return asyncrec.InterleaveSampler("data", function, storage=storage, **{"seed": 7, **options})


async def batches_of(sampler: Any) -> list[Any]:
    async with sampler:
        return [batch async for batch in sampler]


async def test_pass_interleaves_shards_in_seeded_order() -> None:
    shards = [[b"%d:%d" % (shard, i) for i in range(10 + shard)] for shard in range(6)]
    storage = await folder(shards)
    options = {"example_per_class": 3, "shards_per_cycle": 4, "batch_size": 8}
    two = list(itertools.chain(*await batches_of(sampler_of(storage, num_repeat=2, **options))))
    count = sum(map(len, shards))
    assert sorted(two[:count]) == sorted(two[count:]) == sorted(itertools.chain(*shards))
    orders = []
    for epoch in (two[:count], two[count:]):
        order = list(dict.fromkeys(int(class_of(record)) for record in epoch))
        paths = [f"data/s{number:03}.tfrecord" for number in order]
        async with asyncrec.interleave(paths, cycle_length=4, block_length=3, storage=storage) as stream:
            assert [record async for record in stream] == epoch
        orders.append(order)
    assert orders[0] != orders[1]


async def test_last_batch_may_be_short_and_can_be_dropped() -> None:
    storage = await folder([[b"0:%d" % i for i in range(25)]])
    assert [len(batch) for batch in await batches_of(sampler_of(storage, batch_size=10, num_repeat=1))] == [10, 10, 5]
    assert [len(batch) for batch in await batches_of(sampler_of(storage, batch_size=10, num_repeat=2))] == [10] * 5
    dropping = sampler_of(storage, batch_size=10, num_repeat=1, drop_remainder=True)
    assert [len(batch) for batch in await batches_of(dropping)] == [10, 10]


@pytest.mark.slow
@pytest.mark.parametrize(("prefetch_size", "async_cycle"), [(0, False), (3, True)])
@pytest.mark.parametrize("class_fn", [None, class_of])
@pytest.mark.parametrize("shuffle_buffer", [0, 13])
@pytest.mark.parametrize("num_repeat", [1, 3])
async def test_stream_resumed_at_any_record_yields_same_remainder(
    prefetch_size: int, async_cycle: bool, class_fn: Any, shuffle_buffer: int, num_repeat: int
) -> None:
    """This is checked for 500 records, in every combination of shuffle, interleave, sampler and repeat."""
    source = random.Random(4)
    shards = [[b"%d:%d" % (source.randrange(9), i) for i in range(count)] for count in (100, 80, 0, 170, 150)]
    storage = await folder(shards)
    await asyncrec.write_records("data/s003.tfrecord", shards[3], compression="GZIP", storage=storage)
    options: dict[str, Any] = {
        "example_per_class": 2,
        "batch_size": 8,
        "shards_per_cycle": 3,
        "class_fn": class_fn,
        "class_buffer": 20,
        "num_repeat": num_repeat,
        "prefetch_size": prefetch_size,
        "async_cycle": async_cycle,
        "shuffle_buffer": shuffle_buffer,
        "on_exhausted": "short",
    }
    whole = []
    states = []
    async with sampler_of(storage, **options) as sampler:
        states.append(json.dumps(sampler.state_dict()))
        async for batch in sampler:
            whole.append(batch)
            states.append(json.dumps(sampler.state_dict()))
    assert len(whole) >= 40 * num_repeat
    for k, state in enumerate(states):
        async with sampler_of(storage, **{**options, "seed": None}) as sampler:
            sampler.load_state_dict(json.loads(state))
            if num_repeat == 1 or k % 7 == 0:
                assert [batch async for batch in sampler] == whole[k:], k
            else:  # only the records that follow immediately
                assert [await anext(sampler, None) for _ in range(3)] == [*whole[k : k + 3], None, None, None][:3], k


@pytest.mark.slow
async def test_ten_thousand_batches_have_p_classes_with_k_records() -> None:
    """There are 1,000 classes of unequal size, not known in advance; the buffer stays within its limit."""
    storage = await unequal(1000, 40_000, 8)
    async with sampler_of(storage, class_fn=class_of, batch_size=32, example_per_class=2) as sampler:
        for _ in range(10_000):
            counts = Counter(map(class_of, await anext(sampler)))
            assert len(counts) == 16
            assert set(counts.values()) == {2}
        stats = sampler.stats()
    assert stats.batches >= 10_000
    assert stats.records - stats.dropped - 32 * stats.batches <= 4096 + 32


async def test_too_few_classes_yield_short_batches_or_raise() -> None:
    storage = await folder([[b"%d:%d" % (cls, i) for i in range(4)] for cls in range(3)])
    options: dict[str, Any] = {"class_fn": class_of, "batch_size": 8, "example_per_class": 2}
    with pytest.raises(asyncrec.errors.DatasetError, match="3 classes have 2 examples each, but a batch needs 4"):
        await batches_of(sampler_of(storage, on_exhausted="stop", **options))
    short = await batches_of(sampler_of(storage, on_exhausted="short", num_repeat=1, **options))
    assert [len(batch) for batch in short] == [6, 6]
    with pytest.raises(asyncrec.errors.DatasetError, match="3 classes have 2 examples each, but a batch needs 4"):
        await batches_of(sampler_of(storage, on_exhausted="repeat", **options))


@pytest.mark.parametrize("prefetch_size", [0, 3])
@pytest.mark.parametrize("num_repeat", [1, 2, -1])
@pytest.mark.parametrize("on_exhausted", ["stop", "short", "repeat"])
async def test_first_pass_without_batch_raises_each_time(
    on_exhausted: Any, num_repeat: int, prefetch_size: int
) -> None:
    storage = await folder([[b"%d:0" % cls] for cls in range(6)])  # each class has one record, but needs two
    options: dict[str, Any] = {"class_fn": class_of, "batch_size": 8, "example_per_class": 2, "seed": 1}
    options |= {"on_exhausted": on_exhausted, "num_repeat": num_repeat, "prefetch_size": prefetch_size}
    async with sampler_of(storage, **options) as sampler:
        for _ in range(2):
            with pytest.raises(
                asyncrec.errors.DatasetError, match="0 classes have 2 examples each, but a batch needs 4"
            ):
                await anext(sampler)
    with pytest.raises(asyncrec.errors.DatasetError, match="the 2 shards contain no records"):
        await batches_of(sampler_of(await folder([[], []]), **options))


async def test_later_pass_without_batch_ends_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    storage = await folder([[b"%d:%d" % (cls, i) for i in range(2)] for cls in range(4)])
    classes = iter([*range(4)] * 2)  # four classes in the first pass, and only one in all later passes
    options: dict[str, Any] = {"class_fn": lambda _: next(classes, 9), "batch_size": 8, "example_per_class": 2}
    with caplog.at_level(logging.WARNING, "asyncrec.sampling"):
        assert len(await batches_of(sampler_of(storage, on_exhausted="stop", **options))) == 1
    assert "holds examples of 1 classes" in caplog.text


async def test_repeat_continues_until_last_batch_is_complete() -> None:
    storage = await folder([[b"%d:%d" % (cls, i) for i in range(2)] for cls in range(6)])
    options: dict[str, Any] = {"class_fn": class_of, "batch_size": 8, "example_per_class": 2, "num_repeat": 1}
    assert len(await batches_of(sampler_of(storage, on_exhausted="stop", **options))) == 1
    batches = await batches_of(sampler_of(storage, on_exhausted="repeat", **options))
    assert [len(set(map(class_of, batch))) for batch in batches] == [4, 4]


@pytest.mark.parametrize("prefetch_size", [0, 3])
async def test_sampler_resumes_within_extra_pass(prefetch_size: int) -> None:
    storage = await folder([[b"%d:%d" % (number % 3, number) for number in (*range(12), 12, 15)]])
    options: dict[str, Any] = {"class_fn": class_of, "batch_size": 6, "example_per_class": 2, "num_repeat": 1}
    options |= {"on_exhausted": "repeat", "prefetch_size": prefetch_size}
    batches = await batches_of(sampler_of(storage, **options))
    for given in range(len(batches) + 1):
        async with sampler_of(storage, **options) as sampler:
            for _ in range(given):
                await anext(sampler)
            state = json.loads(json.dumps(sampler.state_dict()))
        async with sampler_of(storage, **options) as sampler:
            sampler.load_state_dict(state)
            assert [batch async for batch in sampler] == batches[given:]


@pytest.mark.parametrize("parallelism", [None, 3])
async def test_sync_and_async_deserializers_yield_same_batches(parallelism: int | None) -> None:
    storage = await folder([[b"%d:%d" % (shard, i) for i in range(30)] for shard in range(3)])
    threads = set()

    def sync(record: bytes) -> str:
        threads.add(threading.current_thread())
        return record.decode()

    async def slow(record: bytes) -> str:
        await anyio.lowlevel.checkpoint()
        return record.decode()

    options: dict[str, Any] = {"num_repeat": 1, "parallelism": parallelism}
    expected = [[record.decode() for record in batch] for batch in await batches_of(sampler_of(storage, **options))]
    assert await batches_of(sampler_of(storage, sync, **options)) == expected
    assert await batches_of(sampler_of(storage, slow, **options)) == expected
    assert (threads == {threading.current_thread()}) == (parallelism is None)


@pytest.mark.parametrize("parallelism", [None, 3])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("prefetch_size", [0, 2])
async def test_deserializer_error_names_shard_and_record(
    parallelism: int | None, is_async: bool, prefetch_size: int
) -> None:
    storage = await folder([[b"0:%d" % i for i in range(50)]])

    def sync(record: bytes) -> bytes:
        if record == b"0:37":
            raise KeyError("label")
        return record

    async def slow(record: bytes) -> bytes:
        return sync(record)

    options: dict[str, Any] = {"batch_size": 10, "parallelism": parallelism, "prefetch_size": prefetch_size}
    batches = []
    async with sampler_of(storage, slow if is_async else sync, **options) as sampler:
        with pytest.raises(
            asyncrec.errors.DecodeError, match=r"data/s000\.tfrecord, record 37: .* KeyError: 'label'"
        ) as told:
            async for batch in sampler:
                batches.append(batch)
    assert len(batches) == 3
    assert isinstance(told.value.__cause__, KeyError)


async def test_class_function_error_names_shard_and_record() -> None:
    storage = await folder([[b"%d:%d" % (i % 5, i) for i in range(50)]])

    def unhashable(record: bytes) -> Any:
        return class_of(record) if record != b"4:9" else []

    with pytest.raises(asyncrec.errors.DecodeError, match=r"s000\.tfrecord, record 9: class_fn raised TypeError"):
        await batches_of(sampler_of(storage, class_fn=unhashable, batch_size=4))


async def test_missing_shards_are_reported_and_hidden_files_skipped() -> None:
    storage = await folder([[b"x"]])
    for name in ("_index.tfrecord", ".s.tfrecord", "other.txt", "sub/s.tfrecord"):
        await storage.put(f"data/{name}", b"no shard")
    assert await batches_of(sampler_of(storage, num_repeat=1)) == [[b"x"]]
    with pytest.raises(
        asyncrec.ObjectNotFoundError,
        match=r"data: no shard matches shard_suffix='\*\.rec'; the folder has 2 other objects\. Names",
    ):
        await batches_of(sampler_of(storage, shard_suffix="*.rec"))


@pytest.mark.parametrize("folder", ["crawl", "a/crawl", ""])
async def test_data_set_path_is_rejected_with_folder_and_suffix(folder: str, tmp_path: Path) -> None:
    path = tmp_path / folder / "pages"
    async with asyncrec.open_sharded_writer(path) as writer:
        await writer.write_many([b"1:1", b"2:2"])
    said = (
        f"'pages' is a data set, .* pass '{path.parent}' and shard_suffix='pages-\\*.tfrecord'; .* ClassBalancedSampler"
    )
    with pytest.raises(asyncrec.ObjectNotFoundError, match=said):
        await batches_of(asyncrec.InterleaveSampler(path, bytes))
    as_told = asyncrec.InterleaveSampler(path.parent, bytes, shard_suffix="pages-*.tfrecord", num_repeat=1)
    assert await batches_of(as_told) == [[b"1:1", b"2:2"]]


async def test_data_set_path_in_store_is_rejected_with_folder() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("crawl/pages", storage=storage) as writer:
        await writer.write(b"1:1")
    with pytest.raises(asyncrec.ObjectNotFoundError, match="pass 'crawl' and shard_suffix"):
        await batches_of(asyncrec.InterleaveSampler("crawl/pages", bytes, storage=storage))


@pytest.mark.parametrize("name", ["c d", "c[1]", "it's"])
async def test_suggested_folder_and_suffix_work_verbatim(name: str, tmp_path: Path) -> None:
    """For a `file:` URL, the folder is a URL too, and stays escaped; the suffix is a pattern that matches this name."""
    path = tmp_path / "a b" / name
    path.parent.mkdir()
    await asyncrec.write_records(f"{path}-00000-of-00001.tfrecord", [b"1:1"])
    with pytest.raises(asyncrec.ObjectNotFoundError, match="is a data set") as caught:
        await batches_of(asyncrec.InterleaveSampler(path.as_uri(), bytes))
    told = re.search(r"pass (\S+) and shard_suffix=(.+\.tfrecord['\"]); ", str(caught.value))
    assert told is not None
    folder, suffix = map(ast.literal_eval, told.groups())
    assert folder == path.parent.as_uri()
    assert await batches_of(asyncrec.InterleaveSampler(folder, bytes, shard_suffix=suffix, num_repeat=1)) == [[b"1:1"]]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("crawl", "."),
        ("/crawl", "/"),
        ("a/crawl", "a"),
        ("file:/crawl", "file:/"),
        ("file:///crawl", "file:///"),
        ("file:///a%20b/c%20d", "file:///a%20b"),
        ("file:///a%2Fb%2fcrawl", "file:///a%2Fb"),
        ("file:///a/b%2Fcrawl", "file:///a/b"),
        ("file+aiofiles:///a%2Fcrawl", "file+aiofiles:///a"),
        ("a%2Fb/c%2Fd", "a%2Fb"),
        ("s3://bucket/a%2Fcrawl", "s3://bucket"),
        ("s3://bucket/crawl", "s3://bucket"),
        ("s3://bucket/a/crawl", "s3://bucket/a"),
        ("s3://key:secret@bucket/a/crawl", "s3://***@bucket/a"),
    ],
)
def test_suggested_folder_is_parent_of_path(path: str, folder: str) -> None:
    assert folder_of(path) == folder


@pytest.mark.parametrize("root", ["memory://", "memory:///", "/", "//", "file:///", "file:/"])
async def test_root_without_shards_is_reported_as_unmatched(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Avoid listing the entire disk.
    monkeypatch.setattr(LocalStorage, "list_objects", lambda self, prefix: MemoryStorage().list_objects())
    with pytest.raises(asyncrec.ObjectNotFoundError, match=r"no shard matches shard_suffix='no-such-\*'"):
        await batches_of(asyncrec.InterleaveSampler(root, bytes, shard_suffix="no-such-*"))


@pytest.mark.parametrize(
    "failure",
    [asyncrec.errors.StoragePermissionError, asyncrec.errors.ArgumentValueError, OSError, RuntimeError, TimeoutError],
)
async def test_failed_explanation_keeps_original_error(failure: type[Exception]) -> None:
    class OnlyTheFolder(MemoryStorage):
        async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            if prefix != "crawl/":
                raise failure("only that folder is listed")
            return
            yield

    with pytest.raises(asyncrec.ObjectNotFoundError, match="crawl: no shard matches"):
        await batches_of(asyncrec.InterleaveSampler("crawl", bytes, storage=OnlyTheFolder()))


@pytest.mark.parametrize("prefetch_size", [0, 2])
@pytest.mark.parametrize("async_cycle", [False, True])
async def test_shard_that_vanishes_midway_is_named(prefetch_size: int, async_cycle: bool) -> None:
    storage = await folder([[b"%d" % shard] * 40 for shard in range(40)])
    options: dict[str, Any] = {"prefetch_size": prefetch_size, "async_cycle": async_cycle, "shards_per_cycle": 2}
    async with sampler_of(storage, **options) as sampler:
        await anext(sampler)
        for shard in range(40):
            await storage.delete(f"data/s{shard:03}.tfrecord")
        with pytest.raises(asyncrec.ObjectNotFoundError, match=r"s0\d\d\.tfrecord"):
            async for _ in sampler:
                pass


@pytest.mark.parametrize("prefetch_size", [0, 2])
@pytest.mark.parametrize("async_cycle", [False, True])
@pytest.mark.parametrize("records", [1, 39, 40, 41])
async def test_shard_replaced_since_listing_is_named(prefetch_size: int, async_cycle: bool, records: int) -> None:
    """The shard is replaced before it is first read or in a later pass; no batch mixes records of both versions."""
    storage = await folder([[b"old"] * 40 for _ in range(40)])
    options: dict[str, Any] = {"prefetch_size": prefetch_size, "async_cycle": async_cycle, "shards_per_cycle": 2}
    async with sampler_of(storage, **options) as sampler:
        await anext(sampler)
        for shard in range(40):
            await asyncrec.write_records(f"data/s{shard:03}.tfrecord", [b"new"] * records, storage=storage)
        given: list[bytes] = []
        with pytest.raises(ObjectChangedError, match=r"s0\d\d\.tfrecord"):
            async for batch in sampler:
                given += batch
        assert set(given) <= {b"old"}


async def test_nan_class_is_rejected_with_record() -> None:
    storage = await folder([[b"0", b"1", b"x", b"2"]])
    sampler = sampler_of(storage, class_fn=lambda record: float("nan") if record == b"x" else record, batch_size=2)
    with pytest.raises(
        DecodeError, match=r"data/s000\.tfrecord, record 2: class_fn raised SchemaError: it returned nan, which"
    ):
        await batches_of(sampler)


@pytest.mark.parametrize("class_fn", [None, class_of])
@pytest.mark.parametrize("prefetch_size", [0, 3])
async def test_corrupt_record_is_skipped_or_raised_with_its_path(class_fn: Any, prefetch_size: int) -> None:
    storage = await folder([[b"%d:%d" % (shard, i) for i in range(20)] for shard in range(4)])
    content = bytearray(await storage.get("data/s002.tfrecord"))
    content[content.index(b"2:9")] ^= 1
    await storage.put("data/s002.tfrecord", content)
    options: dict[str, Any] = {"batch_size": 8, "class_fn": class_fn, "prefetch_size": prefetch_size, "num_repeat": 2}
    with pytest.raises(asyncrec.CorruptRecordError) as raised:
        await batches_of(sampler_of(storage, **options))
    assert (raised.value.path, raised.value.record) == ("data/s002.tfrecord", 9)
    async with sampler_of(storage, on_corrupt="skip", on_exhausted="short", **options) as sampler:
        found = Counter(record for batch in [batch async for batch in sampler] for record in batch)
        ((path, lost),) = sampler.damage  # it is reported once, although every pass reached it
    assert (path, lost.records_before) == ("data/s002.tfrecord", 9)
    assert b"2:9" not in found
    assert len(found) == 79 if class_fn is None else len(found) > 60


async def test_shards_of_several_data_sets_trigger_naming_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    for name in ("test", "train", "train-2"):
        async with asyncrec.open_sharded_writer(f"data/{name}", max_shard_records=3, storage=storage) as writer:
            await writer.write_many([f"{name}:{n}".encode() for n in range(6)])
    await asyncrec.write_records("data/other.tfrecord", [b"other"], storage=storage)
    with caplog.at_level(logging.WARNING, "asyncrec.sampling"):
        found = await batches_of(sampler_of(storage, shard_suffix="tr*", num_repeat=1))
    assert len(found[0]) == 12
    (told,) = caplog.messages
    assert told == (
        "data: the shards of 2 data sets are read together: train, train-2; to read only one of them, pass "
        "shard_suffix='train-*.tfrecord'"
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING, "asyncrec.sampling"):
        for pattern in ("test-*.tfrecord", "train-2-*.tfrecord", "other*"):
            await batches_of(sampler_of(storage, shard_suffix=pattern, num_repeat=1))
    assert caplog.messages == []


async def test_empty_shards_raise_instead_of_looping_forever() -> None:
    with pytest.raises(asyncrec.errors.DatasetError, match="the 2 shards contain no records"):
        await batches_of(sampler_of(await folder([[], []])))


@pytest.mark.parametrize(("prefetch_size", "async_cycle"), [(0, False), (3, False), (3, True)])
async def test_abandoned_sampler_closes_every_shard(prefetch_size: int, async_cycle: bool) -> None:
    class Counting(SlowStorage):
        opened = 0

        @asynccontextmanager
        async def open_source(self, key: str, **options: Any) -> Any:
            async with super().open_source(key, **options) as source:
                self.opened += 1
                try:
                    yield source
                finally:
                    self.opened -= 1

    # Each shard needs more than one read.
    storage = Counting(await folder([[bytes(2 << 10)] * 1000] * 3))
    async with sampler_of(storage, prefetch_size=prefetch_size, async_cycle=async_cycle) as sampler:
        async for _ in sampler:
            break
        assert storage.opened == 3
    assert storage.opened == 0
    with pytest.raises(anyio.ClosedResourceError):
        await anext(sampler)
    with pytest.raises(RuntimeError, match="once"):
        await sampler.__aenter__()


async def test_body_error_propagates_unchanged() -> None:
    storage = await folder([[b"x"] * 100])
    with pytest.raises(LookupError, match="mine"):
        async with sampler_of(storage) as sampler:
            await anext(sampler)
            raise LookupError("mine")


async def test_batch_is_available_while_next_is_produced() -> None:
    storage = await folder([[b"%d" % i for i in range(100)]])

    async def hangs(record: bytes) -> bytes:
        if record == b"10":
            await anyio.sleep_forever()
        return record

    async with sampler_of(storage, hangs, batch_size=10) as sampler:
        assert await anext(sampler) == [b"%d" % i for i in range(10)]


async def test_sampler_prefetches_at_most_prefetch_size_batches() -> None:
    made = 0

    def count(record: bytes) -> bytes:
        nonlocal made
        made += 1
        return record

    storage = await folder([[b"x"] * 1000])
    async with sampler_of(storage, count, batch_size=10, prefetch_size=4) as sampler:
        await anext(sampler)
        await anyio.wait_all_tasks_blocked()
        assert made == 50


async def test_missing_seed_is_drawn_and_stored_in_state() -> None:
    storage = await folder([[b"%d" % shard] for shard in range(50)])
    orders = [await batches_of(sampler_of(storage, seed=None, num_repeat=1)) for _ in range(2)]
    assert orders[0] != orders[1]
    async with sampler_of(storage, seed=None) as sampler:
        state = sampler.state_dict()
    async with sampler_of(storage, seed=state["seed"] + 1) as sampler:
        with pytest.raises(ValueError, match="was passed"):
            sampler.load_state_dict(state)


async def test_workers_share_shards_without_overlap() -> None:
    storage = await folder([[b"%d" % shard] * 3 for shard in range(5)])
    found: list[bytes] = []
    for worker in range(2):
        found += itertools.chain(*await batches_of(sampler_of(storage, worker=(worker, 2), num_repeat=1)))
    assert sorted(found) == sorted(b"%d" % shard for shard in range(5) for _ in range(3))
    async with sampler_of(storage, worker=(0, 2)) as sampler:
        state = sampler.state_dict()
    async with sampler_of(storage, worker=(0, 4)) as sampler:
        with pytest.raises(ValueError, match=r"worker=\[0, 2\] in the state, \[0, 4\] here"):
            sampler.load_state_dict(state)


@pytest.mark.parametrize(
    "options",
    [
        {"example_per_class": 0}, {"example_per_class": 33}, {"parallelism": 0}, {"shards_per_cycle": 0},
        {"prefetch_size": -1}, {"num_repeat": 0}, {"on_exhausted": "never"},
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each message differs
        sampler_of(MemoryStorage(), **options)
