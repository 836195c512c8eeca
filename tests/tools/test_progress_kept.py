"""Every tool keeps the progress of a data set's sources, with the turn in which each was committed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from tool_data import write_pages

import asyncrec
from asyncrec import blocking, tools
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import segment_key, source_turn_key
from asyncrec._shards.manifest.segment import Segment, format_time
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio

PROGRESS = {"topic/3": (2, 917), "forgotten": (3, -1), "ö": (1, 0)}
RELEASES = {"topic/3": 2}
POSITIONS = {"topic/3": 917, "ö": 0}


async def write_sources(storage: Storage, path: str = "pages") -> None:
    """Write a data set with the progress of its sources, as a writer that has closed would leave it."""
    await write_pages(storage, path)
    await say(storage, path, PROGRESS, RELEASES)


async def say(
    storage: Storage, path: str, progress: dict[str, tuple[int, int]], releases: dict[str, int], writer: str = "w1"
) -> None:
    folder, _, name = path.rpartition("/")
    segment = Segment(writer=writer, time=format_time(1_700_000_000), closed=True, progress=progress, releases=releases)
    key = f"{folder}/" * bool(folder) + segment_key(name, writer, 1)
    await storage.put(key, segment.encode(), exclusive=True)


async def check(storage: Storage, name: str) -> None:
    history = await load_history(storage, name)
    assert history.progress == PROGRESS
    assert history.releases == RELEASES
    assert (await asyncrec.read_manifest(name, storage=storage)).progress == POSITIONS


async def test_data_set_and_manifest_contain_progress(storage: Storage) -> None:
    await write_sources(storage)
    await check(storage, "pages")
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert dataset.progress == POSITIONS
    assert list((await asyncrec.read_manifest("pages", storage=storage)).progress) == ["topic/3", "ö"]


async def test_earlier_snapshot_has_no_progress(storage: Storage) -> None:
    await write_sources(storage)
    before = datetime.now(UTC) - timedelta(days=1)
    assert (await asyncrec.read_manifest("pages", before, storage=storage)).progress == {}


async def test_progress_prefers_highest_turn_over_highest_position(storage: Storage) -> None:
    await write_pages(storage)
    await say(storage, "pages", {"topic/3": (1, 900)}, {}, "w1")
    await say(storage, "pages", {"topic/3": (2, 20)}, {}, "w2")
    await say(storage, "pages", {"topic/3": (2, 10)}, {}, "w3")
    assert (await asyncrec.read_manifest("pages", storage=storage)).progress == {"topic/3": 20}


async def compact(storage: Storage) -> str:
    await tools.compact("pages", storage=storage, manifest_only=True)
    return "pages"


async def copy(storage: Storage) -> str:
    await tools.copy("pages", "others", storage=storage, target_storage=storage)
    return "others"


async def reshard(storage: Storage) -> str:
    await tools.reshard("pages", "others", num_shards=2, storage=storage, target_storage=storage)
    return "others"


async def dedupe(storage: Storage) -> str:
    await tools.dedupe("pages", "others", storage=storage, target_storage=storage)
    return "others"


async def merge(storage: Storage) -> str:
    await write_pages(storage, "more", records=3)
    await say(storage, "more", {"topic/3": (1, 2000)}, {"topic/3": 1})
    await tools.merge(["pages", "more"], "others", storage=storage, target_storage=storage)
    return "others"


async def replace(storage: Storage) -> str:
    await write_pages(storage, mode="replace", records=3)
    return "pages"


async def delete(storage: Storage) -> str:
    await tools.delete("pages", keys=[f"key {number}" for number in range(5, 30)], storage=storage)
    return "pages"


@pytest.mark.parametrize("act", [compact, copy, reshard, dedupe, merge, replace, delete], ids=lambda act: act.__name__)
async def test_progress_and_turns_survive_every_tool(
    storage: Storage, act: Callable[[Storage], Awaitable[str]]
) -> None:
    await write_sources(storage)
    name = await act(storage)
    await check(storage, name)
    await tools.compact(name, storage=storage, manifest_only=True)
    await check(storage, name)


async def test_copy_includes_progress_committed_without_shards(storage: Storage) -> None:
    await write_pages(storage)
    await tools.copy("pages", "others", storage=storage, target_storage=storage)
    await say(storage, "pages", PROGRESS, RELEASES)
    await tools.copy("pages", "others", storage=storage, target_storage=storage)
    await check(storage, "others")


async def test_copy_of_same_progress_commits_nothing(storage: Storage) -> None:
    await write_sources(storage)
    await tools.copy("pages", "others", storage=storage, target_storage=storage)
    writers = (await asyncrec.read_manifest("others", storage=storage)).writers
    await tools.copy("pages", "others", storage=storage, target_storage=storage)
    assert (await asyncrec.read_manifest("others", storage=storage)).writers == writers


async def test_checkpoint_stores_sources_across_several_lines() -> None:
    storage = MemoryStorage()
    await write_pages(storage, records=1)
    progress = {f"topic/{number}": (1, number) for number in range(10_000)}
    await say(storage, "pages", progress, {})
    await tools.compact("pages", storage=storage, manifest_only=True)
    history = await load_history(storage, "pages")
    assert history.checkpoint == 1
    assert history.progress == progress


async def test_source_turn_without_shards_is_not_data_set(storage: Storage) -> None:
    await write_pages(storage, "folder/pages", records=1)
    await storage.put("folder/" + source_turn_key("others", "topic/3", 1), b"{}", exclusive=True)
    report = await tools.info("folder", storage=storage)
    assert [each.path.rpartition("/")[2] for each in report.datasets] == ["pages"]


async def test_info_reports_progress(storage: Storage) -> None:
    await write_sources(storage)
    (dataset,) = (await tools.info("pages", storage=storage)).datasets
    assert json.loads(json.dumps(dataset.to_json()))["progress"] == POSITIONS


async def test_filtered_data_set_has_no_progress(storage: Storage) -> None:
    await write_sources(storage)
    await tools.filter("pages", "others", where=[tools.Where("label", "1")], storage=storage, target_storage=storage)
    assert (await load_history(storage, "others")).progress == {}


def test_blocking_api_returns_progress() -> None:
    storage = MemoryStorage("progress-twins")
    anyio.run(write_sources, storage)
    assert blocking.read_manifest("pages", storage=storage).progress == POSITIONS
    with blocking.open_dataset("pages", storage=storage) as dataset:
        assert dataset.progress == POSITIONS
