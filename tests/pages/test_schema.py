"""A page is made from its parts, and fits the schema of pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from asyncrec import FixedLen, Schema, encode_example, pages
from asyncrec.errors import ArgumentError


def test_page_round_trips_through_schema() -> None:
    page = pages.page(
        "http://a/",
        b"<p>",
        status=200,
        headers={"Content-Type": 'text/html; charset="UTF-8"', "Set-Cookie": ["a=1", "b=2"]},
        request_headers=[("Accept", "*/*")],
        elapsed=0.5,
        date=datetime(2026, 11, 22, 8, tzinfo=timezone(timedelta(hours=1))),
    )
    read = pages.PAGE.decode(pages.PAGE.encode(page))
    assert {name: read[name] for name in page} == page
    assert read["date"] == "2026-11-22T07:00:00Z"
    assert read["headers"] == b'Content-Type: text/html; charset="UTF-8"\nSet-Cookie: a=1\nSet-Cookie: b=2'
    assert read["request_headers"] == b"Accept: */*"
    assert (read["content_type"], read["charset"]) == ('text/html; charset="UTF-8"', "utf-8")
    assert (read["method"], read["type"], read["truncated"], read["final_url"]) == ("GET", "response", "", "")


def test_digest_matches_web_archive_format() -> None:
    """The digest of the empty content is the one used in all web archives."""
    assert pages.payload_digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
    assert pages.page("http://a/")["digest"] == pages.payload_digest(b"")


def test_date_defaults_to_current_utc_time() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    made = datetime.fromisoformat(pages.page("http://a/")["date"])
    assert before <= made <= datetime.now(UTC)
    assert pages.page("http://a/", date="2020-01-01T00:00:00.5Z")["date"] == "2020-01-01T00:00:00.5Z"
    with pytest.raises(ArgumentError, match="time zone"):
        pages.page("http://a/", date=datetime(2020, 1, 1))  # this is rejected


def test_long_content_is_truncated_and_marked() -> None:
    page = pages.page("http://a/", b"x" * 10, max_bytes=4)
    assert (page["content"], page["truncated"]) == (b"xxxx", "length")
    assert page["digest"] == pages.payload_digest(b"xxxx")
    assert pages.page("http://a/", b"x" * 4, max_bytes=4)["truncated"] == ""
    assert pages.page("http://a/", b"x", truncated="time")["truncated"] == "time"
    with pytest.raises(ArgumentError):
        pages.page("http://a/", max_bytes=-1)


def test_header_line_breaks_cannot_inject_headers() -> None:
    page = pages.page("http://a/", headers=[("X", "1\r\nY: 2"), ("A: 1\nB", "2")])
    assert page["headers"] == b"X: 1 Y: 2\nA: 1 B: 2"


def test_unknown_feature_error_names_feature() -> None:
    with pytest.raises(TypeError, match="the feature 'stats' is not in PAGE; its features are url, date, status,"):
        pages.page("http://a/", stats=200)


def test_page_key_is_url_for_plain_get() -> None:
    page = pages.page("http://a/")
    assert pages.page_key(page) == "http://a/"
    assert pages.page_key({**page, "method": "POST"}, b"a=1") == f"POST http://a/ {pages.payload_digest(b'a=1')}"
    assert pages.page_key({**page, "method": "HEAD"}) == "HEAD http://a/"
    assert pages.page_key(page, b"q") != pages.page_key(page)


def test_pages_from_older_warc_conversion_decode() -> None:
    older = Schema(
        {
            **{
                name: FixedLen((), "bytes")
                for name in ("url", "date", "type", "record_id", "content_type", "headers", "content")
            },
            "status": FixedLen((), "int64", default=0),
        }
    )
    record = encode_example(dict.fromkeys(older.features, b"x") | {"status": 200})
    assert pages.PAGE.decode(record)["url"] == "x"
    assert pages.PAGE.decode(record)["method"] == "GET"


def test_module_help_describes_every_feature() -> None:
    assert pages.__doc__ is not None
    table = pages.__doc__.partition("The features of")[2]
    said = [line.split()[0] for line in table.splitlines() if line.startswith("    ")]
    assert sorted(said) == sorted(pages.PAGE.features)
