"""Kill -9 writers at random times. No acknowledged record may be lost, and the manifest must be correct.

Each round forks a child that writes with random options, and reports through a pipe which records were acknowledged and
at which level. The child is killed at a random time. Another child then checks that all records reported as committed
are in the manifest, that the manifest lists only intact shards, that after `recover` all records reported as spooled
are stored exactly once, that a second `recover` changes nothing, and that none of the writer's files are left. The
parent has no event loop and no threads, and has imported all modules, so that it can fork.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import botocore.config
import botocore.session

import asyncrec
from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.index import parse_index
from asyncrec._records.reading.reader import open_reader
from asyncrec._shards.writing.keys import NO_KEY, key_digest
from asyncrec.storage._registry import open_storage


def _load(name: str) -> Any:
    qualified = f"torture_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, Path(__file__).parent / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[qualified] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[qualified]


Row = _load("row").Row
stores = _load("stores")

_MESSAGE = struct.Struct("<cI")
# A round that takes longer counts as hung.
_MOST_SECONDS = 60
# Only one round in this many writes to S3, because the client and the server make it ten times as slow.
_ROUNDS_FOR_S3 = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a round.

    Attributes:
        target: the path of the data set.
        spool: the path of the spool, or `None`.
        keys_from, keys_chance: the first record that may have a key, if any, and the share of records with keys.
        acknowledgements, delay: the writer is killed ``delay`` seconds after this many acknowledgements.
    """

    seed: int
    loop: str
    target: str
    spool: str | None
    fixed: bool
    compression: CompressionOptions
    shards: int
    shard_records: int
    keys_from: int | None
    keys_chance: float
    waits: float
    commits: float
    record_bytes: int
    acknowledgements: int
    delay: float

    def key(self, number: int) -> bytes | None:
        if self.keys_from is None or number < self.keys_from:
            return None
        return b"%d" % number if random.Random(f"{self.seed} key {number}").random() < self.keys_chance else None

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"compression": self.compression}
        if self.fixed:
            options["num_shards"] = self.shards
        else:
            options |= {"max_shard_records": self.shard_records, "open_shards": self.shards}
        if self.spool is not None:
            options["spool"] = self.spool
        return options


def draw(seed: int, target: str, spool: str | None) -> Plan:
    rng = random.Random(seed)
    kind = rng.choice(["", "", "", "GZIP", "GZIP", "ZLIB"])
    return Plan(
        seed=seed,
        loop=rng.choice(["asyncio", "trio"]),
        target=target,
        spool=spool,
        fixed=rng.random() < 0.3,
        compression=CompressionOptions(type=kind, **({"member_bytes": 20_000} if kind == "GZIP" else {})),
        shards=rng.randint(1, 3),
        shard_records=rng.choice([7, 40, 200, 100_000]),
        keys_from=rng.choice([None, 0, 0, 1, rng.randint(0, 300), rng.randint(0, 2000)]),
        keys_chance=rng.choice([1.0, 1.0, 0.5, 0.03]),
        waits=rng.choice([0.01, 0.1, 0.5]),
        commits=rng.choice([0.0, 0.01, 0.05]),
        record_bytes=rng.choice([0, 30, 1000, 20_000]),
        acknowledgements=rng.choice([0, 1, 2, 5, 20, 60]),
        delay=rng.choice([0.0, rng.random() * 0.003, rng.random() * 0.02]),
    )


def record_of(seed: int, number: int, most: int) -> bytes:
    """Return the record with this number. It begins with the number, and is always the same."""
    rng = random.Random(f"{seed} {number}")
    return b"%08d:" % number + rng.randbytes(rng.randint(0, most))


async def write(plan: Plan, tell: Callable[[bytes, int], None]) -> None:
    rng = random.Random(plan.seed + 1)
    written = 0
    async with asyncrec.open_sharded_writer(plan.target, **plan.options()) as writer:

        async def work() -> None:
            nonlocal written
            while written < 2000:
                number = written
                written += 1
                record = record_of(plan.seed, number, plan.record_bytes)
                ticket = await writer.write(record, key=plan.key(number))
                chance = rng.random()
                if chance < plan.waits:
                    await writer.wait(ticket, "spooled")
                    tell(b"s", number)
                elif not plan.fixed and chance < plan.waits + plan.commits:
                    await writer.commit()
                    tell(b"c", number)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(work)
    for number in range(written):
        tell(b"c", number)


def crawl(plan: Plan, pipe: int) -> None:
    def tell(level: bytes, number: int) -> None:
        os.write(pipe, _MESSAGE.pack(level, number))

    anyio.run(write, plan, tell, backend=plan.loop)


