"""`asyncrec.tools.report`: one page about any data set; nothing in it runs, loads or is larger than a page may be."""

from __future__ import annotations

import os
import re
import struct
import zlib
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asyncrec_report import report

import asyncrec
from asyncrec.errors import ObjectNotFoundError, StoragePermissionError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m&amp;</style></title>"
MIB = 1 << 20


class Page(HTMLParser):
    """A page as a parser finds it: what is on it, and that there is nothing that could run or load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.text = ""
        self.images: list[dict[str, str | None]] = []
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.bars = 0
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "every element is closed"
        assert self.links <= self.places, "every link leads to a place on the page"
        html.encode()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed", "form", "base", "foreignobject")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name == "href" and tag == "a":
                assert value is not None
                assert value.startswith("#")
                self.links.add(value[1:])
            if name in ("href", "src") and tag != "a":
                assert value is not None
                assert value.startswith("data:")
            if name == "id" and value:
                assert value not in self.places
                self.places.add(value)
        if tag == "img":
            self.images.append(dict(attrs))
        self.bars += tag == "rect"
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data + "\n"

    def __contains__(self, text: str) -> bool:
        return text in re.sub(r"\s+", " ", self.text)  # as it is shown


def png(size: int) -> bytes:
    """A whole image, of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
    rows = zlib.compress((b"\0" + b"\x20\x80\xc0" * size) * size)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def written(rows: list[dict[str, Any]], **options: Any) -> MemoryStorage:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, validate="none", **options) as writer:
        for row in rows:
            await writer.write(asyncrec.encode_example(row))
    return storage


async def page_of(path: str, storage: Storage, **options: Any) -> Page:
    return Page((await report(path, storage=storage, **options)).html)


async def test_it_tells_records_shards_sizes_features_classes_and_writers() -> None:
    rows = [{"label": i % 4, "text": f"row {i}", "emb": np.full(8, i, np.float32)} for i in range(400)]
    schema = asyncrec.Schema(
        {
            "label": asyncrec.FixedLen((), "int64"),
            "text": asyncrec.FixedLen((), "str"),
            "emb": asyncrec.VarLen("float32"),
        }
    )
    options = {"max_shard_records": 100, "compression": "GZIP", "schema": schema, "writer_id": "crawler_7"}
    storage = await written(rows, **options, metadata={"source": "a test"})
    page = await page_of("pages", storage)
    for told in (
        "400 records in 4 shards",
        "All of it was read for this page, and every checksum holds.",
        "described by a schema",
        "4 classes",
        "equally large",
        "schema: VarLen, float32",
        "8 values a record",
        "pages-crawler_7-000003.tfrecord",
        "crawler_7",
        "closed",
        "a test",
        "none in 400 records read",
    ):
        assert told in page, told
    assert page.bars > 50
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    assert manifest.id in page


async def test_whatever_records_names_metadata_and_paths_hold_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(0)</script>"
    rows = [
        {EVIL: EVIL, f"{EVIL} 2": i, "label": [EVIL, "<b>x</b>"][i % 2], "svg": "<svg onload='alert(1)'/>"}
        for i in range(40)
    ]
    async with asyncrec.open_sharded_writer(folder / "pa<i>ges", metadata={EVIL: {EVIL: EVIL}}) as writer:
        for row in rows:
            await writer.write(asyncrec.encode_example(row), key=EVIL + str(row[f"{EVIL} 2"]))
        await writer.write(EVIL.encode())
    page = Page((await report(folder / "pa<i>ges")).html)
    assert page.images == []
    assert "<script>alert(1)</script>" in page
    assert "<script>alert(0)</script>" in page
    assert "\\u202e\\x1b[31m" in page
    assert "\u202e" not in page.html
    assert "\x1b" not in page.html


async def test_images_are_shown_by_their_bytes_and_not_by_what_is_said_of_them() -> None:
    rows = [{"image": png(i + 1), "label": ["cat", "dog"][i % 2]} for i in range(6)]
    lies = [
        {"image": b"<svg onload='alert(1)'/>", "label": "cat"},
        {"image": b"\x89PNG\r\n", "label": "cat"},
        {"image": png(1) + bytes(MIB), "label": "dog"},
    ]
    page = await page_of("pages", await written([*rows, *lies]))
    assert [image["alt"] for image in page.images] == ["cat", "dog"] * 3
    for image, row in zip(page.images, rows, strict=True):
        prefix, _, data = str(image["src"]).partition(",")
        assert prefix == "data:image/png;base64"
        assert b64decode(data) == row["image"]
    assert "1 image too large to be shown here" in page


