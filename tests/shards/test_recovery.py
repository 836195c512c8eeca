"""`asyncrec.recover` for a local data set: it finds the records of dead writers through their headers. (`test_torture`
kills real processes.)"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

import asyncrec
import asyncrec.blocking
import asyncrec.tools
from asyncrec._framing.frames import encode_frames
from asyncrec._shards.journal.home import LocalHome
from asyncrec._shards.journal.staging import LocalStaging
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._prefixed import PrefixedStorage

from .mortal import dies

pytestmark = pytest.mark.anyio

RECORDS = [b"record %06d" % i for i in range(100)]


async def die(path: Path, count: int = 100, **options: Any) -> None:
    """Run a writer that flushes, and then fails and discards its open shards; the flushed records stay."""
    with pytest.raises(RuntimeError, match="as asked"):
        async with asyncrec.open_sharded_writer(path, on_error="discard", writer_id="w", **options) as writer:
            for record in RECORDS[:count]:
                await writer.write(record, key=record)
            assert await writer.flush(require="spooled") == "spooled"
            raise RuntimeError("as asked")


async def stored(path: Path) -> list[bytes]:
    return [record for shard in await asyncrec.list_shards(path) for record in await asyncrec.read_records(shard)]


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.partial")] + [path.name for path in folder.rglob("*.damaged")]


class TestJournals:
    @pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
    async def test_recovery_truncates_torn_tail_and_commits_rest(self, tmp_path: Path, compression: str) -> None:
        await die(tmp_path / "pages", compression=compression)
        (journal,) = tmp_path.glob(".pages-*.tfrecord.w.partial")
        append(journal, RECORDS[0] if compression else encode_frames([b"torn"])[0][:-3])
        recovery = await asyncrec.recover(tmp_path / "pages")
        assert (recovery.records, len(recovery.shards)) == (100, 1)
        if not compression:
            assert (recovery.cut_bytes, recovery.damaged) == (17, ())
        assert await stored(tmp_path / "pages") == RECORDS
        async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
            assert await dataset.get_by_key(RECORDS[42]) == RECORDS[42]
        assert [name for name in left(tmp_path) if not name.endswith(".damaged")] == []
        assert await asyncrec.recover(tmp_path / "pages") == asyncrec.Recovery()

    async def test_recovery_removes_trailing_zeros_and_keeps_damaged_bytes(self, tmp_path: Path) -> None:
        for name, tail, kept in (("zeros", bytes(5000), 0), ("bytes", b"\xa5" * 5000, 1)):
            await die(tmp_path / name)
            (journal,) = tmp_path.glob(f".{name}-*.tfrecord.w.partial")
            append(journal, tail)
            recovery = await asyncrec.recover(tmp_path / name)
            assert (recovery.records, recovery.cut_bytes, len(recovery.damaged)) == (100, 5000, kept)
            assert all(Path(path).stat().st_size > 5000 for path in recovery.damaged)

    async def test_recovery_drops_records_without_written_keys(self, tmp_path: Path) -> None:
        await die(tmp_path / "pages")
        (keys,) = (tmp_path / "_keys").glob("*.partial")
        os.truncate(keys, 16 * 40 + 5)
        assert (await asyncrec.recover(tmp_path / "pages")).records == 40
        async with asyncrec.open_sharded_writer(tmp_path / "pages", on_duplicate="skip") as writer:
            assert [writer.has(record) for record in RECORDS[39:41]] == [True, False]

    async def test_recovery_keeps_keys_first_used_after_flush(self, tmp_path: Path) -> None:
        pages = [record * 1000 for record in RECORDS]
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer(
                "pages", storage=LocalStorage(tmp_path, chunk_size=2000), on_error="discard"
            ) as writer:
                await writer.write_many(pages[:10])
                await writer.flush()
                for page in pages[10:]:
                    await writer.write(page, key=page)
                (journal,) = tmp_path.glob(".pages-*.tfrecord.*.partial")
                with anyio.fail_after(10):
                    while journal.stat().st_size < 500_000:  # of 1.3 million bytes, which a thread writes in chunks
                        await anyio.lowlevel.checkpoint()
                raise RuntimeError
        recovered = (await asyncrec.recover(tmp_path / "pages")).records
        assert recovered > 10
        async with asyncrec.open_sharded_writer(tmp_path / "pages", on_duplicate="skip") as writer:
            assert [writer.has(page) for page in pages] == [10 <= n < recovered for n in range(100)]

    async def test_recovery_keeps_empty_records_and_records_exceeding_batch(self, tmp_path: Path) -> None:
        large = [os.urandom(3_000_000), b"", os.urandom(1)]
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", on_error="discard", open_shards=2) as writer:
                for record in large:
                    await writer.write(record, partition=1)
                await writer.flush()
                raise RuntimeError
        assert (await asyncrec.recover(tmp_path / "pages")).records == 3
        assert await stored(tmp_path / "pages") == large

    async def test_recovery_works_within_prefix_of_open_storage(self, tmp_path: Path) -> None:
        storage = PrefixedStorage(LocalStorage(tmp_path), "a/b")
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer("c/pages", storage=storage, on_error="discard") as writer:
                await writer.write_many(RECORDS)
                await writer.flush()
                raise RuntimeError
        assert (await asyncrec.recover("c/pages", storage=storage)).records == 100
        assert await stored(tmp_path / "a/b/c/pages") == RECORDS


class TestFixed:
    async def test_unacknowledged_fixed_shards_are_discarded(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path)
        assert not (await crashed(storage, num_shards=2)).acknowledged
        recovery = await asyncrec.recover(tmp_path / "pages")
        assert recovery.discarded == ("pages-00000-of-00002.tfrecord", "pages-00001-of-00002.tfrecord")
        assert (recovery.shards, left(tmp_path)) == ((), [])

    async def test_acknowledged_fixed_shards_become_whole_data_set(self, tmp_path: Path) -> None:
        await die(tmp_path / "pages", num_shards=3, count=2)
        recovery = await asyncrec.recover(tmp_path / "pages")
        assert [shard.records for shard in recovery.shards] == [1, 1, 0]
        assert left(tmp_path) == []
        assert (await asyncrec.read_manifest(tmp_path / "pages")).writers["w"].closed


class TestReplacing:
    async def test_flush_of_replacing_writer_acknowledges_nothing(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write(b"old")
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", mode="replace") as writer:
                ticket = await writer.write(b"new")
                assert await writer.flush() == "buffered"
                with pytest.raises(
                    ValueError, match="a writer that replaces a data set publishes everything or nothing, so it cannot"
                ):
                    await writer.wait(ticket, "spooled")
                raise RuntimeError
        assert left(tmp_path) == []
        assert await asyncrec.recover(tmp_path / "pages") == asyncrec.Recovery()
        assert await stored(tmp_path / "pages") == [b"old"]


class TestOwners:
    async def test_living_writer_is_not_recovered(self, tmp_path: Path) -> None:
        await die(tmp_path / "pages", count=10)
        async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="alive", recover=False) as writer:
            await writer.write_many(RECORDS)
            await writer.flush()
            recovery = await asyncrec.recover(tmp_path / "pages")
            assert (recovery.records, recovery.in_use) == (10, ("alive",))
        assert len(await stored(tmp_path / "pages")) == 110

    async def test_id_of_dead_writer_is_rejected_before_recovery(self, tmp_path: Path) -> None:
        await die(tmp_path / "pages")
        with pytest.raises(StorageError, match="recover them first"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w"):
                pass

    async def test_torn_or_malformed_header_is_ignored(self, tmp_path: Path) -> None:
        (tmp_path / ".pages.w.partial").write_bytes(b'1\n{"format": "asyncrec journal 1", "name"')
        (tmp_path / ".pages.v.partial").write_bytes(b"[" * 100_000)
        (tmp_path / ".pages.u.partial").write_bytes(b'1\n{"format": "asyncrec journal 1", "name": 1}\n')
        assert LocalHome(LocalStorage(tmp_path)).headers() == []
        with pytest.raises(ObjectNotFoundError, match="no such file, folder or data set"):
            await asyncrec.recover(tmp_path / "pages")


class TestUnlisted:
    async def test_recovery_leaves_shards_without_mark_at_any_age(self, tmp_path: Path) -> None:
        """These shards have no known owner. `asyncrec.tools.verify` lists them, and adopts or deletes them if asked."""
        path = tmp_path / "pages-gone-000000.tfrecord"
        await asyncrec.write_records(path, RECORDS)
        os.utime(path, (1e9, 1e9))
        assert await asyncrec.recover(tmp_path / "pages") == asyncrec.Recovery()
        assert path.exists()


class TestGroupCommit:
    async def test_64_concurrent_flushes_share_one_fsync(self, tmp_path: Path) -> None:
        fsyncs = 0

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

            def fsync(self, fd: int) -> None:
                nonlocal fsyncs
                fsyncs += 1
                os.fsync(fd)

        async with asyncrec.open_sharded_writer("pages", storage=LocalStorage(tmp_path, system=Counting())) as writer:
            await writer.write(b"first")
            await writer.flush()  # also makes the file's name durable
            fsyncs = 0

            async def work(record: bytes) -> None:
                ticket = await writer.write(record)
                await writer.wait(ticket, "spooled")

            async with anyio.create_task_group() as group:
                for record in RECORDS[:64]:
                    group.start_soon(work, record)
            assert fsyncs <= 2, "the first one, and one for all who came while it was under way"


def append(path: Path, data: bytes | bytearray | memoryview) -> None:
    with path.open("ab") as file:
        file.write(data)


async def crashed(storage: LocalStorage, **options: Any) -> LocalStaging:
    """Recreate the files that ``kill -9`` would leave of a writer that has not flushed, and return its journal."""
    folder = Path(storage.folder)
    saved: dict[Path, bytes] = {}
    with pytest.raises(RuntimeError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=LocalStorage(folder, chunk_size=100), on_error="discard", **options
        ) as writer:
            await writer.write_many(RECORDS)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            saved.update((path, path.read_bytes()) for path in folder.rglob("*.partial"))
            raise RuntimeError
    assert left(folder) == []
    for path, content in saved.items():
        path.write_bytes(content)
    (header,) = LocalHome(storage).headers()
    journal = LocalStaging.claim(storage, header.name, header.writer)
    assert journal is not None
    journal.end(keep=True)
    return journal


class TestFolder:
    async def test_recovery_covers_each_data_set_below_folder(self, tmp_path: Path) -> None:
        await die(tmp_path / "crawl" / "pages")
        await die(tmp_path / "crawl" / "deep" / "items", 7)
        recovery = await asyncrec.recover(tmp_path / "crawl")
        assert recovery.records == 107
        assert sorted(Path(target).name for target in recovery.targets) == ["items", "pages"]
        assert await stored(tmp_path / "crawl" / "deep" / "items") == RECORDS[:7]
        assert left(tmp_path) == []
        assert await asyncrec.recover(f"{tmp_path / 'crawl'}/") == asyncrec.Recovery()

    async def test_recovery_names_moved_data_set_by_new_path(self, tmp_path: Path) -> None:
        await die(tmp_path / "crawl" / "pages")
        (tmp_path / "crawl").rename(tmp_path / "moved")
        recovery = await asyncrec.recover(tmp_path / "moved" / "pages")
        assert (recovery.records, recovery.targets) == (100, (str(tmp_path / "moved" / "pages"),))

    async def test_store_marks_are_found_below_folder(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("crawl/pages", storage=storage, writer_id="w") as writer:
            with pytest.raises(asyncrec.errors.ConflictError, match=r"the writer w .* is still running; stop it first"):
                await asyncrec.recover("crawl", storage=storage, abandon=["w"])
            assert (await asyncrec.recover("crawl", storage=storage)).in_use == ("w",)
            await writer.write(b"")


class TestNothing:
    @pytest.mark.parametrize("path", ["nosuch/pages", "nosuch", "here", "here/other", "here/page"])
    async def test_path_without_files_raises_object_not_found(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "here").mkdir()
        if path == "here/page":
            await die(tmp_path / "here" / "pages")
        with pytest.raises(ObjectNotFoundError, match=f"^{tmp_path / path}: "):
            await asyncrec.recover(tmp_path / path)
        with pytest.raises(ObjectNotFoundError, match=f"^{tmp_path / path}: "):
            await to_thread.run_sync(asyncrec.blocking.recover, tmp_path / path)
        with pytest.raises(ObjectNotFoundError, match=f"^{tmp_path / path}: "):
            await asyncrec.tools.recover(tmp_path / path)

    async def test_empty_store_raises_object_not_found(self) -> None:
        storage = MemoryStorage()
        with pytest.raises(ObjectNotFoundError, match="there is no such file, folder or data set"):
            await asyncrec.recover("crawl/pages", storage=storage)
        with pytest.raises(ObjectNotFoundError, match="nothing is stored here"):
            await asyncrec.recover("", storage=storage)

    @pytest.mark.parametrize("options", [{}, {"num_shards": 2}, {"mode": "replace"}])
    async def test_second_recovery_finds_nothing_without_error(self, tmp_path: Path, options: dict[str, Any]) -> None:
        """This holds even if the first recovery abandoned every job that it found."""
        storage = LocalStorage(tmp_path)
        await dies(storage, writer_id="gone", **options)
        await asyncrec.recover(tmp_path / "pages")
        assert await asyncrec.recover(tmp_path / "pages") == asyncrec.Recovery()
        assert (await asyncrec.tools.recover(tmp_path / "pages")).recovery == asyncrec.Recovery()

    async def test_recovery_accepts_path_of_shards_without_manifest(self, tmp_path: Path) -> None:
        await asyncrec.write_records(tmp_path / "pages-00000-of-00001.tfrecord", RECORDS)
        for path in (tmp_path, tmp_path / "pages", tmp_path / "pages-00000-of-00001.tfrecord"):
            assert await asyncrec.recover(path) == asyncrec.Recovery()
