"""``make bench ARGS="--only epoch"``: one epoch from a store that is far, beside as many long GETs by aiobotocore.

The store (`folder_s3`) is a process of its own that answers each request 20 ms after it came, by `sendfile` from a
tmpfs: what is measured is the reader. 64 shards of 16 MiB; records of 4 and of 100 KB; plain and GZIP. Every reader has
a process of its own for each round, which has read two shards before, and they take turns. The clock starts when the
client is open and has sent one request. Beside the clock: the processor time of the reading process, threads included;
the growth of its peak memory; requests by kind; connections at once; and when the first batch came, in seconds and in
requests that came one behind the end of the other.

    make bench ARGS="--only epoch"
    make bench ARGS="--only epoch --size 256 --records 4 --plain --rounds 1 --only interleave"    some seconds

Readers are compared with "aiobotocore, 16": a GET for each shard, 16 at a time, of a GZIP shard also inflated. Single
random records are compared with the GETs of such records by aiobotocore, 64 at a time, and so is ClassBalancedSampler.
Exit status 0 whether or not targets are met: a benchmark on a busy machine is no test.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from folder_s3 import folder_s3
from harness import MIB, _reset_peak, _status, work_folder
from s3 import CREDENTIALS, plain, rust
from wire import ENDPOINT, endpoint

SHARD = 16 * MIB
AT_ONCE = 16  # long GETs
TASKS, SMALL = 64, 4096  # of small reads, and how many
BATCH = 256
PIECE = MIB
FRAME = 16  # of a record
UNCHECKED = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
# What is wanted: the clock of aiobotocore over ours, our processor time over its, requests a MiB and a
# shard, requests in sequence before the first batch.
CLOCK, CPU, A_MIB, A_SHARD, FIRST = 0.9, 2.0, 0.4, 3.0, 5


@dataclass
class Shards:
    """What a reader gets: the data set's folder in the bucket, and its shards; ``size`` is that of a record."""

    folder: str
    keys: list[str]
    size: int
    compressed: bool
    records: int
    bytes: int


Reader = Callable[["Shards", "Meter"], Awaitable[None]]


