"""`asyncrec.interleave` has tf.data's order on any store, read inline or by a pool, and resumes anywhere."""

from __future__ import annotations

import gzip
import json
import os
import random
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._framing.encoding import encode_frames
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import SlowStorage

pytestmark = pytest.mark.anyio


def in_order(lengths: list[int], cycle: int, block: int) -> list[bytes]:
    """Return the order according to a simple model of the rule, which proceeds record by record."""
    slots: list[int | None] = [None] * cycle
    taken = [0] * len(lengths)
    found, slot, in_block, coming = [], 0, 0, 0
    while coming < len(lengths) or any(source is not None for source in slots):
        source = slots[slot]
        if source is None and coming < len(lengths):
            source = slots[slot] = coming
            coming += 1
        if source is not None and taken[source] < lengths[source]:
            found.append(b"%d:%d" % (source, taken[source]))
            taken[source] += 1
            in_block += 1
            if in_block < block:
                continue
        elif source is not None:
            slots[slot] = None
        slot, in_block = (slot + 1) % cycle, 0
    return found


async def shards(lengths: list[int], seed: int = 0, size: int = 0) -> MemoryStorage:
    storage = MemoryStorage()
    source = random.Random(seed)
    for number, length in enumerate(lengths):
        frames = [b"".join(encode_frames([b"%d:%d" % (number, i) + bytes(size)])) for i in range(length)]
        pack = source.choice([bytes, bytes, gzip.compress, zlib.compress, _in_members])
        await storage.put(f"s{number}", pack(b"".join(frames)))
    return storage


def _in_members(data: bytes) -> bytes:
    """Compress data with a new GZIP member every 99 bytes, even in the middle of a record."""
    return b"".join(gzip.compress(data[at : at + 99]) for at in range(0, len(data), 99))


def names(lengths: list[int]) -> list[str]:
    return [f"s{number}" for number in range(len(lengths))]


@pytest.mark.slow
async def test_random_cases_follow_interleave_rule() -> None:
    source = random.Random(5)
    for case in range(1000):  # on each of the two event loops
        lengths = [source.randrange(12) for _ in range(source.randrange(1, 10))]
        cycle, block, reads = source.randrange(1, 12), source.randrange(1, 6), source.choice([0, 0, 1, 3])
        storage = await shards(lengths, case)
        stream_of = asyncrec.interleave(
            names(lengths), cycle_length=cycle, block_length=block, parallelism=reads, storage=storage
        )
        async with stream_of as stream:
            assert [record async for record in stream] == in_order(lengths, cycle, block), (lengths, cycle, block)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle_buffer", [0, 40])
@pytest.mark.parametrize("parallelism", [0, 3])
async def test_stream_resumed_at_any_record_yields_same_remainder(parallelism: int, shuffle_buffer: int) -> None:
    lengths = [40, 0, 23, 57, 1, 39, 40]
    storage = await shards(lengths)
    paths = names(lengths)

    def stream_of(seed: int | None) -> Any:
        return asyncrec.interleave(
            paths,
            cycle_length=3,
            block_length=4,
            parallelism=parallelism,
            shuffle_buffer=shuffle_buffer,
            seed=seed,
            storage=storage,
        )

    states = []
    async with stream_of(3) as stream:
        states.append(json.dumps(stream.state_dict()))
        whole = []
        async for record in stream:
            whole.append(record)
            states.append(json.dumps(stream.state_dict()))
    assert len(whole) == 200
    assert sorted(whole) == sorted(in_order(lengths, 3, 4))
    assert (whole == in_order(lengths, 3, 4)) == (not shuffle_buffer)
    for k, state in enumerate(states):
        async with stream_of(None) as stream:
            stream.load_state_dict(json.loads(state))
            assert stream.state_dict() == json.loads(state)
            rest = [record for records in [batch async for batch in stream.batches(77)] for record in records]
            assert rest == whole[k:], k
            assert stream.stats().records == 200
    assert max(map(len, states)) < 2500 + shuffle_buffer * 40


