"""`open_sharded_writer(spool=...)`: records go through a local folder to a store that may be slow or down."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._records.index import parse_index
from asyncrec._shards.journal.home import LocalHome
from asyncrec._shards.journal.status import read_status
from asyncrec.errors import ConflictError, StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.disk import Disk
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._retry import retrying
from asyncrec.testing._cancellation import cancel_at_every_checkpoint
from asyncrec.testing._faults import Call, SlowStorage, T, _Around

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"record %06d" % i for i in range(start, start + count)]


async def stored(storage: Storage) -> list[bytes]:
    """Return the records that the manifest lists, after checking it against the objects."""
    found = []
    for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards:
        records = await asyncrec.read_records(shard.path, storage=storage)
        info = await storage.head(shard.path)
        assert (len(records), info.size) == (shard.records, shard.bytes)
        assert shard.crc32c in (None, info.crc32c) or info.crc32c is None
        if shard.index is not None:
            assert len(parse_index(await storage.get(shard.index.path))) == len(records)
        if shard.keys is not None:
            assert (await storage.head(shard.keys.path)).size == 16 * len(records)
        found += records
    return found


def files(folder: Path) -> list[str]:
    """Return the files that are left in a spool, except its lock."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".asyncrec-spool"
    )


class Outage(_Around):
    """A store that the test can switch on and off."""

    def __init__(self, storage: Storage, *, down: bool = False, error: type[StorageError] = TransientStorageError):
        super().__init__(storage)
        self.down = down
        self.error = error
        self.refused = 0

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if self.down:
            self.refused += 1
            raise self.error(f"{operation} {key}: the store is down, as asked")
        return await call()


class TestWriting:
    @pytest.mark.parametrize("options", [{}, {"compression": "GZIP"}, {"compression": "ZLIB"}, {"num_shards": 3}])
    async def test_spooled_records_reach_store_and_empty_spool(self, tmp_path: Path, options: dict[str, Any]) -> None:
        storage = MemoryStorage(chunk_size=1000)
        committed: list[asyncrec.ShardEntry] = []
        rolling = {} if "num_shards" in options else {"max_shard_records": 100, "open_shards": 2}
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, on_commit=committed.append, **options, **rolling
        ) as writer:
            for record in numbered(1000):
                await writer.write(record, key=record)
            assert await writer.flush() in ("spooled", "committed")
        assert sorted(await stored(storage)) == numbered(1000)
        assert sum(entry.records for entry in committed) == 1000
        assert files(tmp_path) == []
        assert writer.stats().spool_bytes == 0
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert manifest.writers[writer.writer_id].closed

    @pytest.mark.parametrize("compression", ["", "GZIP"])
    async def test_spooled_shards_are_identical_to_unspooled_shards(self, tmp_path: Path, compression: str) -> None:
        with_spool, without = MemoryStorage(), MemoryStorage()
        for storage, spool in ((with_spool, tmp_path), (without, None)):
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, spool=spool, writer_id="w", compression=compression
            ) as writer:
                for record in numbered(3000):
                    await writer.write(record, key=record)
        shard = "pages-w-000000.tfrecord"
        for key in (f"_index/{shard}.index", f"_keys/{shard}.keys"):
            assert await with_spool.get(key) == await without.get(key)
        # Compressed bytes depend on when the compressor is flushed, and spooled records are flushed automatically from
        # time to time.
        unpack = gzip.decompress if compression else bytes
        assert unpack(await with_spool.get(shard)) == unpack(await without.get(shard))

    async def test_tickets_reach_spooled_by_flush_and_committed_in_order(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage())
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, max_shard_records=10
        ) as writer:
            last = await writer.write_many(numbered(5))
            assert await writer.flush(require="spooled") == "spooled"
            await writer.wait(last, "spooled")
            storage.down = True
            last = await writer.write_many(numbered(20, 5))
            assert await writer.flush() == "spooled", "shards that are full are not committed yet"
            storage.down = False
            await writer.wait(20, "committed")
            assert len(await stored(storage)) == 20
            assert await writer.commit() == "committed"
            assert len(await stored(storage)) == 25

    async def test_shard_parts_are_uploaded_during_writing(self, tmp_path: Path) -> None:
        sent: list[int] = []

        class Counting(_Around):
            async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
                if operation == "send" and key.endswith(".tfrecord"):
                    sent.append(1)
                return await call()

        storage = Counting(MemoryStorage(chunk_size=1 << 20))
        async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path) as writer:
            for _ in range(64):
                await writer.write(bytes(200_000))
                await anyio.sleep(1)
            assert len(sent) >= 8, "of 12 MiB, all but what fills a chunk on either side"
        assert len(await stored(storage)) == 64

    async def test_replacing_writer_rejects_spool(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cannot be combined with mode='replace'"):
            async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=tmp_path, mode="replace"):
                pass