class Meter:
    """Counts what a reader gives out, from `start` to `stop`; and what was asked before its first batch."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.figures: dict[str, Any] = {}

    def start(self) -> None:
        ask("reset")
        _reset_peak()
        self._rss = _status("VmRSS")
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def took(self, records: int, size: int) -> None:
        if not self.bytes:
            self.figures["first"] = time.perf_counter() - self._began
            self.figures["depth"] = ask("counts")["depth"]
        self.records += records
        self.bytes += size

    def batch(self, records: list[bytes]) -> None:
        self.took(len(records), sum(map(len, records)))

    def stop(self) -> None:
        self.figures["seconds"] = time.perf_counter() - self._began
        self.figures["cpu"] = time.process_time() - self._cpu
        self.figures["peak"] = max(_status("VmHWM") - self._rss, 0)
        self.figures |= {
            "records": self.records,
            "bytes": self.bytes,
            **{name: value for name, value in ask("counts").items() if name != "depth"},
        }


def ask(what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{endpoint()}/?{what}") as answer:
        counts: dict[str, Any] = json.load(answer)
    return counts


# aiobotocore and obstore ----------------------------------------------------------------------------------------------


def inflated(shards: Shards) -> Callable[[bytes], Awaitable[int]]:
    """A function that counts a piece of one shard: what it inflates to, in a thread, where the shard is GZIP."""
    if not shards.compressed:

        async def count(piece: bytes) -> int:
            return len(piece)

        return count
    from isal import isal_zlib

    inflating = isal_zlib.decompressobj(31)

    def inflate(piece: bytes) -> int:
        nonlocal inflating
        size = 0
        while piece:
            size += len(inflating.decompress(piece))
            piece = inflating.unused_data
            if inflating.eof:
                inflating = isal_zlib.decompressobj(31)
        return size

    async def inflate_in_thread(piece: bytes) -> int:
        return await asyncio.to_thread(inflate, piece)

    return inflate_in_thread


async def at_once(count: int, jobs: list[Callable[[], Awaitable[None]]]) -> None:
    room = asyncio.Semaphore(count)

    async def one(job: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await job()

    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(one(job))


def aiobotocore(gets: int) -> Reader:
    async def read(shards: Shards, meter: Meter) -> None:
        async with plain(max_pool_connections=AT_ONCE, **UNCHECKED) as client:
            await client.head_object(Bucket="bench", Key=shards.keys[0])

            async def shard(key: str) -> None:
                count = inflated(shards)
                answer = await client.get_object(Bucket="bench", Key=key)
                async with answer["Body"] as body:
                    while piece := await body.read(PIECE):
                        meter.took(0, await count(piece))

            meter.start()
            await at_once(gets, [partial(shard, key) for key in shards.keys])
            meter.stop()

    return read


async def aiobotocore_small(shards: Shards, meter: Meter) -> None:
    async with plain(max_pool_connections=TASKS, **UNCHECKED) as client:
        await client.head_object(Bucket="bench", Key=shards.keys[0])

        async def record(number: int) -> None:
            shard, at = divmod(number, shards.records // len(shards.keys))
            start = at * (shards.size + FRAME) + 12
            wanted = f"bytes={start}-{start + shards.size - 1}"
            answer = await client.get_object(Bucket="bench", Key=shards.keys[shard], Range=wanted)
            async with answer["Body"] as body:
                meter.batch([await body.read()])

        meter.start()
        await at_once(TASKS, [partial(record, number) for number in chosen(shards)])
        meter.stop()


async def obstore(shards: Shards, meter: Meter) -> None:
    import obstore

    async with rust() as store:
        await obstore.head_async(store, shards.keys[0])

        async def shard(key: str) -> None:
            count = inflated(shards)
            answer = await obstore.get_async(store, key)
            async for piece in answer.stream(min_chunk_size=PIECE):
                meter.took(0, await count(bytes(piece) if shards.compressed else piece))

        meter.start()
        await at_once(AT_ONCE, [partial(shard, key) for key in shards.keys])
        meter.stop()


# asyncrec -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def ours(shards: Shards) -> AsyncIterator[Any]:
    """A storage with its default options, open, which has sent a request."""
    import asyncrec

    async with asyncrec.open_storage(
        "s3://bench", endpoint_url=endpoint(), region="us-east-1", **CREDENTIALS
    ) as storage:
        await storage.head(shards.keys[0])
        yield storage


async def open_reader(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:

        async def shard(key: str) -> None:
            async with asyncrec.open_reader(key, storage=storage) as reader:
                async for records in reader.batches():
                    meter.batch(records)

        meter.start()
        await at_once(AT_ONCE, [partial(shard, key) for key in shards.keys])
        meter.stop()


async def interleave(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with asyncrec.interleave(shards.keys, storage=storage) as stream:
            async for records in stream.batches(BATCH):
                meter.batch(records)
        meter.stop()


async def interleave_sampler(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with asyncrec.InterleaveSampler(
            shards.folder, bytes, 4, BATCH, shards_per_cycle=16, num_repeat=1, seed=1, storage=storage
        ) as sampler:
            async for records in sampler:
                meter.batch(records)
        meter.stop()


async def shuffled(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with (
            asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset,
            dataset.shuffled(seed=1) as stream,
        ):
            async for records in stream.batches(BATCH):
                meter.batch(records)
        meter.stop()


def balanced(*, entering: bool) -> Reader:
    """`ClassBalancedSampler`: reading every record's class, or giving the small reads' records in batches."""

    async def read(shards: Shards, meter: Meter) -> None:
        import asyncrec

        async with ours(shards) as storage, asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset:
            sampler = asyncrec.ClassBalancedSampler(dataset, 16, 16, class_fn=class_of, seed=1)
            if entering:
                meter.start()
            async with sampler:
                if entering:
                    meter.took(shards.records, shards.records * shards.size)
                    meter.stop()
                    return
                meter.start()
                async for records in sampler:
                    meter.batch(records)
                    if meter.records >= SMALL:
                        break
                meter.stop()

    return read


def class_of(record: bytes) -> int:
    return record[0] % 32


async def ours_small(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage, asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset:
        await dataset.get(0)

        async def record(number: int) -> None:
            meter.batch([await dataset.get(number)])

        meter.start()
        await at_once(TASKS, [partial(record, number) for number in chosen(shards)])
        meter.stop()


def chosen(shards: Shards) -> list[int]:
    source = random.Random(1)
    return [source.randrange(shards.records) for _ in range(SMALL)]


# The report -----------------------------------------------------------------------------------------------------------

EPOCH, SMALL_READS = "aiobotocore, 16 long GETs", "aiobotocore, 64 small GETs"
# By name; and what each is compared with.
READERS: dict[str, tuple[Reader, str]] = {
    EPOCH: (aiobotocore(AT_ONCE), EPOCH),
    "aiobotocore, one at a time": (aiobotocore(1), EPOCH),
    "obstore, 16 streams": (obstore, EPOCH),
    "open_reader, 16": (open_reader, EPOCH),
    "interleave": (interleave, EPOCH),
    "InterleaveSampler": (interleave_sampler, EPOCH),
    "shuffled": (shuffled, EPOCH),
    "ClassBalancedSampler, entering": (balanced(entering=True), EPOCH),
    SMALL_READS: (aiobotocore_small, SMALL_READS),
    "Dataset.get, 64": (ours_small, SMALL_READS),
    "ClassBalancedSampler, 4,096": (balanced(entering=False), SMALL_READS),
}
OTHERS = ("aiobotocore", "obstore")


def write(folder: Path, name: str, size: int, compressed: bool, mib: int) -> Shards:
    """A data set of ``mib`` MiB in records of ``size`` bytes that deflate to half, in shards of 16 MiB."""
    import asyncrec

    source = random.Random(size)
    # Hexadecimal digits, which have four bits in a byte.
    records = [source.randbytes(size // 2).hex().encode() for _ in range(max(64, MIB // size))]
    shards, each = mib * MIB // SHARD, SHARD // (size + FRAME)

    async def write() -> None:
        async with asyncrec.open_sharded_writer(
            folder / name / "pages", max_shard_records=each, compression="GZIP" if compressed else "",
            flush_seconds=None, status_seconds=None,
        ) as writer:  # fmt: skip
            for number in range(shards):
                await writer.write_many([records[(number + index) % len(records)] for index in range(each)])

    asyncio.run(write())
    keys = sorted(f"{name}/{path.name}" for path in (folder / name).glob("pages-*.tfrecord*"))
    assert len(keys) == shards, keys
    return Shards(name, keys, size, compressed, each * shards, sum((folder / key).stat().st_size for key in keys))


def measure(reader: str, shards: Shards, small: Shards) -> dict[str, Any]:
    """In a process of its own, which has read the ``small`` ones before."""
    given = json.dumps([asdict(shards), asdict(small)])
    command = [sys.executable, __file__, "--measure", reader]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        return {"failed": done.stderr.strip()[-2000:]}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(reader: str) -> int:
    """The second time that the process reads: what it imports and makes once is not timed."""
    shards, small = (Shards(**given) for given in json.load(sys.stdin))
    asyncio.run(READERS[reader][0](small, Meter()))
    meter = Meter()
    asyncio.run(READERS[reader][0](shards, meter))
    assert "seconds" in meter.figures, "the reader did not come to its end"
    print(json.dumps(meter.figures))
    return 0


def median(found: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(figures[name] for figures in found))


def row(reader: str, shards: Shards, found: list[dict[str, Any]], base: list[dict[str, Any]]) -> str:
    if failed := next((figures["failed"] for figures in found if "failed" in figures), None):
        return f"  {reader:32} FAILED: {failed}"
    seconds, cpu = median(found, "seconds"), median(found, "cpu")
    wall, times = ratios(found, base) if base else (0.0, 0.0)
    last = found[-1]
    asked = ", ".join(f"{count:,} {kind}" for kind, count in sorted(last["requests"].items()))
    return (
        f"  {reader:32} {seconds:7.2f} {wall:6.2f} {cpu:7.2f} {times:6.2f} {median(found, 'peak') / MIB:8.0f}"
        f" {last['connections']:6} {median(found, 'first') * 1e3:8.0f} {last['depth']:6}   {asked}"
    )


def ratios(found: list[dict[str, Any]], base: list[dict[str, Any]]) -> tuple[float, float]:
    """The other's clock over ours, and our processor time over its; round by round, as they saw one machine."""
    pairs = list(zip(found, base, strict=False))
    return (
        statistics.median(other["seconds"] / ours["seconds"] for ours, other in pairs),
        statistics.median(ours["cpu"] / other["cpu"] for ours, other in pairs),
    )


