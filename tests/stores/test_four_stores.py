"""One data set on four stores: written to S3, copied to Azure, and read from a web server and through fsspec.

Print the requests and bytes of a data set of a thousand shards:

    ASYNCREC_TEST_SHARDS=1000 make test ARGS="-n0 -s tests/stores/test_four_stores.py"
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure_api import CONTAINER, FakeAzure
from azure_opening import KEY
from fsspec.implementations.memory import MemoryFileSystem
from places import Place
from s3_proxy import Proxy
from web_server import WebServer

import asyncrec
from asyncrec import tools

pytestmark = pytest.mark.anyio

SHARDS = int(os.environ.get("ASYNCREC_TEST_SHARDS", "12"))
A_SHARD = 20  # the number of records in a shard
Found = dict[str, int]


@pytest.fixture(scope="module")
def azure_server() -> Iterator[FakeAzure]:
    with FakeAzure().serving() as server:
        yield server


@pytest.fixture(scope="module")
def web_server() -> Iterator[WebServer]:
    with WebServer().serving() as server:
        yield server


def record(n: int) -> bytes:
    return b"%d " % n * (50 + n % 100)


async def checksums(path: str, **options: object) -> Found:
    """Return the CRC32 of each record of a data set, by the number at the start of its text. Check for duplicates."""
    found: Found = {}
    async with asyncrec.open_dataset(path, storage_options=options or None) as dataset:
        async for each in dataset:
            number = each.partition(b" ")[0].decode()
            assert number not in found
            found[number] = zlib.crc32(each)
    return found


@contextmanager
def counted(what: str, log: list[str], shown: list[str]) -> Iterator[None]:
    before = len(log)
    yield
    kinds = Counter(log[before:])
    shown.append(
        f"{what}: {kinds.total():,} requests ({', '.join(f'{n:,} {kind}' for kind, n in sorted(kinds.items()))})"
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", ["s3"], indirect=True)
@pytest.mark.usefixtures("patient")
async def test_crawl_on_s3_reads_identically_on_other_stores(
    place: Place, s3_proxy: Proxy, azure_server: FakeAzure, web_server: WebServer
) -> None:
    azure_server.reset()
    web_server.reset()
    shown: list[str] = []
    written = {str(n): zlib.crc32(record(n)) for n in range(SHARDS * A_SHARD)}

    async with asyncrec.open_sharded_writer(
        f"{place.url}/pages", storage_options=place.options, max_shard_records=A_SHARD
    ) as writer:
        for n in range(SHARDS * A_SHARD):
            await writer.write(record(n), key=str(n))
    operations = s3_proxy.operations()
    shown.append(f"crawled into s3://: {len(operations):,} requests")
    assert await checksums(f"{place.url}/pages", **place.options) == written

    azure = {"account_key": KEY, "endpoint": azure_server.endpoint}
    with counted("copied to az://", azure_server.log, shown):
        await tools.copy(
            f"{place.url}/pages", f"az://{CONTAINER}/pages", storage_options=place.options, target_storage_options=azure
        )
    with counted("read from az://", azure_server.log, shown):
        assert await checksums(f"az://{CONTAINER}/pages", **azure) == written
    with counted("compacted on az://", azure_server.log, shown):
        compacted = await tools.compact(f"az://{CONTAINER}/pages", storage_options=azure, manifest_only=True)

    blobs = {name: blob.data for name, blob in azure_server.blobs.items()}
    checkpoint = compacted.checkpoint.removeprefix(f"az://{CONTAINER}/")
    for name, data in blobs.items():
        web_server.store(name, data)
    with counted("read by https://, by the checkpoint's address", web_server.log, shown):
        assert await checksums(f"{web_server.url}/{checkpoint}") == written

    files = MemoryFileSystem()
    for name, data in blobs.items():
        files.pipe(f"/four/{name}", data)
    try:
        assert await checksums("memory+fsspec:///four/pages") == written
    finally:
        files.rm("/four", recursive=True)
    shown.append(f"{len(written):,} records in {SHARDS:,} shards, {sum(map(len, blobs.values())):,} bytes")
    print(*shown, sep="\n")
