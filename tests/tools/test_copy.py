"""`copy` makes verified byte-for-byte copies, resumes after interruptions, and overwrites only on request."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool_data import change, data_names, killed, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import (
    ArgumentValueError,
    ConflictError,
    IntegrityError,
    ObjectExistsError,
    ObjectNotFoundError,
    TransientStorageError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import Fault, FlakyStorage

pytestmark = pytest.mark.anyio


async def test_copy_includes_all_objects_of_data_set(storage: Storage) -> None:
    await write_pages(storage, "a/pages", compression="GZIP")
    before = await asyncrec.read_manifest("a/pages", storage=storage)
    report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    after = await asyncrec.read_manifest("b/pages", storage=storage)
    assert after.id == before.id
    assert after.schema == before.schema
    assert after.metadata == before.metadata
    assert len(report.copied) == 9
    assert report.bytes == sum([(await storage.head(key)).size for key in report_keys(report.copied, storage)])
    assert (await tools.verify("b/pages", storage=storage)).ok
    async with asyncrec.open_dataset("b/pages", storage=storage) as dataset:
        assert b"text 7" in await dataset.get_by_key("key 7")


def report_keys(paths: list[str], storage: Storage) -> list[str]:
    return [path.removeprefix(storage.root).lstrip("/") for path in paths]


async def test_copy_under_new_name_renames_shards(storage: Storage) -> None:
    await write_pages(storage)
    await tools.copy("pages", "sheets", storage=storage, target_storage=storage)
    assert all(shard.path.startswith("sheets-") for shard in (await manifest(storage, "sheets")).shards)
    report = await tools.verify("sheets", storage=storage)
    assert report.ok
    assert report.orphans == []


async def manifest(storage: Storage, path: str) -> asyncrec.Manifest:
    return await asyncrec.read_manifest(path, storage=storage)


async def test_repeated_copy_updates_grown_data_set(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    await write_pages(storage, "a/pages", records=10)
    report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert len(report.copied) == 3
    assert len((await manifest(storage, "b/pages")).shards) == 4
    again = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert again.copied == []
    assert (await manifest(storage, "b/pages")).id == (await manifest(storage, "a/pages")).id


async def test_shard_missing_in_copy_is_copied_again(storage: Storage) -> None:
    """No commit is needed, because the manifest already lists the shard."""
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    entry = (await manifest(storage, "b/pages")).shards[1]
    segments = await names(storage, "b/_manifest/")
    assert entry.index is not None
    for path in (entry.path, entry.index.path):
        await storage.delete(f"b/{path}")
    report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert sorted(report_keys(report.copied, storage)) == sorted([f"b/{entry.path}", f"b/{entry.index.path}"])
    assert len(report.kept) == 7
    assert (await tools.verify("b/pages", storage=storage)).ok
    assert await names(storage, "b/_manifest/") == segments


async def test_truncated_shard_of_copy_is_copied_again(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    shard = (await manifest(storage, "b/pages")).shards[1].path
    await storage.put(f"b/{shard}", (await storage.get(f"b/{shard}"))[:100])
    report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert report_keys(report.copied, storage) == [f"b/{shard}"]
    assert (await tools.verify("b/pages", storage=storage)).ok


async def test_repeated_copy_adds_new_and_missing_shards(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    await storage.delete(f"b/{(await manifest(storage, 'b/pages')).shards[1].path}")
    await write_pages(storage, "a/pages", records=10)
    report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert len(report.copied) == 4
    assert (await tools.verify("b/pages", storage=storage)).ok
    assert (await manifest(storage, "b/pages")).id == (await manifest(storage, "a/pages")).id


async def test_shard_missing_in_source_is_named(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    for folder in "ab":
        await storage.delete(f"{folder}/{(await manifest(storage, 'a/pages')).shards[1].path}")
    with pytest.raises(ObjectNotFoundError, match="a/pages-"):
        await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)


async def test_missing_shard_error_mentions_manifest(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await storage.delete(f"a/{(await manifest(storage, 'a/pages')).shards[1].path}")
    with pytest.raises(ObjectNotFoundError, match="the manifest lists this shard"):
        await tools.reshard("a/pages", "b/pages", num_shards=1, storage=storage, target_storage=storage)
    with pytest.raises(ObjectNotFoundError, match="the manifest lists this shard"):
        await tools.dedupe("a/pages", "c/pages", by="key", storage=storage, target_storage=storage)
    (problem,) = (await tools.verify("a/pages", storage=storage)).shards[1].problems
    assert problem.message.endswith("to restore it, run 'asyncrec copy' from another copy of the data set")


async def test_shard_replaced_during_healing_is_not_restored(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    shard = (await manifest(storage, "b/pages")).shards[1].path
    await storage.delete(f"b/{shard}")
    replaced: list[str] = []

    class Meanwhile(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            if operation == "publish" and not replaced:
                replaced.append(key)
                await write_pages(storage, "b/pages", mode="replace")
            return await call()

    with pytest.raises(ConflictError, match="replaced during"):
        await tools.copy("a/pages", "b/pages", storage=storage, target_storage=Meanwhile(storage))
    assert replaced == [f"b/{shard}"]
    report = await tools.verify("b/pages", storage=storage)
    assert report.ok
    assert report.orphans == []


async def test_copy_rejects_target_with_another_data_set(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    await write_pages(storage, "b/pages")
    with pytest.raises(ObjectExistsError, match="another data set"):
        await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)


async def test_existing_folder_is_rejected_as_copy_target(tmp_path: Path) -> None:
    source = LocalStorage(tmp_path)
    await write_pages(source, "a/pages")
    (tmp_path / "local").mkdir()
    with pytest.raises(ObjectExistsError, match=r"local is a folder, .* copy to .*local/pages$"):
        await tools.copy(tmp_path / "a/pages", tmp_path / "local")
    with pytest.raises(ArgumentValueError, match=r"to copy it into that folder, use .*/local/pages$"):
        await tools.copy(tmp_path / "a/pages", f"{tmp_path}/local/")
    await tools.copy(tmp_path / "a/pages", tmp_path / "local/pages")
    await tools.copy(tmp_path / "a/pages", tmp_path / "new")
    (tmp_path / "new").mkdir()  # next to a data set of the same name
    assert len((await tools.copy(tmp_path / "a/pages", tmp_path / "new")).kept) == 9


async def test_copy_reports_objects_compared_only_by_size(tmp_path: Path) -> None:
    """A disk provides no checksums, so damage that keeps the size goes unnoticed; the report lists these objects."""
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await write_pages(storage, "a/pages")
        await tools.copy(tmp_path / "a/pages", tmp_path / "b/pages")
        shard = next(key for key in await data_names(storage, "b/") if key.endswith(".tfrecord"))
        await change(storage, shard, 40)
        report = await tools.copy(tmp_path / "a/pages", tmp_path / "b/pages")
        assert (report.copied, len(report.kept_by_size)) == ([], 9)
        assert report.kept_by_size == report.kept == report.to_json()["kept_by_size"]


async def test_copy_compares_checksums_provided_by_store(storage: Storage) -> None:
    memory = MemoryStorage()
    await write_pages(storage)
    for _ in range(2):
        report = await tools.copy("pages", "pages", storage=storage, target_storage=memory)
    assert (len(report.kept), report.kept_by_size) == (9, [])
    shard = next(key for key in await data_names(memory) if key.endswith(".tfrecord"))
    await change(memory, shard, 40)
    report = await tools.copy("pages", "pages", storage=storage, target_storage=memory)
    assert len(report.copied) == 1


async def test_damaged_shard_is_not_copied_or_committed(storage: Storage) -> None:
    await write_pages(storage, "a/pages")
    shard = (await manifest(storage, "a/pages")).shards[1].path
    await change(storage, f"a/{shard}", 20)
    with pytest.raises(IntegrityError, match=r"damaged .* and was not copied"):
        await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
    assert f"b/{shard}" not in await names(storage, "b/")
    with pytest.raises(ObjectNotFoundError):
        await manifest(storage, "b/pages")


@pytest.mark.usefixtures("no_waiting")
async def test_interrupted_copy_is_completed_by_copying_again(tmp_path: Path) -> None:
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        await write_pages(storage, "a/pages", records=20)
        calm = FlakyStorage(storage)
        await tools.copy("a/pages", "calm/pages", storage=storage, target_storage=calm)
        committed = max(
            k for k, each in enumerate(calm.operations) if each[0] == "publish" and "/_manifest/" in each[1]
        )
        for k in range(0, len(calm.operations), 3):
            target = f"b{k}/pages"
            flaky = FlakyStorage(storage, {k: Fault("error", for_good=True)})
            if k <= committed:
                with pytest.raises(TransientStorageError):
                    await tools.copy("a/pages", target, storage=storage, target_storage=flaky)
            else:  # only removing the mark and the claim failed
                await tools.copy("a/pages", target, storage=storage, target_storage=flaky)
                assert (await tools.verify(target, storage=storage)).ok
            await tools.copy("a/pages", target, storage=storage, target_storage=storage)
            assert (await tools.verify(target, storage=storage)).ok


async def test_concurrent_copies_to_one_name_raise_conflict(storage: Storage) -> None:
    """Two data sets are copied to one name: the second copy raises, and the first one's result is complete."""
    await write_pages(storage, "a/pages", num_shards=3, max_shard_records=None)
    await write_pages(storage, "b/pages", num_shards=3, max_shard_records=None, records=12)
    second: list[BaseException] = []

    class Meanwhile(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            result = await call()
            if operation == "publish" and key.endswith(".tfrecord") and not second:
                with pytest.raises(ConflictError) as caught:
                    await tools.copy("b/pages", "c/pages", storage=storage, target_storage=storage)
                second.append(caught.value)
            return result

    await tools.copy("a/pages", "c/pages", storage=storage, target_storage=Meanwhile(storage))
    assert "has not finished writing this data set: it is still running" in str(second[0])
    assert (await manifest(storage, "c/pages")).id == (await manifest(storage, "a/pages")).id
    report = await tools.verify("c/pages", storage=storage)
    assert report.ok
    assert report.orphans == []
    assert len(await data_names(storage, "c/")) == 9


async def test_killed_copy_is_resumed_and_recovered_without_leftovers(tmp_path: Path) -> None:
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await write_pages(storage, "a/pages", num_shards=3, max_shard_records=None)
        progress = "lambda done, total: done > 900 and os._exit(9)"
        await killed(tmp_path, f"tools.copy('a/pages', 'b/pages', parallelism=1, progress={progress})", shards=0)
        left = await data_names(storage, "b/")
        assert 0 < len(left) < 9
        report = await tools.copy("a/pages", "b/pages", storage=storage, target_storage=storage)
        assert len(report.kept) == len(left)
        await asyncrec.recover(tmp_path / "b/pages")
        assert (await manifest(storage, "b/pages")).id == (await manifest(storage, "a/pages")).id
        verified = await tools.verify("b/pages", storage=storage)
        assert verified.ok
        assert verified.orphans == []
        assert not list(tmp_path.rglob("*.partial"))


async def test_files_are_copied_to_file_or_folder(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"x"], storage=storage)
    await tools.copy("x.tfrecord", "y.tfrecord", storage=storage, target_storage=storage)
    await tools.copy("x.tfrecord", "deep/", storage=storage, target_storage=storage)
    await tools.copy("*.tfrecord", "all", storage=storage, target_storage=storage)
    assert await names(storage) == ["all/x.tfrecord", "all/y.tfrecord", "deep/x.tfrecord", "x.tfrecord", "y.tfrecord"]


