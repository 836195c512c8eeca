"""Reading through an fsspec filesystem returns one version of a file; writing is rejected with the reason."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from asyncrec_fsspec import storage as storage_module
from asyncrec_fsspec.plugin import asyncrec_storage_factories, open_filesystem
from asyncrec_fsspec.storage import translate
from fsspec.implementations.memory import MemoryFileSystem
from reading_kit import ReadingKit

import asyncrec
from asyncrec.errors import (
    ObjectNotFoundError,
    PluginError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage import Storage
from asyncrec.testing._checks import content
from asyncrec.tools import doctor

pytestmark = pytest.mark.anyio

DATA = content(100_000)


class Versioned(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """fsspec's in-memory files with versions, as stores have them, and with faults on demand."""

    protocol = "kit"
    root_marker = ""
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012  # as in the base: shared by all
    pseudo_dirs = [""]  # noqa: RUF012
    versions: dict[str, int] = {}  # noqa: RUF012
    faults: list[Exception] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("kit://").removeprefix("jlab://").strip("/")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if self.faults:
            raise self.faults.pop()
        found: dict[str, Any] = super().info(path, **options)
        return self._versioned(path, found)

    def find(self, path: str, *args: Any, detail: bool = False, **options: Any) -> Any:
        found = super().find(path, *args, detail=detail, **options)
        return {name: self._versioned(name, entry) for name, entry in found.items()} if detail else found

    def _versioned(self, path: str, entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"ETag": f"v{self.versions.get(self._strip_protocol(path))}"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        if self.faults:
            raise self.faults.pop()
        data: bytes = super().cat_file(path, start, end, **options)
        return data


@pytest.fixture(autouse=True)
def filesystem() -> Iterator[Versioned]:
    for protocol in ("kit", "jlab"):  # the second is a scheme that the plugin supports
        fsspec.register_implementation(protocol, Versioned, clobber=True)
    found = Versioned()
    yield found
    found.store.clear()
    found.versions.clear()
    found.faults.clear()
    found.pseudo_dirs[:] = [""]


class TestReading(ReadingKit):
    @pytest.fixture(autouse=True)
    def files(self, filesystem: Versioned) -> None:
        self.filesystem = filesystem
        self.count = itertools.count(1)

    def open_reading(self) -> AbstractAsyncContextManager[Storage]:
        return open_filesystem("kit://folder")

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        return "jlab://folder", {}

    def store(self, key: str, data: bytes) -> None:
        self.filesystem.pipe_file(f"folder/{key}", data)
        self.filesystem.versions[f"/folder/{key}"] = next(self.count)

    def remove(self, key: str) -> None:
        self.filesystem.rm_file(f"folder/{key}")

    def stored(self, key: str) -> bytes | None:
        path = f"/folder/{key}"
        return self.filesystem.cat_file(path) if self.filesystem.exists(path) else None


async def test_listing_sorts_by_bytes_and_honours_prefix_and_start(filesystem: Versioned) -> None:
    for name in ("b/z.d", "b/z/a", "b/z-1", "c", "\uff5e", "\U0001f600", "a"):
        filesystem.pipe_file(f"folder/{name}", b"x")
    async with open_filesystem("kit://folder") as storage:
        names = sorted(("b/z.d", "b/z/a", "b/z-1", "c", "\uff5e", "\U0001f600", "a"), key=str.encode)
        assert [info.key async for info in storage.list_objects()] == names
        assert [info.key async for info in storage.list_objects("b/z", start_after="b/z-1")] == ["b/z.d", "b/z/a"]
        assert [info.key async for info in storage.list_objects("nothing/")] == []


async def test_listing_is_sorted_for_any_filesystem_order(
    filesystem: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filesystems that walk folders or query many servers return files in any order."""
    find = Versioned.find
    monkeypatch.setattr(Versioned, "find", lambda self, *args, **how: dict(reversed(find(self, *args, **how).items())))
    names = ["a", "b", "b/c", "d"]
    for name in names:
        filesystem.pipe_file(f"folder/{name}.x", b"x")
    async with open_filesystem("kit://folder") as storage:
        assert [info.key async for info in storage.list_objects()] == sorted(f"{name}.x" for name in names)


async def test_listing_is_sorted_off_event_loop(filesystem: Versioned, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may have a million files, which fsspec returns all at once instead of in pages."""
    filesystem.pipe_file("folder/a", b"x")
    threads: set[int] = set()
    dated = storage_module._date
    monkeypatch.setattr(storage_module, "_date", lambda dates: threads.add(threading.get_ident()) or dated(dates))
    async with open_filesystem("kit://folder") as storage:
        assert [info.key async for info in storage.list_objects()] == ["a"]
    assert threads
    assert threading.get_ident() not in threads


async def test_missing_file_raises_without_listing_folder_tree(
    filesystem: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out whether it is the name of a data set would list everything below the folder."""

    listed: list[str] = []
    find = Versioned.find
    monkeypatch.setattr(Versioned, "find", lambda self, path, **how: listed.append(path) or find(self, path, **how))
    filesystem.pipe_file("folder/pages-00000-of-00001.tfrecord", b"")
    with pytest.raises(ObjectNotFoundError, match="pages"):
        await asyncrec.read_records("jlab://folder/pages")
    assert listed == []


@pytest.mark.parametrize("date", [1.7e12 * 1000, float("nan"), -1e30])
async def test_impossible_date_becomes_epoch(
    filesystem: Versioned, monkeypatch: pytest.MonkeyPatch, date: float
) -> None:
    filesystem.pipe_file("folder/x", DATA)
    info = Versioned.info
    monkeypatch.setattr(Versioned, "info", lambda *args, **options: info(*args, **options) | {"mtime": date})
    monkeypatch.setattr(storage_module, "_DATES", ("mtime",))
    async with open_filesystem("kit://folder") as storage:
        assert (await storage.head("x")).modified == datetime.fromtimestamp(0, UTC)


async def test_data_set_is_read_by_name(filesystem: Versioned) -> None:
    async with asyncrec.open_storage(f"memory://fsspec-{uuid.uuid4().hex}") as memory:
        async with asyncrec.open_sharded_writer("pages", storage=memory, max_shard_records=3) as writer:
            for n in range(10):
                await writer.write(b"%d" % n)
        async for info in memory.list_objects():
            filesystem.pipe_file(f"data/{info.key}", await memory.get(info.key))
    async with open_filesystem("kit://data") as storage:
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            assert sorted(await dataset.get_many(range(len(dataset))), key=int) == [b"%d" % n for n in range(10)]


async def test_local_scheme_reads_local_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    async with asyncrec.open_storage(f"local+fsspec://{tmp_path}") as storage:
        assert await storage.get("x") == DATA
        assert [info.key async for info in storage.list_objects()] == ["x"]


async def test_storage_retries_transient_fault_and_raises_others(filesystem: Versioned) -> None:
    filesystem.pipe_file("folder/x", DATA)
    async with open_filesystem("kit://folder") as storage:
        filesystem.faults.append(ConnectionResetError("reset"))
        assert (await storage.head("x")).size == len(DATA)
        filesystem.faults.append(PermissionError("no: ?sig=c4n4ry"))
        with pytest.raises(StoragePermissionError) as raised:
            await storage.head("x")
        assert "c4n4ry" not in str(raised.value)
        assert raised.value.__cause__ is raised.value.__context__ is None


async def test_write_and_delete_raise_with_reason(filesystem: Versioned) -> None:
    async with open_filesystem("kit://folder") as storage:
        for operation in (storage.put("x", b"x"), storage.delete("x")):
            with pytest.raises(StorageError, match="closing an fsspec file after an error"):
                await operation
    assert not filesystem.store


async def test_doctor_reports_storage_as_read_only(filesystem: Versioned) -> None:
    filesystem.pipe_file("folder/x", DATA)
    async with open_filesystem("kit://folder") as storage:
        report = await doctor("x", storage=storage)
    assert [(check.name, check.ok) for check in report.checks] == [("write", None), ("read", True)]


async def test_error_names_missing_dependency() -> None:
    fsspec.register_implementation("absent", "no_such_module.FileSystem", clobber=True, errtxt="install no-such-module")
    with pytest.raises(PluginError, match="no-such-module"):
        async with open_filesystem("absent://x"):
            pass


def test_factory_excludes_schemes_with_dedicated_plugins() -> None:
    (factory,) = asyncrec_storage_factories()
    schemes = set(factory.schemes)
    assert {"hf", "sftp", "hdfs", "ftp", "smb", "memory+fsspec", "s3+fsspec", "hf+fsspec"} <= schemes
    assert not {"s3", "gs", "az", "https", "http", "memory", "file", "file+fsspec", ""} & schemes


@pytest.mark.parametrize(
    ("entry", "modified"),
    [
        ({"mtime": datetime(2026, 11, 22, 1, 2, 3)}, datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)),
        (
            {"mtime": datetime(2026, 11, 22, 1, 2, tzinfo=timezone(timedelta(hours=1)))},
            datetime(2026, 11, 22, 0, 2, tzinfo=UTC),
        ),
        ({"mtime": 1_700_000_000}, datetime.fromtimestamp(1_700_000_000, UTC)),
        ({}, datetime.fromtimestamp(0, UTC)),
    ],
)
async def test_head_parses_modification_time_of_any_filesystem(
    filesystem: Versioned, entry: dict[str, Any], modified: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time without a zone is in UTC, as in all filesystems."""
    filesystem.pipe_file("folder/x", b"data")
    monkeypatch.setattr(Versioned, "info", lambda self, path: {"size": 4, "type": "file", "ETag": "v1", **entry})
    async with open_filesystem("kit://folder") as storage:
        assert (await storage.head("x")).modified == modified


class Failure(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("of a client")
        self.status = status


class Response:
    def __init__(self, status: int) -> None:
        self.status_code = status


class Answered(Exception):
    """An error like those of requests, httpx and huggingface_hub."""

    def __init__(self, status: int) -> None:
        super().__init__("of another client")
        self.response = Response(status)


class ServerTimeoutError(Exception):
    """Has the same name as aiohttp's error."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), ObjectNotFoundError),
        (Failure(404), ObjectNotFoundError),
        (Failure(403), StoragePermissionError),
        (Failure(503), TransientStorageError),
        (Answered(404), ObjectNotFoundError),
        (Answered(401), StoragePermissionError),
        (Answered(429), TransientStorageError),
        (Answered(418), StorageError),
        (ServerTimeoutError(), TransientStorageError),
        (TimeoutError(), TransientStorageError),
        (EOFError(), TransientStorageError),
        (PermissionError(), StoragePermissionError),
        (OSError(), StorageError),
        (Failure(418), StorageError),
    ],
)
def test_translate_maps_error_to_its_kind(error: Exception, kind: type[StorageError]) -> None:
    assert type(translate(error, "what")) is kind
