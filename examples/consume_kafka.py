"""Read a topic into a data set, each message exactly once, with consumers that join, leave and die.

    python examples/consume_kafka.py [FOLDER]                                        on a stand-in for Kafka
    python examples/consume_kafka.py s3://bucket/folder --servers host:9092 --topic pages    with aiokafka

Each message is written with its offset, so the data set knows how far each partition is stored. The offsets that are
committed to Kafka are only a hint for monitoring the lag.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import anyio
from consuming import fake_kafka

import asyncrec
from asyncrec.errors import ConflictError

CONSUMERS = 4
PARTITIONS = 8
MESSAGES = 100  # in each partition, on average

log = logging.getLogger("consume_kafka")


def source_of(partition: Any) -> str:
    return f"{partition.topic}/{partition.partition}"


class Consumption:
    """A consumer in a group, with its writer. It is also the listener for rebalances.

    Attributes:
        assigned: partitions that Kafka has assigned, and whose position is not set yet.
        reading: partitions that are read from the first message that is not stored.
    """

    def __init__(
        self,
        consumer: Any,
        writer: asyncrec.ShardedWriter,
        records_of: Callable[[Any], Iterable[bytes]] = lambda message: [message.value],
        patience: float = 5.0,
    ) -> None:
        """``records_of`` returns the records of a message. ``patience``: seconds to wait after losing partitions."""
        self.consumer = consumer
        self.writer = writer
        self.records_of = records_of
        self.patience = patience
        self.assigned: set[Any] = set()
        self.reading: set[Any] = set()
        self._lock = anyio.Lock()  # a rebalance waits until the current messages are stored

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        async with self._lock:
            with suppress(ConflictError):  # another consumer already owns some of them
                await self.writer.release(*map(source_of, self.assigned | self.reading))
            self.assigned.clear()
            self.reading.clear()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        async with self._lock:
            self.assigned.update(assigned)

    async def run(self) -> None:
        """Consume until cancelled."""
        while True:
            polled = await self.consumer.getmany(timeout_ms=1000)  # without the lock, so that a rebalance can end it
            async with self._lock:
                try:
                    await self._store(polled)
                    await self._seek()
                    continue
                except ConflictError as error:
                    if not error.sources:
                        raise
                    log.warning("%s", error)
                    # Unstored messages of the lost sources are dropped. Read each partition from its stored position.
                    await self.writer.release(*error.sources)
                    self.assigned |= self.reading
                    self.reading.clear()
            # If Kafka has assigned them to another consumer, it will revoke them here. Wait before taking them back.
            await anyio.sleep(self.patience)

    async def _store(self, polled: dict[Any, list[Any]]) -> None:
        for partition, messages in polled.items():
            if partition in self.reading:  # otherwise the messages are from before `_seek`
                for message in messages:
                    records = self.records_of(message)
                    await self.writer.write_many(records, source=source_of(partition), position=message.offset)
        if await self.writer.flush() == "buffered":  # the store does not respond; the next flush tries again
            return
        stored = self.writer.progress
        offsets = {each: stored[source_of(each)] + 1 for each in self.reading if source_of(each) in stored}
        try:
            if offsets:
                await self.consumer.commit(offsets)
        except Exception as error:  # the offsets are only a hint
            log.warning("the offsets were not committed: %s", error)

    async def _seek(self) -> None:
        for partition in sorted(self.assigned):
            try:
                last = await self.writer.take(source_of(partition))
            except ConflictError as error:
                if error.sources:
                    raise
                log.warning("%s", error)  # the last owner is still running on this machine: retry later
                continue
            if last is None:
                await self.consumer.seek_to_beginning(partition)
            else:
                self.consumer.seek(partition, last + 1)
            self.assigned.discard(partition)
            self.reading.add(partition)


async def consume_topic(dataset: str, servers: str, topic: str) -> None:
    """Consume a topic from a real Kafka until cancelled. Start one process for each consumer."""
    import aiokafka  # type: ignore[import-not-found]  # pip install aiokafka

    aiokafka.ConsumerRebalanceListener.register(Consumption)
    options = {"group_id": dataset, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with (
        asyncrec.open_sharded_writer(dataset, max_shard_seconds=300) as writer,
        aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, **options) as consumer,
    ):
        consumption = Consumption(consumer, writer)
        consumer.subscribe([topic], listener=consumption)
        await consumption.run()


async def consume_fake(dataset: str, seed: int = 1) -> None:
    """Run consumers that join, leave and are evicted, until all messages are stored. Then count the records."""

    def message(partition: fake_kafka.TopicPartition, offset: int) -> bytes:
        return f"message {offset} of {source_of(partition)}".encode()

    broker = fake_kafka.Broker({"pages": PARTITIONS}, message, seed=seed)
    broker.produce(2 * MESSAGES)

    async def consume(number: int, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            async with (
                asyncrec.open_sharded_writer(dataset) as writer,
                fake_kafka.AIOKafkaConsumer(
                    bootstrap_servers=broker, client_id=f"consumer {number}", heartbeat_interval_ms=30
                ) as consumer,
            ):
                consumption = Consumption(consumer, writer, patience=0.1)
                consumer.subscribe(["pages"], listener=consumption)
                await consumption.run()

    async with anyio.create_task_group() as consumers:
        for number in range(CONSUMERS):
            consumers.start_soon(consume, number, 1.0 if number % 2 else float("inf"))
            await anyio.sleep(0.1)
        broker.evict("consumer 0")  # a zombie: it is alive, and learns of this later
        while broker.committed != broker.ends:  # noqa: ASYNC110  # the broker has no event to wait for
            await anyio.sleep(0.1)
        consumers.cancel_scope.cancel()

    found: list[bytes] = []
    for shard in await asyncrec.list_shards(dataset):
        found += await asyncrec.read_records(shard)
    print(f"{sum(broker.ends.values()):,} messages, of which {broker.repeated:,} were delivered again")
    print(f"{len(found):,} records, of which {len(found) - len(set(found))} are there twice")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="demo-data")
    parser.add_argument("--servers", help="the address of a real Kafka, as host:port")
    parser.add_argument("--topic", default="pages")
    arguments = parser.parse_args()
    target = f"{arguments.folder}/messages"
    if arguments.servers is None:
        anyio.run(consume_fake, target)
    else:
        anyio.run(consume_topic, target, arguments.servers, arguments.topic)