async def listed(plan: Plan, about: str, problems: list[str]) -> Counter[int]:
    """Check the manifest against the stored objects, and count the numbers of the records."""
    found: Counter[int] = Counter()
    folder, _, _name = plan.target.rpartition("/")
    try:
        manifest = await asyncrec.read_manifest(plan.target)
    except FileNotFoundError:
        return found
    async with open_storage(folder) as storage:
        for shard in manifest.shards:
            try:
                async with open_reader(shard.path, storage=storage) as reader:
                    records = [record async for batch in reader.batches() for record in batch]
                info = await storage.head(shard.path)
                index = parse_index(await storage.get(shard.index.path)) if shard.index else None
                keys = await storage.get(shard.keys.path) if shard.keys else None
            except Exception as error:
                problems.append(f"{about}: the manifest names {shard.path}, and {error!r}")
                continue
            if (len(records), info.size) != (shard.records, shard.bytes) or index is None or len(index) != len(records):
                problems.append(f"{about}: the manifest is wrong about {shard.path}: {len(records)}, {info.size}")
            for position, record in enumerate(records):
                number = int(record[:8])
                found[number] += 1
                if record != record_of(plan.seed, number, plan.record_bytes):
                    problems.append(f"{about}: {shard.path} holds another record {number}")
                key = plan.key(number)
                digest = NO_KEY if key is None else key_digest(key)
                if (NO_KEY if keys is None else keys[16 * position : 16 * position + 16]) != digest:
                    problems.append(f"{about}: {shard.path} has not the key of {number}")
    if twice := [number for number, times in found.items() if times > 1]:
        problems.append(f"{about}: {len(twice)} records are there twice: {twice[:5]}")
    return found


async def recovered(plan: Plan) -> asyncrec.Recovery:
    try:
        return await asyncrec.recover(plan.spool or plan.target, to=plan.target if plan.spool else None)
    except asyncrec.ObjectNotFoundError:  # the writer was killed before its job began
        return asyncrec.Recovery()


async def look(plan: Plan, promised: dict[str, set[int]], problems: list[str]) -> None:
    before = await listed(plan, "before", problems)
    if lost := promised["c"] - set(before):
        problems.append(f"{len(lost)} of {len(promised['c'])} committed records are lost: {sorted(lost)[:5]}")
    recovery = await recovered(plan)
    if recovery.damaged or recovery.in_use:
        problems.append(f"recovery: {recovery}")
    after = await listed(plan, "after", problems)
    if lost := (promised["s"] | promised["c"]) - set(after):
        problems.append(f"{len(lost)} of {len(promised['s'])} spooled records are lost: {sorted(lost)[:5]}")
    if recovery.records != sum(after.values()) - sum(before.values()):
        problems.append(f"recovery says {recovery.records} records, {sum(after.values()) - sum(before.values())} came")
    again = await recovered(plan)
    if again != asyncrec.Recovery():
        problems.append(f"recovering once more did something: {again}")
    folder = Path(plan.spool or plan.target.rpartition("/")[0])
    own = [
        path.name for path in folder.rglob("*") if path.is_file() and ".partial" in path.name and "pages" in path.name
    ]
    if plan.spool is not None:
        own += [path.name for path in folder.rglob("*.tfrecord*")]
    ended = [name for name in own if name.count(".") < 5 or name.endswith(".tfrecord")]
    if ended:
        problems.append(f"left over: {ended[:3]}")


def verify(plan: Plan, promised: dict[str, set[int]], pipe: int) -> None:
    problems: list[str] = []
    anyio.run(look, plan, promised, problems, backend=plan.loop)
    os.write(pipe, json.dumps(problems[:5]).encode())


def forked(func: Callable[..., None], *arguments: Any) -> tuple[int, int]:
    """Fork a child that calls ``func`` with a pipe's write end as its last argument; return ``(process, pipe)``."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    try:
        os.close(read)
        func(*arguments, write)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def use(plan: Plan, pipe: int) -> None:
    """Run the children's code, and report the modules that it imports."""
    problems: list[str] = []
    anyio.run(write, plan, lambda level, number: None, backend=plan.loop)
    anyio.run(look, plan, {"s": set(), "c": set()}, problems, backend=plan.loop)
    os.write(pipe, "\n".join(sys.modules).encode())


