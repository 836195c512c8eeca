"""A spool's records go to the data set that the caller names, never to one that files in the folder name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, StorageError

pytestmark = pytest.mark.anyio


async def dead_spool(tmp_path: Path, **changes: Any) -> Path:
    """Return the spool of a dead writer to ``far/pages``, with ``changes`` made to its header."""
    live, dead = tmp_path / "live", tmp_path / "spool"
    async with asyncrec.open_sharded_writer(tmp_path / "before" / "pages", spool=live, writer_id="w") as writer:
        await writer.write(b"record")
        await writer.flush()
        shutil.copytree(live, dead)
    header = dead / ".pages.w.partial"
    process, line = header.read_bytes().splitlines()[:2]
    said = {**json.loads(line), "url": str(tmp_path / "far" / "pages"), **changes}
    header.write_bytes(process + b"\n" + json.dumps(said).encode() + b"\n")
    return dead


def made(tmp_path: Path) -> list[str]:
    """Return all files and folders except the spool, and the spool and data set from which it was made."""
    return sorted(path.name for path in tmp_path.iterdir() if path.name not in ("live", "before", "spool"))


async def test_recovery_without_address_uploads_no_data(tmp_path: Path) -> None:
    spool = await dead_spool(tmp_path)
    address = tmp_path / "far" / "pages"
    with pytest.raises(ArgumentValueError, match=f"written for {address}; nothing was uploaded.*--to {address}"):
        await asyncrec.recover(spool)
    assert made(tmp_path) == []
    assert (await asyncrec.recover(spool, to=address)).records == 1
    assert await asyncrec.recover(spool) == asyncrec.Recovery(), "where nothing is left, no address is asked for"


@pytest.mark.parametrize("abandon", [(), ("w",)])
async def test_contradicting_address_error_names_both_addresses(tmp_path: Path, abandon: tuple[str, ...]) -> None:
    spool = await dead_spool(tmp_path)
    with pytest.raises(StorageError, match=r"far/pages.*other/pages"):
        await asyncrec.recover(spool, to=tmp_path / "other" / "pages", abandon=abandon)
    with pytest.raises(StorageError, match=r"far/pages.*other/pages"):
        async with asyncrec.open_sharded_writer(tmp_path / "other" / "pages", spool=spool):
            pass
    assert made(tmp_path) == []


async def test_header_name_contradicting_address_is_rejected(tmp_path: Path) -> None:
    spool = await dead_spool(tmp_path, url=str(tmp_path / "far" / "others"))
    with pytest.raises(StorageError, match="far/others"):
        await asyncrec.recover(spool, to=tmp_path / "far" / "others")
    assert made(tmp_path) == []


async def test_writer_opened_at_spool_address_recovers_spool(tmp_path: Path) -> None:
    spool = await dead_spool(tmp_path)
    async with asyncrec.open_sharded_writer(tmp_path / "far" / "pages", spool=spool):
        pass
    (shard,) = await asyncrec.list_shards(tmp_path / "far" / "pages")
    assert await asyncrec.read_records(shard) == [b"record"]


async def test_spool_below_folder_is_reported_but_not_uploaded(tmp_path: Path) -> None:
    spool = await dead_spool(tmp_path)
    (tmp_path / "live").rename(tmp_path.parent / f"{tmp_path.name}-live")
    with pytest.raises(ValueError, match=r"spool is a spool with records that were written for .*far/pages"):
        await asyncrec.recover(tmp_path)
    assert (await asyncrec.recover(spool, to=tmp_path / "far" / "pages")).records == 1
    assert await asyncrec.recover(tmp_path) == asyncrec.Recovery()


async def test_path_other_than_spool_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "not made yet"):
        with pytest.raises(ObjectNotFoundError, match="no writer has used this folder as its spool"):
            await asyncrec.recover(tmp_path / folder, to="pages")
    with pytest.raises(ArgumentValueError, match="can only be used with a spool"):
        await asyncrec.recover("s3://bucket/pages", to="pages")


async def test_relative_address_resolves_as_intended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = await dead_spool(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert (await asyncrec.recover(spool, to="far/pages")).records == 1
