"""What a path can refer to, in the order in which the possibilities are tried."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tool_data import write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError, StoragePermissionError
from asyncrec.integrations.arrow import _plan
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import Fault, FlakyStorage
from asyncrec.tools import _selection
from asyncrec.tools._selection import selected

pytestmark = pytest.mark.anyio


async def fill(storage: Storage) -> None:
    await write_pages(storage, "data/pages")
    await write_pages(storage, "data/deep/sheets", records=5)
    await storage.put("data/one.tfrecord", b"")
    await storage.put("data/old-00000-of-00002", b"")
    await storage.put("data/table.csv", b"")
    await storage.put("data/_hidden/x.tfrecord", b"")


@pytest.mark.parametrize(
    ("path", "kind", "shards", "datasets"),
    [
        ("data/one.tfrecord", "file", ["data/one.tfrecord"], []),
        ("data/table.csv", "file", ["data/table.csv"], []),
        ("data/old", "name", ["data/old-00000-of-00002"], []),
        ("data/o*", "pattern", ["data/old-00000-of-00002", "data/one.tfrecord"], []),
    ],
)
async def test_selection_accepts_files_patterns_and_names(
    storage: Storage, path: str, kind: str, shards: list[str], datasets: list[str]
) -> None:
    await fill(storage)
    async with selected(path, storage=storage) as selection:
        assert selection.kind == kind
        assert [shard.key for shard in selection.shards] == shards
        assert [shard.display_path for shard in selection.shards] == shards
        assert [dataset.name for dataset in selection.datasets] == datasets
        assert selection.records is None


async def test_pattern_selects_files_of_data_set(storage: Storage) -> None:
    await fill(storage)
    report = await tools.info("data/pages-*", storage=storage)
    assert (report.kind, len(report.files), report.records) == ("pattern", 3, 30)
    listed = (await tools.ls("data/pages-*", storage=storage)).entries
    assert [entry.path for entry in listed] == [file.path for file in report.files]


async def test_data_set_is_selected_through_manifest(storage: Storage) -> None:
    await fill(storage)
    async with selected("data/pages", storage=storage) as selection:
        assert selection.kind == "data set"
        assert len(selection.shards) == 3
        assert selection.records == 30
        assert selection.schema is not None
        assert all(shard.entry is not None for shard in selection.shards)
        assert all(shard.folder == "data/" for shard in selection.shards)


@pytest.mark.parametrize("path", ["data", "data/"])
async def test_folder_selection_includes_everything_below(storage: Storage, path: str) -> None:
    await fill(storage)
    async with selected(path, storage=storage) as selection:
        assert selection.kind == "folder"
        assert sorted(dataset.prefix + dataset.name for dataset in selection.datasets) == [
            "data/deep/sheets",
            "data/pages",
        ]
        plain = [shard.key for shard in selection.shards if shard.entry is None]
        assert plain == ["data/old-00000-of-00002", "data/one.tfrecord"]
        assert len(selection.shards) == 3 + 1 + 2


@pytest.mark.parametrize("path", ["nothing", "data/nothing", "data/*.parquet", "data/none/"])
async def test_missing_path_raises_not_found(storage: Storage, path: str) -> None:
    await fill(storage)
    with pytest.raises(ObjectNotFoundError, match=r"data|nothing"):
        async with selected(path, storage=storage):
            pass


async def test_uncommitted_data_set_is_reported_as_uncommitted(tmp_path: Path) -> None:
    """During the first minutes of a crawl, no shard has been published yet."""
    await asyncrec.write_records(tmp_path / "crawl.tfrecord", [b"of another"])
    async with asyncrec.open_sharded_writer(tmp_path / "crawl" / "pages") as writer:
        await writer.write(b"a page")
        await writer.flush()
        with pytest.raises(ObjectNotFoundError, match=r"crawl/pages: no records .* committed yet; 'asyncrec watch'"):
            async with selected(tmp_path / "crawl" / "pages"):
                pass
        told = (
            r"crawl: the folder contains no data set .* not committed yet: pages; .*'asyncrec recover \S+crawl' commits"
        )
        with pytest.raises(ObjectNotFoundError, match=told):
            async with selected(tmp_path / "crawl"):
                pass
    async with selected(tmp_path / "crawl") as selection:
        assert [dataset.name for dataset in selection.datasets] == ["pages"]


async def test_prefix_of_data_set_name_is_not_accepted(storage: Storage) -> None:
    """A mistyped name raises: otherwise its shards, even uncommitted ones, would be read without schema and keys."""
    await fill(storage)
    with pytest.raises(
        ObjectNotFoundError, match=r"data/page: there is no data set with this name; the folder contains data/pages$"
    ):
        async with selected("data/page", storage=storage):
            pass
    await storage.put("data/pagebook-00000-of-00001", b"")
    async with selected("data/page", storage=storage) as selection:
        assert [shard.key for shard in selection.shards] == ["data/pagebook-00000-of-00001"]


async def test_folder_without_records_is_not_treated_as_name_prefix(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    await asyncrec.write_records(tmp_path / "database.tfrecord", [b"of another"])
    with pytest.raises(ObjectNotFoundError, match=r"data: the folder contains no data set and no record file$"):
        async with selected(tmp_path / "data"):
            pass
    async with selected(tmp_path / "datab") as selection:
        assert selection.kind == "name"


async def test_permission_error_of_store_is_raised(storage: Storage) -> None:
    """S3 reports missing objects this way to users who may not list, but reading existing objects still works."""
    await fill(storage)
    refusing = FlakyStorage(storage, {0: Fault("error", error=StoragePermissionError, for_good=True)})
    with pytest.raises(StoragePermissionError):
        async with selected("data/pages", storage=refusing):
            pass


@pytest.mark.parametrize("path", ["data/pages", "data/"])
async def test_shard_objects_are_built_in_thread(storage: Storage, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a million shards: at a microsecond each, that takes a second."""
    await write_pages(storage, "data/pages")
    threads = []

    def watched(make: Any) -> Any:
        def made(*args: Any, **options: Any) -> Any:
            threads.append(threading.get_ident())
            return make(*args, **options)

        return made

    monkeypatch.setattr(_selection, "SelectedShard", watched(_selection.SelectedShard))
    monkeypatch.setattr(_plan, "Part", watched(_plan.Part))
    plan = await _plan.make_plan(path, storage=storage)
    assert len(threads) == 2 * len(plan.parts) == 6
    assert threading.get_ident() not in threads


async def test_empty_store_raises_object_not_found() -> None:
    with pytest.raises(ObjectNotFoundError, match="nothing is stored here"):
        await tools.ls("", storage=MemoryStorage())
