"""The consumer example and its stand-in for Kafka, with redelivered messages and consumers that join and die."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from consume_kafka import Consumption, consume_fake, source_of
from consuming.fake_kafka import AIOKafkaConsumer, Broker, CommitFailedError, TopicPartition

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, StorageError, TransientStorageError
from asyncrec.storage import Buffer, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs/how-to/read-a-queue-once.md"


def message(partition: TopicPartition, offset: int) -> bytes:
    return f"{source_of(partition)} {offset}".encode()


def records_of(found: Any) -> list[bytes]:
    return [found.value + b" %d" % number for number in range((1, 3, 0, 2)[found.offset % 4])]


class Mortal(FlakyStorage):
    """The store of a process that is killed after a number of requests."""

    def __init__(self, storage: Storage, requests: float) -> None:
        super().__init__(storage)
        self.left = requests

    async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StorageError("the process was killed")
        return await call()

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        put = partial(self._storage.put, key, data, exclusive=exclusive)
        return await self.perform("put", key, put)  # type: ignore[no-any-return]


class Watcher:
    """A listener that only records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


async def stored(storage: Storage) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for shard in await asyncrec.list_shards("pages", storage=storage):
        found.update(await asyncrec.read_records(shard, storage=storage))
    return found


async def test_example_stores_each_message_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await consume_fake(str(tmp_path / "messages"))
    told = capsys.readouterr().out
    manifest = await asyncrec.read_manifest(tmp_path / "messages")
    assert f"{manifest.records:,} records, of which 0 are there twice" in told
    assert f"{sum(position + 1 for position in manifest.progress.values()):,} messages, of which" in told
    assert sum(position + 1 for position in manifest.progress.values()) == manifest.records
    assert (await tools.verify(tmp_path / "messages")).ok


@pytest.mark.virtual_clock
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
async def test_killed_consumers_store_each_message_once(seed: int) -> None:
    """Some killed consumers continue as zombies; the last consumers read whatever is still unread."""
    rng = random.Random(seed)
    storage = MemoryStorage()
    broker = Broker({"t": 5, "u": 2}, message, seed=seed, evicts=0.02)
    begun: list[str] = []
    told: list[BaseException] = []

    async def consume(requests: float) -> None:
        name = f"consumer {len(begun)}"
        begun.append(name)
        mortal = Mortal(storage, requests)
        try:
            async with (
                asyncrec.open_sharded_writer(
                    "pages", storage=mortal, max_shard_records=rng.choice((5, 1000))
                ) as writer,
                AIOKafkaConsumer(bootstrap_servers=broker, client_id=name, heartbeat_interval_ms=100) as consumer,
            ):
                consumption = Consumption(consumer, writer, records_of, patience=0.3)
                consumer.subscribe(["t", "u"], listener=consumption)
                await consumption.run()
        except Exception as error:
            if mortal.left >= 0:
                told.append(error)
        broker.evict(name)

    async def live_and_die() -> None:
        for _ in range(4):
            await consume(10 ** (1 + 2.5 * rng.random()))
        await consume(math.inf)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(live_and_die)
        for _ in range(10):
            broker.produce(10)
            await anyio.sleep(3 * rng.random())
        while broker.committed != broker.ends or len(begun) < 15:  # noqa: ASYNC110  # a broker sends no notifications
            await anyio.sleep(1)
        group.cancel_scope.cancel()
    # A killed consumer may have committed offsets of records that it flushed and no other consumer has taken over yet.
    assert (await asyncrec.recover("pages", storage=storage)).in_use == ()
    # A zombie that ends gets an error, because another consumer has its sources.
    assert [error for error in told if not (isinstance(error, ConflictError) and error.sources)] == []
    expected = Counter(
        record
        for partition, end in broker.ends.items()
        for offset in range(end)
        for record in records_of(_Message(message(partition, offset), offset))
    )
    assert await stored(storage) == expected
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    for each, end in broker.ends.items():
        unread = range(manifest.progress.get(source_of(each), -1) + 1, end)
        assert [record for offset in unread for record in records_of(_Message(b"", offset))] == []
    assert broker.repeated > 0


