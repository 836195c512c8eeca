"""Building requests of the protocol, and parsing its responses."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from asyncrec_gcs import protocol
from asyncrec_gcs.bucket import with_query
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from asyncrec.storage.http import parse_content_range

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..")
)
ENDPOINT = "https://storage.googleapis.com"
LIST = {"kind": "storage#objects"}


@given(names)
def test_object_name_round_trips_as_one_path_segment(name: str) -> None:
    url = protocol.object_url(ENDPOINT, "bucket", name, alt="media")
    path = URL(url, encoded=True).raw_path
    head, _, last = path.rpartition("/")
    assert head == "/storage/v1/b/bucket/o"
    assert unquote(last, errors="strict") == name


@given(names, names)
def test_object_name_round_trips_through_query(name: str, offset: str) -> None:
    opened = parse_qs(urlsplit(protocol.session_url(ENDPOINT, "bucket", name, exclusive=True)).query)
    assert opened == {"uploadType": ["resumable"], "name": [name], "ifGenerationMatch": ["0"]}
    params = protocol.list_params(prefix=name, start_offset=offset, page="a b+c", size=5)
    listed = with_query(f"{ENDPOINT}/storage/v1/b/bucket/o", params)
    query = parse_qs(urlsplit(listed).query)
    assert (query["prefix"], query["startOffset"], query["pageToken"]) == ([name], [offset], ["a b+c"])
    assert query["maxResults"] == ["5"]


def test_plain_upload_has_no_precondition() -> None:
    assert "ifGenerationMatch" not in protocol.session_url(ENDPOINT, "bucket", "name", exclusive=False)


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_content_range_names_total_only_at_end(start: int, length: int) -> None:
    assert protocol.content_range(start, length, None) == f"bytes {start}-{start + length - 1}/*"
    end = start + length
    assert protocol.content_range(start, length, end) == f"bytes {start}-{end - 1}/{end}"


def test_empty_last_request_names_only_total() -> None:
    assert protocol.content_range(0, 0, 0) == "bytes */0"
    assert protocol.content_range(512, 0, 512) == "bytes */512"
    with pytest.raises(ValueError, match="states the total"):
        protocol.content_range(5, 0, None)


@given(st.integers(1, 1 << 50))
def test_stored_range_parses_to_byte_count_or_zero(stored: int) -> None:
    assert protocol.parse_stored(f"bytes=0-{stored - 1}") == stored
    assert protocol.parse_stored(None) == 0


@pytest.mark.parametrize("header", ["", "bytes=1-5", "bytes=0-", "bytes=0-5,7-9", "bytes 0-5/6", "0--1", "bytes=0-x"])
def test_stored_range_parser_rejects_malformed_range(header: str) -> None:
    with pytest.raises(ValueError, match="bytes=0-N"):
        protocol.parse_stored(header)


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 30))
def test_range_header_matches_parsed_content_range(start: int, length: int) -> None:
    span = re.fullmatch(r"bytes=(\d+)-(\d+)", protocol.range_header(start, start + length))
    assert span is not None
    answer = f"bytes {span[1]}-{span[2]}/{1 << 60}"
    assert parse_content_range(answer) == (start, start + length, 1 << 60)


def test_parser_reads_object_description() -> None:
    item = {
        "name": "a/b",
        "size": "9",
        "generation": "1700000000000001",
        "crc32c": protocol.crc32c_header(crc32c(b"123456789")).removeprefix("crc32c="),
        "updated": "2026-11-21T01:02:03.456Z",
    }
    plain = protocol.parse_object(json.dumps(item).encode())
    assert plain.info.key == "a/b"
    assert (plain.info.size, plain.info.etag, plain.generation) == (9, "1700000000000001", "1700000000000001")
    assert plain.info.crc32c == 0xE3069283
    assert plain.info.modified == datetime(2026, 11, 21, 1, 2, 3, 456_000, UTC)
    assert plain.upload is None
    ours = item | json.loads(protocol.session_body("a/b", "id-of-ours"))
    assert protocol.parse_object(json.dumps(ours).encode()).upload == "id-of-ours"


def test_checksum_and_date_may_be_missing() -> None:
    info = protocol.parse_object(b'{"name": "a", "size": "0", "generation": "1"}').info
    assert info.crc32c is None
    assert info.modified.tzinfo is not None


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"<html>", b'{"name": "a", "size": "x", "generation": "1"}', b'{"name": "a", "size": "1"}',
     b'{"name": "a", "size": "1", "generation": "1", "crc32c": "?"}', b"\xff\xfe"],
)  # fmt: skip
def test_parser_rejects_invalid_object_description(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"not JSON|not a JSON object|no usable"):
        protocol.parse_object(body)


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"text"'])
def test_parsers_reject_non_object_json(body: bytes) -> None:
    for parse in (protocol.parse_object, protocol.parse_listing):
        with pytest.raises(ValueError, match="not a JSON object"):
            parse(body)


@given(st.binary(max_size=200))
def test_parsers_raise_only_value_errors(body: bytes) -> None:
    for parse in (protocol.parse_object, protocol.parse_listing):
        with suppress(ValueError):
            parse(body)


def test_parser_reads_listing_and_next_page_token() -> None:
    item = {"name": "a", "size": "1", "generation": "7"}
    infos, page = protocol.parse_listing(json.dumps(LIST | {"items": [item], "nextPageToken": "t"}).encode())
    assert [info.key for info in infos] == ["a"]
    assert page == "t"
    assert protocol.parse_listing(json.dumps(LIST).encode()) == ([], "")


def test_listing_parser_rejects_non_list_object() -> None:
    for answer in (b"{}", b'{"items": []}', b'{"kind": "storage#buckets"}', b'{"error": "sign in"}'):
        with pytest.raises(ValueError, match="not a list of objects"):
            protocol.parse_listing(answer)


@pytest.mark.parametrize("sign", [{"crc32c": "AAAAAA=="}, {"md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}])
def test_missing_size_means_empty_with_matching_checksum(sign: dict[str, str]) -> None:
    """Servers based on protocol buffers omit zeros."""
    item = {"name": "x", "generation": "1"}
    assert protocol.parse_object(json.dumps(item | sign).encode()).info.size == 0
    assert [info.size for info in protocol.parse_listing(json.dumps(LIST | {"items": [item | sign]}).encode())[0]] == [
        0
    ]
    for other in ({}, {"crc32c": "AAAAAQ=="}, {"md5Hash": ""}):
        with pytest.raises(ValueError, match="size"):
            protocol.parse_object(json.dumps(item | other).encode())