@pytest.mark.parametrize("parallelism", [0, 2])
@pytest.mark.parametrize("block", [1, 3, 40])
async def test_multi_batch_shards_keep_order_and_resume_within_batches(parallelism: int, block: int) -> None:
    """Batches of 64 KiB have 55 to 90 records: some are read early, but earlier ones are still yielded first."""
    lengths = [431, 300, 0, 77, 560, 259, 13]
    storage = MemoryStorage()
    for number, length in enumerate(lengths):
        records = [b"%d:%d" % (number, i) + bytes(700 + 60 * number) for i in range(length)]
        await asyncrec.write_records(f"s{number}", records, storage=storage)
    options: dict[str, Any] = {"cycle_length": 4, "block_length": block, "memory_limit": 1, "storage": storage}
    options["parallelism"] = parallelism
    expected = in_order(lengths, 4, block)
    states = []
    async with asyncrec.interleave(names(lengths), **options) as stream:
        found: list[bytes] = []
        async for records in stream.batches(41):
            states.append((len(found) + len(records), json.dumps(stream.state_dict())))
            found += [record.rstrip(b"\0") for record in records]
    assert found == expected
    for k, state in states[::6]:
        async with asyncrec.interleave(names(lengths), **options) as stream:
            stream.load_state_dict(json.loads(state))
            assert [record.rstrip(b"\0") async for record in stream] == expected[k:], k


async def test_state_is_rejected_for_other_shards_or_parameters() -> None:
    storage = await shards([5, 5])
    async with asyncrec.interleave(["s0", "s1"], storage=storage) as stream:
        state = stream.state_dict()
        await anext(stream)
        with pytest.raises(RuntimeError, match="before the first"):
            stream.load_state_dict(state)
    async with asyncrec.interleave(["s1", "s0"], storage=storage) as stream:
        with pytest.raises(
            ValueError, match="the state was taken with different shards: their names or their order have changed"
        ):
            stream.load_state_dict(state)
        with pytest.raises(ValueError, match="version"):
            stream.load_state_dict({**state, "version": 4})
    async with asyncrec.interleave(["s0", "s1"], storage=storage) as stream:
        for version in ([2, 0, 0, ""], [2, 0, 0, "", ""]):
            with pytest.raises(ValueError, match=r"versions=.*, but versions must be versions of shards"):
                stream.load_state_dict({**state, "versions": [version]})
    async with asyncrec.interleave(["s0", "s1"], cycle_length=3, storage=storage) as stream:
        with pytest.raises(ValueError, match="cycle_length=16 in the state, 3 here"):
            stream.load_state_dict(state)
    async with asyncrec.interleave(["s0", "s1"], deterministic=False, storage=storage) as stream:
        with pytest.raises(RuntimeError, match="has no state to resume from"):
            stream.load_state_dict(state)


async def test_nondeterministic_stream_yields_every_record_without_state() -> None:
    lengths = [30, 0, 17, 50, 4]
    storage = SlowStorage(await shards(lengths), latency=0)
    options: dict[str, Any] = {"cycle_length": 3, "block_length": 2, "parallelism": 2, "deterministic": False}
    async with asyncrec.interleave(names(lengths), storage=storage, **options) as stream:
        found = [record async for record in stream]
        with pytest.raises(RuntimeError, match="deterministic"):
            stream.state_dict()
    assert Counter(found) == Counter(in_order(lengths, 3, 2))


async def test_nondeterministic_stream_does_not_wait_for_hanging_shard() -> None:
    lengths = [5, 5, 5]
    storage = await shards(lengths)

    class OneHangs(SlowStorage):
        async def perform(self, operation: str, key: str, call: Any, *, short: Any = None) -> Any:
            if key == "s0":
                await anyio.sleep_forever()
            return await call()

    options: dict[str, Any] = {"parallelism": 3, "deterministic": False, "storage": OneHangs(storage)}
    async with asyncrec.interleave(names(lengths), **options) as stream:
        found = [await anext(stream) for _ in range(10)]
    assert sorted(found) == sorted(in_order([0, 5, 5], 16, 1))


