"""``make bench ARGS="--only azure"``: the Azure plugin compared with azure-storage-blob, on an idle store (see `wire`).

    make bench ARGS="--only azure"
    make bench ARGS="--only azure --size 64 --rounds 3"     a quick run, with 64 MiB per round

azure-storage-blob sends and returns an object as a whole; the data to send is made before the clock starts. Its blocks
are as large as ours, and four are in flight at a time. By default, it sends no checksums; with ``validate_content``, it
sends an MD5 of each block, so that the store rejects damaged ones. The plugin always sends a CRC-64, or an MD5 if
asyncrec has no C code.
"""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from io import BytesIO
from typing import Any

from harness import MIB, Case, Target
from null_stores import null_store
from wire import AT_ONCE, OURS, PART, both_ways, compare, endpoint, job, ours_receives, ours_sends, whole

THEIRS, THEIRS_CHECKED = "azure-storage-blob", "azure-storage-blob, validate_content"
# Not a secret: the store needs none, but the SDK signs only if it has a key.
KEY = "bm90aGluZw=="


def storage() -> AbstractAsyncContextManager[Any]:
    import asyncrec

    return asyncrec.open_storage(
        "az://bench", endpoint=endpoint(), account="bench", account_key=KEY, chunk_size=PART, max_concurrency=AT_ONCE
    )


def plain() -> AbstractAsyncContextManager[Any]:
    from azure.core.credentials import AzureNamedKeyCredential
    from azure.storage.blob.aio import ContainerClient

    client: AbstractAsyncContextManager[Any] = ContainerClient(
        endpoint(),
        "bench",
        credential=AzureNamedKeyCredential("bench", KEY),
        max_single_put_size=PART,
        max_block_size=PART,
        max_chunk_get_size=PART,
    )
    return client


async def plain_sends(case: Case, client: Any, *, checked: bool = False) -> None:
    size = case.count * MIB
    data = BytesIO(whole(size))
    await client.upload_blob(
        "sent", data, length=size, overwrite=True, max_concurrency=AT_ONCE, validate_content=checked
    )


async def plain_receives(case: Case, client: Any) -> None:
    download = await client.download_blob(f"give-{case.count * MIB}", max_concurrency=AT_ONCE)
    assert len(await download.readall()) == case.count * MIB


CASES = both_ways(
    "blocks of 8 MiB, four at a time; ours with CRC-64 of each, and CRC32C of all",
    senders={
        OURS: job(storage, ours_sends),
        THEIRS: job(plain, plain_sends),
        THEIRS_CHECKED: job(plain, partial(plain_sends, checked=True)),
    },
    receivers={OURS: job(storage, ours_receives), THEIRS: job(plain, plain_receives)},
)
TARGETS = [
    Target("upload", OURS, THEIRS, 1.0),
    Target("upload", OURS, THEIRS_CHECKED, 1.0),
    Target("download", OURS, THEIRS, 1.0),
]

if __name__ == "__main__":
    sys.exit(
        compare(
            "azure_blobs",
            CASES,
            TARGETS,
            server=partial(null_store, "azure"),
            distributions=("asyncrec", "azure-storage-blob", "aiohttp"),
        )
    )
