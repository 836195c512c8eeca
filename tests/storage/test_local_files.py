"""A third-party storage whose objects are files in a folder (`LocalFiles`) passes the kit, and writers use journals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import asyncrec
from asyncrec.errors import AsyncRecError, StorageError
from asyncrec.storage import Buffer, ByteSink, ByteSource, LocalFiles, ObjectInfo, PrefixedStorage, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing import replaces_case

from .folder_cases import FolderConformance

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


class OtherFiles(Storage):
    """A storage as a plugin might define it: it delegates to files in a folder, with a class unknown to asyncrec."""

    flush_level = "spooled"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.root = "other://files"
        self._folder = os.fspath(folder)
        self._files = LocalStorage(folder, chunk_size=64 << 10)

    def files_folder(self) -> str:
        return self._folder

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return self._files.open_sink(key, exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return self._files.open_source(key, start=start, end=end, info=info)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._files.list_objects(prefix, start_after=start_after)

    async def head(self, key: str) -> ObjectInfo:
        return await self._files.head(key)

    async def delete(self, key: str) -> None:
        await self._files.delete(key)


class FilesElsewhere(OtherFiles):
    def files_folder(self) -> str:
        return os.path.join(self._folder, "elsewhere")


class ListsUnfinished(OtherFiles):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            yield info
        async for info in self._files.list_unfinished(prefix):
            yield info


class ForgetsWhatOthersMake(OtherFiles):
    """A broken storage that lists only objects made through it, not files that were linked to a key directly."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self._known: set[str] = set()

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        if "/_manifest/" not in key:
            self._known.add(key)
        return await super().put(key, data, exclusive=exclusive)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            if info.key in self._known:
                yield info


class TestOtherFiles(FolderConformance):
    storage: type[OtherFiles] = OtherFiles

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        yield self.storage(self.folder)

    @replaces_case("a name in a file system is a file or a folder")
    async def test_key_that_is_also_a_folder(self) -> None:
        async with self.open_storage() as storage:
            await storage.put("m", b"file")
            with pytest.raises(
                StorageError, match="Not a directory; one of the folders in this path is a file: choose another key"
            ):
                await storage.put("m/1", b"x")
            assert set(await self.raw_list(storage)) == {"m"}


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        ("test_objects_are_files", FilesElsewhere),
        ("test_objects_are_files", ListsUnfinished),
        ("test_objects_are_files", ForgetsWhatOthersMake),
        ("test_flushed_records_survive", ForgetsWhatOthersMake),
    ],
)
async def test_journal_case_catches_its_mutant(tmp_path: Path, case: str, broken: type[OtherFiles]) -> None:
    suite = type("Suite", (TestOtherFiles,), {"storage": broken, "__test__": False, "folder": tmp_path})()
    with pytest.raises((AssertionError, OSError, AsyncRecError)):
        await getattr(suite, case)()


CHILD = """
import anyio, asyncrec
from tests.storage.test_local_files import OtherFiles

async def main():
    storage = OtherFiles({folder!r})
    async with asyncrec.open_sharded_writer("crawl/pages", storage=storage) as writer:
        for number in range(100):
            await writer.write(b"%d" % number, key=str(number))
        print(await writer.flush(), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def flush_and_be_killed(folder: Path) -> None:
    command = [sys.executable, "-P", "-c", CHILD.format(folder=str(folder))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"spooled\n"
        child.send_signal(signal.SIGKILL)


async def test_next_writer_commits_flushed_records_of_killed_writer(tmp_path: Path) -> None:
    flush_and_be_killed(tmp_path)
    storage = OtherFiles(tmp_path)
    async with asyncrec.open_sharded_writer("crawl/pages", storage=storage, on_duplicate="skip") as writer:
        assert writer.flush_seconds == 1.0
        await writer.write(b"7 again", key="7")
        await writer.write(b"100", key="100")
    async with asyncrec.open_dataset("crawl/pages", storage=storage) as dataset:
        assert sorted([int(await dataset.get(number)) for number in range(len(dataset))]) == list(range(101))
    assert [path.name for path in tmp_path.rglob("*.partial")] == []


def test_prefixed_local_files_storage_is_not_local_files(tmp_path: Path) -> None:
    assert isinstance(OtherFiles(tmp_path), LocalFiles)
    assert not isinstance(LocalStorage(tmp_path), LocalFiles)
    assert not isinstance(PrefixedStorage(OtherFiles(tmp_path), "a"), LocalFiles)
