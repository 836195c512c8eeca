"""Splitting, joining and redacting paths and URLs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec.storage._url import check_key, join, local_path, redact, scheme_of, split_path


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("pages.rec", ""), ("/a/b", ""), ("./s3:x", ""), ("s3", ""), ("C:\\data\\x", ""), ("c:/data", ""),
        ("a:b", ""), (Path("s3:x"), ""), ("foo:bar.rec", "foo"), ("S3://bucket/x", "s3"),
        ("file+aiofiles:///x", "file+aiofiles"), ("1a://x", ""), ("a b://x", ""), ("", ""),
    ],
)  # fmt: skip
def test_scheme_of_returns_scheme_of_path(path: str | Path, scheme: str) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.parametrize(
    ("path", "root", "key"),
    [
        ("pages.rec", ".", "pages.rec"),
        ("data/pages.rec", "data", "pages.rec"),
        ("/pages.rec", "/", "pages.rec"),
        ("../x", "..", "x"),
        ("data/", "data", ""),
        ("..", "..", ""),
        ("a/.", "a/.", ""),
        (Path("s3:x/y"), "s3:x", "y"),
        ("foo:bar.rec", ".", "foo:bar.rec"),
        ("s3://bucket/a/b", "s3://bucket", "a/b"),
        ("S3://bucket/a", "S3://bucket", "a"),
        ("s3://bucket", "s3://bucket", ""),
        ("s3://bucket/", "s3://bucket", ""),
        ("gs://b/a%20b ?c#d é/x", "gs://b", "a%20b ?c#d é/x"),
        ("memory://name/a/b", "memory://name", "a/b"),
        ("file:///my%20data/x%23", "/my data", "x#"),
        ("file:/data/x", "/data", "x"),
        ("file://localhost/data/x", "/data", "x"),
        ("FILE:///data/x", "/data", "x"),
        ("file+aiofiles:///my%20data/x%20y", "file+aiofiles:///my%20data", "x y"),
    ],
)
def test_split_path_separates_root_and_key(path: str | Path, root: str, key: str) -> None:
    assert split_path(path) == (root, key)


@pytest.mark.parametrize("path", ["", "a\0b", "file://other/x", "file:x", "file:///a%00b", "file+aiofiles://host/x"])
def test_invalid_path_raises_value_error(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|file URL"):
        split_path(path)


def test_bytes_are_rejected_as_path() -> None:
    with pytest.raises(TypeError, match="bytes"):
        split_path(b"x")  # type: ignore[arg-type]  # deliberately wrong


def test_driver_url_root_decodes_to_same_folder() -> None:
    root, key = split_path("file+aiofiles:///my%20data%25/x")
    assert (local_path(root), key) == ("/my data%", "x")


def test_file_name_outside_utf_8_survives_url() -> None:
    assert local_path("file:///a%ff") == "/a\udcff"


@pytest.mark.parametrize(
    ("root", "key", "path"),
    [
        ("s3://b", "a/b", "s3://b/a/b"), ("data", "x", "data/x"), ("/", "x", "/x"), (".", "x", "x"), ("", "x", "x"),
        ("foo:", "bar.rec", "foo:bar.rec"), ("s3://b", "", "s3://b"),
    ],
)  # fmt: skip
def test_join_appends_key_to_url(root: str, key: str, path: str) -> None:
    assert join(root, key) == path


@given(st.text(alphabet=st.characters(exclude_characters="\0"), min_size=1))
def test_object_url_round_trips_exactly(key: str) -> None:
    assert split_path(f"s3://bucket/{key}") == ("s3://bucket", key)
    assert join(*split_path(f"s3://bucket/{key}")) == f"s3://bucket/{key}"


@pytest.mark.parametrize("key", ["a", "a/b", "a b%20?#é", "...", "a..b/c.", "a//b", ".hidden"])
def test_valid_key_is_returned_unchanged(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", "/a", "a/../b", "..", ".", "a/.", "./a", "a\0"])
def test_invalid_key_raises_value_error(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        check_key(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("http://host:9000/a@b", "http://host:9000/a@b"),
        ("s3://CANARY:CANARY@bucket/x", "s3://***@bucket/x"),
        ("s3://AKIA:CAN/ARY+x@bucket/x", "s3://***@bucket/x"),
        ("https://CANARY@host/x", "https://***@host/x"),
        (
            "GET https://h/k?X-Amz-Date=1&X-Amz-Signature=CANARY&X-Amz-Credential=CANARY failed",
            "GET https://h/k?X-Amz-Date=1&X-Amz-Signature=***&X-Amz-Credential=*** failed",
        ),
        ("https://h/k?AWSAccessKeyId=CANARY&Expires=1", "https://h/k?AWSAccessKeyId=***&Expires=1"),
        ("https://a.blob/k?sv=2&sig=CANARY%3D", "https://a.blob/k?sv=2&sig=***"),
        ("https://h/k?access_token=CANARY#x", "https://h/k?access_token=***#***"),
        ("s3://CANARY:CAN@ARY@bucket/x", "s3://***@bucket/x"),
        ("s3://CANARY:CAN@AR/Y@bucket/x", "s3://***@bucket/x"),
        ("s3://CANARY:CAN://ARY@bucket/x", "s3://***@bucket/x"),
        ("http://CANARY:CAN?ARY@host/x", "http://***@host/x"),
        ("http://CANARY@host:9000/a@b", "http://***@host:9000/a@b"),
        ("memory://b/s3://CANARY@c to s3://CANARY:x@d/e", "memory://b/s3://***@c to s3://***@d/e"),
        ("https://h/k#access_token=CANARY&state=1", "https://h/k#access_token=***&state=***"),
        ("https://h/k?to?key?token=CANARY;x=1", "https://h/k?***?***?token=***"),
        ("https://h/k?versionId=3.a-B&partNumber=1&prefix=a/b", "https://h/k?versionId=3.a-B&partNumber=1&prefix=a/b"),
        ("https://h/k?versionId=3;CANARY", "https://h/k?versionId=***"),
        ("https://h/k?versionId=3'CANARY", "https://h/k?versionId=***"),
        ("https://h/k?a=1&CANARY", "https://h/k?a=***&***"),
        ("https://h/k?%74oken=CANARY", "https://h/k?%74oken=***"),
        ("https://h/k#CANARY", "https://h/k#***"),
        ("s3://b/page#3.tfrecord", "s3://b/page#3.tfrecord"),
        ("s3://CANARY:CAN ARY@bucket/x is not there", "s3://***@bucket/x is not there"),
        ("https:/CANARY:CANARY@h/x", "https:/***@h/x"),
        ("https://host:80 said u@h", "https://host:80 said u@h"),
        ("server:/home/u@h", "server:/home/u@h"),
        ("401 of {'Authorization': 'Bearer CANARY', 'a': 1}", "401 of {'Authorization': *** *** 'a': 1}"),
        ("WWW-Authenticate was Basic CANARY=", "WWW-Authenticate was Basic ***"),
        ("x-amz-security-token: CANARY, Host: h", "x-amz-security-token: *** Host: h"),
        ("Protocol=https;AccountName=a;AccountKey=CANARY==", "Protocol=https;AccountName=***"),
        ("a://b@", "a://***@"),
        ("://", "://"),
        ("data/pages.rec", "data/pages.rec"),
    ],
)
def test_redact_hides_secrets_in_url(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "?key", "&key=", "#token", "://", "://a:", "://a@", "://a:@", "://a/?", "@", ":", "=?", "://a:b ", "x-key: ",
        "?a;", "https:/",
    ],
)  # fmt: skip
def test_redaction_takes_linear_time(piece: str) -> None:
    """Input this long would not finish within the test's time limit if each position started a new search."""
    assert redact(piece * ((1 << 18) // len(piece)))


NAMES = [
    *("sig", "token", "jwt", "pat", "pwd", "pass", "code", "hmac", "hdnea", "Policy", "sas", "sid", "otp", "ticket"),
    *("saml", "ak", "p", "q", "id", "versionIds"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mark", ["?", "#", "?prefix=a&", "?a;", "#a?"])
def test_unknown_query_parameters_are_redacted(name: str, mark: str) -> None:
    for value in ("CANARY", "a;CANARY", "a'CANARY", 'a"CANARY', "a?CANARY", "a=CANARY"):
        assert "CANARY" not in redact(f"GET https://h/x{mark}{name}={value} failed")


@given(st.lists(st.sampled_from(["s3://", "u:", "@", "/", "?", "a", " ", "&b=", "80"]), max_size=8))
def test_password_before_host_is_never_shown(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "CANARY" not in redact(f"{text} s3://user:CANARY@bucket/{text}")
    assert "CANARY" not in redact(f"{text} https://h/x?a=1&session_token=CANARY&b={text}")


@pytest.mark.parametrize("path", ["file://u:CANARY@host/x", "s3://u:CANARY@b/a\0b"])
def test_invalid_path_error_hides_password(path: str) -> None:
    with pytest.raises(ValueError, match=r"NUL|file URL") as caught:
        split_path(path)
    assert "CANARY" not in str(caught.value)
