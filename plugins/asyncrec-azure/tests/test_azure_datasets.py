"""Entire data sets on Azure, written and read by URL, as a user would."""

from __future__ import annotations

import pytest
from asyncrec_azure.plugin import open_azure
from azure_api import FakeAzure
from azure_opening import CHUNK, KEY
from serving import Fault, nothing

import asyncrec
from asyncrec.tools import doctor, verify

pytestmark = pytest.mark.anyio

RECORDS = [b"%06d" % n * 3_000 for n in range(40)]


async def test_dataset_written_through_failing_requests_reads_back_whole(azure: FakeAzure) -> None:
    options = {"endpoint": azure.endpoint, "account_key": KEY, "chunk_size": CHUNK}
    kinds: set[str] = set()

    def plan(kind: str, n: int) -> Fault | None:
        first = kind not in kinds
        kinds.add(kind)
        return Fault("status-after", 500) if first else None

    azure.plan = plan
    async with asyncrec.open_sharded_writer(
        "az://crawl/2026/pages", max_shard_records=12, storage_options=options
    ) as writer:
        for record in RECORDS:
            await writer.write(record)
    azure.plan = nothing
    async with asyncrec.open_dataset("az://crawl/2026/pages", storage_options=options) as dataset:
        assert sorted(await dataset.get_many(range(len(dataset)))) == RECORDS
    assert (await verify("az://crawl/2026/pages", storage_options=options)).ok


@pytest.mark.slow
async def test_doctor_finds_nothing_wrong(azure: FakeAzure) -> None:
    async with open_azure("az://crawl", endpoint=azure.endpoint, account_key=KEY, chunk_size=CHUNK) as storage:
        report = await doctor("some/folder", storage=storage)
    assert report.ok, report.checks
    assert not azure.blobs
