"""`info` shows which of a data set's writers are alive, which have died, and which were recovered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mortal import dies, elsewhere

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


def states(report: tools.InfoReport) -> dict[str, str]:
    (dataset,) = report.datasets
    return {writer.id: writer.state for writer in dataset.writers}


async def test_info_distinguishes_living_dead_and_recovered_writers(tmp_path: Path) -> None:
    home, copy = tmp_path / "d", tmp_path / "copy"
    async with asyncrec.open_sharded_writer(home / "pages", writer_id="ended") as ended:
        await ended.write(b"one")
    async with asyncrec.open_sharded_writer(home / "pages", writer_id="one") as one:
        await one.write(b"one")
        await one.commit()
        await one.write(b"two")
        await one.flush()
        assert states(await tools.info(home / "pages")) == {"ended": "closed", "one": "alive"}
        shutil.copytree(home, copy)  # the state in which a kill at this moment would leave it
    (dead,) = [writer for writer in (await tools.info(copy / "pages")).datasets[0].writers if writer.state == "dead"]
    assert (dead.id, dead.shards, dead.records) == ("one", 1, 1)
    assert dead.job is not None
    assert dead.job.kind == "rolling"
    assert json.loads(json.dumps(dead.to_json()))["job"]["kind"] == "rolling"
    assert states(await tools.info(copy)) == {"ended": "closed", "one": "dead"}, "and it disturbs nothing"
    await asyncrec.recover(copy / "pages")
    assert states(await tools.info(copy / "pages")) == {"ended": "closed", "one": "recovered"}


async def test_info_shows_abandoned_writer(tmp_path: Path) -> None:
    home, copy = tmp_path / "d", tmp_path / "copy"
    async with asyncrec.open_sharded_writer(home / "pages", writer_id="one") as one:
        await one.write(b"one")
        await one.commit()
        shutil.copytree(home, copy)
    await asyncrec.recover(copy / "pages", abandon=["one"])
    assert states(await tools.info(copy / "pages")) == {"one": "given up"}


async def test_info_describes_data_set_before_first_commit(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="one") as one:
        await one.write(b"one")
        report = await tools.info(tmp_path / "pages")
        assert (report.kind, report.records, report.shards) == ("data set", 0, 0)
        assert states(report) == {"one": "alive"}
    with pytest.raises(ObjectNotFoundError):
        await tools.info(tmp_path / "others")


async def test_info_determines_store_writer_state_by_local_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="one") as one:
        with elsewhere(monkeypatch, tmp_path):
            await dies(storage, writer_id="two")
        await dies(storage, writer_id="three")
        await one.write(b"one")
        await one.commit()
        report = await tools.info("pages", storage=storage)
        assert states(report) == {"one": "alive", "three": "dead", "two": "unknown"}
