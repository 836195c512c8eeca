"""Every data set that `tests/vectors/make_datasets.py` wrote, in any version of the formats, must stay readable.

They have checkpoints but not the segments that the checkpoints cover. Each folder contains ``rolling`` (25 GZIP records
of a closed writer and 10 of a writer that died between two commits), ``fixed`` (12 records that replaced 10), ``seen``
(12 pages with four different bodies, so that eight are revisits, with digests of their contents), ``dead`` (a journal
of 7 records, left by a process killed after a flush), and the state of a shuffled stream after 5 records.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.example._codec import decode_example

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent.parent / "vectors" / "datasets"


@pytest.fixture(params=["1"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / request.param, tmp_path / "golden"))


async def test_manifest_index_keys_and_schema_are_read(golden: Path) -> None:
    manifest = await asyncrec.read_manifest(golden / "rolling")
    assert (manifest.records, manifest.metadata) == (35, {"made": "golden"})
    assert {name: state.closed for name, state in manifest.writers.items()} == {"w1": True, "w2": False}
    assert manifest.schema is not None
    async with asyncrec.open_dataset(golden / "rolling") as dataset:
        for number in range(25):
            record = await dataset.get_by_key(f"https://example.org/{number}")
            assert decode_example(record)["id"] == [number]
            assert await dataset.get(number) == record
    async with asyncrec.open_dataset(golden / "fixed") as dataset:
        assert len(dataset) == 12
        assert decode_example(await dataset.get_by_key("11"))["id"] == [11]
    for name in ("rolling", "fixed", "seen"):
        report = await tools.verify(golden / name)
        assert report.ok
        assert report.orphans == []


async def test_checkpoint_is_opened_by_its_path(tmp_path: Path) -> None:
    golden = Path(shutil.copytree(FOLDER / "1", tmp_path / "golden"))
    manifest = await asyncrec.read_manifest(golden / "rolling")
    (columns,) = (golden / "_manifest" / "rolling").glob("*.jsonl.gz")
    for path in (columns, columns.with_name("~latest.json")):
        assert await asyncrec.read_manifest(path) == replace(manifest, path=str(golden / "rolling"))


async def test_golden_journal_is_recovered_into_data_set(golden: Path) -> None:
    assert (await asyncrec.recover(golden / "dead")).records == 7
    async with asyncrec.open_dataset(golden / "dead") as dataset:
        assert [await dataset.get_by_key(str(number)) for number in range(7)] == [b"record %d" % n for n in range(7)]
    assert not list(golden.rglob("*.partial"))


async def test_stream_resumes_from_golden_state(golden: Path) -> None:
    state = json.loads((golden / "shuffled.state.json").read_text())
    async with asyncrec.open_dataset(golden / "rolling") as dataset:
        async with dataset.shuffled(seed=1) as stream:
            whole = [record async for record in stream]
        async with dataset.shuffled(seed=1) as stream:
            stream.load_state_dict(state)
            assert [record async for record in stream] == whole[5:]


async def test_keys_of_any_version_prevent_duplicate_records(golden: Path) -> None:
    async with asyncrec.open_sharded_writer(golden / "rolling", on_duplicate="skip", validate="none") as writer:
        await writer.write(b"again", key="https://example.org/3")
        await writer.write(b"new", key="https://example.org/1000")
    assert (await asyncrec.read_manifest(golden / "rolling")).records == 36


async def test_data_set_of_any_version_is_replaced(golden: Path) -> None:
    async with asyncrec.open_sharded_writer(golden / "fixed", num_shards=2, mode="replace") as writer:
        await writer.write_many([b"new"] * 4)
    report = await tools.verify(golden / "fixed")
    assert (report.ok, report.records, report.orphans) == (True, 4, [])


async def test_bodies_in_data_sets_of_any_version_are_recognised(golden: Path) -> None:
    async with asyncrec.open_sharded_writer(
        golden / "seen", schema=pages.PAGE, key_feature="url", seen="digest"
    ) as writer:
        for number, body in enumerate((b"<p>body 3</p>", b"<p>a new body</p>")):
            await writer.write(pages.page(f"https://example.net/{number}", body, date="2026-11-29T00:00:00Z"))
    async with asyncrec.open_dataset(golden / "seen") as dataset:
        stored = [pages.PAGE.decode(await dataset.get(number)) for number in range(len(dataset))]
        stored.sort(key=lambda page: (page["date"], page["url"]))
        whole = await pages.resolve(dataset, stored)
    assert [pages.is_revisit(page) for page in stored] == [False] * 4 + [True] * 9 + [False]
    assert [page["content"] for page in whole[:13]] == [
        *[b"<p>body %d</p>" % (n % 4) for n in range(12)],
        b"<p>body 3</p>",
    ]
