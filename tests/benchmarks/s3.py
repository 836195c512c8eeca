"""``make bench-s3``: the S3 plugin against plain aiobotocore and obstore, on a store that does no work.

The store is a process of its own (`null_s3`), each contender another; they take turns, round by round, so that the
ratios hold on a machine that is not quite idle. Both the time by the clock and the processor time of the client's
process (its threads included) are compared: by the clock a contender with threads may hide behind a second core what it
costs. The client is open and has sent one request before the clock starts.

    make bench-s3
    make bench-s3 ARGS="--size 64 --rounds 3"     MiB a round: a first look

Exit status 0 whether or not targets are met: a benchmark on a busy machine is no test. 1 when asyncrec itself fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import MIB, Case, Extras, Job, Result, Target, run_case, work_folder
from heartbeat import Heartbeat
from null_s3 import null_s3

PART = 8 * MIB  # the plugin's own; everybody uses it
AT_ONCE = 4  # parts on their way, likewise
RECORD = 64 * 1024 - 16  # with its frame 64 KiB, so that a tile of 16 MiB holds whole records
TILE = 256  # records
OURS = "asyncrec"
ENDPOINT, SIZE = "ASYNCREC_BENCH_S3", "ASYNCREC_BENCH_S3_MIB"
CREDENTIALS = {"aws_access_key_id": "AKIABENCHMARK", "aws_secret_access_key": "of-a-store-that-checks-nothing"}


def endpoint() -> str:
    return os.environ[ENDPOINT]


@cache
def source() -> memoryview:
    """What uploads send: bytes that somebody else owns, so that whoever sends later has to copy them."""
    return memoryview(os.urandom(PART))


class Stopwatch:
    """``with``: seconds by the clock, and of the processor, all threads of this process together."""

    def __enter__(self) -> Stopwatch:
        self.cpu = time.process_time()
        self.wall = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.wall = time.perf_counter() - self.wall
        self.cpu = time.process_time() - self.cpu


Work = Callable[[Case, Any], Awaitable[None]]


def job(opened: Callable[[], AbstractAsyncContextManager[Any]], work: Work) -> Callable[[Case], Job]:
    """A contender: its client is opened and used once, then the work is timed, on an event loop of the round's own."""

    def maker(case: Case) -> Job:
        async def run() -> Extras:
            async with opened() as client:
                await work(replace(case, count=2 * PART // MIB), client)
                async with Heartbeat() as heartbeat:
                    with Stopwatch() as watch:
                        await work(case, client)
            return {"seconds": watch.wall, "cpu": watch.cpu, **heartbeat.figures()}

        return lambda _: asyncio.run(run())

    return maker


# asyncrec ---------------------------------------------------------------------------------------------------------


def storage() -> AbstractAsyncContextManager[Any]:
    import asyncrec

    return asyncrec.open_storage(
        "s3://bench", endpoint_url=endpoint(), region="us-east-1", chunk_size=PART, max_concurrency=AT_ONCE,
        **CREDENTIALS,
    )  # fmt: skip


async def ours_sends(case: Case, storage: Any) -> None:
    data = source()
    async with storage.open_sink("sent") as sink:
        for size in chunks(case.count * MIB):
            await sink.send([data[:size]])


async def ours_writes(case: Case, storage: Any) -> None:
    import asyncrec

    records = [source()[:RECORD]] * (TILE // 16)
    async with asyncrec.open_writer("written", storage=storage) as writer:
        for _ in range(case.count):
            await writer.write_many(records)


async def ours_receives(case: Case, storage: Any) -> None:
    from asyncrec.storage._chunk_writer import ResumingSource

    size = 0
    async with ResumingSource(storage, f"give-{case.count * MIB}") as given:
        while block := await given.receive(MIB):
            size += len(block)
    assert size == case.count * MIB


async def ours_reads(case: Case, storage: Any) -> None:
    import asyncrec

    found = 0
    async with asyncrec.open_reader(f"give-{case.count * MIB}", storage=storage) as reader:
        async for records in reader.batches():
            found += len(records)
    assert found == case.count * TILE // 16


# aiobotocore, as one writes it by hand ----------------------------------------------------------------------------


@asynccontextmanager
async def plain(**config: Any) -> Any:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    async with get_session().create_client(
        "s3", endpoint_url=endpoint(), region_name="us-east-1", config=AioConfig(**config), **CREDENTIALS
    ) as client:
        yield client


def bare() -> AbstractAsyncContextManager[Any]:
    """Without any checksum, and with an unsigned payload: the least that the library can do."""
    return plain(request_checksum_calculation="when_required", s3={"payload_signing_enabled": False})


async def plain_sends(case: Case, client: Any) -> None:
    data = source()
    target = {"Bucket": "bench", "Key": "sent"}
    upload = target | {"UploadId": (await client.create_multipart_upload(**target))["UploadId"]}
    parts: list[dict[str, Any]] = []
    room = asyncio.Semaphore(AT_ONCE)

    async def send(number: int, body: bytes) -> None:
        answer = await client.upload_part(**upload, PartNumber=number, Body=body)
        sums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        parts.append({"PartNumber": number, "ETag": answer["ETag"], **sums})
        room.release()

    async with asyncio.TaskGroup() as tasks:
        for number, size in enumerate(chunks(case.count * MIB), 1):
            await room.acquire()
            tasks.create_task(send(number, bytes(data[:size])))
    parts.sort(key=lambda part: int(part["PartNumber"]))
    await client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


async def plain_receives(case: Case, client: Any) -> None:
    answer = await client.get_object(Bucket="bench", Key=f"give-{case.count * MIB}")
    size = 0
    async with answer["Body"] as body:
        while block := await body.read(MIB):
            size += len(block)
    assert size == case.count * MIB


async def plain_receives_ranges(case: Case, client: Any) -> None:
    """As ours: one range after the other, the next on its way while one is worked on."""
    total, size = case.count * MIB, 0

    async def fetch(start: int) -> bytes:
        wanted = f"bytes={start}-{min(total, start + PART) - 1}"
        answer = await client.get_object(Bucket="bench", Key=f"give-{total}", Range=wanted)
        async with answer["Body"] as body:
            data: bytes = await body.read()
            return data

    coming = asyncio.create_task(fetch(0))
    for start in range(PART, total + PART, PART):
        data = await coming
        if start < total:
            coming = asyncio.create_task(fetch(start))
        size += len(data)
    assert size == total


# obstore ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def rust() -> Any:
    from obstore.store import S3Store

    yield S3Store(
        "bench",
        endpoint=endpoint(),
        region="us-east-1",
        access_key_id=CREDENTIALS["aws_access_key_id"],
        secret_access_key=CREDENTIALS["aws_secret_access_key"],
        client_options={"allow_http": True},
    )


async def rust_sends(case: Case, store: Any) -> None:
    import obstore

    data = source()
    async with obstore.open_writer_async(store, "sent", buffer_size=PART, max_concurrency=AT_ONCE) as writer:
        for size in chunks(case.count * MIB):
            await writer.write(data[:size])


async def rust_receives(case: Case, store: Any) -> None:
    import obstore

    answer = await obstore.get_async(store, f"give-{case.count * MIB}")
    size = 0
    async for block in answer.stream(min_chunk_size=MIB):
        size += len(block)
    assert size == case.count * MIB


def chunks(total: int) -> Iterator[int]:
    for start in range(0, total, PART):
        yield min(PART, total - start)


# Each process of a contender makes the cases anew: what the command line says reaches them by the environment.
COUNT = int(os.environ.get(SIZE, "512"))
CASES = [
    Case(
        "upload",
        count=COUNT,
        size=MIB,
        rounds=7,
        note="parts of 8 MiB, 4 at a time; MD5 or CRC32C of each where said",
        contenders={
            "asyncrec": job(storage, ours_sends),
            "aiobotocore": job(plain, plain_sends),
            "aiobotocore, no checksums": job(bare, plain_sends),
            "obstore": job(rust, rust_sends),
            "asyncrec, records of 64 KiB": job(storage, ours_writes),
        },
    ),
    Case(
        "download",
        count=COUNT,
        size=MIB,
        rounds=7,
        note="one object, in its order",
        contenders={
            "asyncrec": job(storage, ours_receives),
            "aiobotocore": job(plain, plain_receives),
            "aiobotocore, ranges of 8 MiB": job(plain, plain_receives_ranges),
            "obstore": job(rust, rust_receives),
            "asyncrec, records of 64 KiB, checked": job(storage, ours_reads),
        },
    ),
]
TARGETS = [
    Target("upload", OURS, "aiobotocore", 1.0),
    Target("upload", OURS, "aiobotocore, no checksums", 1.0),
    Target("upload", OURS, "obstore", 0.9),
    Target("download", OURS, "aiobotocore", 0.9),
    Target("download", OURS, "aiobotocore, ranges of 8 MiB", 0.9),
]


def table(case: Case, results: list[Result]) -> str:
    base = results[0]
    lines = [
        f"\n{case.name} of {case.count:,} MiB ({case.note})",
        f"  {'':38} {'MB/s':>7} {'x ours':>7} {'spread':>7}   {'CPU ms/MiB':>10} {'x ours':>7}   "
        f"{'peak MiB':>8}   held p99 / max",
    ]
    for result in results:
        if result.failed:
            lines.append(f"  {result.contender:38} FAILED: {result.failed}")
            continue
        spread = (max(result.seconds) - min(result.seconds)) / result.median
        cpu = cpu_of(result)
        row = f"  {result.contender:38} {result.count * result.size / result.median / 1e6:7,.0f}"
        row += f" {result.median / base.median:7.2f}" if not base.failed else f" {'':7}"
        row += f" {spread:7.0%}   {cpu / result.count * 1e3:10.2f}"
        row += f" {cpu / cpu_of(base):7.2f}" if not base.failed else f" {'':7}"
        p99, worst = result.extra("held_p99"), result.extra("held_max")
        row += f"   {max(result.peak_bytes) / MIB:8.1f}"
        lines.append(row + (f"   {p99 * 1e3:.1f} / {worst * 1e3:.1f} ms" if p99 is not None and worst else ""))
    return "\n".join(lines)


def cpu_of(result: Result) -> float:
    return statistics.median(extras["cpu"] for extras in result.extras)


def verdict(target: Target, ours: Result, other: Result) -> tuple[bool, str]:
    wall = statistics.median(b / a for a, b in zip(ours.seconds, other.seconds, strict=True))
    cpu = statistics.median(b["cpu"] / a["cpu"] for a, b in zip(ours.extras, other.extras, strict=True))
    met = wall >= target.times and cpu >= target.times
    return met, (
        f"{target.case}: {target.ours} {wall:.2f} times as fast as {target.other} by the clock, {cpu:.2f} times by"
        f" processor time (wanted {target.times})"
    )


@contextmanager
def environment(**values: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=512, metavar="MIB", help="of an object (%(default)s)")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--contender", default="", metavar="TEXT", help="and contenders whose name holds TEXT")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(", ".join(f"{name} {version(name)}" for name in ("asyncrec", "aiobotocore", "aiohttp", "obstore")))
    results: dict[tuple[str, str], Result] = {}
    folder, _ = work_folder()
    try:
        tile = folder / "tile"
        make_tile(tile)
        with null_s3(tile) as url, environment(**{ENDPOINT: url, SIZE: str(options.size), "NO_PROXY": "127.0.0.1"}):
            for case in CASES:
                if options.only not in case.name:
                    continue
                chosen = {name: maker for name, maker in case.contenders.items() if options.contender in name}
                sized = replace(case, count=options.size, contenders=chosen)
                done = run_case("s3", sized, folder=folder, rounds=options.rounds, shrink=1)
                results.update({(case.name, result.contender): result for result in done})
                print(table(sized, done), flush=True)
    finally:
        shutil.rmtree(folder)
    said = []
    for target in TARGETS:
        ours, other = (results.get((target.case, name)) for name in (target.ours, target.other))
        if ours and other and not ours.failed and not other.failed:
            said.append(verdict(target, ours, other))
    for met, heading in ((True, "met"), (False, "MISSED")):
        if some := [text for reached, text in said if reached is met]:
            print(f"\n{heading}:", *some, sep="\n  ")
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    return int(any(result.failed and result.contender.startswith(OURS) for result in results.values()))


def make_tile(path: Path) -> None:
    import asyncrec.blocking

    asyncrec.blocking.write_records(str(path), [os.urandom(RECORD) for _ in range(TILE)])


if __name__ == "__main__":
    sys.exit(main())