async def test_the_images_of_a_page_have_four_megabytes_at_most() -> None:
    rows = [{f"image {n}": png(4) + os.urandom(200_000) for n in range(5)} for _ in range(20)]
    page = await page_of("pages", await written(rows))
    assert 15 <= len(page.images) <= 20
    assert len(page.html) < 6 * MIB
    assert "images too large to be shown here" in page


async def test_a_record_of_fifty_megabytes_gives_a_small_page() -> None:
    storage = MemoryStorage()
    large = asyncrec.encode_example({"body": os.urandom(MIB) * 50, "numbers": np.zeros(MIB, np.float32)})
    small = [asyncrec.encode_example({"body": "x" * i}) for i in range(20)]
    await asyncrec.write_records("a.tfrecord", [*small, large], storage=storage)
    page = await page_of("a.tfrecord", storage)
    assert "21 records in 1 shard" in page
    assert "54.0 MiB" in page
    assert len(page.html) < 100_000


@pytest.mark.parametrize("how", ["no shard", "no record"])
async def test_an_empty_data_set_is_told_to_be_empty(how: str) -> None:
    storage = MemoryStorage()
    if how == "no shard":
        async with asyncrec.open_sharded_writer("pages", storage=storage):
            pass
    else:
        await asyncrec.write_records("pages", [], storage=storage)
    page = await page_of("pages", storage)
    assert f"0 records in {0 if how == 'no shard' else 1} shard" in page
    assert "nothing was read" in page


async def test_of_a_million_records_a_sample_is_read_and_the_page_says_so() -> None:
    storage = MemoryStorage()
    pool = [asyncrec.encode_example({"id": i, "label": i % 5}) for i in range(1000)]
    async with asyncrec.open_writer("data.tfrecord", storage=storage) as writer:
        for _ in range(1000):
            await writer.write_many(pool)
    assert (await storage.head("data.tfrecord")).size > 30 * MIB
    watched = FlakyStorage(storage)
    page = await page_of("data.tfrecord", watched)
    assert "This page is about a sample: 20,000 records, from the beginnings of shards" in page
    assert "an unknown number of records" in page
    assert sum(operation == "receive" for operation, *_ in watched.operations) < 20, "of at most 256 KiB each"
    assert len(page.html) < 100_000


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_by_an_index_the_sample_is_drawn_from_everywhere(compression: str) -> None:
    storage = await written([{"id": i} for i in range(4000)], max_shard_records=1000, compression=compression)
    page = await page_of("pages", storage, sample=200)
    assert "a sample: 200 records (5 %), drawn evenly from all shards" in page
    assert "4,000 records in 4 shards" in page
    ids = [int(text.replace(",", "")) for text in re.findall(r"<dt>(?:min|max)</dt><dd>([\d,]+)</dd>", page.html)]
    assert ids[0] < 40
    assert ids[1] > 3960
    assert "All of it was read" in await page_of("pages", storage, sample=None)


async def test_without_indexes_the_beginnings_are_read() -> None:
    storage = await written([{"id": i} for i in range(2000)], max_shard_records=500, index=False)
    page = await page_of("pages", storage, sample=100)
    assert "(5 %), from the beginnings of shards" in page


async def test_of_large_records_only_so_many_shards_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_report.gather.SAMPLE_BYTES", 1000)
    storage = MemoryStorage()
    for number in range(10):
        await asyncrec.write_records(f"data/{number}.tfrecord", [bytes(400)] * 3, storage=storage)
    page = await page_of("data", storage)
    assert "This page is about a sample: 3 records, from the beginnings of shards" in page
    assert page.html.count(">?</td>") == 10 + 7  # the records of all, and the compression of those not looked at


async def test_a_writer_that_is_still_open_is_told() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=5) as writer:
        for i in range(10):
            await writer.write(asyncrec.encode_example({"i": i}))
        await writer.commit()
        assert "10 records in 2 shards" in await page_of("pages", storage)
        assert "1 writer not closed yet." in await page_of("pages", storage)
    assert "not closed yet" not in await page_of("pages", storage)


