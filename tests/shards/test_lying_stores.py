"""A store whose responses contain a wrong checksum, a wrong size, or another writer's object."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.spool.uploader import Uploader
from asyncrec.errors import ConflictError, IntegrityError, ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import ByteSink, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Call, T, _Around

from . import mortal

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

RECORDS = [b"record %06d" % i for i in range(20)]
LIES: dict[str, Callable[[ObjectInfo], ObjectInfo]] = {
    "another checksum": lambda info: replace(info, crc32c=(info.crc32c or 0) ^ 1),
    "a byte more": lambda info: replace(info, size=info.size + 1),
    "a byte less and no checksum": lambda info: replace(info, size=info.size - 1, crc32c=None),
}


class Lying(_Around):
    """A store whose responses about the keys that ``about`` selects are wrong."""

    def __init__(self, about: Callable[[str], bool], lie: Callable[[ObjectInfo], ObjectInfo]) -> None:
        super().__init__(MemoryStorage())
        self.about, self.lie = about, lie

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        return await call()

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        assert sink.published is not None
        if self.about(key):
            sink.published = self.lie(sink.published)


WHAT: dict[str, Callable[[str], bool]] = {
    "shard": lambda key: key.endswith(".tfrecord"),
    "index": lambda key: key.endswith(".index"),
    "keys": lambda key: key.endswith(".keys"),
}


async def write(storage: Storage, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, exit_timeout=5, **options) as writer:
        for record in RECORDS:
            await writer.write(record, key=record)


async def committed(storage: Storage) -> int:
    try:
        return len((await asyncrec.read_manifest("pages", storage=storage)).shards)
    except ObjectNotFoundError:
        return 0


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("options", [{}, {"num_shards": 2}, {"mode": "replace"}], ids=["rolling", "fixed", "replace"])
async def test_writer_checks_stored_object_against_sent_bytes(what: str, lie: str, options: dict[str, Any]) -> None:
    storage = Lying(WHAT[what], LIES[lie])
    with pytest.raises(IntegrityError, match=r"[\d,]+ bytes.* were sent"):
        await write(storage, **options)
    assert await committed(storage) == 0
    left = [info.key async for info in storage.list_objects() if not info.key.startswith("_manifest/")]
    assert left == []


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("what", WHAT)
async def test_spool_keeps_shards_misreported_by_store(tmp_path: Path, what: str, lie: str) -> None:
    storage = Lying(WHAT[what], LIES[lie])
    with pytest.raises(IntegrityError, match="stays in the spool"):
        await write(storage, spool=tmp_path)
    assert await committed(storage) == 0
    assert list(tmp_path.glob("*.tfrecord"))


class Damaging(Lying):
    """A store that damages objects under the keys that ``about`` selects, and reports the damaged data's checksum."""

    def __init__(self, about: Callable[[str], bool], damage: Callable[[bytes], bytes]) -> None:
        super().__init__(about, lambda info: info)
        self.damage = damage

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        if self.about(key):
            content = self.damage(await self._storage.get(key))
            await self._storage.delete(key)
            sink.published = await self._storage.put(key, content)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a byte less": lambda content: content[:-1],
    "another byte": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "nothing": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("options", [{"max_shard_records": 1}, {"num_shards": 2}], ids=["rolling", "fixed"])
