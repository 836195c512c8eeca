"""Kill -9 some of twenty consumers of a queue. Each message must be stored once, although the records have no keys.

A stand-in for Kafka (`examples/consuming/fake_kafka.py`) runs in its own process. It redelivers messages, rebalances,
and evicts consumers without telling them. Each consumer is also a process, which runs the code of
`examples/consume_kafka.py` with a writer to the same data set. Again and again, some consumers are killed and replaced,
and others become zombies: they are stopped, evicted, and resumed later. In the end, all messages are consumed, and a
separate process counts the records. Consumers also report if less of a partition is stored than was acknowledged.

The parent has no event loop and no threads, and has imported all modules, so that it can fork.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import store_processes
from consuming_processes import Plan, Remote, consume, judge, serve
from kill import forked, import_what_is_used
from row import Row  # this folder is on the path
from store_processes import Store

CONSUMERS = 20
# The number of kills in a round, which has its own data set.
_KILLS = 100
# A round without progress for this many seconds counts as hung.
_MOST_SECONDS = 180


class Round:
    """A round. Its random choices depend only on the seed, but its timing does not."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.problems: list[str] = []
        self.kills = 0
        self.broker = Remote(plan.address)
        # A rebalance takes seconds if consumers write to a store.
        self._at_once = (1, 2, 5, 10, 20) if plan.store is None else (5, 10, 20)
        self._numbers = 0
        self._running: dict[int, int] = {}  # the process of each consumer
        self._stopped: dict[int, float] = {}  # the time at which to resume each stopped consumer

    def play(self) -> list[str]:
        """Play the round, and return descriptions of the broken promises."""
        served, pipe = forked(serve, self.plan)
        os.read(pipe, 1)
        os.close(pipe)
        try:
            while self.kills < self.plan.kills:
                self._fill_up()
                self.broker.ask("produce", self.rng.choice((0, 3, 20)))
                self._wait()
                self._stop_some()
                for number in self._drawn(min(self.rng.choice(self._at_once), self.plan.kills - self.kills)):
                    self._kill(number)
            self._fill_up()
            self._end()
            ends = self.broker.ask("ends")
        finally:
            for number in list(self._running):
                self._kill(number)
            self.broker.ask("end")
            os.waitpid(served, 0)
        if self.plan.told.exists():
            self.problems.append(self.plan.told.read_text()[:20_000])
        child, pipe = forked(judge, self.plan, ends)
        answer = b""
        while block := os.read(pipe, 1 << 16):
            answer += block
        os.close(pipe)
        os.waitpid(child, 0)
        return self.problems + (json.loads(answer) if answer else ["the judge failed by itself"])

    def _drawn(self, count: int) -> list[int]:
        return self.rng.sample(sorted(self._running), min(count, len(self._running)))

    def _fill_up(self) -> None:
        while len(self._running) < self.plan.consumers:
            self._running[self._numbers], pipe = forked(consume, self.plan, self._numbers)
            os.close(pipe)
            self._numbers += 1

    def _kill(self, number: int) -> None:
        process = self._running.pop(number)
        os.kill(process, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(process, 0)[1]):
            self.kills += 1
        self._stopped.pop(number, None)
        self.broker.ask("evict", f"consumer {number}")

    def _wait(self) -> None:
        """Wait for a short time, or until shortly after a commit, so that kills occur at all stages."""
        before = sum(self.broker.ask("committed").values())
        until = time.monotonic() + self.rng.choice((0.0, 0.1, 0.5, 1.0, 20.0, 20.0, 20.0))
        while time.monotonic() < until:
            self._let_go_on()
            if until - time.monotonic() > 1.0 and sum(self.broker.ask("committed").values()) > before:
                until = time.monotonic() + self.rng.random()
                before = 1 << 62
            time.sleep(0.01)

    def _stop_some(self) -> None:
        """Stop some consumers, which Kafka evicts as dead. Those that are resumed are zombies."""
        for number in self._drawn(self.rng.choice((0, 0, 1, 3))):
            os.kill(self._running[number], signal.SIGSTOP)
            self._stopped[number] = time.monotonic() + 3 * self.rng.random()
            self.broker.ask("evict", f"consumer {number}")

    def _let_go_on(self, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        for number in [number for number, until in self._stopped.items() if until < now]:
            os.kill(self._running[number], signal.SIGCONT)
            del self._stopped[number]

    def _end(self) -> None:
        """Let the consumers read the remaining messages and end."""
        self._let_go_on(float("inf"))
        before, since = None, time.monotonic()
        while (committed := self.broker.ask("committed")) != self.broker.ask("ends"):
            if committed != before:
                before, since = committed, time.monotonic()
            if time.monotonic() - since > _MOST_SECONDS:
                self.problems.append(f"nothing is stored any more: {committed}")
                return
            time.sleep(0.05)
        self.plan.end.touch()
        deadline = time.monotonic() + _MOST_SECONDS
        for number, process in list(self._running.items()):
            while not os.waitpid(process, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    self.problems.append(f"consumer {number} does not end")
                    return
                time.sleep(0.01)
            del self._running[number]


def drawn(seed: int, folder: Path, store: Store | None, kills: int, consumers: int) -> Plan:
    rng = random.Random(seed)
    options = {
        "compression": rng.choice(("", "", "GZIP")),
        "max_shard_records": rng.choice((30, 1000, 100_000)),
        "flush_seconds": rng.choice((0.2, 1.0, 30.0)),
    }
    if store is not None:
        store = store.for_round(f"consumers-{seed}")
    return Plan(
        seed=seed,
        folder=folder,
        target=f"{folder}/pages" if store is None else f"{store.url}/pages",
        store=store,
        consumers=consumers,
        kills=kills,
        evicts=rng.choice((0.0, 0.0, 0.002)),
        options=options,
    )


def use(plan: Plan, pipe: int) -> None:
    """Run the children's code, and report the modules that it imported."""
    plan.end.touch()
    for number in range(4):
        consume(plan, number, pipe)
    judge(plan, {}, os.open(os.devnull, os.O_WRONLY))
    os.write(pipe, "\n".join(sys.modules).encode())


def killed(what: str, seed: int, kills: int, kind: str | None) -> Row:
    root = Path(tempfile.mkdtemp(prefix="asyncrec-consumers-"))
    consumers = CONSUMERS if kills >= 2 * CONSUMERS else 6
    lost = done = 0
    try:
        with store_processes.running(kind, root) if kind is not None else nullcontext() as store:
            (root / "warm").mkdir()
            import_what_is_used(use, drawn(seed * 1000, root / "warm", store, 0, 1))
            while done < kills:
                folder = root / str(done)
                folder.mkdir()
                plan = drawn(seed * 1000 + done + 1, folder, store, min(_KILLS, kills - done), consumers)
                played = Round(plan)
                if problems := played.play():
                    lost += 1
                    print(f"{what}, {plan}:\n  " + "\n  ".join(problems), flush=True)
                else:
                    shutil.rmtree(folder)
                done += played.kills
    finally:
        if not lost:
            shutil.rmtree(root)
    return Row(what, done, lost, seed)


def on_a_disk(seed: int, rounds: int) -> Row:
    return killed("kill -9 of consumers of a queue, on a disk", seed, rounds, None)


def in_a_store(seed: int, rounds: int) -> Row:
    return killed("kill -9 of consumers of a queue, to S3 on loopback", seed, rounds, "moto")


ROUNDS = [on_a_disk, in_a_store]