async def test_workers_share_shards_without_overlap() -> None:
    lengths = [3, 4, 5, 6, 7]
    storage = await shards(lengths)
    found = []
    for worker in range(3):
        async with asyncrec.interleave(names(lengths), worker=(worker, 3), storage=storage) as stream:
            found += [record async for record in stream]
    assert sorted(found) == sorted(in_order(lengths, 1, 1))
    with pytest.raises(ValueError, match="cannot be divided among 6 workers"):
        async with asyncrec.interleave(names(lengths), worker=(0, 6), storage=storage):
            pass


@pytest.mark.parametrize("parallelism", [0, 2])
async def test_vanished_shard_is_named_after_preceding_records(parallelism: int) -> None:
    storage = await shards([3, 3, 3])
    await storage.delete("s2")
    found = []
    options: dict[str, Any] = {"cycle_length": 1, "parallelism": parallelism, "storage": storage}
    async with asyncrec.interleave(["s0", "s1", "s2"], **options) as stream:
        with pytest.raises(asyncrec.ObjectNotFoundError, match="s2"):
            async for record in stream:
                found.append(record)
        assert len(found) == 6
        with pytest.raises(asyncrec.ObjectNotFoundError, match="s2"):
            await anext(stream)


@pytest.mark.parametrize("parallelism", [0, 2])
async def test_damage_is_raised_with_path_and_record(parallelism: int) -> None:
    storage = MemoryStorage()
    for name in ("good", "bad"):
        await asyncrec.write_records(name, [b"x" * 10] * 9, storage=storage)
    content = bytearray(await storage.get("bad"))
    content[26 * 4 + 15] ^= 1
    await storage.put("bad", content)
    found = []
    async with asyncrec.interleave(["good", "bad"], parallelism=parallelism, storage=storage) as stream:
        with pytest.raises(asyncrec.CorruptRecordError) as raised:
            async for record in stream:
                found.append(record)
    assert (raised.value.path, raised.value.record) == ("bad", 4)
    assert len(found) == 9


async def damaged(compression: Any = "") -> MemoryStorage:
    """Write three shards of 60 records; the second is damaged in record 30, or in the third of its five members."""
    storage = MemoryStorage()
    for number in range(3):
        records = [b"%d:%d" % (number, i) for i in range(60)]
        parts = [records] if not compression else [records[begin : begin + 12] for begin in range(0, 60, 12)]
        content = bytearray()
        for part in parts:
            await asyncrec.write_records("part", part, compression=compression, storage=storage)
            bad = number == 1 and b"1:30" in part
            content += await storage.get("part")
            if bad and compression:
                content[-20] ^= 16
            elif bad:
                content[content.index(b"1:30")] ^= 1
        await storage.put(f"s{number}", content)
    return storage


@pytest.mark.slow(but=["-0]"])
@pytest.mark.parametrize("parallelism", [0, 2])
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_skipped_damage_is_listed_by_path_and_survives_resuming(parallelism: int, compression: Any) -> None:
    storage = await damaged(compression)
    async with asyncrec.open_reader("s1", on_corrupt="skip", storage=storage) as reader:
        whole = [record async for record in reader]
        lost = reader.damage
    assert 40 < len(whole) < 60
    options: dict[str, Any] = {"cycle_length": 2, "block_length": 4, "parallelism": parallelism, "on_corrupt": "skip"}
    found, states = [], []
    async with asyncrec.interleave(["s0", "s1", "s2"], storage=storage, **options) as stream:
        assert stream.damage == []
        async for record in stream:
            found.append(record)
            states.append(json.dumps(stream.state_dict()))
        assert stream.damage == [("s1", damage) for damage in lost]
    assert [record for record in found if record.startswith(b"1:")] == whole
    assert len(found) == 120 + len(whole)
    for k, state in enumerate(states, 1):
        async with asyncrec.interleave(["s0", "s1", "s2"], storage=storage, **options) as stream:
            stream.load_state_dict(json.loads(state))
            assert [record async for record in stream] == found[k:], k


async def test_stop_option_ends_damaged_shard_at_damage() -> None:
    storage = await damaged()
    async with asyncrec.interleave(["s0", "s1", "s2"], on_corrupt="stop", storage=storage) as stream:
        found = Counter([record.partition(b":")[0] async for record in stream])
        assert found == {b"0": 60, b"1": 30, b"2": 60}
        ((path, lost),) = stream.damage
    assert (path, lost.records_before, lost.reason) == ("s1", 30, "data")
    with pytest.raises(ValueError, match="on_corrupt"):
        async with asyncrec.interleave(["s0"], on_corrupt="keep", storage=storage):  # type: ignore[arg-type]  # wrong
            pass


