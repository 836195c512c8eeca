"""Delete records from a store over HTTP. No trace of them and no orphaned object may remain in the bucket."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from places import Place

import asyncrec
from asyncrec import tools
from asyncrec.errors import StorageError

pytestmark = pytest.mark.anyio

CANARIES = {f"canary {number}": b"the canary %d that must go" % number for number in range(0, 40, 13)}


def traces(objects: dict[str, bytes]) -> list[str]:
    digests = [hashlib.blake2b(key.encode(), digest_size=16).digest() for key in CANARIES]
    return [key for key, content in objects.items() if any(each in content for each in (*CANARIES.values(), *digests))]


async def test_deleted_record_is_removed_from_every_object_in_bucket(place: Place) -> None:
    async with place.open() as storage:
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=7) as writer:
            for number in range(40):
                key = f"canary {number}"
                await writer.write(CANARIES.get(key, b"record %d" % number), key=key)
        await tools.compact("pages", storage=storage, manifest_only=True)
        found = traces(place.objects())
        assert len([key for key in found if key.startswith("pages-")]) == 4
        assert [key for key in found if "~keys-" in key]
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=7, writer_id="z") as writer:
            await writer.write(b"beside it", key="beside it")
            await writer.flush()
            report = await tools.delete("pages", keys=list(CANARIES), storage=storage)
        assert report.records == 4
        assert len(report.unfinished) == 1
        objects = place.objects()
        assert traces(objects) == []
        assert [key for key in objects if key.endswith("-000000.jsonl")] == []
        assert place.unfinished() == []
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            kept = [b"record %d" % number for number in range(40) if f"canary {number}" not in CANARIES]
            assert [record async for record in dataset] == [*kept, b"beside it"]
            assert await dataset.get_by_key("canary 1") == b"record 1"
        verified = await tools.verify("pages", storage=storage, min_age=-60)
        assert verified.ok
        assert verified.orphans == []


@pytest.mark.slow
async def test_interrupted_deletion_is_completed_by_next_call(place: Place, impatient: None) -> None:
    """Interrupt each call at a different request. From then on, requests get a 500 although they take effect."""
    async with place.open() as storage:
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=20) as writer:
            for number in range(40):
                key = f"canary {number}"
                await writer.write(CANARIES.get(key, b"record %d" % number), key=key)
        kept = [b"record %d" % number for number in range(40) if f"canary {number}" not in CANARIES]
        left = list(CANARIES)
        for k in range(3, 60, 7):
            place.fail(k, "lost")
            with suppress(StorageError):
                await tools.delete("pages", keys=left, storage=storage)
            place.calm()
            async with asyncrec.open_dataset("pages", storage=storage) as dataset:
                found = [record async for record in dataset]
            assert [record for record in found if record not in CANARIES.values()] == kept
            assert len(set(found)) == len(found)
        await tools.recover("pages", storage=storage)
        await tools.delete("pages", keys=left, storage=storage)
        assert traces(place.objects()) == []
