"""Options are checked before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest
from asyncrec_s3.options import Options


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "root"),
    [
        ("s3://crawl", "crawl", "", "s3://crawl"),
        ("s3://crawl/", "crawl", "", "s3://crawl"),
        ("s3://crawl/2026/a b", "crawl", "2026/a b/", "s3://crawl/2026/a b"),
        ("s3a://crawl/x/", "crawl", "x/", "s3://crawl/x"),
    ],
)
def test_url_splits_into_bucket_prefix_and_root(url: str, bucket: str, prefix: str, root: str) -> None:
    options = Options.of(url)
    assert (options.bucket, options.prefix, options.root) == (bucket, prefix, root)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"], "http://aws-endpoint-url-s3:1"),
        (["AWS_ENDPOINT_URL", "S3_ENDPOINT"], "http://aws-endpoint-url:1"),
        (["S3_ENDPOINT"], "http://s3-endpoint:1"),
        ([], None),
    ],
)
def test_endpoint_option_precedes_environment_variables(
    monkeypatch: pytest.MonkeyPatch, names: list[str], expected: str | None
) -> None:
    """An option has precedence over the SDK's variables, and those over tensorboardX's."""
    for name in names:
        monkeypatch.setenv(name, f"http://{name.lower().replace('_', '-')}:1")
    assert Options.of("s3://crawl").endpoint_url == expected
    assert Options.of("s3://crawl", endpoint_url="https://mine").endpoint_url == "https://mine"


def test_endpoint_without_scheme_uses_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in TensorFlow, S3_ENDPOINT may be just a host, which is used with TLS."""
    monkeypatch.setenv("S3_ENDPOINT", "store.example:9000")
    assert Options.of("s3://crawl").endpoint_url == "https://store.example:9000"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"region": 5}, "region of s3 must be str | None, not int"),
        ({"chunk_size": "8"}, "chunk_size of s3 must be int, not str"),
        ({"read_timeout": "8"}, "read_timeout of s3 must be float | int, not str"),
    ],
)
def test_option_of_wrong_type_raises_type_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        Options.of("s3://crawl", **options)
    assert words in str(raised.value)
    assert Options.of("s3://crawl", read_timeout=5, verify="ca.pem").read_timeout == 5


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://", {}),
        ("s3://crawl", {"aws_access_key_id": "AKIACANARY\n", "aws_secret_access_key": "canary"}),
        ("s3:///key", {}),
        ("crawl/key", {}),
        ("s3://AKIACANARY:canary@crawl", {}),
        ("s3://crawl", {"aws_access_key_id": "AKIACANARY"}),
        ("s3://crawl", {"aws_secret_access_key": "canary"}),
        ("s3://crawl", {"aws_session_token": "canary"}),
        ("s3://crawl", {"anonymous": True, "aws_access_key_id": "AKIACANARY", "aws_secret_access_key": "canary"}),
        ("s3://crawl", {"endpoint_url": "http://AKIACANARY:canary@host"}),
        ("s3://crawl", {"endpoint_url": "http://AKIACANARY@host"}),
        ("s3://crawl", {"endpoint_url": "http://:canary@host"}),
        ("s3://crawl", {"endpoint_url": "host:9000"}),
        ("s3://crawl", {"addressing_style": "dns"}),
        ("s3://crawl", {"checksum": "sha1"}),
        ("s3://crawl", {"chunk_size": (5 << 20) - 1}),
        ("s3://crawl", {"max_concurrency": 0}),
        ("s3://crawl", {"max_concurrency": 8, "max_connections": 8}),
    ],
)
def test_options_reject_invalid_values_without_showing_secrets(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # each has wording of its own
        Options.of(url, **options)
    assert "canary" not in repr(caught.value).lower()


def test_unknown_option_error_suggests_known_option() -> None:
    with pytest.raises(TypeError, match=r"no option region_name.*region"):
        Options.of("s3://crawl", region_name="canary")


def test_options_repr_shows_no_secrets() -> None:
    """The repr of `Options` in a log or traceback shows no fields."""
    options = Options.of("s3://crawl", aws_access_key_id="AKIACANARY", aws_secret_access_key="canary")
    assert "canary" not in f"{options!r} {options.client()!r}".lower()