async def test_spool_recovers_shard_damaged_by_store(
    tmp_path: Path, options: dict[str, Any], compression: str, damage: str
) -> None:
    storage = Damaging(lambda key: re.search("^pages.*-0*1(-of-0*2)?[.]tfrecord$", key) is not None, DAMAGE[damage])
    with pytest.raises(IntegrityError, match="stays in the spool"):
        await write(storage, spool=tmp_path, compression=compression, **options)
    storage.about = lambda key: False
    if "num_shards" in options:  # the name is fixed, and its object may be another writer's
        with pytest.raises(ConflictError, match="delete it and recover again"):
            await asyncrec.recover(tmp_path, to="pages", storage=storage)
        await storage.delete("pages-00001-of-00002.tfrecord")
    await asyncrec.recover(tmp_path, to="pages", storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert sorted([record async for record in dataset]) == RECORDS
    report = await tools.verify("pages", storage=storage, min_age=-60)
    assert report.ok
    assert report.orphans == []
    assert not list(tmp_path.glob("**/*.tfrecord*"))


async def test_flushed_records_are_recovered_beside_shorter_shard() -> None:
    """The store has truncated the shard that the writer was publishing when it died."""
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w") as writer:
        await writer.write_many(RECORDS)
        assert await writer.flush() == "spooled"
    await storage.put("pages-w-000000.tfrecord", b"")
    assert (await asyncrec.recover("pages", storage=storage)).records == len(RECORDS)
    assert [info.key async for info in storage.list_objects("pages-w-")] == []


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("what", WHAT)
async def test_copy_and_reshard_reject_objects_differing_from_sent_bytes(what: str, lie: str) -> None:
    source = MemoryStorage()
    await write(source)
    storage = Lying(WHAT[what], LIES[lie])
    with pytest.raises(IntegrityError):
        await tools.copy("pages", "pages", storage=source, target_storage=storage)
    with pytest.raises(IntegrityError):
        await tools.reshard("pages", "others", storage=source, target_storage=storage, num_shards=2)
    assert await committed(storage) == 0
    assert [info.key async for info in storage.list_objects("others")] == []


@pytest.mark.parametrize("lie", LIES)
async def test_single_file_is_verified_against_sent_bytes(lie: str) -> None:
    with pytest.raises(IntegrityError, match="write it again"):
        await asyncrec.write_records("one", RECORDS, storage=Lying(lambda key: True, LIES[lie]))


class Answering(Lying):
    """A store that rejects a shard's first publication; ``there`` decides whether the object is stored anyway."""

    def __init__(self, there: Callable[[bytes], bytes | None], *, checksums: bool) -> None:
        super().__init__(WHAT["shard"], lambda info: info)
        self.there, self.checksums, self.asked = there, checksums, 0

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        if self.about(key) and not self.asked:
            self.asked += 1
            content = self.there(await self._storage.get(key))
            await self._storage.delete(key)
            if content is not None:
                await self._storage.put(key, content)
            raise TransientStorageError("the answer was lost, as asked")

    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return info if self.checksums else replace(info, crc32c=None)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize(
    ("there", "error"),
    [
        (lambda own: own, None),
        (lambda own: None, None),
        (lambda own: own[:-1] + bytes([own[-1] ^ 1]), ObjectExistsError),
        (lambda own: own + b"x", ObjectExistsError),
        (lambda own: b"", ObjectExistsError),
    ],
    ids=["our own", "nothing", "as long", "longer", "empty"],
)
async def test_retried_upload_distinguishes_own_object_from_foreign(
    tmp_path: Path, there: Callable[[bytes], bytes | None], error: type[Exception] | None, checksums: bool
) -> None:
    """A retried upload finds either the object that it published the first time or another writer's."""
    storage = Answering(there, checksums=checksums)

    async def run() -> None:
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, spool=tmp_path, max_shard_records=10, exit_timeout=5
        ) as writer:
            for record in RECORDS:
                await writer.write(record, key=record)
            await writer.flush()
            with anyio.fail_after(100):
                await writer.wait(10, "committed")

    if error is None:
        await run()
        assert await committed(storage) == 2
        assert list(tmp_path.glob("*.tfrecord")) == []
    else:
        with pytest.raises(error):
            await run()
        assert await committed(storage) < 2
        assert len(list(tmp_path.glob("pages-*-000000.tfrecord"))) == 1, "what was taken stays in the spool"


async def test_foreign_object_at_first_attempt_is_rejected_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object cannot be from the writer, which has not published one yet."""

    async def asked(*args: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(Uploader, "_is_there", asked)
    storage = MemoryStorage()
    await storage.put("pages-w-000000.tfrecord", b"somebody's")
    with pytest.raises(ObjectExistsError):
        await write(storage, spool=tmp_path, writer_id="w")
    assert await storage.get("pages-w-000000.tfrecord") == b"somebody's"


@pytest.mark.parametrize("damage", ["shorter", "another byte", "longer"])
async def test_upload_detects_spool_file_changed_on_disk(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploaded object either contains exactly the written data or does not exist."""
    storage = MemoryStorage()
    real = Uploader._open

    def damaged(self: Uploader, key: str) -> int:
        if WHAT["shard"](key):
            for path in (self._spool.partial_of(key), self._spool.path_of(key)):
                if path.exists():
                    data = path.read_bytes()
                    path.write_bytes(
                        {"shorter": data[:-1], "another byte": data[:-1] + b"\xff", "longer": data + b"x"}[damage]
                    )
        return real(self, key)

    monkeypatch.setattr(Uploader, "_open", damaged)
    if damage == "longer":  # the file is not read beyond the end of the written data
        await write(storage, spool=tmp_path)
        assert await committed(storage) == 1
        return
    with pytest.raises(asyncrec.errors.StorageError, match=r"shorter than the data written|probably faulty"):
        await write(storage, spool=tmp_path)
    assert await committed(storage) == 0
