"""Entire data sets on a store that fails one request in five: all acknowledged records must be intact."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import anyio
import anyio.to_thread
import crc32c
import pytest
from places import Place

import asyncrec
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.testing._checks import content

# ``ASYNCREC_LONG=20`` runs twenty seeds instead of one, starting at ``ASYNCREC_SEED``, and each store on both loops.
FIRST = int(os.environ.get("ASYNCREC_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ASYNCREC_LONG", "1")))
LONG = "ASYNCREC_LONG" in os.environ
ON = list(itertools.product(("asyncio", "trio"), ("s3", "gcs"))) if LONG else [("asyncio", "s3"), ("trio", "gcs")]
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize(("anyio_backend", "place"), ON, indirect=["place"])]

WRITERS, RECORDS = 8, 4  # concurrent writers; records per shard


def record(writer: int, number: int, chunk: int) -> bytes:
    """Return a record. Most are short; some are longer than a chunk, so that their shards take several requests."""
    return content(chunk * 2 + number if number == 17 else 20 + number * 3, writer * 10_000 + number)


async def write(storage: Storage, writer: int, shards: int, chunk: int, committed: list[int]) -> None:
    """Write a writer's records that are not yet committed, in shards of 4. Depending on the writer, shards are
    compressed or have an index or keys. Append the number of records of each commit to ``committed``."""
    async with asyncrec.open_sharded_writer(
        "pages",
        storage=storage,
        max_shard_records=RECORDS,
        compression="GZIP" if writer % 4 == 1 else "",
        index=writer % 4 == 2,
        on_error="discard",
        on_commit=lambda entry: committed.append(entry.records),
    ) as opened:
        for number in range(sum(committed), shards // WRITERS * RECORDS):
            key = f"{writer}/{number}" if writer % 4 == 3 else None
            await opened.write(record(writer, number, chunk), key=key)


async def read(storage: Storage, shards: int, chunk: int) -> Manifest:
    """Read all records back through the same store, and some of them also by number and by key."""
    each = shards // WRITERS * RECORDS
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    found: Counter[bytes] = Counter()
    paths = iter(await asyncrec.list_shards("pages", storage=storage))

    async def work() -> None:
        for path in paths:
            async with asyncrec.open_reader(path, storage=storage) as reader:
                async for batch in reader.batches():
                    found.update(batch)

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(work)
    assert found == Counter(record(writer, number, chunk) for writer in range(WRITERS) for number in range(each))
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == WRITERS * each
        some = await dataset.get_many(range(0, len(dataset), 29))
        assert not Counter(some) - found
        for number in {0, 17, each - 1} & set(range(each)):
            assert await dataset.get_by_key(f"3/{number}") == record(3, number, chunk)
    return manifest


def check_store(place: Place, manifest: Manifest) -> set[str]:
    """Check that the manifest agrees with the store. Return the other visible objects."""
    objects = place.objects()
    named = set()
    for shard in manifest.shards:
        data = objects[shard.path]
        assert (len(data), crc32c.crc32c(data)) == (shard.bytes, shard.crc32c)
        named |= set(shard.objects)
    assert named <= set(objects)
    return {key for key in objects if not key.startswith("_manifest/")} - named


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_two_hundred_shards_are_written_and_read_through_chaos(place: Place, seed: int) -> None:
    """No record may be damaged or missing, and no incomplete or unlisted object or unfinished upload may remain."""
    shards = 200
    committed: list[list[int]] = [[] for _ in range(WRITERS)]
    async with place.open() as storage:
        place.chaos(seed)
        async with anyio.create_task_group() as group:
            for writer in range(WRITERS):
                group.start_soon(write, storage, writer, shards, place.chunk, committed[writer])
        assert [len(counts) for counts in committed] == [shards // WRITERS] * WRITERS
        manifest = await read(storage, shards, place.chunk)
    assert len(manifest.shards) == shards
    place.calm()
    assert await anyio.to_thread.run_sync(check_store, place, manifest) == set()
    assert await anyio.to_thread.run_sync(place.unfinished) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_failed_writer_restarts_at_acknowledged_position(
    place: Place, seed: int, patient: None, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Outages outlast the retries, but each record is still stored once, because a failed writer is replaced by one
    that continues after the last acknowledged commit.
    """
    shards = 32
    failures = 0
    async with place.open() as storage:
        place.outages(seed)
        async with anyio.create_task_group() as group:

            async def one(writer: int) -> None:
                nonlocal failures
                committed: list[int] = []
                while True:
                    try:
                        await write(storage, writer, shards, place.chunk, committed)
                        break
                    except StorageError:
                        failures += 1
                assert sum(committed) == shards // WRITERS * RECORDS

            for writer in range(WRITERS):
                group.start_soon(one, writer)
        place.calm()
        manifest = await read(storage, shards, place.chunk)
        assert failures
        # A failed commit leaves a shard that no manifest lists. Like every visible object, it must be complete.
        for key in await anyio.to_thread.run_sync(check_store, place, manifest):
            if not key.startswith("_"):
                await asyncrec.read_records(key, storage=storage)
    # GCS's sessions expire, and cannot be listed.
    for key in await anyio.to_thread.run_sync(place.unfinished) if place.name == "s3" else ():
        assert key in caplog.text, "it is left, since the store was down when it was to be removed, and nobody was told"