def import_what_children_use(plan: Plan) -> None:
    """Import the modules that asyncrec imports lazily; otherwise, each child would spend half of its time on that.

    A child finds out their names, because this process must have no event loop and no threads.
    """
    for loop in ("asyncio", "trio"):
        import_what_is_used(use, replace(plan, loop=loop, target=f"{plan.target}-{loop}"))


def import_what_is_used(use: Callable[..., None], *arguments: Any) -> None:
    """Import the modules that a child has imported and reported through its pipe."""
    child, pipe = forked(use, *arguments)
    names = b""
    while block := os.read(pipe, 1 << 16):
        names += block
    os.close(pipe)
    os.waitpid(child, 0)
    for name in names.decode().splitlines():
        if name not in sys.modules:
            with suppress(ImportError):  # a pseudo-module that a package added to sys.modules
                importlib.import_module(name)


def one_round(plan: Plan) -> list[str]:
    """Play a round, and return descriptions of the broken promises."""
    promised: dict[str, set[int]] = {"s": set(), "c": set()}
    child, pipe = forked(crawl, plan)
    received = b""
    deadline = time.monotonic() + _MOST_SECONDS
    while len(received) < _MESSAGE.size * plan.acknowledgements and time.monotonic() < deadline:
        if select.select([pipe], [], [], 1)[0]:
            block = os.read(pipe, 1 << 16)
            if not block:
                break
            received += block
    time.sleep(plan.delay)
    os.kill(child, signal.SIGKILL)
    while block := os.read(pipe, 1 << 16):  # acknowledgements reported before the kill count
        received += block
    os.close(pipe)
    _, status = os.waitpid(child, 0)
    for level, number in _MESSAGE.iter_unpack(received[: len(received) // _MESSAGE.size * _MESSAGE.size]):
        promised[level.decode()].add(number)
    problems = [] if os.WIFSIGNALED(status) or status == 0 else [f"the writer failed by itself: {status}"]
    if time.monotonic() > deadline:
        problems.append("the writer hung")
    child, pipe = forked(verify, plan, promised)
    answer = b""
    while block := os.read(pipe, 1 << 16):
        answer += block
    os.close(pipe)
    os.waitpid(child, 0)
    return problems + (json.loads(answer) if answer else ["the check failed by itself"])


def tortured(what: str, seed: int, rounds: int, *, target: Callable[[Path], str], spooled: bool) -> Row:
    lost = 0
    root = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    asyncrec.storage.register_writer_factory(stores.PREFIX, stores.FACTORY)
    try:
        warm = draw(seed, target(root / "warm"), str(root / "warm" / "spool") if spooled else None)
        import_what_children_use(replace(warm, record_bytes=0, compression=CompressionOptions(type="GZIP")))
        for number in range(rounds):
            folder = root / str(number)
            folder.mkdir()
            spool = str(folder / "spool") if spooled else None
            plan = draw(seed * 1_000_003 + number, target(folder), spool)
            if problems := one_round(plan):
                lost += 1
                print(f"{what}, round {number}, {plan}:\n  " + "\n  ".join(problems), flush=True)
            else:
                shutil.rmtree(folder)
    finally:
        if not lost:
            shutil.rmtree(root)
    return Row(what, rounds, lost, seed)


def local(seed: int, rounds: int) -> Row:
    return tortured(
        "kill -9 while writing, local", seed, rounds // 2, target=lambda folder: str(folder / "pages"), spooled=False
    )


def spooled(seed: int, rounds: int) -> Row:
    return tortured(
        "kill -9 while writing, with a spool to a store",
        seed,
        rounds - rounds // 2 - rounds // _ROUNDS_FOR_S3,
        target=lambda folder: f"{stores.url_of(folder / 'store')}/pages",
        spooled=True,
    )


def spooled_to_s3(seed: int, rounds: int) -> Row:
    """Write to moto, which runs in its own process."""
    what, times = "kill -9 while writing, with a spool to S3 on loopback", rounds // _ROUNDS_FOR_S3
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "AKIATESTONLYTESTONLY",
        "AWS_SECRET_ACCESS_KEY": "test-only-secret-test-only-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        importlib.import_module("asyncrec_s3.bucket")  # once rather than in each child
        config = botocore.config.Config(retries={"total_max_attempts": 20})
        client = botocore.session.Session().create_client("s3", config=config)
        client.create_bucket(Bucket="torture")
        client.close()
        return tortured(
            what, seed, times, target=lambda folder: f"s3://torture/{seed}/{folder.name}/pages", spooled=True
        )
    finally:
        server.kill()
        server.wait()


ROUNDS = [local, spooled, spooled_to_s3]
