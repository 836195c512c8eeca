"""``make bench ARGS="--only epoch"``: one epoch from a remote store, compared with as many long GETs by aiobotocore.

The store (`folder_s3`) is a separate process that responds to each request after 20 ms, by `sendfile` from a tmpfs, so
that only the reader is measured. There are 64 shards of 16 MiB, with records of 4 or of 100 KB, plain and GZIP. Readers
take turns; each has its own process for each round, which has read two shards before. The clock starts when the client
is open and has sent one request. Besides time, the benchmark shows the processor time of the reading process including
its threads; the growth of its peak memory; requests by kind; concurrent connections; and when the first batch arrived,
in seconds and in sequential requests (each begun after another ended).

    make bench ARGS="--only epoch"
    make bench ARGS="--only epoch --size 256 --records 4 --plain --rounds 1 --only interleave"    some seconds

Readers are compared with "aiobotocore, 16": a GET for each shard, 16 at a time, and GZIP shards are also inflated.
Single random records are compared with aiobotocore's GETs of such records, 64 at a time, and so is
ClassBalancedSampler. "bare sockets, records" does only what any reader of records must do, and shows the limit of a
single thread. Libraries that stream training data have rows if they are installed: `epoch_peers`.

The exit status is 0 whether or not targets are met: a benchmark on a busy machine is not a test.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bare_sockets
import epoch_peers
from bare_sockets import BARE
from epoch_readers import EPOCH, FRAME, Meter, Shards
from epoch_readers import READERS as OF_CLIENTS
from folder_s3 import folder_s3
from harness import MIB, work_folder
from wire import ENDPOINT

SHARD = 16 * MIB
# The targets: aiobotocore's time over ours, our processor time over its own, requests per MiB and per shard, and
# sequential requests before the first batch.
CLOCK, CPU, A_MIB, A_SHARD, FIRST = 0.9, 2.0, 0.4, 3.0, 5
READERS = bare_sockets.READERS | OF_CLIENTS | epoch_peers.READERS
OTHERS = ("aiobotocore", "obstore", BARE, *epoch_peers.READERS)


def write(folder: Path, name: str, size: int, compressed: bool, mib: int) -> Shards:
    """Write ``mib`` MiB in records of ``size`` bytes that deflate to half of that, in shards of 16 MiB."""
    import asyncrec

    source = random.Random(size)
    # Each hexadecimal digit takes a byte but has only four bits of information, so the text can be compressed.
    records = [source.randbytes(size // 2).hex().encode() for _ in range(max(64, MIB // size))]
    shards, each = mib * MIB // SHARD, SHARD // (size + FRAME)

    async def write() -> None:
        async with asyncrec.open_sharded_writer(
            folder / name / "pages", max_shard_records=each, compression="GZIP" if compressed else "",
            flush_seconds=None,
        ) as writer:  # fmt: skip
            for number in range(shards):
                await writer.write_many([records[(number + index) % len(records)] for index in range(each)])

    asyncio.run(write())
    keys = sorted(f"{name}/{path.name}" for path in (folder / name).glob("pages-*.tfrecord*"))
    assert len(keys) == shards, keys
    return Shards(name, keys, size, compressed, each * shards, sum((folder / key).stat().st_size for key in keys))


def measure(reader: str, shards: Shards, small: Shards) -> dict[str, Any]:
    """Measure in a separate process that has read the ``small`` data set before."""
    given = json.dumps([asdict(shards), asdict(small)])
    command = [sys.executable, __file__, "--measure", reader]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        return {"failed": done.stderr.strip()[-2000:]}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(reader: str) -> int:
    """Read twice and measure the second time, so that imports and other one-time work are not timed."""
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
    """Return the other's time over ours, and our processor time over its own, compared within each round."""
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
    peers = [name for name in epoch_peers.installed() if name in picked]
    picked = [name for name in picked if name not in epoch_peers.PEERS or name in peers]
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
                if not compressed:
                    for each in (shards, small):
                        epoch_peers.write_for(peers, folder, each)
                of_case = [
                    name
                    for name in picked
                    if not compressed or (READERS[name][1] == EPOCH and name not in (BARE, *peers))
                ]
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
                for left in folder.iterdir():
                    shutil.rmtree(left)
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
