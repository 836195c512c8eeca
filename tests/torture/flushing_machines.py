"""A machine without a disk: one process with a writer for each of several data sets, and a log of the writers'
acknowledgements.

The log is a file that survives SIGKILL. It has a line, with the time, for each record that a writer accepted and for
each acknowledgement.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from store_processes import Store, prepare

import asyncrec
from asyncrec.errors import ConflictError
from asyncrec.storage import Storage

DEAD_AFTER = 2.0
# A record's number is its machine's number times this, plus the record's number on that machine.
MACHINE = 1_000_000
_LINE = struct.Struct("<cxxxIQd")
IDLE_SECONDS = 1.5 * DEAD_AFTER


@dataclass(frozen=True)
class Line:
    """A line of a log.

    ``kind`` is one of: ``o``: the writer is open; ``w``: it accepted the record ``number``; ``t``: it acknowledged
    that record; ``a``: it acknowledged the first ``number`` records that it accepted; ``f``: it raised a
    `ConflictError`; ``e``: it ended, and all records are committed; ``x``: it failed; ``p``, ``q``: a request of the
    process began or ended.
    """

    kind: str
    dataset: int
    number: int
    time: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The plan of one machine's process.

    Attributes:
        number: the number of the machine in its round.
        again: for each data set, the dead machines whose records this one writes again, and how many records each has.
        most: the maximum number of the machine's own records for each data set.
        options: the options of the writer, for each data set.
        waits, flushes, commits: the probability of each after a record.
        idles: the probability of a pause longer than `DEAD_AFTER` after a record.
    """

    number: int
    seed: int
    loop: str
    store: Store
    names: list[str]
    folder: Path
    again: dict[int, dict[int, int]] = field(default_factory=dict)
    most: int
    options: list[dict[str, Any]]
    tasks: int
    record_bytes: int
    keyed: float
    burst: int
    pause: float
    waits: float
    flushes: float
    commits: float
    idles: float
    seconds: float | None = None

    @property
    def writer(self) -> str:
        return f"machine{self.number}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.number}.log"

    @property
    def end(self) -> Path:
        """The path of a file whose existence tells the machine to end."""
        return self.folder / f"{self.number}.end"

    def lines(self) -> list[Line]:
        data = self.log.read_bytes() if self.log.exists() else b""
        whole = data[: len(data) // _LINE.size * _LINE.size]
        return [Line(kind.decode(), *rest) for kind, *rest in _LINE.iter_unpack(whole)]


def record_of(seed: int, number: int, most: int) -> bytes:
    """Return the record with this number. It begins with the number, and is always the same."""
    rng = random.Random(f"{seed} {number}")
    return b"%012d:" % number + rng.randbytes(rng.randint(0, most))


def key_of(seed: int, number: int, chance: float) -> bytes | None:
    return b"%012d" % number if random.Random(f"{seed} key {number}").random() < chance else None


def become(machine: str, folder: Path) -> None:
    """Make this process seem to run on a separate machine, so that other machines cannot check whether it is alive."""
    runtime = folder / f"run-{machine}"
    runtime.mkdir()
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    socket.gethostname = lambda: machine


def write(machine: Machine, pipe: int) -> None:
    become(f"machine-{machine.number}", machine.folder)
    prepare(machine.store)
    log = os.open(machine.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    anyio.run(_write_all, machine, log, backend=machine.loop)


async def _write_all(machine: Machine, log: int) -> None:
    async with (
        asyncrec.open_storage(machine.store.url, **machine.store.options) as storage,
        anyio.create_task_group() as watch,
    ):
        watch.start_soon(_probe, machine, storage, log)
        async with anyio.create_task_group() as group:
            for dataset in range(len(machine.names)):
                group.start_soon(_Writing(machine, dataset, storage, log).run)
        watch.cancel_scope.cancel()


async def _probe(machine: Machine, storage: Storage, log: int) -> None:
    """Repeatedly measure round trips, which include the delays of this process, the machine and the store."""
    while True:
        for kind in (b"p", b"q"):
            os.write(log, _LINE.pack(kind, 0, 0, time.monotonic()))
            if kind == b"p":
                await storage.put(f"_probes/{machine.number}", b"x")
        await anyio.sleep(0.3)


class _Writing:
    """One writer and the tasks that share it."""

    def __init__(self, machine: Machine, dataset: int, storage: Storage, log: int) -> None:
        self._machine, self._dataset, self._storage, self._log = machine, dataset, storage, log
        self._rng = random.Random(f"{machine.seed} {machine.number} {dataset}")
        self._taken = 0
        self._numbers = self._all_numbers()
        self._begun = time.monotonic()

    def _all_numbers(self) -> Iterator[int]:
        for number, count in self._machine.again.get(self._dataset, {}).items():
            yield from range(number * MACHINE, number * MACHINE + count)
        yield from range(self._machine.number * MACHINE, self._machine.number * MACHINE + self._machine.most)

    def _tell(self, kind: bytes, number: int = 0) -> None:
        os.write(self._log, _LINE.pack(kind, self._dataset, number, time.monotonic()))

    async def run(self) -> None:
        machine = self._machine
        try:
            async with asyncrec.open_sharded_writer(
                machine.names[self._dataset],
                storage=self._storage,
                writer_id=machine.writer,
                dead_after=DEAD_AFTER,
                **machine.options[self._dataset],
            ) as writer:
                self._tell(b"o")
                async with anyio.create_task_group() as group:
                    for _ in range(machine.tasks):
                        group.start_soon(self._work, writer)
        except BaseException as error:
            leaves = list(_leaves(error))
            if all(isinstance(leaf, ConflictError) for leaf in leaves):
                self._tell(b"f")
            else:
                with machine.log.with_suffix(".errors").open("a") as file:
                    traceback.print_exception(error, file=file)
                self._tell(b"x")
        else:
            self._tell(b"a", self._taken)
            self._tell(b"e")

    async def _work(self, writer: asyncrec.ShardedWriter) -> None:
        machine, rng = self._machine, self._rng
        for number in self._numbers:  # shared by all tasks
            key = key_of(machine.seed, number, machine.keyed)
            if number // MACHINE != machine.number and (key is None or writer.has(key)):
                continue
            ticket = await writer.write(record_of(machine.seed, number, machine.record_bytes), key=key)
            self._tell(b"w", number)
            self._taken += 1
            taken, chance = self._taken, rng.random()
            if chance < machine.waits:
                await writer.wait(ticket, "spooled")
                self._tell(b"t", number)
            elif (chance := chance - machine.waits) < machine.flushes:
                if await writer.flush() != "buffered":
                    self._tell(b"a", taken)
            elif (chance := chance - machine.flushes) < machine.commits:
                await writer.commit()
                self._tell(b"a", taken)
            elif chance - machine.commits < machine.idles:
                await anyio.sleep(IDLE_SECONDS)
            elif self._taken % machine.burst == 0:
                await anyio.sleep(machine.pause)
            if self._is_over:
                return
        while not self._is_over:  # noqa: ASYNC110  # another process creates the file
            await anyio.sleep(0.05)

    @property
    def _is_over(self) -> bool:
        seconds = self._machine.seconds
        return self._machine.end.exists() or (seconds is not None and time.monotonic() > self._begun + seconds)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def recover(machine: Machine, pipe: int) -> None:
    """Recover each data set as a separate machine. Conflicts with other recoveries are ignored, other errors raised."""
    become(f"machine-{machine.number}", machine.folder)
    prepare(machine.store)
    anyio.run(_recover_all, machine, backend=machine.loop)


async def _recover_all(machine: Machine) -> None:
    async with asyncrec.open_storage(machine.store.url, **machine.store.options) as storage:

        async def one(name: str) -> None:
            with suppress(
                asyncrec.ObjectNotFoundError, ConflictError
            ):  # nothing had begun, or another process was faster
                await asyncrec.recover(name, storage=storage)

        async with anyio.create_task_group() as group:
            for name in machine.names:
                group.start_soon(one, name)
