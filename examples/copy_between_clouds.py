"""Copy a data set, a file or a folder from one store to another, and read the copy back.

    python examples/copy_between_clouds.py s3://crawl/2026/pages gs://archive/2026/pages
    python examples/copy_between_clouds.py s3://crawl/pages s3://crawl/pages --target-endpoint https://minio.local:9000
    python examples/copy_between_clouds.py demo-data/pages s3://crawl/pages

The bytes are copied unchanged, a few MiB at a time, and nothing is stored on this machine. The shards are copied first,
each with its index and keys, and the manifest last: if the copy is interrupted, the data set does not exist yet, and
the same command resumes the copy. Each object is compared with the checksum in the manifest while it is sent. Reading
the copy back then finds damage that happened in the store. The SDK of each store finds its configuration (for two S3
stores, use two profiles).

The commands ``asyncrec copy`` and ``asyncrec verify`` do the same. Their functions are in `asyncrec.tools`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import anyio

import asyncrec
import asyncrec.tools


async def copy(options: argparse.Namespace) -> int:
    here = s3_options(options.source_endpoint, options.source_profile)
    there = s3_options(options.target_endpoint, options.target_profile)
    report = await asyncrec.tools.copy(
        options.source,
        options.target,
        storage_options=here,
        target_storage_options=there,
        progress=show if sys.stderr.isatty() else lambda done, total: None,
    )
    print(f"{len(report.copied):,} objects copied, {report.bytes:,} bytes; {len(report.kept):,} existed already")
    found = await asyncrec.tools.verify(options.target, storage_options=there)
    for shard in found.shards:
        for problem in shard.problems:
            print(f"{shard.path}: {problem.message}", file=sys.stderr)
    print(f"{options.target}: {found.records:,} records in {len(found.shards):,} shards, read back")
    return 0 if found.ok else 1


def s3_options(endpoint: str | None, profile: str | None) -> dict[str, str]:
    """The options given on the command line. The SDK determines the others."""
    given = {"endpoint_url": endpoint, "profile": profile}
    return {name: value for name, value in given.items() if value is not None}


def show(done: int, total: int | None) -> None:
    """Show the progress on a terminal."""
    of = f" of {total:,}" if total else ""
    print(f"\r{done:,}{of} bytes", end="\n" if done == total else "", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 copied and read back, 1 a store failed or the copy is damaged, 2 wrong usage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", metavar="FROM", help="a data set (folder and name), a file, a folder or a pattern")
    parser.add_argument("target", metavar="TO")
    for side in ("source", "target"):
        parser.add_argument(f"--{side}-endpoint", metavar="URL", help="the endpoint of an S3 store outside AWS")
        parser.add_argument(f"--{side}-profile", metavar="NAME", help="a profile in the AWS configuration")
    options = parser.parse_args(arguments)
    try:
        return anyio.run(copy, options)
    except (asyncrec.AsyncRecError, ValueError, OSError) as error:
        print(f"copy_between_clouds: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