@pytest.mark.parametrize("parallelism", [0, 2])
async def test_damage_read_ahead_is_raised_in_stream_order(parallelism: int) -> None:
    lengths = [300, 300, 300]
    storage = MemoryStorage()
    for number in range(3):
        records = [b"%d:%d" % (number, i) + bytes(1000) for i in range(300)]
        await asyncrec.write_records(f"s{number}", records, storage=storage)
    content = bytearray(await storage.get("s1"))
    content[content.index(b"1:128\0")] ^= 1  # the first record of its second or third record batch
    await storage.put("s1", content)
    expected = in_order(lengths, 3, 2)
    options: dict[str, Any] = {"block_length": 2, "memory_limit": 1, "parallelism": parallelism, "storage": storage}
    found = []
    async with asyncrec.interleave(names(lengths), **options) as stream:
        with pytest.raises(asyncrec.CorruptRecordError, match="s1"):
            async for records in stream.batches(7):
                found += [record.rstrip(b"\0") for record in records]
        with pytest.raises(asyncrec.CorruptRecordError, match="s1"):
            await anext(stream)
    assert found == expected[: expected.index(b"1:128")]


@pytest.mark.parametrize("parallelism", [0, 2, None])
async def test_abandoned_stream_closes_all_sources(parallelism: int | None) -> None:
    class Counting(SlowStorage):
        read_ahead = 1  # as for a remote store

        def __init__(self, storage: asyncrec.storage.Storage) -> None:
            super().__init__(storage)
            self.open = 0

        def open_source(self, key: str, **options: Any) -> Any:
            inner = super().open_source(key, **options)
            counting = self

            class Counted:
                async def __aenter__(self) -> Any:
                    source = await inner.__aenter__()
                    counting.open += 1
                    return source

                async def __aexit__(self, *raised: Any) -> Any:
                    counting.open -= 1
                    return await inner.__aexit__(*raised)

            return Counted()

    storage = Counting(await shards([20] * 6, size=500))
    async with asyncrec.interleave(names([20] * 6), parallelism=parallelism, storage=storage) as stream:
        async for _ in stream:
            break
        assert storage.open > 0
    assert storage.open == 0
    with pytest.raises(anyio.ClosedResourceError):
        await stream.batches(3).__anext__()


@pytest.mark.parametrize("shuffle_buffer", [0, 5])
async def test_cancelled_read_loses_no_records(shuffle_buffer: int) -> None:
    lengths = [10, 10, 10, 10, 10, 10]
    scope = anyio.CancelScope()
    operations = 0

    class Cancelling(SlowStorage):
        async def perform(self, operation: str, key: str, call: Any, *, short: Any = None) -> Any:
            nonlocal operations
            operations += 1
            if operations % 3 == 0:
                scope.cancel()
            return await super().perform(operation, key, call, short=short)

    storage = await shards(lengths)
    options: dict[str, Any] = {"cycle_length": 2, "shuffle_buffer": shuffle_buffer, "seed": 1}
    async with asyncrec.interleave(names(lengths), storage=storage, **options) as stream:
        expected = [record async for record in stream]
    cancelled = 0
    async with asyncrec.interleave(names(lengths), storage=Cancelling(storage), **options) as stream:
        found: list[bytes] = []
        while len(found) < 60:
            with anyio.CancelScope() as scope:
                found += await anext(stream.batches(4))
            cancelled += scope.cancelled_caught
    assert cancelled >= 6
    assert found == expected


@pytest.mark.slow
async def test_thousand_open_shards_use_bounded_memory(tmp_path: Path) -> None:
    """The stream uses 64 KiB for each of 1,000 shards when inline, and keeps within the limit of open files."""
    storage = MemoryStorage()
    for number in range(1000):
        await asyncrec.write_records(f"s{number}", [bytes(1000)] * 300, storage=storage)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with asyncrec.interleave(names([0] * 1000), cycle_length=1000, storage=storage) as stream:
            batches = stream.batches(1024)
            for _ in range(3):
                await anext(batches)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The records, their object overhead, and the memory of a reader.
    assert peak - before < 1000 * (64 << 10) * 1.6