@pytest.mark.virtual_clock
async def test_offsets_are_committed_after_store_responds() -> None:
    broker = Broker({"t": 1}, message, seed=1, repeats=0.0)
    broker.produce(10)
    down = True

    class Down(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if down and key.startswith("_flush/"):
                raise TransientStorageError("down, as asked")
            return await call()

    async with (
        asyncrec.open_sharded_writer("pages", storage=Down(MemoryStorage())) as writer,
        AIOKafkaConsumer(bootstrap_servers=broker, client_id="first") as consumer,
        anyio.create_task_group() as group,
    ):
        consumption = Consumption(consumer, writer)
        consumer.subscribe(["t"], listener=consumption)
        group.start_soon(consumption.run)
        await anyio.sleep(20)
        (position,) = writer.progress.values()
        assert [position + 1] == list(broker.ends.values())
        assert list(broker.committed.values()) == [0]
        down = False
        await anyio.sleep(20)
        assert broker.committed == broker.ends
        group.cancel_scope.cancel()


class _Message:
    def __init__(self, value: bytes, offset: int) -> None:
        self.value, self.offset = value, offset


@pytest.mark.virtual_clock
async def test_source_of_another_writer_is_acquired_after_release(tmp_path: Path) -> None:
    broker = Broker({"t": 1}, message, seed=1, repeats=0.0)
    broker.produce(10)
    (end,) = broker.ends.values()
    async with (
        asyncrec.open_sharded_writer(tmp_path / "pages") as first,
        asyncrec.open_sharded_writer(tmp_path / "pages") as second,
        AIOKafkaConsumer(bootstrap_servers=broker, client_id="second") as consumer,
        anyio.create_task_group() as group,
    ):
        await first.write(b"t/0 0", source="t/0", position=0)
        consumption = Consumption(consumer, second)
        consumer.subscribe(["t"], listener=consumption)
        group.start_soon(consumption.run)
        await anyio.sleep(20)
        assert second.progress == {}
        await first.release("t/0")
        await anyio.sleep(20)
        assert second.progress == {"t/0": end - 1}
        group.cancel_scope.cancel()
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == end


@pytest.mark.virtual_clock
async def test_fake_broker_shares_partitions_among_consumers() -> None:
    broker = Broker({"t": 5}, message, seed=1)
    watchers = [Watcher(), Watcher()]
    async with AIOKafkaConsumer(bootstrap_servers=broker, client_id="a") as first:
        first.subscribe(["t"], listener=watchers[0])
        await anyio.sleep(10)
        assert first.assignment() == set(broker.ends)
        async with AIOKafkaConsumer(bootstrap_servers=broker, client_id="b") as second:
            second.subscribe(["t"], listener=watchers[1])
            await anyio.sleep(10)
            assert first.assignment() | second.assignment() == set(broker.ends)
            assert not first.assignment() & second.assignment()
            assert watchers[0].calls[-2:] == [("revoked", set(broker.ends)), ("assigned", set(first.assignment()))]
        with anyio.CancelScope() as scope:
            async with AIOKafkaConsumer(bootstrap_servers=broker, client_id="c") as third:
                third.subscribe(["t"], listener=watchers[1])
                await anyio.sleep(10)
                assert first.assignment() != set(broker.ends)
                scope.cancel()
        await anyio.sleep(10)
        assert first.assignment() == set(broker.ends), "one that is cancelled leaves, too"


@pytest.mark.virtual_clock
async def test_zombie_consumer_reads_on_but_cannot_commit() -> None:
    broker = Broker({"t": 1}, message, seed=1, repeats=0.0)
    broker.produce(100)
    (partition,) = broker.ends
    async with AIOKafkaConsumer(bootstrap_servers=broker, client_id="a") as consumer:
        consumer.subscribe(["t"], listener=Watcher())
        await anyio.sleep(10)
        await consumer.commit({partition: 3})
        assert await consumer.committed(partition) == 3
        broker.evict("a")
        consumer.seek(partition, 5)
        while not (found := await consumer.getmany(timeout_ms=1)):
            pass
        assert found[partition][0].value == b"t/0 5"
        assert await consumer.position(partition) == found[partition][-1].offset + 1
        with pytest.raises(CommitFailedError):
            await consumer.commit({partition: 7})
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0


def test_page_shows_code_of_example() -> None:
    example = (Path(__file__).parents[2] / "examples/consume_kafka.py").read_text("utf-8")
    shown = example[example.index("class Consumption:") : example.index("async def consume_fake")]
    assert shown.strip() in PAGE.read_text("utf-8")