def verdicts(
    reader: str, shards: Shards, found: list[dict[str, Any]], base: list[dict[str, Any]]
) -> list[tuple[bool, str]]:
    wall, times = ratios(found, base)
    said = [
        (wall >= CLOCK, f"{wall:.2f} of {READERS[reader][1]} by the clock (wanted {CLOCK})"),
        (times <= CPU, f"{times:.2f} times its processor time (wanted {CPU:g})"),
    ]
    if READERS[reader][1] == EPOCH:
        asked = sum(found[-1]["requests"].values())
        most, a_unit, unit = (A_MIB * shards.bytes / MIB, A_MIB, "MiB") if reader == "shuffled" else (
            A_SHARD * len(shards.keys), A_SHARD, "shard"
        )  # fmt: skip
        said.append((asked <= most, f"{asked * a_unit / most:.2f} requests a {unit} (wanted {a_unit:g})"))
        said.append((found[-1]["depth"] <= FIRST, f"{found[-1]['depth']} requests before the first batch ({FIRST})"))
    return said


def main() -> int:
    parser = argparse.ArgumentParser(prog="epoch", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of the data set (%(default)s)")
    parser.add_argument("--records", type=int, choices=(4, 100), action="append", help="KB; both")
    parser.add_argument("--plain", action="store_true", help="without the GZIP shards")
    parser.add_argument("--gzip", action="store_true", help="without the plain shards")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="readers whose name holds TEXT, and what they are compared with"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--folder", metavar="PATH", help="put the files there; else on a tmpfs where there is one")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measured(options.measure)
    picked = [name for name in READERS if any(text in name for text in options.only or [""])]
    if not importlib.util.find_spec("obstore"):
        print("obstore is not installed, and left out")
        picked = [name for name in picked if "obstore" not in name]
    picked = [name for name in READERS if name in picked or name in {READERS[each][1] for each in picked}]

    folder, place = work_folder(options.folder)
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, files in {place}"
    )
    print(f"a store that answers {options.delay_ms:g} ms after a request; {options.rounds} rounds, medians")
    told: list[tuple[bool, str]] = []
    figures: list[dict[str, Any]] = []
    failed = False
    try:
        for size in options.records or (4, 100):
            for compressed in (False, True):
                if (options.plain and compressed) or (options.gzip and not compressed):
                    continue
                what = f"{size} KB, {'GZIP' if compressed else 'plain'}"
                shards = write(folder, f"of-{size}-{'gzip' if compressed else 'plain'}", size * 1000, compressed,
                               options.size)  # fmt: skip
                small = write(folder, f"warm-up-of-{shards.folder}", size * 1000, compressed, 2 * SHARD // MIB)
                of_case = [name for name in picked if not compressed or READERS[name][1] == EPOCH]
                found: dict[str, list[dict[str, Any]]] = {name: [] for name in of_case}
                for _ in range(options.rounds):
                    for name in of_case:
                        with folder_s3(folder, options.delay_ms / 1000) as url:
                            os.environ |= {ENDPOINT: url, "NO_PROXY": "127.0.0.1"}
                            found[name].append(measure(name, shards, small))
                print(
                    f"\n{shards.records:,} records of {what}, {shards.bytes / MIB:,.0f} MiB, {len(shards.keys)} shards"
                    f"\n  {'':32} {'s':>7} {'ratio':>6} {'CPU s':>7} {'times':>6} {'peak MiB':>8} {'conn.':>6}"
                    f" {'first ms':>8} {'behind':>6}   requests"
                )
                for name, each in found.items():
                    base = found[READERS[name][1]]
                    base = [] if any("failed" in one for one in base) else base
                    print(row(name, shards, each, base), flush=True)
                    broken = any("failed" in one for one in each)
                    ours_failed = broken and not name.startswith(OTHERS)
                    failed |= ours_failed
                    if not broken and base and not name.startswith(OTHERS):
                        told += [(met, f"{what}: {name}: {text}") for met, text in verdicts(name, shards, each, base)]
                    figures.append({"case": what, "reader": name, "rounds": each})
                shutil.rmtree(folder / shards.folder)
                shutil.rmtree(folder / small.folder)
    finally:
        shutil.rmtree(folder)
    for met, heading in ((True, "met"), (False, "MISSED")):
        if some := [text for reached, text in told if reached is met]:
            print(f"\n{heading}:", *some, sep="\n  ")
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1), "utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
