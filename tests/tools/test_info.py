"""`info` uses manifests and indexes where they exist, and reads records otherwise."""

from __future__ import annotations

import pytest
from tool_data import SCHEMA, change, example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.storage._base import Storage
from asyncrec.testing import FlakyStorage

pytestmark = pytest.mark.anyio


async def test_info_reads_only_manifest_and_first_records(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP")
    counted = FlakyStorage(storage)
    report = await tools.info("pages", storage=counted)
    assert (report.kind, report.shards, report.records, report.compression) == ("data set", 3, 30, {"GZIP": 3})
    assert report.content == "Example"
    assert report.schema == SCHEMA.to_json()
    (dataset,) = report.datasets
    assert dataset.manifest.metadata == {"made": "here"}
    assert all(writer.closed for writer in dataset.manifest.writers.values())
    read = {key for operation, key in counted.operations if operation == "receive" and key.endswith(".tfrecord")}
    assert len(read) == 1  # only the first shard is read
    assert report.to_json()["datasets"][0]["last_commit"]


async def test_info_counts_files_and_infers_schema(storage: Storage) -> None:
    await asyncrec.write_records("a.tfrecord", map(example, range(7)), storage=storage)
    await asyncrec.write_records("b.tfrecord", [b"x"] * 3, storage=storage)
    report = await tools.info("*.tfrecord", storage=storage)
    assert [(file.path, file.records) for file in report.files] == [("a.tfrecord", 7), ("b.tfrecord", 3)]
    assert report.inferred == 7
    assert report.records == 10
    assert (await tools.info("b.tfrecord", storage=storage)).content == "bytes"


async def test_info_reports_empty_or_damaged_file(storage: Storage) -> None:
    await storage.put("empty.tfrecord", b"")
    report = await tools.info("empty.tfrecord", storage=storage)
    assert (report.content, report.records, report.damage) == ("empty", 0, None)
    await asyncrec.write_records("bad.tfrecord", [b"x" * 100] * 3, storage=storage)
    await change(storage, "bad.tfrecord", 0)
    report = await tools.info("bad.tfrecord", storage=storage)
    assert report.records is None
    assert report.damage is not None
    assert "offset 0" in report.damage
    assert report.content is None


async def test_info_does_not_count_large_file_without_index(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._info._COUNTED_BYTES", 100)
    await asyncrec.write_records("a.tfrecord", [b"x" * 100] * 3, storage=storage)
    assert (await tools.info("a.tfrecord", storage=storage)).records is None
    await tools.index("a.tfrecord", storage=storage)
    assert (await tools.info("a.tfrecord", storage=storage)).records == 3
