"""Fail each operation and each request in turn while shards with an index, keys and a manifest are written.

In each case, the manifest must list no missing, truncated or different object, and the caller must get the error.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import anyio.to_thread
import crc32c
import pytest
from places import Failing, Place

import asyncrec
from asyncrec._records.index import parse_index
from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._checks import content
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

# With ``ASYNCREC_LONG=1``, more kinds of jobs fail in more ways.
LONG = "ASYNCREC_LONG" in os.environ
ON = list(itertools.product(("asyncio", "trio"), ("s3", "gcs"))) if LONG else [("asyncio", "s3"), ("trio", "gcs")]
Options = dict[str, Any]
RECORDS = [content(20 + n, n) for n in range(12)]
JOBS: Mapping[str, Options] = {
    "rolling": {"max_shard_records": 4},
    "rolling GZIP": {"max_shard_records": 4, "compression": "GZIP"},
    "fixed": {"num_shards": 3},
    "replacing": {"max_shard_records": 4, "mode": "replace"},
}


async def write(storage: Storage, records: list[bytes], folder: str = "data", **options: Any) -> None:
    async with asyncrec.open_sharded_writer(f"{folder}/pages", storage=storage, **options) as writer:
        for number, record in enumerate(records):
            await writer.write(record, key=f"{number}")
        await writer.flush()


def named(objects: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the entries of the shards that the segments list. Check that each shard, its index and its keys are intact
    among the folder's objects."""
    segments = [
        [json.loads(line) for line in data.splitlines()]
        for key, data in sorted(objects.items())
        if key.startswith("_manifest/") and not any(each in key for each in ("/_removal-", "/_claim-", "-000000."))
    ]
    for head, *entries in segments:
        assert head["shards"] == len(entries)
        assert not (head["abandoned"] and entries), "a tombstone adds nothing"
    removed = {path for head, *_ in segments for path in head["remove"]}
    shards = {entry["path"]: entry for _, *entries in segments for entry in entries}
    for path, entry in shards.items():
        if path in removed:
            continue
        for each in (entry, entry["index"], entry["keys"]):
            data = objects[each["path"]]
            assert (len(data), f"{crc32c.crc32c(data):08x}") == (each["bytes"], each["crc32c"]), each["path"]
        assert len(parse_index(objects[entry["index"]["path"]])) == entry["records"], path
        assert len(objects[entry["keys"]["path"]]) == 16 * entry["records"], path
    return [entry for path, entry in shards.items() if path not in removed]


def within(objects: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {key[len(folder) + 1 :]: data for key, data in objects.items() if key.startswith(f"{folder}/")}


async def found(storage: Storage, folder: str = "data") -> Counter[bytes]:
    """Return the records of the data set, as the library reads them."""
    try:
        manifest = await asyncrec.read_manifest(f"{folder}/pages", storage=storage)
    except asyncrec.ObjectNotFoundError:
        return Counter()
    async with asyncrec.open_dataset(manifest, storage=storage) as dataset:
        return Counter(await dataset.get_many(range(len(dataset))))


class TestOperations:
    """Faults in a memory storage, which is fast and lets the test choose exactly which operation fails."""

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual_backend(request.param)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["error", "short"] if LONG else ["error"])
    @pytest.mark.parametrize("job", JOBS if LONG else ["rolling"])
    async def test_single_fault_in_turn_keeps_data_set_consistent(
        self, job: str, kind: Literal["error", "short"]
    ) -> None:
        """The operation fails before or after taking effect, once or from then on, transiently or permanently."""

        async def run(storage: Storage) -> None:
            await write(storage, RECORDS, **JOBS[job])

        calm = FlakyStorage(MemoryStorage(chunk_size=64))
        await run(calm)
        outcomes: Counter[bool] = Counter()
        errors = (TransientStorageError, StoragePermissionError) if LONG else (TransientStorageError,)
        ways = itertools.product(("before", "after"), (False, True), errors)
        for (when, for_good, error), k in itertools.product(ways, range(len(calm.operations))):
            memory = MemoryStorage(chunk_size=64)
            flaky = FlakyStorage(memory, {k: Fault(kind, when, error, for_good)})  # type: ignore[arg-type]  # literals
            about = f"{calm.operations[k]} (number {k}), {when}, {error.__name__}, for good: {for_good}"
            raised = await failed(partial(run, flaky))
            assert flaky.failed, about
            if raised is not None:
                assert "on purpose" in told(raised), f"{about}: another error came instead: {raised!r}"
            objects = {key: each.data for key, each in memory._objects.items()}
            records = check(job, within(objects, "data"), raised, about)
            assert sum((await found(memory)).values()) == records, about
            outcomes[raised is None] += 1
        assert outcomes[False] > outcomes[True]


@pytest.mark.parametrize(("anyio_backend", "place"), ON, indirect=["place"])
class TestRequests:
    """Faults in the plugins, over HTTP. A failed request may have taken effect."""

    @pytest.mark.slow
    @pytest.mark.parametrize("how", get_args(Failing) if LONG else ["refused", "down", "lost"])
    @pytest.mark.parametrize("job", ["rolling", "fixed"] if LONG else ["rolling"])
    async def test_single_fault_in_turn_keeps_data_set_consistent(
        self, place: Place, job: str, how: Failing, impatient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One shard takes several requests. The library reads the data set once the store works again."""
        records = [*RECORDS[:5], content(2 * place.chunk, 99), *RECORDS[6:]]
        async with place.open() as storage:
            await write(storage, records, **JOBS[job])
            count = place.requests
            for k in range(count):
                caplog.clear()
                folder, about = f"k{k}", f"request {k} of {count}"
                place.calm()
                place.fail(k, how)
                raised = await failed(partial(write, storage, records, folder, **JOBS[job]))
                place.calm()
                objects = within(await anyio.to_thread.run_sync(place.objects), folder)
                assert sum((await found(storage, folder)).values()) == check(job, objects, raised, about), about
                left = [key for key in await anyio.to_thread.run_sync(place.unfinished) if f"/{folder}/" in key]
                if how in ("down", "lost", "silent"):  # the store stays down, so no upload can be aborted
                    assert all(key in caplog.text for key in left), f"{about}: {left} is left, and nobody was told"
                else:
                    assert left == [], about
                if how in ("once", "lost once", "cut once"):
                    assert raised is None, about


async def failed(job: Callable[[], Any]) -> StorageError | None:
    try:
        await job()
    except StorageError as error:
        return error
    return None


def told(error: BaseException) -> str:
    """Return the messages of an error and of the errors in its chain."""
    seen: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and one not in seen:
            seen.append(one)
            todo += [one.__cause__, one.__context__]
    return "\n".join(map(str, seen))


def check(job: str, objects: Mapping[str, bytes], raised: StorageError | None, about: str) -> int:
    """Check the objects of a job, and return the number of records that the manifest lists."""
    try:
        entries = named(objects)
    except (AssertionError, KeyError) as error:
        error.add_note(about)
        raise
    if raised is None:
        assert len(entries) == 3, f"no error, and not all is there: {about}"
    elif job in ("fixed", "replacing"):
        assert len(entries) in (0, 3), f"a part of what goes together: {about}"
    return sum(entry["records"] for entry in entries)
