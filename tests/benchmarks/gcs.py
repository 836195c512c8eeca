"""``make bench ARGS="--only gcs"``: the GCS plugin compared with gcloud-aio-storage, on an idle store (see `wire`).

    make bench ARGS="--only gcs"
    make bench ARGS="--only gcs --size 64 --rounds 3"     a quick run, with 64 MiB per round

gcloud-aio-storage uploads an object as a whole; the data is in memory before the clock starts.
"""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from harness import MIB, Case, Target
from null_stores import null_store
from wire import AT_ONCE, OURS, PART, both_ways, compare, endpoint, job, ours_receives, ours_sends, received, whole

THEIRS = "gcloud-aio-storage"


def storage() -> AbstractAsyncContextManager[Any]:
    import asyncrec

    return asyncrec.open_storage(
        "gs://bench", endpoint=endpoint(), anonymous=True, chunk_size=PART, max_concurrency=AT_ONCE
    )


@asynccontextmanager
async def plain() -> Any:
    import aiohttp
    from gcloud.aio.storage import Storage

    async with aiohttp.ClientSession() as session:
        yield Storage(session=session, api_root=endpoint())  # type: ignore[arg-type]  # of aiohttp, as it wants


async def plain_sends(case: Case, client: Any) -> None:
    data = whole(case.count * MIB)
    await client.upload("bench", "sent", data, force_resumable_upload=True, timeout=600)


async def plain_receives(case: Case, client: Any) -> None:
    answer = await client.download_stream("bench", f"give-{case.count * MIB}", timeout=600)
    await received(case, answer.read)


CASES = both_ways(
    "ours in chunks of 8 MiB, with CRC32C; theirs in one request, without",
    senders={OURS: job(storage, ours_sends), THEIRS: job(plain, plain_sends)},
    receivers={OURS: job(storage, ours_receives), THEIRS: job(plain, plain_receives)},
)
TARGETS = [Target("upload", OURS, THEIRS, 1.0), Target("download", OURS, THEIRS, 0.95)]

if __name__ == "__main__":
    sys.exit(
        compare(
            "gcs",
            CASES,
            TARGETS,
            server=partial(null_store, "gcs"),
            distributions=("asyncrec", "gcloud-aio-storage", "aiohttp"),
        )
    )