async def test_records_that_are_no_examples_are_shown_as_what_they_are() -> None:
    storage = MemoryStorage()
    await asyncrec.write_records("a", [b'{"url": "https://example.org"}', b"<html><p>hi", b"\xff\x00"], storage=storage)
    page = await page_of("a", storage)
    assert "The records are no Examples: JSON 33 %, HTML 33 %, binary 33 %." in page
    assert '{"url": "https://example.org"}' in page
    assert "ff 00" in page


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_damaged_short_and_missing_shards_are_told_and_the_others_read(compression: str) -> None:
    rows = [{"id": i, "text": "abc" * 30} for i in range(1000)]
    storage = await written(rows, max_shard_records=100, compression=compression, writer_id="w")
    data = bytearray(await storage.get("pages-w-000002.tfrecord"))
    data[len(data) // 2] ^= 0xFF
    await storage.put("pages-w-000002.tfrecord", bytes(data))
    data = bytearray(await storage.get("pages-w-000005.tfrecord"))
    await storage.put("pages-w-000005.tfrecord", bytes(data[: len(data) // 2]))
    await storage.delete("pages-w-000007.tfrecord")
    page = await page_of("pages", storage)
    assert "3 shards see below" in page
    assert "is not there" in page
    assert "records are found, and the manifest says 100" in page
    assert "what is damaged is listed below" in page
    assert page.html.count('class="chip bad"') == 3


async def test_where_the_manifest_and_a_shard_disagree_it_is_told() -> None:
    storage = await written([{"id": i} for i in range(10)], writer_id="w")
    await asyncrec.write_records("pages-w-000000.tfrecord", [asyncrec.encode_example({"id": 1})], storage=storage)
    assert "1 records are found, and the manifest says 10" in await page_of("pages", storage)


async def test_missing_values_mixed_kinds_nan_and_what_the_schema_does_not_say() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "x": float("nan")}] * 6 + [{"a": 0.5, "x": 1.0, "new": 1}] * 2
    schema = asyncrec.Schema(
        {name: asyncrec.FixedLen((), kind) for name, kind in {"a": "int64", "x": "float32", "gone": "int64"}.items()}
    )
    page = await page_of("pages", await written(rows, schema=schema))
    assert "Of more than one kind: int64 in 6, float in 2." in page
    assert "2 records not int64, as the schema says." in page
    assert "6 NaN of 8 values (75 %)." in page
    assert "missing in 6 records (75 %)" in page
    assert "not in the schema" in page
    assert "In the schema, and in no record that was read: gone." in page


async def test_a_folder_of_several_data_sets_is_one_page() -> None:
    storage = MemoryStorage()
    for split in ("train", "eval"):
        async with asyncrec.open_sharded_writer(f"data/{split}", storage=storage, num_shards=2) as writer:
            for i in range(10):
                await writer.write(asyncrec.encode_example({"i": i}))
    page = await page_of("data", storage)
    assert "20 records in 4 shards" in page
    assert "Data set" in page


async def test_of_many_shards_columns_stand_for_several_and_rows_are_cut() -> None:
    storage = await written([{"i": i} for i in range(500)], max_shard_records=2)
    page = await page_of("pages", storage)
    assert "in the order of their names, 3 to a column" in page
    assert "and 50 shards more" in page


async def test_the_class_feature_may_be_named_and_a_wrong_name_is_an_error() -> None:
    storage = await written([{"shape": ["disc", "square"][i % 2], "i": i} for i in range(10)])
    assert "2 classes" not in await page_of("pages", storage)
    assert "2 classes" in await page_of("pages", storage, class_feature="shape")
    with pytest.raises(ValueError, match="no record read has the feature 'colour'; there are: i, shape"):
        await report("pages", storage=storage, class_feature="colour")


async def test_of_many_classes_the_largest_are_listed_and_all_are_drawn() -> None:
    storage = await written([{"label": i % (1 + i % 40)} for i in range(800)])
    page = await page_of("pages", storage)
    assert "40 classes, by the feature label" in page
    assert "all 40 classes, from the largest to the smallest" in page


async def test_classes_that_are_numbers_have_the_names_that_the_manifest_has() -> None:
    rows = [{"label": i % 3, "image": png(2)} for i in range(12)]
    page = await page_of("pages", await written(rows, metadata={"labels": ["disc", "square"]}))
    assert {image["alt"] for image in page.images} == {"disc", "square", "2"}
    assert "disc 4 33 %" in page


async def test_misuse_a_missing_path_and_a_store_that_fails_are_errors() -> None:
    storage = await written([{"i": 1}])
    with pytest.raises(ValueError, match="sample is 0"):
        await report("pages", storage=storage, sample=0)
    with pytest.raises(ObjectNotFoundError, match="nothing"):
        await report("nothing", storage=storage)
    calm = FlakyStorage(storage)
    await report("pages", storage=calm)
    flaky = FlakyStorage(storage, {len(calm.operations) - 1: Fault(error=StoragePermissionError)})
    with pytest.raises(StoragePermissionError):
        await report("pages", storage=flaky)


async def test_progress_counts_records() -> None:
    storage = await written([{"i": i} for i in range(100)], max_shard_records=10)
    seen: list[tuple[int, int | None]] = []
    await report("pages", storage=storage, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100)
    assert seen == sorted(seen)
