"""Read a topic into a data set, each message exactly once, by several consumers that come, go and die.

    python examples/consume_kafka.py [FOLDER]                                        on a stand-in for Kafka
    python examples/consume_kafka.py s3://bucket/folder --servers host:9092 --topic pages    with aiokafka

Each message is written with its offset, so the data set knows how far each partition is stored. What Kafka has of that,
the committed offsets, is only a hint for those who watch the consumers' lag.
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
    """One consumer of a group and its writer; the consumer's listener.

    Attributes:
        assigned: partitions that Kafka has given to this consumer, and that are not sought yet.
        reading: those that are read from behind what is stored.
    """

    def __init__(
        self,
        consumer: Any,
        writer: asyncrec.ShardedWriter,
        records_of: Callable[[Any], Iterable[bytes]] = lambda message: [message.value],
        patience: float = 5.0,
    ) -> None:
        """``records_of`` makes of a message one record, or some, or none. ``patience``: seconds, see `run`."""
        self.consumer = consumer
        self.writer = writer
        self.records_of = records_of
        self.patience = patience
        self.assigned: set[Any] = set()
        self.reading: set[Any] = set()
        self._lock = anyio.Lock()  # a rebalance waits until the messages at hand are stored

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        async with self._lock:
            with suppress(ConflictError):  # another consumer has some already, and reads behind what is stored
                await self.writer.release(*map(source_of, self.assigned | self.reading))
            self.assigned.clear()
            self.reading.clear()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        async with self._lock:
            self.assigned.update(assigned)

    async def run(self) -> None:
        """Consume until this is cancelled."""
        while True:
            polled = await self.consumer.getmany(timeout_ms=1000)  # not under the lock: a rebalance ends it
            async with self._lock:
                try:
                    await self._store(polled)
                    await self._seek()
                    continue
                except ConflictError as error:
                    if not error.sources:
                        raise
                    log.warning("%s", error)
                    # What was not stored of the lost sources is dropped: read all partitions from what is stored.
                    await self.writer.release(*error.sources)
                    self.assigned |= self.reading
                    self.reading.clear()
            # If Kafka has given them to another consumer, this one will hear of it: do not take them back at once.
            await anyio.sleep(self.patience)

    async def _store(self, polled: dict[Any, list[Any]]) -> None:
        for partition, messages in polled.items():
            if partition in self.reading:  # else it was read from where Kafka begins, or before a rebalance
                for message in messages:
                    records = self.records_of(message)
                    await self.writer.write_many(records, source=source_of(partition), position=message.offset)
        if await self.writer.flush() == "buffered":  # the store does not answer: the next flush tries again
            return
        stored = self.writer.progress
        offsets = {each: stored[source_of(each)] + 1 for each in self.reading if source_of(each) in stored}
        try:
            if offsets:
                await self.consumer.commit(offsets)
        except Exception as error:  # nothing depends on it
            log.warning("the offsets were not committed: %s", error)

    async def _seek(self) -> None:
        for partition in sorted(self.assigned):
            try:
                last = await self.writer.take(source_of(partition))
            except ConflictError as error:
                if error.sources:
                    raise
                log.warning("%s", error)  # its last owner still runs, on this machine: try again with the next messages
                continue
            if last is None:
                await self.consumer.seek_to_beginning(partition)
            else:
                self.consumer.seek(partition, last + 1)
            self.assigned.discard(partition)
            self.reading.add(partition)


async def consume_topic(dataset: str, servers: str, topic: str) -> None:
    """Consume a topic of a real Kafka, until this is cancelled. Start it as often as you want consumers."""
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
    """Let consumers come, go, and be taken for dead until all messages are stored; then count the records."""

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
        broker.evict("consumer 0")  # a zombie: it lives, and learns of it later
        while broker.committed != broker.ends:  # noqa: ASYNC110  # it says nothing by itself
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
    parser.add_argument("--servers", help="of a real Kafka, as host:port")
    parser.add_argument("--topic", default="pages")
    arguments = parser.parse_args()
    target = f"{arguments.folder}/messages"
    if arguments.servers is None:
        anyio.run(consume_fake, target)
    else:
        anyio.run(consume_topic, target, arguments.servers, arguments.topic)
