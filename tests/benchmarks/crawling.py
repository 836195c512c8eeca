"""The cost of a crawler's conveniences: dicts instead of Examples, and ``flush_seconds`` instead of no flushes.

Pages of the schema `asyncrec.pages.PAGE` are written one by one under their URLs. Time by the clock counts; processor
time is shown as well, for busy machines. ``python tests/benchmarks/crawling.py`` prints both for each turn. To judge
``flush_seconds``, ``--folder`` has to be on a disk, because an fsync in memory costs nothing.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from harness import Case, Extras, Job, Target, case_options, run_case, work_folder
from heartbeat import Heartbeat
from records import records

DICTS, FLUSHES = "pages as dicts", "pages under GZIP, flush_seconds"

Main = Callable[[Path], Awaitable[None]]


def page_dicts(case: Case) -> list[dict[str, Any]]:
    """Return pages as `pages.from_aiohttp` makes them, with bodies that are as compressible as real ones."""
    from asyncrec import pages

    headers = b"Content-Type: text/html; charset=utf-8\nServer: nginx\nDate: Sun, 22 Nov 2026 07:45:00 GMT"
    return [
        pages.page(
            f"https://example.org/{number:09}/{random.Random(number).getrandbits(64):x}.html",
            body,
            status=200,
            reason="OK",
            protocol="HTTP/1.1",
            headers=headers,
            request_headers=b"Accept: */*\nUser-Agent: crawler",
            elapsed=0.25,
        )
        for number, body in enumerate(records(case))
    ]


def timed(make: Callable[[Case], Main], *, watched: bool = False) -> Callable[[Case], Job]:
    """Return a contender with processor time as its extra figure."""

    def maker(case: Case) -> Job:
        main = make(case)

        async def run(path: Path) -> Extras:
            begun = time.process_time()
            if not watched:
                await main(path)
                return {"cpu": time.process_time() - begun}
            async with Heartbeat() as heartbeat:
                await main(path)
            return heartbeat.figures()

        return lambda path: anyio.run(run, path)

    return maker


def writing(*, dicts: bool = True, **options: Any) -> Callable[[Case], Main]:
    def make(case: Case) -> Main:
        import asyncrec
        from asyncrec import pages

        rows = page_dicts(case)
        schema = pages.PAGE if dicts else None

        async def main(path: Path) -> None:
            async with asyncrec.open_sharded_writer(path / "pages", schema=schema, **options) as writer:
                for row in rows:
                    await writer.write(row if dicts else asyncrec.encode_example(row), key=row["url"])

        return main

    return make


_DICTS, _APART = "asyncrec dicts", "asyncrec encode_example, write"
# Twice as often as by default, so that it is noticeable in a run of one second.
_OFTEN, _NEVER = "asyncrec flush_seconds=0.5", "asyncrec flush_seconds=None"

CASES = [
    Case(
        name=DICTS,
        count=100_000,
        size=4096,
        contenders={
            _DICTS: timed(writing(flush_seconds=None)),
            _APART: timed(writing(dicts=False, flush_seconds=None)),
        },
        note="22 features, of which the body has 4 KiB",
    ),
    Case(
        name=FLUSHES,
        count=15_000,
        size=16_384,
        contenders={
            _OFTEN: timed(writing(compression="GZIP", flush_seconds=0.5)),
            _NEVER: timed(writing(compression="GZIP", flush_seconds=None)),
            f"{_OFTEN} + heartbeat": timed(writing(compression="GZIP", flush_seconds=0.5), watched=True),
            f"{_NEVER} + heartbeat": timed(writing(compression="GZIP", flush_seconds=None), watched=True),
        },
        rounds=13,
        note="16 KiB a page",
    ),
]
TARGETS = [Target(DICTS, _DICTS, _APART, 1 / 1.4), Target(FLUSHES, _OFTEN, _NEVER, 0.97)]


def main() -> None:
    arguments = case_options(__doc__)
    folder, place = work_folder(arguments.folder)
    print(f"files in {place}")
    try:
        for case, target in zip(CASES, TARGETS, strict=True):
            if arguments.only not in case.name:
                continue
            results = run_case(Path(__file__).stem, case, folder=folder, rounds=arguments.rounds, shrink=1)
            for result in results:
                held = [result.extra(name) for name in ("held_p99", "held_max")]
                loop = (
                    ""
                    if held[0] is None
                    else "  held {:.1f} ms at p99, {:.1f} at worst".format(*(h * 1e3 for h in held))
                )
                print(f"{result.contender:44} {result.failed or f'{result.median / case.count * 1e6:8.1f} us'}{loop}")
            ours, other = (next(r for r in results if r.contender == name) for name in (target.ours, target.other))
            clock = [a / b for a, b in zip(ours.seconds, other.seconds, strict=True)]
            cpu = [a["cpu"] / b["cpu"] for a, b in zip(ours.extras, other.extras, strict=True)]
            for what, ratios in (("clock", clock), ("processor", cpu)):
                each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
                print(f"{case.name}: {what} {statistics.median(ratios):.3f} times ({each})", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
