"""If `asyncrec.open_reader` gets the path of a data set instead of a file, the error names the call to use instead."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, StoragePermissionError, TransientStorageError
from asyncrec.storage import ObjectInfo, retrying
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import Fault, FlakyStorage, SlowStorage

pytestmark = pytest.mark.anyio

INSTEAD = r"; 'pages' is a data set: to read it, use open_dataset\('.*pages'\)$"


class ListedStorage(MemoryStorage):
    """A storage that records which prefixes are listed."""

    def __init__(self, refuses: type[Exception] | None = None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refuses = refuses

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.asked.append(prefix)
        if self.refuses is not None:
            raise self.refuses("listing is not allowed")
        async for info in super().list_objects(prefix, start_after=start_after):
            yield info


async def begin(storage: MemoryStorage, name: str) -> None:
    async with asyncrec.open_sharded_writer(name, storage=storage) as writer:
        await writer.write(b"a page")


async def test_missing_object_error_names_local_data_set_reader(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "crawl" / "pages") as writer:
        await writer.write(b"a page")
    path = tmp_path / "crawl" / "pages"
    with pytest.raises(ObjectNotFoundError, match=f"{path}.*{INSTEAD}") as caught:
        await asyncrec.read_records(path)
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError, match=INSTEAD):
        async with asyncrec.open_reader(str(path)):
            pass


def test_blocking_read_of_unfinished_data_set_suggests_dataset_reader(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        writer.write(b"a page")
    with pytest.raises(ObjectNotFoundError, match=INSTEAD):
        blocking.read_records(tmp_path / "pages")
    with pytest.raises(ObjectNotFoundError, match=INSTEAD), blocking.open_reader(tmp_path / "pages"):
        pass


@pytest.mark.parametrize("name", ["pages", "2026/crawl/pages"])
async def test_dataset_of_unfinished_writer_is_missing_in_store(name: str) -> None:
    storage = ListedStorage()
    await begin(storage, name)
    storage.asked.clear()
    with pytest.raises(ObjectNotFoundError, match=INSTEAD):
        await asyncrec.read_records(name, storage=storage)
    assert len(storage.asked) == 1, "one page is listed where there is a manifest"


async def test_shards_without_manifest_are_suggested_as_data_set(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "pages-00000-of-00001.tfrecord", [b"as TensorFlow names them"])
    with pytest.raises(ObjectNotFoundError, match=INSTEAD):
        await asyncrec.read_records(tmp_path / "pages")
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert await dataset.get(0) == b"as TensorFlow names them"


@pytest.mark.parametrize("other", ["pages-old", "page", "pages2", "sub/pages"])
async def test_data_set_with_other_name_is_ignored(other: str) -> None:
    storage = MemoryStorage()
    await begin(storage, other)
    with pytest.raises(ObjectNotFoundError, match="memory://pages: the object does not exist"):
        await asyncrec.read_records("pages", storage=storage)


async def test_file_with_data_set_name_is_read_without_listing() -> None:
    storage = ListedStorage()
    await begin(storage, "pages")
    await asyncrec.write_records("pages", [b"a file"], storage=storage)
    storage.asked.clear()
    assert await asyncrec.read_records("pages", storage=storage) == [b"a file"]
    assert storage.asked == []


@pytest.mark.parametrize("refusal", [StoragePermissionError, ArgumentValueError, OSError, RuntimeError, TimeoutError])
async def test_failing_listing_leaves_error_unchanged(refusal: type[Exception]) -> None:
    with pytest.raises(ObjectNotFoundError, match="memory://pages: the object does not exist"):
        await asyncrec.read_records("pages", storage=ListedStorage(refusal))


async def test_store_without_paged_listing_is_not_listed() -> None:
    storage = ListedStorage()
    await begin(storage, "pages")
    storage.asked.clear()
    storage.lists_by_pages = False
    with pytest.raises(ObjectNotFoundError, match="memory://pages: the object does not exist"):
        await asyncrec.read_records("pages", storage=storage)
    assert storage.asked == []


class TestSlowStore:
    """Raising the error is delayed by at most two seconds for the listing that would explain it."""

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        """Return both event loops, with a virtual clock."""
        return virtual_backend(request.param)

    async def test_throttled_listing_is_retried_only_briefly(self) -> None:
        class Throttles(MemoryStorage):
            async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
                async def ask() -> None:
                    raise TransientStorageError("503 Slow Down")

                await retrying(ask, what="listing")
                yield await self.head(prefix)

        with pytest.raises(ObjectNotFoundError, match="memory://pages: the object does not exist"):
            await asyncrec.read_records("pages", storage=Throttles())
        assert anyio.current_time() <= 2

    async def test_hanging_listing_is_abandoned_after_two_seconds(self) -> None:
        storage = ListedStorage()
        await begin(storage, "pages")
        began = anyio.current_time()
        with pytest.raises(ObjectNotFoundError, match="memory://pages: the object does not exist"):
            await asyncrec.read_records("pages", storage=FlakyStorage(storage, {1: Fault("hang")}))
        assert anyio.current_time() - began == pytest.approx(2)

    async def test_listing_within_two_seconds_adds_explanation_to_error(self) -> None:
        storage = ListedStorage()
        await begin(storage, "pages")
        with pytest.raises(ObjectNotFoundError, match=INSTEAD):
            await asyncrec.read_records("pages", storage=SlowStorage(storage, latency=1.5))