async def test_folder_is_copied_with_data_sets_and_files(storage: Storage) -> None:
    await write_pages(storage, "data/deep/pages")
    await asyncrec.write_records("data/x.tfrecord", [b"x"], storage=storage)
    await tools.copy("data", "copy", storage=storage, target_storage=storage)
    report = await tools.verify("copy", storage=storage)
    assert report.ok
    assert report.records == 31
    assert (await manifest(storage, "copy/deep/pages")).records == 30


async def test_other_file_is_replaced_only_with_overwrite(storage: Storage) -> None:
    await storage.put("x", b"one")
    await storage.put("y", b"two")
    with pytest.raises(ObjectExistsError, match="overwrite"):
        await tools.copy("x", "y", storage=storage, target_storage=storage)
    await tools.copy("x", "y", storage=storage, target_storage=storage, overwrite=True)
    assert await storage.get("y") == b"one"
    assert (await tools.copy("x", "y", storage=storage, target_storage=storage)).kept


@pytest.mark.parametrize("target", ["pages", "b/pages"])
async def test_foreign_object_named_as_shard_is_never_replaced(storage: Storage, target: str) -> None:
    await write_pages(storage, "a/pages")
    path = target.replace("pages", (await manifest(storage, "a/pages")).shards[1].path)
    await storage.put(path, b"foreign")
    with pytest.raises(ObjectExistsError):
        await tools.copy("a/pages", target, storage=storage, target_storage=storage, overwrite=True)
    assert await storage.get(path) == b"foreign"


async def test_comparison_of_copy_resumes_after_broken_connection(tmp_path: Path) -> None:
    """A disk stores no checksums, so the existing copy has to be read."""
    source, target = LocalStorage(tmp_path / "a"), LocalStorage(tmp_path / "b")
    await source.put("file", b"bytes" * 1000)
    await tools.copy("file", "file", storage=source, target_storage=target)
    calm = FlakyStorage(target, {})
    await tools.copy("file", "file", storage=source, target_storage=calm)
    reads = [k for k, operation in enumerate(calm.operations) if operation[0] == "receive"]
    assert reads
    flaky = FlakyStorage(target, {reads[0]: Fault("error")})
    assert (await tools.copy("file", "file", storage=source, target_storage=flaky)).copied == []
