"""The processes that `consumers` starts: a broker, the consumers to be killed, and a judge of the stored records."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import store_processes  # this folder is on the path
from store_processes import ROOT, Store

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectNotFoundError

sys.path.insert(0, str(ROOT / "examples"))
from consume_kafka import Consumption, source_of
from consuming.fake_kafka import AIOKafkaConsumer, Broker, CommitFailedError, ConsumerRecord, TopicPartition

PARTITIONS = {"orders": 14, "clicks": 8}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a round: the numbers of kills and consumers, and the target in a store or on a disk."""

    seed: int
    folder: Path
    target: str
    store: Store | None
    consumers: int
    kills: int
    evicts: float
    options: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.folder / "broker")

    @property
    def end(self) -> Path:
        """The path of a file whose existence tells consumers to end."""
        return self.folder / "end"

    @property
    def told(self) -> Path:
        """The path of the file to which consumers report faults."""
        return self.folder / "told"

    def storage_options(self) -> dict[str, Any]:
        return {} if self.store is None else self.store.options


def records_of(message: Any) -> list[bytes]:
    """Return the records of a message: one, several or none."""
    name = f"{source_of(message)} {message.offset}"
    count = (1, 1, 3, 1, 0, 1, 2)[message.offset % 7]
    return [f"{name} {number} ".encode() + bytes(random.Random(name).randint(0, 300)) for number in range(count)]


class Remote:
    """A client of the broker, for consumers and the parent. Each request uses its own connection."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def call(self, method: str, *arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return self.ask(method, *arguments)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the broker, or return one of its attributes."""
        while True:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(self._address)
                with suppress(BrokenPipeError, ConnectionResetError, EOFError):  # this process was too slow; try again
                    connection.sendall(pickle.dumps((method, arguments)))
                    connection.shutdown(socket.SHUT_WR)
                    answer = pickle.loads(_received(connection))
                    break
        if isinstance(answer, Exception):
            raise answer
        return answer


def _received(connection: socket.socket) -> bytes:
    data = b""
    while block := connection.recv(1 << 16):
        data += block
    return data


def serve(plan: Plan, pipe: int) -> None:
    """Serve requests until the parent ends the broker."""
    broker = Broker(PARTITIONS, lambda partition, offset: b"", seed=plan.seed, evicts=plan.evicts)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(plan.address)
        listening.listen(256)
        os.write(pipe, b"1")
        os.close(pipe)
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(0.5)
                try:
                    method, arguments = pickle.loads(_received(connection))
                except (OSError, EOFError, pickle.UnpicklingError):
                    continue  # the consumer was killed, or is stopped
                if method == "end":
                    connection.sendall(pickle.dumps(None))
                    return
                try:
                    found = getattr(broker, method)
                    answer = found(*arguments) if callable(found) else found
                except CommitFailedError as error:
                    answer = error
                try:
                    connection.sendall(pickle.dumps(answer))
                except OSError:
                    continue


class Checked(Consumption):
    """A consumption that also reports if less of a partition is stored than was acknowledged to another consumer."""

    plan: Plan

    async def _seek(self) -> None:
        told = {partition: await self.consumer.committed(partition) for partition in self.assigned}
        await super()._seek()
        for partition in self.reading & set(told):
            begin = await self.consumer.position(partition)
            if _give_records(partition, begin, told[partition]):
                _tell(self.plan, f"{partition}: {told[partition]} messages were acknowledged, {begin} are stored")


def _give_records(partition: TopicPartition, begin: int, end: int) -> bool:
    """Return whether any of these messages has a record. Positions without records are stored by the next commit."""
    return any(records_of(ConsumerRecord(*partition, offset, b"")) for offset in range(begin, end))


def _tell(plan: Plan, line: str) -> None:
    with plan.told.open("a") as file:
        file.write(f"{line}\n")


def consume(plan: Plan, number: int, pipe: int) -> None:
    logging.disable()  # every zombie is logged
    if plan.store is not None:
        store_processes.prepare(plan.store)
    try:
        anyio.run(_consume, plan, number, backend=random.Random(f"{plan.seed} {number}").choice(("asyncio", "trio")))
    except BaseException as error:
        # A zombie gets an error at its end, because its last records were dropped; another consumer reads them again.
        expected = all(isinstance(leaf, ConflictError) and leaf.sources for leaf in _leaves(error))
        if not (expected and plan.end.exists()):
            _tell(plan, f"consumer {number} failed:\n{''.join(traceback.format_exception(error))}")


async def _consume(plan: Plan, number: int) -> None:
    rng = random.Random(f"{plan.seed} {number}")
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, plan, group.cancel_scope)
        async with (
            asyncrec.open_sharded_writer(
                plan.target,
                open_shards=rng.choice((1, 1, 3)),
                storage_options=plan.storage_options(),
                **plan.options,
            ) as writer,
            AIOKafkaConsumer(
                bootstrap_servers=Remote(plan.address), client_id=f"consumer {number}", heartbeat_interval_ms=300
            ) as consumer,
        ):
            consumption = Checked(consumer, writer, records_of, patience=0.3)
            consumption.plan = plan
            consumer.subscribe(list(PARTITIONS), listener=consumption)
            await consumption.run()


async def _watch(plan: Plan, scope: anyio.CancelScope) -> None:
    while not plan.end.exists():  # noqa: ASYNC110  # another process creates the file
        await anyio.sleep(0.05)
    scope.cancel()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def judge(plan: Plan, ends: dict[TopicPartition, int], pipe: int) -> None:
    problems: list[str] = []
    if plan.store is not None:
        store_processes.prepare(plan.store)
    anyio.run(_judge, plan, ends, problems)
    os.write(pipe, json.dumps(problems[:10]).encode())


async def _judge(plan: Plan, ends: dict[TopicPartition, int], problems: list[str]) -> None:
    options = plan.storage_options()
    try:
        await asyncrec.recover(plan.target, storage_options=options)
    except ObjectNotFoundError:
        problems.append("there is no data set")
        return
    manifest = await asyncrec.read_manifest(plan.target, storage_options=options)
    found: Counter[bytes] = Counter()
    for shard in await asyncrec.list_shards(manifest):
        found.update(await asyncrec.read_records(shard, storage_options=options))
    expected = Counter(
        record
        for partition, end in ends.items()
        for offset in range(end)
        for record in records_of(ConsumerRecord(*partition, offset, b""))
    )
    for what, wrong in (("lost", expected - found), ("stored twice", found - expected)):
        if wrong:
            problems.append(f"{wrong.total()} records are {what}: {[bytes(each[:40]) for each in list(wrong)[:5]]}")
    for partition, end in ends.items():
        stored = manifest.progress.get(source_of(partition), -1) + 1
        if stored > end or _give_records(partition, stored, end):
            problems.append(f"{partition}: the progress is {stored - 1}, and {end} messages were stored")
    if plan.store is None and not (await tools.verify(plan.target)).ok:  # this would take minutes in a store
        problems.append("verify finds damage")
