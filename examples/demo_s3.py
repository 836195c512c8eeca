"""The demo with S3: crawls into a store that this program starts, then crawls again to show how a crawl continues.

    python examples/demo_s3.py                   # needs no network and no account
    python examples/demo_s3.py --pages 200

The store runs in memory on this machine, and disappears afterwards. To use your own store, set its endpoint and
credentials in the environment, and run ``python examples/crawl_site.py --to s3://bucket/folder/pages``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from crawling.local_s3 import running_s3

CRAWL_SITE = Path(__file__).parent / "crawl_site.py"
DATASET = "s3://crawl/python/pages"
MORE = ["--pages", "500"]  # the second run


def main(arguments: Sequence[str]) -> int:
    with running_s3("crawl") as environment:
        print(f"The store is at {environment['AWS_ENDPOINT_URL_S3']} and has a bucket for {DATASET}.\n", flush=True)
        code = crawl(arguments, environment)
        if code == 0:
            print("Once more: stored pages are not fetched again.\n", flush=True)
            code = crawl([*arguments, *MORE], environment)
    return code


def crawl(arguments: Sequence[str], environment: dict[str, str]) -> int:
    command = [sys.executable, str(CRAWL_SITE), "--to", DATASET, *arguments]
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the crawler gets it too and ends cleanly; the store must run until then
                continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