class TestStoreDown:
    async def test_failed_exit_counts_uncommitted_records_in_spool(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage())
        with pytest.raises(TransientStorageError) as caught:
            async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path) as writer:
                await writer.write_many(numbered(5))
                storage.down = True
        command = f"'asyncrec recover {tmp_path} --to memory://pages'"
        said = f"0 records were committed, 5 more are on the disk (to commit them, run {command})"
        assert any(note.endswith(said) for note in caught.value.__notes__)
        storage.down = False
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage)).records == 5

    @pytest.mark.slow
    async def test_hour_long_outage_blocks_no_writes(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage())
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, max_shard_records=10
        ) as writer:
            storage.down = True
            for record in numbered(360):
                ticket = await writer.write(record)
                await writer.wait(ticket, "spooled")
                await anyio.sleep(10)
            assert writer.stats().committed_records == 0
            assert writer.stats().upload_retries > 10
            storage.down = False
        assert await stored(storage) == numbered(360)
        assert files(tmp_path) == []

    async def test_failed_uploads_are_counted_and_shown_in_status(self, tmp_path: Path) -> None:
        tried = 0

        class Retrying(Outage):
            async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
                async def once() -> T:
                    nonlocal tried
                    tried += self.down and key.endswith(".tfrecord")
                    return await super(Retrying, self).perform(operation, key, call, short=short)

                return await retrying(once, what=operation)

        storage = Retrying(MemoryStorage())
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, max_shard_records=1
        ) as writer:
            storage.down = True
            await writer.write(b"a record")
            told = []
            for _ in range(20):
                await anyio.sleep(2)
                (header,) = LocalHome(LocalStorage(tmp_path)).headers()
                status = read_status(LocalStorage(tmp_path), header)
                told.append(status and status.waiting_for)
            assert tried - 1 <= writer.stats().upload_retries <= tried
            assert set(told[5:]) == {"store"}
            storage.down = False
        assert await stored(storage) == [b"a record"]

    async def test_writes_wait_for_store_beyond_spool_limit(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage())
        taken = 0

        async def crawl(writer: asyncrec.ShardedWriter) -> None:
            nonlocal taken
            for _ in range(200):
                await writer.write(bytes(100_000))
                taken += 1

        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, spool_limit=5_000_000, memory_limit=10 << 20, open_shards=2
        ) as writer:
            storage.down = True
            async with anyio.create_task_group() as group:
                group.start_soon(crawl, writer)
                await anyio.sleep(3600)
                assert 50 <= taken < 180, "the limit, and what memory holds"
                assert writer.stats().spool_bytes <= 5_000_000 + (10 << 20)
                assert await writer.flush() == "spooled", "flushing does not wait for the store"
                storage.down = False
            assert taken == 200
        assert len(await stored(storage)) == 200
        assert files(tmp_path) == []

    async def test_fixed_shards_beyond_spool_limit_raise_error(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="raise spool_limit"):
            async with asyncrec.open_sharded_writer(
                "pages", storage=MemoryStorage(), spool=tmp_path, num_shards=2, spool_limit=1_000_000
            ) as writer:
                for _ in range(100):
                    await writer.write(bytes(100_000))
                    await writer.flush()

    async def test_outage_at_exit_raises_and_loses_no_records(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage())
        with pytest.raises(TransientStorageError) as caught:
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, spool=tmp_path, max_shard_records=10, open_shards=2
            ) as writer:
                storage.down = True
                for record in numbered(55):
                    await writer.write(record, key=record)
        assert any("asyncrec recover" in note for note in caught.value.__notes__)
        storage.down = False
        recovery = await asyncrec.recover(tmp_path, to="pages", storage=storage)
        assert (recovery.records, recovery.cut_bytes) == (55, 0)
        assert sorted(await stored(storage)) == numbered(55)
        assert files(tmp_path) == []
        assert await asyncrec.recover(tmp_path, to="pages", storage=storage) == asyncrec.Recovery()

    async def test_permission_error_of_store_is_raised_at_once(self, tmp_path: Path) -> None:
        storage = Outage(MemoryStorage(), error=StoragePermissionError)
        with pytest.raises(StoragePermissionError):
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, spool=tmp_path, max_shard_records=10
            ) as writer:
                storage.down = True
                await writer.write_many(numbered(15))
                await writer.flush()
                await anyio.sleep(1)
                await writer.write(b"more")
                await writer.flush()
        storage.down = False
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage)).records >= 15
        assert (await stored(storage))[:15] == numbered(15)


