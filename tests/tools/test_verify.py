"""`verify` finds every kind of damage and its position; orphans are reported, adopted or deleted."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from mortal import dies, killed
from tool_data import change, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec._framing.encoding import encode_frames
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.testing import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

Break = Callable[[Storage, str], Awaitable[None]]


async def shard_of(storage: Storage, path: str = "pages") -> str:
    return (await asyncrec.read_manifest(path, storage=storage)).shards[1].path


async def flip_payload(storage: Storage, shard: str) -> None:
    await change(storage, shard, 14)


async def flip_length(storage: Storage, shard: str) -> None:
    await change(storage, shard, 0)


async def cut(storage: Storage, shard: str) -> None:
    await storage.put(shard, (await storage.get(shard))[:-5])


async def replace(storage: Storage, shard: str) -> None:
    await asyncrec.write_records(shard, [b"another"] * 10, storage=storage)


async def remove(storage: Storage, shard: str) -> None:
    await storage.delete(shard)


async def change_index(storage: Storage, shard: str) -> None:
    await change(storage, f"_index/{shard}.index", -2)


async def remove_index(storage: Storage, shard: str) -> None:
    await storage.delete(f"_index/{shard}.index")


async def no_index(storage: Storage, shard: str) -> None:
    await storage.put(f"_index/{shard}.index", b"not an index\n")


async def cut_keys(storage: Storage, shard: str) -> None:
    await storage.put(f"_keys/{shard}.keys", b"16 bytes of a key"[:16])


async def change_a_key(storage: Storage, shard: str) -> None:
    await change(storage, f"_keys/{shard}.keys", 20)


async def write_the_index_otherwise(storage: Storage, shard: str) -> None:
    """Write an index with the same content in different bytes."""
    key = f"_index/{shard}.index"
    await storage.put(key, (await storage.get(key)).replace(b" ", b"  ", 1))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_verify_accepts_intact_data_set(storage: Storage, compression: str) -> None:
    await write_pages(storage, compression=compression)
    seen = []
    report = await tools.verify("pages", storage=storage, progress=lambda done, total: seen.append((done, total)))
    assert report.ok
    assert report.records == 30
    assert not report.orphans
    assert seen[-1] == (report.bytes, report.bytes)
    assert [shard.compression for shard in report.shards] == [compression] * 3


@pytest.mark.parametrize(
    ("break_", "kind"),
    [
        (flip_payload, "damaged"),
        (flip_length, "damaged"),
        (cut, "damaged"),
        (replace, "changed"),
        (remove, "missing"),
        (change_index, "index"),
        (remove_index, "index"),
        (no_index, "index"),
        (write_the_index_otherwise, "index"),
        (cut_keys, "keys"),
        (change_a_key, "keys"),
    ],
)
async def test_verify_finds_damage_only_in_damaged_shard(storage: Storage, break_: Break, kind: str) -> None:
    await write_pages(storage)
    shard = await shard_of(storage)
    await break_(storage, shard)
    report = await tools.verify("pages", storage=storage)
    assert not report.ok
    assert [each.path for each in report.damaged] == [shard]
    assert kind in {problem.kind for problem in report.damaged[0].problems}


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
async def test_damage_in_compressed_shards_is_detected(storage: Storage, compression: str) -> None:
    await write_pages(storage, compression=compression)
    shard = await shard_of(storage)
    await change(storage, shard, 60)
    report = await tools.verify("pages", storage=storage)
    assert [each.path for each in report.damaged] == [shard]


async def test_verify_reports_each_damaged_place_with_offset(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"12345678"] * 10, storage=storage)
    for record in (2, 5, 7):
        await change(storage, "x.tfrecord", 24 * record + 13)
    (shard,) = (await tools.verify("x.tfrecord", storage=storage)).shards
    assert [(problem.record, problem.offset) for problem in shard.problems] == [(2, 48), (4, 120), (5, 168)]
    assert shard.records == 7


async def test_inaccessible_shard_is_unreadable_rather_than_damaged(storage: Storage) -> None:
    await write_pages(storage)
    shard = await shard_of(storage)

    class Refusing(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            if operation == "open_source" and key == shard:
                raise asyncrec.errors.StoragePermissionError("not yours")
            return await call()

    report = await tools.verify("pages", storage=Refusing(storage))
    assert not report.ok
    assert not report.damaged
    assert [each.path for each in report.unreadable] == [shard]


async def test_unavailable_store_during_listing_raises(storage: Storage) -> None:
    await write_pages(storage)
    down = FlakyStorage(storage, {0: Fault("error", for_good=True)})
    with pytest.raises(TransientStorageError):
        await tools.verify("pages", storage=down)


async def test_crash_orphans_are_distinguished_from_replaced_shards(storage: Storage) -> None:
    await write_pages(storage)
    shard = await shard_of(storage)
    content = await storage.get(shard)
    await write_pages(storage, mode="replace")
    await storage.put(shard, content)  # as if deleting it had failed
    await storage.put("pages-dead-000000.tfrecord", content)
    await storage.put("pages-00000-of-00002.tfrecord", content)
    await storage.put("_index/pages-gone-000003.tfrecord.index", b"")
    await storage.put("pages-of-another-name.tfrecord", content)
    report = await tools.verify("pages", storage=storage, min_age=0)
    assert report.ok
    assert {(each.path, each.kind, each.refused) for each in report.orphans} == {
        (shard, "shard", "the data set replaced it"),
        ("pages-dead-000000.tfrecord", "shard", None),
        ("pages-00000-of-00002.tfrecord", "shard", "it belongs to shards that are published together or not at all"),
        ("_index/pages-gone-000003.tfrecord.index", "index", "its shard is missing"),
    }
    report = await tools.verify("pages", storage=storage, min_age=-60, adopt=True)
    assert report.adopted == ["pages-dead-000000.tfrecord"]
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 40
    report = await tools.verify("pages", storage=storage, min_age=-60, delete=True)
    assert sorted(report.deleted) == sorted(
        [shard, "_index/pages-gone-000003.tfrecord.index", "pages-00000-of-00002.tfrecord"]
    )
    assert (await tools.verify("pages", storage=storage)).orphans == []
    assert "pages-of-another-name.tfrecord" in await names(storage)


async def test_replaced_shard_of_abandoned_writer_is_deleted(storage: Storage) -> None:
    """The writer's commit is in the log where a fence would be, so the shard cannot be brought back."""
    async with killed(storage, writer_id="gone", max_shard_records=1) as writer:
        await writer.write_many([b"a record"] * 2)
        await writer.commit()
    await asyncrec.recover("pages", storage=storage, abandon=["gone"])
    assert (await asyncrec.read_manifest("pages", storage=storage)).writers["gone"].abandoned
    shard = await shard_of(storage)
    content = await storage.get(shard)
    await write_pages(storage, mode="replace")
    await storage.put(shard, content)  # as if deleting it had failed
    report = await tools.verify("pages", storage=storage, min_age=-60, delete=True)
    assert report.deleted == [shard]
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_shards_of_one_writer_are_adopted_together(storage: Storage) -> None:
    await write_pages(storage)
    content = await storage.get(await shard_of(storage))
    shards = [f"pages-dead-{number:06d}.tfrecord" for number in range(9)]
    for shard in shards:
        await storage.put(shard, content)
    report = await tools.verify("pages", storage=storage, min_age=-60, adopt=True)
    assert sorted(report.adopted) == shards
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 120
    assert len([name for name in await names(storage) if name.startswith("_manifest/pages/dead-")]) <= 2


