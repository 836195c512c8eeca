"""``make bench ARGS="--only s3"``: the S3 plugin compared with aiobotocore and obstore, on an idle store (see `wire`).

For example::

    make bench ARGS="--only s3"
    make bench ARGS="--only s3 --size 64 --rounds 3"     a quick run, with 64 MiB per round
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import bare_uploads
from harness import MIB, Case, Target
from null_s3 import null_s3
from wire import (
    AT_ONCE,
    OURS,
    PART,
    both_ways,
    chunks,
    compare,
    endpoint,
    job,
    ours_reads,
    ours_receives,
    ours_sends,
    ours_writes,
    received,
    source,
)

CREDENTIALS = {"aws_access_key_id": "AKIABENCHMARK", "aws_secret_access_key": "of-a-store-that-checks-nothing"}


def storage() -> AbstractAsyncContextManager[Any]:
    import asyncrec

    return asyncrec.open_storage(
        "s3://bench", endpoint_url=endpoint(), region="us-east-1", chunk_size=PART, max_concurrency=AT_ONCE,
        **CREDENTIALS,
    )  # fmt: skip


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
    """Without checksums and with an unsigned payload: the minimum work of the library."""
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
    async with answer["Body"] as body:
        await received(case, body.read)


async def plain_receives_ranges(case: Case, client: Any) -> None:
    """Read like ours: one range after another, requesting the next one while processing the current one."""
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


CASES = both_ways(
    "parts of 8 MiB, 4 at a time; MD5 or CRC32C of each where said",
    senders={
        "asyncrec": job(storage, ours_sends),
        "aiobotocore": job(plain, plain_sends),
        "aiobotocore, no checksums": job(bare, plain_sends),
        "obstore": job(rust, rust_sends),
        "bare sockets, CRC-32C": job(bare_uploads.sockets, bare_uploads.sends),
        "asyncrec, records of 64 KiB": job(storage, ours_writes),
    },
    receivers={
        "asyncrec": job(storage, ours_receives),
        "aiobotocore": job(plain, plain_receives),
        "aiobotocore, ranges of 8 MiB": job(plain, plain_receives_ranges),
        "obstore": job(rust, rust_receives),
        "asyncrec, records of 64 KiB, checked": job(storage, ours_reads),
    },
)
TARGETS = [
    Target("upload", OURS, "aiobotocore", 1.0),
    Target("upload", OURS, "aiobotocore, no checksums", 1.0),
    Target("upload", OURS, "obstore", 1.0),
    Target("download", OURS, "aiobotocore", 0.95),
    Target("download", OURS, "aiobotocore, ranges of 8 MiB", 1.0),
    Target("download", OURS, "obstore", 1.0),
]


if __name__ == "__main__":
    sys.exit(
        compare("s3", CASES, TARGETS, server=null_s3, distributions=("asyncrec", "aiobotocore", "aiohttp", "obstore"))
    )