@pytest.mark.slow
async def test_stream_reads_more_shards_than_open_file_limit(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    lengths = [3] * 300
    for number, length in enumerate(lengths):
        await asyncrec.write_records(tmp_path / f"s{number}", [b"%d:%d" % (number, i) for i in range(length)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Servers started by earlier tests may still have files open.
    most = len(os.listdir("/dev/fd")) + 150
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, soft), hard))
    try:
        paths = [tmp_path / name for name in names(lengths)]
        async with asyncrec.interleave(paths, cycle_length=300) as stream:
            found = [record async for record in stream]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == in_order(lengths, 300, 1)


async def test_paths_in_several_folders_form_one_stream(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        await asyncrec.write_records(tmp_path / folder / "s", [folder.encode()] * 2)
    async with asyncrec.interleave([tmp_path / "a" / "s", str(tmp_path / "b" / "s")]) as stream:
        assert [record async for record in stream] == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize(
    ("paths", "options", "error"),
    [
        ([], {}, ValueError),
        ("s0", {}, TypeError),
        (["s0"], {"cycle_length": 0}, ValueError),
        (["s0"], {"parallelism": -1}, ValueError),
        (["s0"], {"worker": (1, 1)}, ValueError),
        (["s0"], {"storage_options": {}}, TypeError),
    ],
)
async def test_invalid_arguments_are_rejected(paths: Any, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        async with asyncrec.interleave(paths, storage=MemoryStorage(), **options):
            pass


@pytest.mark.slow(but=["7-0", "0-2"])
@pytest.mark.parametrize("parallelism", [0, 2])
@pytest.mark.parametrize("shuffle_buffer", [0, 1, 7])
async def test_repeatedly_resumed_stream_equals_uninterrupted_stream(parallelism: int, shuffle_buffer: int) -> None:
    """Each state comes from a stream that was itself resumed. Shards end within a step, at its end, or in the next."""
    source = random.Random(7)
    for case in range(30):
        lengths = [source.choice([0, 1, 2, 5, 9, 30]) for _ in range(source.randrange(1, 9))]
        storage = await shards(lengths, case)
        options: dict[str, Any] = {
            "cycle_length": source.randrange(1, 6),
            "block_length": source.randrange(1, 5),
            "parallelism": parallelism,
            "shuffle_buffer": shuffle_buffer,
            "seed": case,
            "storage": storage,
        }
        async with asyncrec.interleave(names(lengths), **options) as stream:
            whole = [record async for record in stream]
        found: list[bytes] = []
        state: str | None = None
        while True:
            async with asyncrec.interleave(names(lengths), **options) as stream:
                if state is not None:
                    stream.load_state_dict(json.loads(state))
                step = source.choice([1, 2, 3, 8, 20])
                batch = await anext(aiter(stream.batches(step)), [])
                found += batch
                state = json.dumps(stream.state_dict())
            if not batch:
                break
        assert found == whole, (case, lengths)
        async with asyncrec.interleave(names(lengths), **options) as stream:
            stream.load_state_dict(json.loads(state))
            assert [record async for record in stream] == [], "a stream that has ended has ended"


@pytest.mark.parametrize("shuffle_buffer", [0, 7])
async def test_resumed_stream_returns_batches_of_requested_size(shuffle_buffer: int) -> None:
    storage = await shards([200])
    options: dict[str, Any] = {"shuffle_buffer": shuffle_buffer, "seed": 1, "storage": storage}
    async with asyncrec.interleave(["s0"], **options) as stream:
        first = await anext(stream)
        state = json.loads(json.dumps(stream.state_dict()))
    async with asyncrec.interleave(["s0"], **options) as stream:
        stream.load_state_dict(state)
        batches = [batch async for batch in stream.batches(10)]
    assert [len(batch) for batch in batches] == [10] * 19 + [9]
    async with asyncrec.interleave(["s0"], **options) as stream:
        assert [record async for record in stream] == [first, *(record for batch in batches for record in batch)]