class TestModes:
    async def test_spool_files_are_private_and_uploads_follow_umask(self, tmp_path: Path) -> None:
        before = os.umask(0o022)
        try:
            spool = tmp_path / "spool"
            down = Outage(LocalStorage(tmp_path / "store"))
            with pytest.raises(TransientStorageError):
                async with asyncrec.open_sharded_writer(
                    "pages", storage=down, spool=spool, max_shard_records=100
                ) as writer:
                    down.down = True
                    for record in numbered(350):
                        await writer.write(record, key=record)
                    await writer.flush()
            left = [path for path in spool.rglob("*") if path.is_file()]
            assert len(left) > 3
            assert {stat.S_IMODE(path.stat().st_mode) for path in left} == {0o600}
            assert stat.S_IMODE(spool.stat().st_mode) == 0o700
            down.down = False
            await asyncrec.recover(spool, to="pages", storage=down)
            found = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
            assert len(found) > 3
            assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o644}
        finally:
            os.umask(before)

    async def test_writer_header_is_readable_only_by_its_user(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write(b"x")
            await writer.flush()
            modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
        assert modes == {0o600}


class TestLeftovers:
    async def fail(self, storage: Storage, spool: Path, records: list[bytes], **options: Any) -> None:
        """Run a writer that flushes and then fails with an exception that discards its open shards."""
        with pytest.raises(RuntimeError, match="as asked"):
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, spool=spool, on_error="discard", **options
            ) as writer:
                for record in records:
                    await writer.write(record, key=record)
                await writer.flush(require="spooled")
                raise RuntimeError("as asked")

    @pytest.mark.parametrize("options", [{}, {"compression": "GZIP"}, {"compression": "ZLIB"}])
    async def test_next_writer_recovers_spool_and_knows_recovered_keys(
        self, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(25), **options)
        assert files(tmp_path) != []
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, on_duplicate="skip"
        ) as writer:
            assert await stored(storage) == numbered(25)
            assert writer.has(numbered(25)[24])
            for record in numbered(30):
                await writer.write(record, key=record)
        assert sorted(await stored(storage)) == numbered(30)
        assert writer.stats().duplicates == 25
        assert files(tmp_path) == []

    async def test_acknowledged_fixed_shards_are_recovered_as_complete_set(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(2), num_shards=4)
        recovery = await asyncrec.recover(tmp_path, to="pages", storage=storage)
        assert [shard.path for shard in recovery.shards] == [f"pages-0000{i}-of-00004.tfrecord" for i in range(4)]
        assert sorted(await stored(storage)) == numbered(2)
        assert files(tmp_path) == []

    async def test_dead_fixed_writer_keeps_data_set_until_spool_recovery(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(2), num_shards=2)
        with pytest.raises(ConflictError, match="recover the spool there"):
            async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=2):
                pass
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage)).records == 2
        assert sorted(await stored(storage)) == numbered(2)

    async def test_acknowledged_records_stay_in_spool_after_takeover(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(2), num_shards=2)
        async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=2, take_over=True) as writer:
            await writer.write(b"another")
        before = files(tmp_path)
        with pytest.raises(ConflictError, match="abandoned") as caught:
            await asyncrec.recover(tmp_path, to="pages", storage=storage)
        (note,) = [path for path in before if path.startswith(".pages.")]
        writer_id = note.split(".")[2]
        assert any(f"--abandon {writer_id}'" in note for note in caught.value.__notes__)
        assert files(tmp_path) == before
        assert await stored(storage) == [b"another"]
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage, abandon=[writer_id])).abandoned == (
            writer_id,
        )
        assert files(tmp_path) == []
        assert await stored(storage) == [b"another"]

    async def test_records_of_another_data_set_are_not_mixed_in(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(3))
        with pytest.raises(StorageError, match="recover them first"):
            async with asyncrec.open_sharded_writer("others", storage=storage, spool=tmp_path):
                pass
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage)).records == 3

    @pytest.mark.parametrize("local", [True, False])
    async def test_spool_is_not_accepted_as_data_set_folder(self, tmp_path: Path, local: bool) -> None:
        """Otherwise the spool's shards would be mistaken for published ones and removed."""
        spool, storage = tmp_path / "spool", LocalStorage(tmp_path / "crawl") if local else MemoryStorage()
        await self.fail(storage, spool, numbered(3))
        left = files(spool)
        with pytest.raises(StorageError, match=r"is a spool.*'asyncrec recover .*/spool --to \.\.\.' uploads"):
            await asyncrec.recover(spool / "pages")
        for name in ("pages", "others"):
            with pytest.raises(StorageError, match="is a spool"):
                async with asyncrec.open_sharded_writer(spool / name):
                    pass
            with pytest.raises(StorageError, match="is a spool"):
                async with asyncrec.open_sharded_writer(spool / name, num_shards=2):
                    pass
        assert files(spool) == left
        assert (await asyncrec.recover(spool, to="pages", storage=storage)).records == 3
        assert await stored(storage) == numbered(3)

    async def test_spool_of_foreign_job_with_same_id_is_kept(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        await self.fail(storage, tmp_path, numbered(3), writer_id="w")
        own = await storage.get("_manifest/pages/w-000000.jsonl")
        await storage.put("_manifest/pages/w-000000.jsonl", own.replace(b'"pid":', b'"pid":1'))
        left = files(tmp_path)
        with pytest.raises(ConflictError, match=r"another job with the id w"):
            await asyncrec.recover(tmp_path, to="pages", storage=storage)
        assert files(tmp_path) == left
        await storage.put("_manifest/pages/w-000000.jsonl", own)
        assert (await asyncrec.recover(tmp_path, to="pages", storage=storage)).records == 3

    async def test_data_set_folder_is_rejected_as_spool(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="pass another folder as spool="):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", spool=tmp_path):
                pass
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write_many(numbered(3))
        with pytest.raises(StorageError, match="pass another folder as spool="):
            async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=tmp_path):
                pass
        assert (await asyncrec.recover(tmp_path / "pages")).records == 0
        assert await stored(LocalStorage(tmp_path)) == numbered(3)

    async def test_spool_stores_schema_metadata_and_options(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        schema = {"version": 1, "features": {}, "allow_extra": True}
        await self.fail(
            storage,
            tmp_path,
            numbered(3),
            schema=schema,
            metadata={"crawl": 7},
            index=False,
            compression="GZIP",
            validate="none",
        )
        await asyncrec.recover(tmp_path, to="pages", storage=storage)
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert (manifest.schema, manifest.metadata) == (schema, {"crawl": 7})
        assert [(shard.compression, shard.index) for shard in manifest.shards] == [("GZIP", None)]

    async def test_spool_contains_no_credentials(self, tmp_path: Path) -> None:
        asyncrec.storage.register_writer_factory(
            "vault", asyncrec.storage.StorageFactory("vault", ("vault",), _open_vault)
        )
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer(
                "vault://user:hunter2@x/pages", storage_options={"secret": "hunter2"}, spool=tmp_path
            ) as writer:
                await writer.write(b"1")
                await writer.flush()
                content = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
                assert len(content) >= 3
                assert not any(b"hunter2" in each for each in content)
                raise RuntimeError


def _open_vault(url: str, *, secret: str = "") -> Any:
    from contextlib import nullcontext

    return nullcontext(MemoryStorage())


class TestOwner:
    async def test_second_spool_writer_is_rejected_naming_process(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path):
            with pytest.raises(StorageError, match=f"process {os.getpid()} is still using this folder"):
                async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path):
                    pass
            with pytest.raises(StorageError, match=f"process {os.getpid()} is still using this folder"):
                await asyncrec.recover(tmp_path, to="pages", storage=storage)
        assert await asyncrec.recover(tmp_path, to="pages", storage=storage) == asyncrec.Recovery()

    async def test_spool_marker_is_durable_before_first_header(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise a power cut could leave a header in a folder that no command recognises as a spool."""
        synced: list[list[str]] = []
        real = Disk.sync_folder

        def sync(disk: Disk, folder: str) -> None:
            if folder == str(tmp_path):
                synced.append(os.listdir(folder))
            real(disk, folder)

        monkeypatch.setattr(Disk, "sync_folder", sync)
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=tmp_path):
            pass
        assert synced[0] == [".asyncrec-spool"]


class TestCancelled:
    async def test_cancellation_at_every_await_loses_no_acknowledged_records(self, tmp_path: Path) -> None:
        storage = MemoryStorage()
        acknowledged: set[bytes] = set()
        run = 0

        async def crawl() -> None:
            nonlocal run
            run += 1
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, spool=tmp_path, max_shard_records=3, exit_timeout=0.001
            ) as writer:
                for n in range(5):
                    record = b"%d %d" % (run, n)
                    ticket = await writer.write(record, key=record)
                    if n % 2:
                        await writer.wait(ticket, "spooled")
                        acknowledged.add(record)

        await cancel_at_every_checkpoint(crawl)
        await asyncrec.recover(tmp_path, to="pages", storage=storage)
        found = await stored(storage)
        assert acknowledged <= set(found)
        assert len(found) == len(set(found))
        assert files(tmp_path) == []


class TestMemory:
    async def test_memory_stays_within_limit_for_slow_store(self, tmp_path: Path) -> None:
        storage = SlowStorage(MemoryStorage(), bytes_per_second=1e6)
        limit = 4 << 20
        most = 0
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, spool_limit=8 << 20, memory_limit=limit, max_shard_bytes=1 << 20
        ) as writer:
            for _ in range(400):
                await writer.write(bytes(100_000))
                stats = writer.stats()
                most = max(most, stats.buffered_bytes + stats.reserved_bytes)
        assert most <= limit
        assert len(await stored(storage)) == 400