async def test_damaged_orphan_is_not_adopted(storage: Storage) -> None:
    await write_pages(storage)
    content = bytearray(await storage.get(await shard_of(storage)))
    content[20] ^= 1
    await storage.put("pages-dead-000000.tfrecord", content)
    report = await tools.verify("pages", storage=storage, min_age=-60, adopt=True)
    assert report.adopted == []
    assert [each.path for each in report.damaged] == ["pages-dead-000000.tfrecord"]
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 30


async def test_young_orphans_are_kept(storage: Storage) -> None:
    await write_pages(storage)
    await storage.put("pages-dead-000000.tfrecord", await storage.get(await shard_of(storage)))
    for how in ({"adopt": True}, {"delete": True}):
        report = await tools.verify("pages", storage=storage, **how)
        assert report.adopted == report.deleted == []
        assert [each.recent for each in report.orphans] == [True]
    with pytest.raises(ValueError, match="cannot be combined"):
        await tools.verify("pages", storage=storage, adopt=True, delete=True)


async def test_shard_of_unfinished_job_is_kept_at_any_age(storage: Storage) -> None:
    """The shard is published, and its commit is still to come."""
    await write_pages(storage)
    reports: list[tools.VerifyReport] = []

    class Meanwhile(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            result = await call()
            if operation == "publish" and key.endswith("-000000.tfrecord"):
                for how in ({"delete": True}, {"adopt": True}):
                    reports.append(await tools.verify("pages", storage=storage, min_age=-60, **how))
            return result

    meanwhile = Meanwhile(storage)
    async with asyncrec.open_sharded_writer("pages", storage=meanwhile, writer_id="alive", validate="none") as writer:
        await writer.write(b"a record", key="its key")
    assert [(report.deleted, report.adopted) for report in reports] == [([], [])] * 2
    for report in reports:
        (orphan,) = report.orphans
        assert (orphan.path, orphan.owner) == ("pages-alive-000000.tfrecord", "alive")
        assert not orphan.is_free
        assert "has not ended" in str(orphan.refused)
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 31
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_tombstone_is_written_before_deletion(storage: Storage) -> None:
    """The tombstone stops a writer that is merely slow from committing a shard that no longer exists."""
    await write_pages(storage)
    await storage.put("pages-dead-000000.tfrecord", await storage.get(await shard_of(storage)))
    watched = FlakyStorage(storage)
    report = await tools.verify("pages", storage=watched, min_age=-60, delete=True)
    assert report.deleted == [orphan.path for orphan in report.orphans]
    assert len(report.deleted) == 1
    changes = [(operation, key) for operation, key in watched.operations if operation in ("publish", "delete")]
    assert changes == [
        ("publish", "_manifest/pages/dead-000001.jsonl"),  # where its next commit would be
        ("delete", "_index/pages-dead-000000.tfrecord.index"),
        ("delete", "_keys/pages-dead-000000.tfrecord.keys"),
        ("delete", "pages-dead-000000.tfrecord"),
    ]
    assert (await asyncrec.read_manifest("pages", storage=storage)).writers["dead"].abandoned
    with pytest.raises(
        ObjectExistsError, match="pages: a writer with the id dead has already written to this data set or was"
    ):
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="dead"):
            pass


