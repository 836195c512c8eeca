"""Calculate and check the requests and the cost of a crawl of many processes into one data set.

    make scale                                         the cost of the default crawl, and of alternatives
    make scale ARGS="--shard-seconds 600"              a different crawl: each field of `paper.Crawl` is an option

`docs/scale.md` shows its output. It is next to the tests because it uses private names, and because a test compares it
with real writers.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields, replace

from . import flushes
from .paper import CAUSES, MIB, Crawl, Prices, Requests, is_write, opening, the_day

# The requests per second that S3 promises to serve for one prefix.
WRITES, READS = 3500, 5500


def _table(*rows: list[str]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def costs(crawl: Crawl, prices: Prices) -> str:
    """Return a table of the requests of each part of a crawl, and their cost."""
    day = the_day(crawl)
    millions = day.records / 1e6
    rows = [["cause", "writes", "reads", "lists", "$", "$ per million records"]]
    for cause in (*CAUSES, "all"):
        requests = day.total if cause == "all" else day.requests[cause]
        writes = sum(count for kind, count in requests.items() if is_write(kind))
        lists = requests["ListObjectsV2"]
        dollars = prices.of(requests)
        reads = requests.total() - writes - lists
        rows.append([cause, f"{writes:,}", f"{reads:,}", f"{lists:,}", f"{dollars:.2f}", f"{dollars / millions:.4f}"])
    return _table(*rows)


def summary(crawl: Crawl, prices: Prices) -> str:
    """Describe a crawl in a few lines."""
    day = the_day(crawl)
    return (
        f"{crawl.writers:,} writers, {crawl.hours:g} hours, {crawl.rate:g} records a second each: "
        f"{day.records:,} records, {day.bytes / 1e12:.2f} TB, {day.shards:,} shards of up to "
        f"{crawl.records_a_shard:,} records.\n"
        f"A writer commits every {crawl.commit_seconds / 60:.1f} minutes, all of them "
        f"{crawl.writers / crawl.commit_seconds:.2f} times a second.\n"
        f"Requests a second on average: {day.total.total() / crawl.seconds:.0f}. Stored for a month: "
        f"${day.bytes / 1e9 * prices.gigabyte_month:,.0f}.\n"
        f"The manifest at the end: {day.end.listed:,} objects, a checkpoint of {day.end.checkpoint / 1e6:.1f} MB; "
        f"opening it takes {opening(day.end).total():,} requests. The most that a writer read as it began: "
        f"{day.most_segments:,} segments."
    )


CHOICES = {
    "as it comes": {},
    "no compaction": {"compact_seconds": 0.0},
    "shards of 64 MiB": {"shard_bytes": 64 * MIB},
    "shards of 1 GiB": {"shard_bytes": 1024 * MIB},
    "a commit every 10 minutes": {"shard_seconds": 600.0},
    "a commit every minute": {"shard_seconds": 60.0},
    "no restarts": {"restarts": 0},
}


def choices(crawl: Crawl, prices: Prices) -> str:
    """Return a table of the same crawl with other options."""
    rows = [["", "shards", "a commit every", "requests", "$ a day", "$ per million records", "segments read to begin"]]
    return _table(*rows, *(choice(what, crawl, prices) for what in CHOICES))


def choice(what: str, crawl: Crawl, prices: Prices) -> list[str]:
    """Return a row of `choices`."""
    other = replace(crawl, **CHOICES[what])
    day = the_day(other)
    dollars = prices.of(day.total)
    return [
        what,
        f"{day.shards:,}",
        f"{other.commit_seconds / 60:.1f} min",
        f"{day.total.total() / 1e6:.2f} M",
        f"{dollars * 24 / other.hours:.2f}",
        f"{dollars / day.records * 1e6:.3f}",
        f"{day.most_segments:,}",
    ]


def restart_of_all(crawl: Crawl) -> str:
    """Return a table of the requests if all writers restart at once, and S3's shortest possible time to serve them."""
    rows = [["segments in no checkpoint", "requests of one writer", "of all", "the least time"]]
    for segments in (0, 100, 1000, 10_000, 100_000):
        one = Requests(PutObject=1, ListObjectsV2=max(1, math.ceil(segments / 1000)), GetObject=1)
        one += Requests(GetObject=segments)
        reads = crawl.writers * (one.total() - 1)
        seconds = max(crawl.writers / WRITES, reads / READS)
        least = f"{seconds:.0f} s" if seconds < 300 else f"{seconds / 60:,.0f} min"
        rows.append([f"{segments:,}", f"{one.total():,}", f"{crawl.writers * one.total():,}", least])
    return _table(*rows)


def flushing(prices: Prices) -> str:
    """Return a table of the measured requests for flushes of a writer without a disk, the same for every crawl."""
    return _table(flushes.HEAD, *(flushes.flushing(*case, prices) for case in flushes.CASES))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__.partition("\n")[0])
    for field in [*fields(Crawl), *fields(Prices)]:
        kind = float if isinstance(field.default, float) else int
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    args = vars(parser.parse_args())
    crawl = Crawl(**{field.name: args[field.name] for field in fields(Crawl)})
    prices = Prices(**{field.name: args[field.name] for field in fields(Prices)})
    print(summary(crawl, prices), costs(crawl, prices), choices(crawl, prices), restart_of_all(crawl), sep="\n\n")
    print(f"\n{flushing(prices)}")


if __name__ == "__main__":
    main()
