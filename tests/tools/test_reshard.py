"""`reshard` writes the same records to other shards, all or nothing, optionally shuffled by a seed or grouped."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tool_data import SCHEMA, change, data_names, example, killed, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import FormatError, ObjectExistsError, ObjectNotFoundError, RecordKeyError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.testing import Fault, FlakyStorage

pytestmark = pytest.mark.anyio


async def numbers(storage: Storage, path: str) -> list[int]:
    async with tools.open_records(path, storage=storage) as stream:
        return [int(SCHEMA.decode(found.data)["emb"][0]) async for records in stream for found in records]


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_reshard_to_given_number_keeps_order(storage: Storage, compression: str) -> None:
    await write_pages(storage)
    report = await tools.reshard(
        "pages", "new/pages", num_shards=4, compression=compression, storage=storage, target_storage=storage
    )
    assert [(shard.path, shard.records) for shard in report.shards] == [
        ("pages-00000-of-00004.tfrecord", 8),
        ("pages-00001-of-00004.tfrecord", 7),
        ("pages-00002-of-00004.tfrecord", 7),
        ("pages-00003-of-00004.tfrecord", 8),
    ]
    assert await numbers(storage, "new/pages") == list(range(30))
    assert (await tools.verify("new/pages", storage=storage)).ok
    manifest = await asyncrec.read_manifest("new/pages", storage=storage)
    assert manifest.schema == SCHEMA.to_json()
    assert manifest.metadata["made"] == "here"
    assert manifest.metadata["resharded"]["source"] == "pages"
    async with asyncrec.open_dataset("new/pages", storage=storage) as dataset:
        assert SCHEMA.decode(await dataset.get_by_key("key 11"))["emb"][0] == 11


async def test_reshard_respects_size_and_record_limits(storage: Storage) -> None:
    await write_pages(storage)
    report = await tools.reshard("pages", "small", max_shard_bytes=700, storage=storage, target_storage=storage)
    assert all(shard.bytes <= 700 for shard in report.shards)
    assert await numbers(storage, "small") == list(range(30))
    report = await tools.reshard("pages", "few", max_shard_records=13, storage=storage, target_storage=storage)
    assert [shard.records for shard in report.shards] == [13, 13, 4]
    report = await tools.reshard("pages", "least", max_shard_bytes=1, storage=storage, target_storage=storage)
    assert {shard.records for shard in report.shards} == {1}


@pytest.mark.parametrize(
    ("options", "shards"),
    [({}, 4), ({"max_shard_bytes": 1 << 20}, 1), ({"max_shard_records": 20}, 2), ({"num_shards": 1}, 1)],
)
async def test_reshard_uses_default_shard_size_without_options(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, options: dict[str, int], shards: int
) -> None:
    monkeypatch.setattr("asyncrec.tools._reshard.MAX_SHARD_BYTES", 700)
    await write_pages(storage)
    report = await tools.reshard("pages", "new/pages", storage=storage, target_storage=storage, **options)
    assert len(report.shards) == shards


async def test_shuffle_is_reproducible_by_seed_and_keeps_keys(storage: Storage, tmp_path: Path) -> None:
    await write_pages(storage)
    orders = []
    for name, seed, limit in (("a", 1, 1 << 20), ("b", 1, 2000), ("c", 2, 1 << 20)):
        report = await tools.reshard(
            "pages", name, shuffle=True, seed=seed, memory_limit=limit, temporary_folder=tmp_path / "spill",
            storage=storage, target_storage=storage,
        )  # fmt: skip
        assert bool(report.spilled_bytes) == (limit == 2000)
        orders.append(await numbers(storage, name))
        async with asyncrec.open_dataset(name, storage=storage) as dataset:
            assert SCHEMA.decode(await dataset.get_by_key("key 11"))["emb"][0] == 11
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(30))
    assert orders[0] != list(range(30))
    assert not list((tmp_path / "spill").glob("*"))


async def test_shuffle_without_seed_uses_seed_zero(storage: Storage) -> None:
    await write_pages(storage)
    await tools.reshard("pages", "unsaid", shuffle=True, storage=storage, target_storage=storage)
    await tools.reshard("pages", "said", shuffle=True, seed=0, storage=storage, target_storage=storage)
    assert await numbers(storage, "unsaid") == await numbers(storage, "said")


@pytest.mark.parametrize("shuffle", [False, True])
async def test_grouped_records_are_contiguous(storage: Storage, tmp_path: Path, shuffle: bool) -> None:
    await write_pages(storage, records=90)
    await tools.reshard(
        "pages", "grouped", group_by="label", shuffle=shuffle, memory_limit=3000, temporary_folder=tmp_path,
        storage=storage, target_storage=storage,
    )  # fmt: skip
    order = await numbers(storage, "grouped")
    assert [number % 3 for number in order] == [0] * 30 + [1] * 30 + [2] * 30
    assert sorted(order) == list(range(90))
    assert (order == sorted(order, key=lambda number: (number % 3, number))) == (not shuffle)


async def test_many_groups_stay_contiguous(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for number in range(1200):
            await writer.write(asyncrec.encode_example({"label": number * 7 % 600, "n": number}))
    await tools.reshard("pages", "grouped", group_by="label", storage=storage, target_storage=storage)
    async with tools.open_records("grouped", storage=storage) as stream:
        labels = [asyncrec.decode_example(found.data)["label"][0] async for records in stream for found in records]
    assert labels[::2] == labels[1::2]
    assert len(set(labels)) == 600


async def test_reshard_accepts_files_without_manifest(storage: Storage) -> None:
    await asyncrec.write_records("a.tfrecord", [b"a"] * 5, storage=storage)
    await asyncrec.write_records("b.tfrecord", [b"b" * 3_000_000] * 2, compression="GZIP", storage=storage)
    report = await tools.reshard("*.tfrecord", "set", num_shards=3, storage=storage, target_storage=storage)
    assert [shard.records for shard in report.shards] == [2, 3, 2]
    assert (await tools.verify("set", storage=storage)).ok


async def test_reshard_may_make_more_shards_than_records(storage: Storage) -> None:
    await asyncrec.write_records("a.tfrecord", [b"a"], storage=storage)
    report = await tools.reshard("a.tfrecord", "set", num_shards=3, storage=storage, target_storage=storage)
    assert sum(shard.records for shard in report.shards) == 1
    assert (await tools.verify("set", storage=storage)).ok


async def test_damage_leaves_no_target_shards(storage: Storage) -> None:
    await write_pages(storage)
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[2].path
    await change(storage, shard, 20)
    for options in ({"max_shard_records": 4}, {"num_shards": 2}, {"shuffle": True}):
        with pytest.raises(FormatError):
            await tools.reshard("pages", "new/pages", storage=storage, target_storage=storage, **options)
        assert await data_names(storage, "new/") == []
        with pytest.raises(ObjectNotFoundError):
            await asyncrec.read_manifest("new/pages", storage=storage)


@pytest.mark.usefixtures("no_waiting")
async def test_fault_at_any_operation_leaves_no_committed_shards(tmp_path: Path) -> None:
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        await write_pages(storage)
        calm = FlakyStorage(storage)
        await tools.reshard("pages", "calm/pages", num_shards=3, storage=storage, target_storage=calm)
        committed = max(
            k for k, each in enumerate(calm.operations) if each[0] == "publish" and "/_manifest/" in each[1]
        )
        for k in range(len(calm.operations)):
            target = f"b{k}/pages"
            flaky = FlakyStorage(storage, {k: Fault("error")})
            # After the commit, only removing the mark and the claim can fail; reading a claim is retried.
            if k > committed or calm.operations[k][0] in ("open_source", "receive"):
                await tools.reshard("pages", target, num_shards=3, storage=storage, target_storage=flaky)
                assert await numbers(storage, target) == list(range(30))
                continue
            with pytest.raises(TransientStorageError):
                await tools.reshard("pages", target, num_shards=3, storage=storage, target_storage=flaky)
            left = await data_names(storage, f"b{k}/")
            assert [key for key in left if not key.startswith((f"b{k}/_keys/", f"b{k}/_index/"))] == []
            with suppress(ObjectNotFoundError):  # it failed before the job had begun
                await asyncrec.recover(target, storage=storage)
            assert await data_names(storage, f"b{k}/") == [], calm.operations[k]
            await tools.reshard("pages", target, num_shards=3, storage=storage, target_storage=storage)
            assert await numbers(storage, target) == list(range(30))


@pytest.mark.slow(but=["before-, num_shards=3", "after-]", "after-, max"])
@pytest.mark.parametrize("options", ["", ", num_shards=3", ", max_shard_records=8"])
@pytest.mark.parametrize("recovered", ["before", "after"])
async def test_killed_reshard_is_rerun_and_recovered_without_duplicates(
    tmp_path: Path, options: str, recovered: str
) -> None:
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await write_pages(storage)
        await killed(tmp_path, f"tools.reshard('pages', 'new/pages'{options})", shards=1 if not options else 2)
        assert await data_names(storage, "new/") != [], "it had begun"
        with pytest.raises(ObjectNotFoundError):
            await asyncrec.read_manifest("new/pages", storage=storage)
        if recovered == "before":
            found = await asyncrec.recover(tmp_path / "new/pages")
            assert (len(found.abandoned), found.records) == (1, 0)
            assert await data_names(storage, "new/") == []
        given = {"num_shards": 3} if "num" in options else {"max_shard_records": 8} if options else {}
        await tools.reshard("pages", "new/pages", storage=storage, target_storage=storage, **given)
        assert await numbers(storage, "new/pages") == list(range(30))
        await asyncrec.recover(tmp_path / "new/pages")
        assert await numbers(storage, "new/pages") == list(range(30))
        report = await tools.verify("new/pages", storage=storage)
        assert report.ok
        assert report.orphans == []
        assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("options", [{}, {"num_shards": 3}])
async def test_reshard_interrupted_by_dead_store_is_rerun_without_duplicates(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """The store may fail for good during any operation; the leftovers belong to a job and are cleaned up."""
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        await write_pages(storage)
        calm = FlakyStorage(storage)
        await tools.reshard("pages", "calm/pages", storage=storage, target_storage=calm, **options)
        committed = max(
            k for k, each in enumerate(calm.operations) if each[0] == "publish" and "/_manifest/" in each[1]
        )
        for k, when in itertools.product(range(committed + 1), ("before", "after")):
            target, about = f"{when}{k}/pages", f"{when} {calm.operations[k]} (number {k})"
            down = FlakyStorage(storage, {k: Fault("error", when, for_good=True)})  # type: ignore[arg-type]  # literals
            with pytest.raises(TransientStorageError):
                await tools.reshard("pages", target, storage=storage, target_storage=down, **options)
            try:
                await tools.reshard("pages", target, storage=storage, target_storage=storage, **options)
            except ObjectExistsError:
                assert when == "after", about  # the last request succeeded, but its response was lost
            await asyncrec.recover(target, storage=storage)
            assert await numbers(storage, target) == list(range(30)), about
            report = await tools.verify(target, storage=storage)
            assert report.ok, about
            assert report.orphans == [], about
            assert [key for key in await names(storage, f"{when}{k}/") if key.endswith("-000000.jsonl")] == [], about


async def test_existing_target_is_not_replaced(storage: Storage) -> None:
    await write_pages(storage)
    await write_pages(storage, "other")
    with pytest.raises(ObjectExistsError, match="other"):
        await tools.reshard("pages", "other", storage=storage, target_storage=storage)


async def test_invalid_options_are_rejected(storage: Storage) -> None:
    await write_pages(storage)
    with pytest.raises(ValueError, match="num_shards"):
        await tools.reshard("pages", "x", num_shards=2, max_shard_bytes=5, storage=storage, target_storage=storage)
    with pytest.raises(ValueError, match="at least 1"):
        await tools.reshard("pages", "x", num_shards=0, storage=storage, target_storage=storage)
    with pytest.raises(ValueError, match="no feature 'nobody'; the features are emb, label, text"):
        await tools.reshard("pages", "x", group_by="nobody", storage=storage, target_storage=storage)


async def keys_by_number(storage: Storage, path: str, records: int) -> dict[int, int]:
    """Map the number of each record to the number in its key, for the keys that are found."""
    found = {}
    async with asyncrec.open_dataset(path, storage=storage) as dataset:
        for number in range(records):
            with suppress(RecordKeyError):
                found[number] = int(SCHEMA.decode(await dataset.get_by_key(f"key {number}"))["emb"][0])
    return found


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("shuffle", [False, True])
async def test_intact_records_of_damaged_shard_keep_keys(
    storage: Storage, compression: str, jobs: int, shuffle: bool
) -> None:
    await write_pages(storage, compression=compression)
    shard = sorted(key for key in await data_names(storage, "pages") if key.endswith(".tfrecord"))[1]
    size = len(await storage.get(shard))
    await change(storage, shard, size // 2 + 30)  # inside the data of a record
    report = await tools.reshard(
        "pages", "new", on_corrupt="skip", jobs=jobs, shuffle=shuffle, storage=storage, target_storage=storage
    )
    (loss,) = report.losses
    assert loss.path == shard
    assert loss.records == 30 - report.records > 0
    assert loss.bytes > 0
    there = await numbers(storage, "new")
    assert sorted(there) == there if not shuffle else len(set(there)) == len(there)
    assert [n for n in sorted(there) if not 10 <= n < 20] == [*range(10), *range(20, 30)]
    keys = await keys_by_number(storage, "new", 30)
    assert keys == {number: number for number in keys}
    assert len(keys) == report.records - loss.without_key
    if not compression:
        assert (report.records, loss.without_key) == (29, 0)
    manifest = await asyncrec.read_manifest("new", storage=storage)
    assert manifest.schema == SCHEMA.to_json()
    assert (await tools.verify("new", storage=storage)).ok
    assert report.to_json()["losses"] == [loss.to_json()]


@pytest.mark.slow(but=["one member"])
@pytest.mark.parametrize(
    ("compression", "in_doubt"),
    [("", 0), ("GZIP", 9), (asyncrec.CompressionOptions(type="GZIP", member_bytes=1), 1)],
    ids=["plain", "one member", "members of two"],
)
async def test_damage_never_assigns_keys_of_other_records(
    storage: Storage, compression: str | asyncrec.CompressionOptions, in_doubt: int
) -> None:
    """In a GZIP member, the records after the damage lose their keys; all other records keep theirs."""
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, compression=compression, max_shard_records=10, schema=SCHEMA
    ) as writer:
        for number in range(10):
            await writer.write(example(number), key=f"key {number}")
            if number % 2:
                await writer.flush()
    (shard,) = [key for key in await data_names(storage) if "/" not in key]
    whole = await storage.get(shard)
    for at in range(0, len(whole), max(len(whole) // 25, 1)):
        await storage.put(shard, whole)
        await change(storage, shard, at)
        report = await tools.reshard("pages", f"to{at}", on_corrupt="skip", storage=storage, target_storage=storage)
        keys = await keys_by_number(storage, f"to{at}", 10) if report.records else {}
        assert keys == {number: number for number in keys}, at
        if not report.losses:
            assert compression, at  # a byte of a member's header that has no effect
            assert len(keys) == 10
            continue
        assert len(keys) == report.records - report.losses[0].without_key, at
        assert report.losses[0].without_key <= in_doubt


async def test_records_after_damage_lose_keys_without_index(storage: Storage) -> None:
    await write_pages(storage, records=10, index=False)
    (shard,) = [key for key in await data_names(storage, "pages") if "/" not in key]
    await change(storage, shard, len(await storage.get(shard)) // 2 + 30)
    report = await tools.reshard("pages", "new", on_corrupt="skip", storage=storage, target_storage=storage)
    (loss,) = report.losses
    assert (report.records, loss.records) == (9, 1)
    keys = await keys_by_number(storage, "new", 10)
    assert keys == {number: number for number in keys}
    assert len(keys) == 9 - loss.without_key
    assert loss.without_key > 0


async def test_intact_data_set_reports_no_losses(storage: Storage) -> None:
    await write_pages(storage)
    report = await tools.reshard("pages", "new", on_corrupt="skip", storage=storage, target_storage=storage)
    assert (report.records, report.losses) == (30, [])
    assert len(await keys_by_number(storage, "new", 30)) == 30


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"group_by": "label"}, {"on_corrupt": "stop"}])
async def test_skip_rejects_incompatible_options(storage: Storage, options: dict[str, Any]) -> None:
    await write_pages(storage)
    with pytest.raises(ValueError, match="on_corrupt"):
        await tools.reshard("pages", "new", **{"on_corrupt": "skip"} | options, storage=storage, target_storage=storage)
