"""Options and URLs are checked before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest
from asyncrec_gcs.options import Options

pytestmark = pytest.mark.usefixtures("no_credentials_of_this_machine")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("gs://", {}, "names no bucket"),
        ("gs:bucket", {}, "must have the form"),
        ("://bucket", {}, "must have the form"),
        ("gs://user:c4n4ry@bucket/x", {}, "pass them as options"),
        ("gs://bucket", {"token": "c4n4ry\n"}, "control character"),
        ("gs://bucket", {"token": "c4n4ry", "anonymous": True}, "cannot be combined"),
        ("gs://bucket", {"endpoint": "ftp://c4n4ry"}, "http://"),
        ("gs://bucket", {"endpoint": "https:///c4n4ry"}, "name a host"),
        ("gs://bucket", {"endpoint": "https://host?c4n4ry"}, "have no query"),
        ("gs://bucket", {"endpoint": "https://host#c4n4ry"}, "have no query"),
        ("gs://bucket", {"token": ""}, "printable"),
        ("gs://bucket", {"token": "c4n4ry c4n4ry"}, "without spaces"),
        ("gs://bucket", {"token": "c4n4rý"}, "printable"),
        ("gs://bucket", {"token": "c4n4ry", "service_file": "x"}, "cannot be combined"),
        ("gs://bucket", {"service_file": "x", "anonymous": True}, "cannot be combined"),
        ("gs://bucket", {"endpoint": "http://user:c4n4ry@host"}, "must not contain credentials"),
        ("gs://bucket", {"endpoint": "http://c4n4ry@host"}, "must not contain credentials"),
        ("gs://bucket", {"endpoint": "http://:c4n4ry@host"}, "must not contain credentials"),
        ("gs://bucket", {"chunk_size": 1000}, "multiple of 256 KiB"),
        ("gs://bucket", {"max_concurrency": 0}, "at least 1"),
    ],
)
def test_options_reject_invalid_values_without_showing_secrets(
    url: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Options.of(url, **options)
    assert "c4n4ry" not in str(raised.value)


def test_options_list_known_names_for_unknown_option() -> None:
    with pytest.raises(TypeError, match="has no option tokn; the options are anonymous, chunk_size"):
        Options.of("gs://bucket", tokn="x")


def test_options_fall_back_to_credentials_file_from_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "of-environment.json")

    def chosen(**options: Any) -> tuple[str | None, str | None, bool]:
        access = Options.of("gs://bucket", **options)[0].access
        return access.service_file, access.token, access.anonymous

    assert chosen() == ("of-environment.json", None, False)
    assert chosen(service_file="given.json") == ("given.json", None, False)
    assert chosen(token="t0ken") == (None, "t0ken", False)
    assert chosen(anonymous=True) == (None, None, True)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    assert chosen() == (None, None, False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", '{"private_key": "c4n4ry"}')
    with pytest.raises(ValueError, match="GOOGLE_APPLICATION_CREDENTIALS must be the path") as caught:
        chosen()
    assert "c4n4ry" not in str(caught.value)
    with pytest.raises(ValueError, match="service_file must be the path"):
        chosen(service_file='{"private_key": "c4n4ry"}')


def test_url_splits_into_bucket_and_bare_prefix() -> None:
    def parts(url: str) -> tuple[str, str]:
        options, prefix = Options.of(url)
        return options.bucket, prefix

    assert parts("gs://bucket") == parts("gs://bucket/") == parts("gcs://bucket") == ("bucket", "")
    assert parts("gs://bucket/a/b/") == ("bucket", "a/b")


def test_emulator_may_be_named_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    access = Options.of("gs://bucket")[0].access
    assert (access.endpoint, access.emulator) == ("http://localhost:4443", True)
    access = Options.of("gs://bucket", endpoint="https://storage.example/")[0].access
    assert (access.endpoint, access.emulator) == ("https://storage.example", False)
