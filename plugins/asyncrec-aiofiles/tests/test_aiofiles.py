"""The plugin passes the conformance kit, and its errors say what it does not support."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from asyncrec_aiofiles import open_files
from asyncrec_aiofiles.files import settled

import asyncrec
from asyncrec.errors import ObjectChangedError, StorageError, StoragePermissionError, UnsupportedBackendError
from asyncrec.storage import Storage
from asyncrec.testing import StorageConformance, replaces_case

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # aiofiles needs asyncio


def late(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Delay a function as a slow disk would; if it is called on the event loop, that blocks the loop."""

    def call(*args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(seconds)
        return function(*args, **kwargs)

    return call


class TestFileStorage(StorageConformance):
    cancellable_requests = False  # aiofiles works in threads, which cannot be cancelled

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "data"

    def url(self) -> str:
        return f"file+aiofiles://{self.folder}"

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        async with open_files(self.url(), chunk_size=10_000) as storage:
            yield storage

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        return self.url(), {"chunk_size": 10_000}

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / key).write_bytes(data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        path = self.folder / key
        return path.read_bytes() if path.is_file() else None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [name for name in self.files() if not name.endswith(".partial")]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return [name for name in self.files() if name.endswith(".partial")]

    @contextmanager
    def slowed(self, storage: Storage, seconds: float) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("fstat", "stat", "scandir", "unlink"):
                patch.setattr(os, name, late(getattr(os, name), seconds))
            yield

    def files(self) -> list[str]:
        return [os.path.relpath(os.path.join(d, f), self.folder) for d, _, files in os.walk(self.folder) for f in files]

    @replaces_case("a file system has no file and folder of one name")
    async def test_key_that_is_also_a_folder(self) -> None:
        """Creating the second of the two raises a `StorageError` that names it and leaves nothing behind."""
        async with self.open_storage() as storage:
            await storage.put("n", b"file")
            with pytest.raises(StorageError, match="n/1"):
                await storage.put("n/1", b"below it")
            await storage.put("m/1", b"below")
            with pytest.raises(StorageError, match="cannot publish m"):
                await storage.put("m", b"file")
            assert sorted(self.files()) == ["m/1", "n"]


async def test_denied_stat_raises_storage_permission_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    async with open_files(f"file+aiofiles://{tmp_path}") as storage:
        await storage.put("x", b"x")
        monkeypatch.setattr(os, "stat", denied)
        with pytest.raises(StoragePermissionError, match="cannot look at x: Permission denied"):
            await storage.head("x")


async def test_full_disk_fails_put_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    async with open_files(f"file+aiofiles://{tmp_path}") as storage:
        with pytest.raises(StorageError, match="cannot publish x: No space left on device"):
            await storage.put("x", b"x")
    assert os.listdir(tmp_path) == []


async def test_sink_logs_cleanup_failure_and_raises_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    async with open_files(f"file+aiofiles://{tmp_path}") as storage:
        with pytest.raises(ZeroDivisionError):
            async with storage.open_sink("x"):
                monkeypatch.setattr(os, "unlink", denied)
                raise ZeroDivisionError
    assert "partial could not be removed: [Errno 13] Permission denied" in caplog.text


async def test_source_rejects_file_truncated_during_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1_000)
    async with open_files(f"file+aiofiles://{tmp_path}") as storage, storage.open_source("x") as source:
        await source.receive(10)
        os.truncate(tmp_path / "x", 5)
        with pytest.raises(ObjectChangedError):
            await source.receive(10)


async def test_storage_stops_own_thread_pool_on_close(tmp_path: Path) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("asyncrec-aiofiles")]

    async with open_files(f"file+aiofiles://{tmp_path}", threads=2) as storage:
        async with anyio.create_task_group() as group:
            for n in range(10):
                group.start_soon(storage.put, f"k{n}", b"x")
        pool = threads()
        assert 1 <= len(pool) <= 2
    for thread in pool:
        thread.join(5)
    assert not threads()


@pytest.mark.parametrize("how", ["scope", "task.cancel"])
async def test_cancelled_call_finishes_before_cancellation_is_raised(how: str) -> None:
    """The call's result is not lost either: the cancellation is raised at the next await."""
    running, go_on = threading.Event(), threading.Event()
    steps: list[str] = []

    def slow() -> str:
        running.set()
        go_on.wait(5)
        steps.append("thread ended")
        return "result"

    async def caller() -> None:
        steps.append(await settled(asyncio.get_running_loop().run_in_executor(pool, slow)))
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    async def in_scope() -> None:
        with scope:
            await caller()

    scope = anyio.CancelScope()
    with ThreadPoolExecutor(1) as pool:
        task = asyncio.create_task(in_scope())
        await asyncio.to_thread(running.wait)
        for _ in range(3):
            if how == "scope":
                scope.cancel()
            else:
                task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        await asyncio.wait([task])
    assert steps == ["thread ended", "result", "cancelled"]
    assert task.cancelled() == (how == "task.cancel")


async def test_scheme_opens_storage_on_asyncio_and_rejects_trio(tmp_path: Path) -> None:
    path = f"file+aiofiles://{tmp_path}/a.tfrecord"
    await asyncrec.write_records(path, [b"one", b"two"])
    assert await asyncrec.read_records(path) == [b"one", b"two"]
    assert await asyncrec.read_records(tmp_path / "a.tfrecord") == [b"one", b"two"]
    with pytest.raises(UnsupportedBackendError, match="asyncio"):
        await asyncio.to_thread(trio.run, asyncrec.read_records, path)


async def test_asyncio_timeout_raises_timeout_error(tmp_path: Path) -> None:
    async with open_files(f"file+aiofiles://{tmp_path}") as storage:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await storage.put("x", b"x")
        assert os.listdir(tmp_path) == []
        await storage.put("x", b"x")
