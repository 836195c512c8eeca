"""`Dataset.shuffled` has a single order, which is divided among any number of workers and can be resumed anywhere."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain, pairwise
from typing import Any

import anyio
import numpy as np
import pytest

import asyncrec
from asyncrec._framing.crc import crc32c
from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._shards.manifest.segment import Sidecar
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import SlowStorage

pytestmark = pytest.mark.anyio

MODES = ["block", "buffer", "global"]
# Small values, so that 500 records are divided into many windows and runs.
SMALL: dict[str, Any] = {"buffer_size": 64, "block_bytes": 95, "cycle_length": 4, "block_length": 3}


async def stored(count: int = 500, *, shards: int = 7, compression: str = "") -> MemoryStorage:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", max_shard_records=-(-count // shards), storage=storage, compression=compression, writer_id="w"
    ) as writer:
        await writer.write_many(b"%d" % number for number in range(count))
    return storage


async def batches(stream: ShuffledStream, size: int, most: int = -1) -> list[list[int]]:
    found: list[list[int]] = []
    async for records in stream.batches(size):
        found.append([int(record) for record in records])
        if len(found) == most:
            break
    return found


async def taken(dataset: Dataset, size: int = 10, **options: Any) -> list[list[int]]:
    async with dataset.shuffled(**SMALL | options) as stream:
        return await batches(stream, size)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_epoch_yields_every_record_once(mode: Any, compression: str) -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(compression=compression)) as dataset:
        async with dataset.shuffled(mode=mode, **SMALL) as stream:
            found = [int(record) async for record in stream]
        assert sorted(found) == list(range(500))
        assert found != sorted(found)


@pytest.mark.parametrize("mode", MODES)
async def test_order_depends_only_on_seed_and_epoch(mode: Any) -> None:
    orders = []
    for seed, epoch in [(0, 0), (0, 0), (1, 0), (0, 1)]:
        async with asyncrec.open_dataset("pages", storage=await stored()) as dataset:
            orders.append(await taken(dataset, 500, mode=mode, seed=seed, epoch=epoch))
    assert orders[0] == orders[1]
    assert len({tuple(order) for (order,) in orders}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", ["records", "batches"])
async def test_stream_resumes_identically_at_every_position(mode: Any, unit: str) -> None:
    size = 1 if unit == "records" else 7
    async with asyncrec.open_dataset("pages", storage=await stored(250)) as dataset:
        options = SMALL | {"mode": mode, "num_repeat": 2, "seed": 3}
        states, whole = [], []
        async with dataset.shuffled(**options) as stream:
            states.append(json.dumps(stream.state_dict()))
            if unit == "records":
                async for record in stream:
                    whole.append([int(record)])
                    states.append(json.dumps(stream.state_dict()))
            else:
                async for records in stream.batches(size):
                    whole.append([int(record) for record in records])
                    states.append(json.dumps(stream.state_dict()))
        assert Counter(chain.from_iterable(whole)) == Counter(list(range(250)) * 2)
        for k, state in enumerate(states):
            async with dataset.shuffled(**options) as stream:
                stream.load_state_dict(json.loads(state))
                if k % 25:  # usually compare only the next batches
                    assert await batches(stream, size, 3) == whole[k : k + 3]
                else:
                    assert await batches(stream, size) == whole[k:]


@pytest.mark.slow(but=["counts0", "counts2"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("counts", [(1, 2, 4, 8), (8, 4, 2, 1), (2, 8, 1, 4), (1,), (2,), (4,), (8,)])
async def test_changing_number_of_workers_yields_every_record_once(mode: Any, counts: tuple[int, ...]) -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(480)) as dataset:
        alone = await taken(dataset, mode=mode)
        state: dict[str, Any] | None = None
        dealt: list[list[int]] = []
        for phase, workers in enumerate(counts, 1):
            parts = []
            states = []
            for worker in range(workers):
                async with dataset.shuffled(mode=mode, worker=(worker, workers), **SMALL) as stream:
                    if state is not None:
                        stream.load_state_dict(state)
                    # The workers take 8 batches in total, except in the last phase, when they take all that are left.
                    parts.append(await batches(stream, 10, -1 if phase == len(counts) else 8 // workers))
                    states.append(stream.state_dict())
            assert all(each == states[0] for each in states)
            dealt += chain.from_iterable(zip(*parts, strict=True))
            state = states[0]
        assert dealt == alone
        assert sorted(chain.from_iterable(dealt)) == list(range(480))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("uneven", ["drop", "pad"])
async def test_every_worker_gets_same_number_of_batches(mode: Any, uneven: Any) -> None:
    """500 records make 72 batches of 7, so each of 5 workers gets 14 or 15."""
    async with asyncrec.open_dataset("pages", storage=await stored(500)) as dataset:
        alone = await taken(dataset, 7, mode=mode)
        parts = [await taken(dataset, 7, mode=mode, worker=(worker, 5), uneven=uneven) for worker in range(5)]
        dealt = list(chain.from_iterable(zip(*parts, strict=True)))
        assert dealt == (alone[:70] if uneven == "drop" else alone + alone[:3])


async def test_padding_repeats_small_data_set_as_often_as_needed() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(15)) as dataset:
        alone = await taken(dataset)
        assert [len(batch) for batch in alone] == [10, 5]
        parts = [await taken(dataset, worker=(worker, 7), uneven="pad") for worker in range(7)]
        assert parts == [[alone[worker % 2]] for worker in range(7)]


async def test_fewer_batches_than_workers_are_rejected() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(15)) as dataset:
        with pytest.raises(ValueError, match="fewer than the 3 workers"):
            await taken(dataset, worker=(0, 3))


@pytest.mark.parametrize("mode", MODES)
async def test_epochs_differ_but_each_is_complete(mode: Any) -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(100)) as dataset:
        found = await taken(dataset, 30, mode=mode, num_repeat=3, epoch=5)
        epochs = [list(chain.from_iterable(found[at : at + 4])) for at in (0, 4, 8)]
        assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == 3
        assert found[4:8] == await taken(dataset, 30, mode=mode, epoch=6)


async def test_endless_epochs_continue_and_zero_epochs_yield_nothing() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(20)) as dataset:
        async with dataset.shuffled(num_repeat=-1) as stream:
            assert len(await batches(stream, 20, 50)) == 50
        assert await taken(dataset, num_repeat=0) == []


async def test_empty_data_set_yields_no_records() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage):
        pass
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 0
        assert await taken(dataset, num_repeat=-1) == []


async def test_batch_size_may_change_midway() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(200)) as dataset:
        (whole,) = await taken(dataset, 200)
        async with dataset.shuffled(**SMALL) as stream:
            found = (await batches(stream, 7, 1))[0]
            found += [int(await anext(stream)) for _ in range(3)]
            for batch in await batches(stream, 19):
                found += batch
        assert found == whole


@pytest.mark.slow
async def test_neighbours_rarely_share_shards() -> None:
    """Neighbours are from the same shard at most 1.2 times as often as in a true permutation, even in the first batch.

    There are 16 shards, all in the cycle, and the buffer has 4,096 records. In mode ``"block"``, one neighbour in 16 is
    from the same block in addition.
    """
    count, shards = 32_000, 16
    storage = await stored(count, shards=shards)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for mode in MODES:
            ideal = (count / shards - 1) / (count - 1) + (mode == "block") * 15 / 16 / 16
            firsts: list[bool] = []
            whole: list[bool] = []
            for seed in range(4):
                async with dataset.shuffled(seed=seed, mode=mode, buffer_size=4096) as stream:  # type: ignore[arg-type]  # a mode
                    found = await batches(stream, 1024)
                same = [[one * shards // count == two * shards // count for one, two in pairwise(b)] for b in found]
                firsts += same[0]
                whole += chain.from_iterable(same)
            assert sum(whole) / len(whole) <= 1.2 * ideal, mode
            # With about 4,000 pairs, 3 standard deviations are 0.18 of the mean.
            assert sum(firsts) / len(firsts) <= 1.2 * ideal, mode


@pytest.mark.parametrize(("mode", "blocks", "spread"), [("block", 15, 1.7), ("buffer", 15, 1.7), ("global", 39, 1.2)])
async def test_batch_mixes_as_many_blocks_as_documented(mode: Any, blocks: int, spread: float) -> None:
    """A batch of 64 has records from as many of the 64 blocks as documented; a true permutation would average 40.6. If
    100 neighbours share a value, the variance of batch means exceeds that of a permutation by the documented factor."""
    count = 65_536
    async with asyncrec.open_dataset("pages", storage=await stored(count, shards=64)) as dataset:
        async with dataset.shuffled(seed=1, mode=mode) as stream:
            found = np.array(await batches(stream, 64))
    assert np.mean([len(np.unique(batch // 1024)) for batch in found]) > blocks
    values = np.random.default_rng(1).standard_normal(count // 100 + 1)[found // 100]
    assert np.var(values.mean(axis=1)) * 64 / np.var(values) < spread


async def test_state_of_another_order_is_rejected_with_reason() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(50)) as dataset:
        state = dataset.shuffled(seed=1).state_dict()
        for options, word in [({"seed": 2}, "seed"), ({"mode": "global"}, "mode"), ({"buffer_size": 9}, "buffer_size")]:
            with pytest.raises(ValueError, match=word):
                dataset.shuffled(**{"seed": 1} | options).load_state_dict(state)
        for change in [{"version": 2}, {"kind": "sampler"}, {"position": 51}]:
            with pytest.raises(ValueError, match=r"version|kind|position"):
                dataset.shuffled(seed=1).load_state_dict(state | change)
        for options in ({"cycle_length": 3}, {"block_length": 5}):
            (word,) = options
            with pytest.raises(ValueError, match=word):
                dataset.shuffled(mode="buffer", **options).load_state_dict(dataset.shuffled(mode="buffer").state_dict())
            # Other modes do not cycle through shards.
            dataset.shuffled(mode="global", **options).load_state_dict(dataset.shuffled(mode="global").state_dict())
    async with asyncrec.open_dataset("pages", storage=await stored(51)) as dataset:
        with pytest.raises(ValueError, match="snapshot"):
            dataset.shuffled(seed=1).load_state_dict(state)


async def test_state_is_loaded_before_iterating() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(50)) as dataset:
        async with dataset.shuffled() as stream:
            state = stream.state_dict()
            await anext(stream)
            with pytest.raises(RuntimeError, match="before iterating"):
                stream.load_state_dict(state)


async def test_stream_works_only_once_and_inside_context() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(50)) as dataset:
        stream = dataset.shuffled()
        with pytest.raises(anyio.ClosedResourceError):
            await anext(stream)
        async with stream:
            await anext(stream)
        with pytest.raises(anyio.ClosedResourceError):
            await anext(stream)
        with pytest.raises(RuntimeError, match="once"):
            await stream.__aenter__()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "other"}, {"on_corrupt": "stop"}, {"uneven": "keep"}, {"worker": (2, 2)}, {"epoch": -1},
        {"num_repeat": -2}, {"buffer_size": 0},
    ],
)  # fmt: skip
async def test_out_of_range_argument_raises_value_error(options: dict[str, Any]) -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(5)) as dataset:
        with pytest.raises(ValueError, match=next(iter(options))):
            dataset.shuffled(**options)


async def test_stream_buffers_two_windows_bounded_by_records_and_bytes() -> None:
    async with asyncrec.open_dataset("pages", storage=await stored(2000, shards=50)) as dataset:
        async with dataset.shuffled(buffer_size=100) as stream:
            async for _ in stream.batches(9):
                assert stream.stats().held <= 108
        async with dataset.shuffled(buffer_bytes=20 * 40) as stream:
            await anext(stream)
            assert 30 <= stream.stats().held < 50


async def test_vanished_shard_is_named_on_every_later_call() -> None:
    storage = await stored(500)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with dataset.shuffled(**SMALL) as stream:
            await anext(stream)
            gone = dataset.manifest.shards[3].path
            await storage.delete(gone)
            for _ in range(2):
                with pytest.raises(FileNotFoundError, match=gone):
                    await batches(stream, 10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_damaged_records_are_skipped_without_other_changes(mode: Any, compression: str) -> None:
    storage = await stored(500, compression=compression)
    options = SMALL | {"mode": mode, "seed": 2}
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        whole = await taken(dataset, **options)
        shard = dataset.manifest.shards[3].path
    content = bytearray(await storage.get(shard))
    content[len(content) // 2] ^= 16
    await storage.put(shard, content)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(asyncrec.CorruptRecordError, match=shard):
            await taken(dataset, **options)
        async with dataset.shuffled(**options, on_corrupt="skip") as stream:
            found = await batches(stream, 10)
            damage = stream.damage
            given = stream.stats().records
        first = int(dataset.starts[3])
        lost = {first + each.damage.records_before for each in damage}
        assert {each.path.removeprefix("memory://") for each in damage} == {shard}
        assert 1 <= len(lost) <= 72
        assert compression or len(lost) == 1
        assert given == 500 - len(lost)
        assert found == [[number for number in batch if number not in lost] for batch in whole]
        async with dataset.shuffled(**options, on_corrupt="skip") as stream:
            assert [int(record) async for record in stream] == list(chain.from_iterable(found))


async def shift_index(storage: MemoryStorage, dataset: asyncrec.Dataset) -> Sidecar:
    """Make one index of the data set wrong about two records, so that only reading the shard itself reveals it."""
    sidecar = dataset.manifest.shards[3].index
    assert sidecar is not None
    lines = (await storage.get(sidecar.path)).splitlines(keepends=True)
    begin, size = map(int, lines[5].split())
    shifted = [b"%d %d\n" % (begin, size - 1), b"%d %d\n" % (begin + size - 1, size + 1)]
    await storage.put(sidecar.path, b"".join([*lines[:5], *shifted, *lines[7:]]))
    return sidecar


async def test_index_differing_from_committed_index_is_ignored() -> None:
    storage = await stored(500)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await shift_index(storage, dataset)
        async with dataset.shuffled(**SMALL, on_corrupt="skip") as stream:
            assert len(await batches(stream, 10)) == 50


async def test_index_of_another_shard_raises_despite_skip() -> None:
    """The index matches its checksum, because it was committed that way."""
    storage = await stored(500)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        sidecar = await shift_index(storage, dataset)
    last = max([info.key async for info in storage.list_objects("_manifest/pages/w-")])
    closing = await storage.get(last)
    shifted = crc32c(await storage.get(sidecar.path))
    await storage.put(last, closing.replace(b"%08x" % sidecar.crc32c, b"%08x" % shifted), exclusive=False)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(asyncrec.CorruptRecordError, match="does not match its index"):
            async with dataset.shuffled(**SMALL, on_corrupt="skip") as stream:
                await batches(stream, 10)


async def test_abandoned_stream_cancels_read_ahead() -> None:
    """When the context manager exits, it waits for its tasks: if one of them hung, so would this test."""
    storage = await stored(500)
    slow = SlowStorage(storage, latency=3600)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with dataset.shuffled(**SMALL) as stream:
            dataset.files.folder = slow
            with anyio.move_on_after(0.01) as scope:
                await anext(stream)
            assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("size", "expected"), [(20, 10_000 * 20 // 16), (6_000, 2796 * 6_000 // 16), (3_000_000, 5 * 3_000_000 // 16)]
)
async def test_block_size_follows_window_within_bounds(size: int, expected: int) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.write_many([bytes(size - 16)] * 20)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async with dataset.shuffled(mode="block", seed=1, buffer_size=10_000, buffer_bytes=1 << 24) as stream:
            assert stream.state_dict()["block_bytes"] == expected
        for bytes_, expected in (("1 MiB", 1 << 20), (1, 1)):
            assert dataset.shuffled(block_bytes=bytes_).state_dict()["block_bytes"] == expected
        assert dataset.shuffled(buffer_bytes="1 GiB", buffer_size=1 << 30).state_dict()["block_bytes"] == 4 << 20