async def test_late_objects_of_abandoned_job_are_deleted(
    storage: Storage,
) -> None:
    """A request of a job reaches the store late, when only the job's tombstone is left."""
    await dies(storage, writer_id="late")
    await asyncrec.recover("pages", storage=storage, abandon=["late"])
    assert await names(storage) == ["_manifest/pages/late-000001.jsonl"]
    await storage.put("pages-late-000000.tfrecord", b"".join(encode_frames([b"a record"])))
    await storage.put("_keys/pages-late-000001.tfrecord.keys", b"")
    with pytest.raises(ObjectNotFoundError):
        await tools.verify("pages", storage=storage)
    report = await tools.verify("pages", storage=storage, min_age=-60, delete=True)
    assert report.deleted == ["pages-late-000000.tfrecord", "_keys/pages-late-000001.tfrecord.keys"]
    assert await names(storage) == ["_manifest/pages/late-000001.jsonl"]
    assert (await tools.verify("pages", storage=storage, delete=True)).orphans == []


async def test_late_claim_is_deleted_unless_on_plain_names(
    storage: Storage,
) -> None:
    await write_pages(storage)
    (writer,) = (await asyncrec.read_manifest("pages", storage=storage)).writers
    claims = []
    for number, (maker, plain) in enumerate([(writer, False), (writer, True), ("lives", False)], 1):
        claims.append(f"_manifest/pages/_claim-{number:06d}.json")
        content = {"number": number, "writer": maker, "since": "", "plain": plain}
        await storage.put(claims[-1], json.dumps(content).encode())
    await tools.verify("pages", storage=storage)
    assert await names(storage, "_manifest/pages/_claim-") == claims
    await tools.verify("pages", storage=storage, delete=True)
    assert await names(storage, "_manifest/pages/_claim-") == claims[1:]


async def test_folder_is_verified_completely(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await write_pages(storage, "a/b/sheets", compression="GZIP")
    await asyncrec.write_records("a/plain.tfrecord", [b"x"], storage=storage)
    report = await tools.verify("a", storage=storage)
    assert report.ok
    assert report.records == 61
    assert report.to_json()["records"] == 61
