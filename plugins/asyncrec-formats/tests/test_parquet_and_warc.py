"""`asyncrec.tools.convert` reads and writes Parquet and WARC; bad input is skipped and reported."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asyncrec_formats.warc import _Parser

import asyncrec
from asyncrec import tools
from asyncrec.errors import SchemaError
from asyncrec.pages import PAGE
from asyncrec.storage import Storage

pytestmark = pytest.mark.anyio


PAGES = asyncrec.Schema(
    {
        "label": asyncrec.FixedLen((), "int64"),
        "text": asyncrec.FixedLen((), "bytes"),
        "emb": asyncrec.FixedLen((4,), "float32"),
    }
)


async def write_pages(storage: Storage, *, records: int, max_shard_records: int) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_records=max_shard_records, schema=PAGES
    ) as writer:
        for n in range(records):
            features = {"label": n % 3, "text": f"text {n}", "emb": np.full(4, n, np.float32)}
            await writer.write(asyncrec.encode_example(features))


@pytest.fixture
async def storage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Storage]:
    """Use a disk on asyncio and memory on trio: each test runs on both, in half the time of all four combinations."""
    where = f"memory://{tmp_path.name}" if anyio_backend == "trio" else str(tmp_path / "store")
    async with asyncrec.open_storage(where) as storage:
        yield storage


async def decoded(storage: Storage, path: str) -> list[dict[str, Any]]:
    async with tools.open_records(path, storage=storage) as stream:
        return [asyncrec.decode_example(found.data) async for records in stream for found in records]


async def convert(storage: Storage, source: str, target: str, **options: Any) -> tools.ConvertReport:
    return await tools.convert(source, target, storage=storage, target_storage=storage, **options)


def warc(*, compressed: bool, pages: int = 20) -> bytes:
    """Return responses, each followed by its request, in a GZIP member per record as in web archives."""
    chance = random.Random(0)
    records = []
    for number in range(pages):
        body = b"page %d " % number + chance.randbytes(500)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-N: %d\r\nContent-Length: %d\r\n\r\n"
        for kind, block in ((b"response", head % (number, len(body)) + body), (b"request", b"GET / HTTP/1.0\r\n\r\n")):
            records.append(
                b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:%d>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
                b"WARC-Target-URI: http://example.org/%d\r\nContent-Type: application/http; msgtype=%s\r\n"
                b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (kind, number, number, kind, len(block), block)
            )
    return b"".join(map(gzip.compress, records) if compressed else records)


async def test_records_round_trip_through_parquet(storage: Storage) -> None:
    await write_pages(storage, records=2000, max_shard_records=900)
    assert (await convert(storage, "pages", "x.parquet")).records == 2000
    table = pq.read_table(io.BytesIO(await storage.get("x.parquet")))
    assert table.num_rows == 2000
    assert {field.name: str(field.type) for field in table.schema} == {
        "label": "int64",
        "text": "binary",
        "emb": "list<element: float>",
    }
    assert (await convert(storage, "x.parquet", "back")).records == 2000
    before, after = await decoded(storage, "pages"), await decoded(storage, "back")
    assert [str(each) for each in before] == [str(each) for each in after]


async def test_foreign_parquet_types_are_converted(storage: Storage) -> None:
    table = pa.table(
        {
            "when": pa.array([0, None], pa.timestamp("s")),
            "ok": [True, False],
            "nested": [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}],
            "list": [[1.5, 2.5], []],
            "name": ["ä", None],
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    await storage.put("x.parquet", out.getvalue())
    assert (await convert(storage, "x.parquet", "set")).bad_count == 0
    first, second = await decoded(storage, "set")
    assert first["when"] == [b"1970-01-01T00:00:00"]
    assert first["ok"] == 1
    assert first["nested/a"] == 1
    assert first["nested/b/c"] == [b"x"]
    assert first["list"].tolist() == [1.5, 2.5]
    assert first["name"] == ["ä".encode()]
    assert "when" not in second
    assert "name" not in second


async def test_parquet_infers_schema_fitting_all_records(storage: Storage) -> None:
    records = [{"a": 1}, {"a": [1, 2], "b": "x"}, {"b": "y"}]
    await asyncrec.write_records("x.tfrecord", map(asyncrec.encode_example, records), storage=storage)
    await convert(storage, "x.tfrecord", "x.parquet")
    table = pq.read_table(io.BytesIO(await storage.get("x.parquet")))
    assert table.to_pylist() == [{"a": [1], "b": None}, {"a": [1, 2], "b": [b"x"]}, {"a": None, "b": [b"y"]}]


async def test_convert_rejects_mistyped_records_and_writes_no_file(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", schema=asyncrec.Schema({"a": asyncrec.FixedLen((), "int64")}), validate="none", storage=storage
    ) as writer:
        await writer.write(asyncrec.encode_example({"a": "text"}))
    with pytest.raises(SchemaError, match="'a'"):
        await convert(storage, "pages", "x.parquet")
    assert "x.parquet" not in [info.key async for info in storage.list_objects()]


async def test_convert_reports_invalid_parquet_file(storage: Storage) -> None:
    await storage.put("x.parquet", b"PAR1 and nothing else")
    report = await convert(storage, "x.parquet", "set")
    assert report.bad_count == 1
    assert report.records == 0


@pytest.mark.parametrize("compressed", [True, False])
async def test_warc_converts_to_pages(storage: Storage, compressed: bool) -> None:
    name = "x.warc.gz" if compressed else "x.warc"
    await storage.put(name, warc(compressed=compressed))
    report = await convert(storage, name, "set")
    assert (report.records, report.passed, report.bad_count) == (20, 20, 0)
    async with tools.open_records("set", storage=storage) as stream:
        pages = [PAGE.decode(found.data) async for records in stream for found in records]
    assert pages[3]["url"] == "http://example.org/3"
    assert pages[3]["status"] == 200
    assert pages[3]["content_type"] == "text/html"
    assert pages[3]["content"].startswith(b"page 3 ")
    assert b"X-N: 3" in pages[3]["headers"]
    assert (await tools.info("set", storage=storage)).schema == PAGE.to_json()


async def test_convert_uses_page_url_as_key(storage: Storage) -> None:
    await storage.put("x.warc.gz", warc(compressed=True))
    await convert(storage, "x.warc.gz", "set")
    async with asyncrec.open_dataset("set", storage=storage) as dataset:
        urls = [page["url"] async for page in dataset.examples()]
        assert PAGE.decode(await dataset.get_by_key(urls[7]))["url"] == urls[7]
    async with asyncrec.open_sharded_writer("set", storage=storage, schema=PAGE, on_duplicate="skip") as writer:
        assert all(writer.has(url) for url in urls)
    await convert(storage, "set", "y.warc")
    await convert(storage, "y.warc", "again")
    assert (await tools.diff("set", "again", storage=storage, ignore=["record_id"])).only_first == 0


async def test_damaged_members_are_skipped_and_remainder_is_read(storage: Storage) -> None:
    content = bytearray(warc(compressed=True))
    members = [at for at in range(len(content)) if content[at : at + 3] == b"\x1f\x8b\x08"]
    content[members[4] + 60] ^= 1  # the deflated data of a response
    content[members[10]] = 0  # the magic bytes of another one
    content[members[17] - 6] ^= 1  # the checksum at a response's end
    await storage.put("x.warc.gz", bytes(content[:-10]))  # and cut off the last request
    report = await convert(storage, "x.warc.gz", "set")
    urls = {page["url"][0] for page in await decoded(storage, "set")}
    assert urls == {b"http://example.org/%d" % number for number in range(20) if number not in (2, 5, 8)}
    assert report.bad_count == 4
    assert "byte" in report.bad[0].where


async def test_convert_continues_after_damaged_plain_header(storage: Storage) -> None:
    content = warc(compressed=False)
    cut = content.index(b"http://example.org/6")
    at = content.index(b"Content-Length", cut)
    await storage.put("x.warc", content[:at] + b"Xontent" + content[at + 7 :])
    report = await convert(storage, "x.warc", "set")
    assert report.bad_count == 1
    assert report.records == 19


def warc_record(kind: str, block: str, **headers: str) -> str:
    lines = {
        "WARC-Type": kind,
        "WARC-Target-URI": "http://a/",
        "WARC-Date": "2026-11-22T00:00:00Z",
        "Content-Type": f"application/http; msgtype={kind}",
        "Content-Length": len(block),
        **{f"WARC-{name.replace('_', '-')}": value for name, value in headers.items()},
    }
    return "\r\n".join(["WARC/1.0", *(f"{name}: {value}" for name, value in lines.items()), "", block, "", ""])


@pytest.mark.parametrize("named", [True, False], ids=["named by id", "of one URL"])
@pytest.mark.parametrize("request_first", [True, False])
async def test_convert_pairs_each_response_with_own_request(storage: Storage, request_first: bool, named: bool) -> None:
    parts = []
    for number in range(3):
        ours = {"Record_ID": f"<r:{number}>"} if named else {}
        theirs = {"Record_ID": f"<q:{number}>", "Concurrent_To": f"<r:{number}>"} if named else {}
        response = warc_record("response", f"HTTP/1.1 200 OK\r\nX-N: {number}\r\n\r\n{number}", **ours)
        request = warc_record("request", f"GET / HTTP/1.1\r\nX-N: {number}\r\n\r\n", **theirs)
        parts += [request, response] if request_first else [response, request]
    # The request names a different record. If no ids are used, neither the request nor the response has an id.
    other = warc_record("request", "GET / HTTP/1.1\r\nX-N: another\r\n\r\n", Concurrent_To="<other>")
    parts.insert(0 if request_first else 1, other)
    await storage.put("x.warc", "".join(parts).encode())
    report = await convert(storage, "x.warc", "set")
    assert (report.records, report.bad_count, report.passed) == (3, 0, 4)
    for page in await decoded(storage, "set"):
        assert page["request_headers"] == page["headers"] == [b"X-N: " + page["content"][0]]


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
async def test_parser_output_is_independent_of_chunk_size(step: int) -> None:
    for compressed in (True, False):
        content = warc(compressed=compressed, pages=3)
        parser = _Parser("x", 256 << 20)
        records, bad = [], []
        for begin in [*range(0, len(content), step), len(content)]:
            for converted in parser.feed(content[begin : begin + step]):
                records += converted.records
                bad += converted.bad
        assert len(records) == 3
        assert not bad


async def test_convert_rejects_only_page_decoding_beyond_record_limit(storage: Storage) -> None:
    bomb = gzip.compress(bytes(5 << 20))
    http = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb
    record = (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
        b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    )
    await storage.put("x.warc", record + warc(compressed=False, pages=2) + record)
    report = await convert(storage, "x.warc", "set", max_record_bytes="1MiB")
    assert (report.records, report.bad_count) == (2, 2)
    assert "decodes to more than the limit of 1,048,576" in report.bad[0].reason


def test_parser_yields_inflating_pages_in_small_batches() -> None:
    """A block of some kilobytes inflates to a thousand times as much."""
    http = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(4 << 20))
    record = (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
        b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    )
    parser = _Parser("x", 256 << 20)
    count = 0
    for converted in chain(parser.feed(gzip.compress(record * 30)), parser.feed(b"")):
        assert len(converted.records) <= 4
        count += len(converted.records)
    assert count == 30


async def test_convert_rejects_invalid_utf8_for_text_column(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", schema=asyncrec.Schema({"a": asyncrec.FixedLen((), "str")}), validate="none", storage=storage
    ) as writer:
        await writer.write(asyncrec.encode_example({"a": b"\xff"}))
    with pytest.raises(SchemaError, match=r"'a'.*UTF-8"):
        await convert(storage, "pages", "x.parquet")


async def test_parquet_rejects_records_with_feature_lists(storage: Storage) -> None:
    """Whether or not a schema says that the records have none."""
    records = [asyncrec.encode_example({"a": n}) for n in range(2000)]
    records.append(asyncrec.encode_sequence_example({"a": 2}, {"steps": [[1], [2]]}))
    await asyncrec.write_records("set.tfrecord", records, storage=storage)
    schema = asyncrec.Schema({"a": asyncrec.FixedLen((), "int64")})
    async with asyncrec.open_sharded_writer("set", max_shard_records=4000, schema=schema, storage=storage) as writer:
        await writer.write_many(records)
    for source, reason in (
        ("set.tfrecord", "'steps' is a Sequence, which cannot be stored"),
        ("set", r"record 2,000 \(in .*set.*\) is a SequenceExample.*JSON lines"),
    ):
        with pytest.raises(SchemaError, match=reason):
            await convert(storage, source, "x.parquet")
    assert "x.parquet" not in [info.key async for info in storage.list_objects()]


async def test_large_records_are_encoded_in_several_row_groups(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrec.tools._export._BATCH_BYTES", 1 << 20)
    await asyncrec.write_records("x.tfrecord", [asyncrec.encode_example({"a": bytes(300 << 10)})] * 50, storage=storage)
    await convert(storage, "x.tfrecord", "x.parquet")
    file = pq.ParquetFile(io.BytesIO(await storage.get("x.parquet")))
    assert file.metadata.num_rows == 50
    assert file.num_row_groups > 5
