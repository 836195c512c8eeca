"""Kafka without a network: a broker, and a consumer with the method names of aiokafka.

It causes the trouble that a consumer must cope with. A seed decides when:

- Messages are delivered again, from the committed offset or slightly before it, and occasionally during a read.
- A consumer that joins, leaves or dies starts a rebalance. As in aiokafka, all partitions are revoked and then
  reassigned. A background task calls the listener, and `AIOKafkaConsumer.getmany` waits until it has finished.
- An evicted consumer may not notice for a while (a zombie). It keeps reading, and only its `commit` fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import anyio.lowlevel


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class CommitFailedError(Exception):
    """The partitions may belong to another consumer by now."""


Message = Callable[[TopicPartition, int], bytes]  # returns the content of a message
Polled = dict[TopicPartition, list[ConsumerRecord]]


class Broker:
    """The partitions of some topics, and one group of consumers.

    Attributes:
        ends: the number of messages in each partition; `produce` adds some.
        committed: the last committed offset of each partition.
        repeated: the number of messages that were delivered again.
        zombies: the number of consumers that were evicted at random.
    """

    def __init__(
        self, partitions: Mapping[str, int], message: Message, *, seed: int, repeats: float = 0.2, evicts: float = 0.0
    ) -> None:
        """``repeats``: the chance that messages are delivered again. ``evicts``: that a heartbeat evicts a consumer."""
        self.ends = {TopicPartition(topic, n): 0 for topic, count in partitions.items() for n in range(count)}
        self.committed = dict.fromkeys(self.ends, 0)
        self.repeated = self.zombies = 0
        self._message, self._rng = message, random.Random(seed)
        self._repeats, self._evicts = repeats, evicts
        self._generation = 0
        self._members: set[str] = set()
        self._waiting: set[str] = set()  # members that have joined the next generation
        self._assigned: dict[str, list[TopicPartition]] = {}  # empty during a rebalance
        self._unaware: dict[str, int] = {}  # for each zombie, the heartbeats that still succeed

    async def call(self, method: str, *arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return getattr(self, method)(*arguments)

    def produce(self, most: int) -> None:
        for partition in self.ends:
            self.ends[partition] += self._rng.randint(0, most)

    def join(self, member: str, generation: int) -> tuple[int, list[TopicPartition]] | None:
        """Join the next generation. Return its number and the assigned partitions, or `None` until all have joined."""
        if self._generation > generation and member in self._assigned:
            return self._generation, self._assigned[member]
        self._members.add(member)
        self._waiting.add(member)
        self._assigned = {}
        if self._members <= self._waiting:
            members, partitions = sorted(self._members), self._rng.sample(list(self.ends), len(self.ends))
            self._assigned = {each: partitions[n :: len(members)] for n, each in enumerate(members)}
            self._generation, self._waiting = self._generation + 1, set()
            return self._generation, self._assigned[member]
        return None

    def evict(self, member: str) -> None:
        """Remove a member from the group. If it is alive, it learns of this later."""
        self._members.discard(member)
        self._waiting.discard(member)
        self._assigned = {}
        self._unaware[member] = self._rng.randint(0, 20)

    def heartbeat(self, member: str, generation: int) -> bool:
        """Whether a member can continue without joining again, as far as the broker tells it."""
        if self._members and self._rng.random() < self._evicts:
            self.evict(self._rng.choice(sorted(self._members)))
            self.zombies += 1
        if member not in self._members and self._unaware.get(member, 0):
            self._unaware[member] -= 1
            return True
        return member in self._assigned and generation == self._generation

    def begin(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset at which a consumer begins to read each partition."""
        return {partition: self._again(self.committed[partition]) for partition in partitions}

    def fetch(self, positions: dict[TopicPartition, int], most: int) -> Polled:
        found = {}
        for partition, position in positions.items():
            begin, end = self._again(position), min(self.ends[partition], position + self._rng.randint(0, most))
            messages = [ConsumerRecord(*partition, at, self._message(partition, at)) for at in range(begin, end)]
            if messages:
                found[partition], self.repeated = messages, self.repeated + position - begin
        return found

    def commit(self, member: str, generation: int, offsets: dict[TopicPartition, int]) -> None:
        if member not in self._assigned or generation != self._generation:
            raise CommitFailedError(f"{member} is not in the group any more")
        self.committed |= offsets

    def offset(self, partition: TopicPartition) -> int:
        return self.committed[partition]

    def _again(self, position: int) -> int:
        return max(0, position - self._rng.randint(1, 5)) if self._rng.random() < self._repeats else position


class AIOKafkaConsumer:
    """A member of the group. ``bootstrap_servers`` is a `Broker`, or a client of one in another process."""

    def __init__(self, *, bootstrap_servers: Any, client_id: str, heartbeat_interval_ms: int = 3000) -> None:
        self._call, self._member = bootstrap_servers.call, client_id
        self._interval, self._generation = heartbeat_interval_ms / 1000, 0
        self._positions: dict[TopicPartition, int] = {}
        self._listener: Any = None
        self._rebalancing, self._stack = anyio.Lock(), AsyncExitStack()

    async def __aenter__(self) -> AIOKafkaConsumer:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._coordinate)
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._stack.__aexit__(*error)
        finally:
            with anyio.CancelScope(shield=True):
                await self._call("evict", self._member)

    def subscribe(self, topics: list[str], *, listener: Any) -> None:
        self._listener = listener

    async def _coordinate(self) -> None:
        while True:
            if self._listener is not None and not await self._call("heartbeat", self._member, self._generation):
                async with self._rebalancing:
                    await self._rejoin()
            await anyio.sleep(self._interval)

    async def _rejoin(self) -> None:
        await self._listener.on_partitions_revoked(self.assignment())
        while (joined := await self._call("join", self._member, self._generation)) is None:  # noqa: ASYNC110
            await anyio.sleep(self._interval / 10)
        self._generation, assigned = joined
        self._positions = await self._call("begin", assigned)
        await self._listener.on_partitions_assigned(self.assignment())

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    async def getmany(self, *, timeout_ms: int = 0, max_records: int = 50) -> Polled:
        async with self._rebalancing:
            asked = dict(self._positions)
        found = await self._call("fetch", asked, max_records)
        # Leave out partitions that were reassigned, or moved by `seek`, in the meantime.
        current = {each: messages for each, messages in found.items() if self._positions.get(each) == asked[each]}
        for partition, messages in current.items():
            self._positions[partition] = messages[-1].offset + 1
        if not current:
            await anyio.sleep(timeout_ms / 1000)
        return current

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self._positions, f"{partition} is not assigned"
        self._positions[partition] = offset

    async def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.seek(partition, 0)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        await self._call("commit", self._member, self._generation, offsets)

    async def committed(self, partition: TopicPartition) -> int:
        return int(await self._call("offset", partition))
