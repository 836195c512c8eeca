"""Options and credentials reach the store; errors about unusable ones say what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from asyncrec_s3.plugin import open_s3
from s3_opening import Open
from s3_store import KIND, RENEWED_KEY, SECRET_KEY

from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20


@pytest.mark.parametrize(
    "options",
    [{"checksum": "crc32c"}, {"payload_signing": True}, {"addressing_style": "path"}, {"region": "eu-west-1"}],
)
async def test_options_affect_requests_sent_to_store(open_storage: Open, proxy: Any, options: dict[str, Any]) -> None:
    """With each option, small and large objects are written and read; the proxy verifies all checksums it receives."""
    data = os.urandom(CHUNK + 10)
    async with open_storage(**options) as storage:
        await storage.put("small", data[:10])
        info = await storage.put("large", data)
        assert await storage.get("large") == data
        assert await storage.head("large") == info
    sent = [r.headers for r in proxy.requests if r.operation in ("UploadPart", "PutObject")]
    assert len(sent) == 3
    for headers in sent:
        assert ("Content-MD5" in headers) == (options.get("checksum") != "crc32c")
        assert (headers["X-Amz-Content-SHA256"] != "UNSIGNED-PAYLOAD") == bool(options.get("payload_signing"))
        assert "Expect" not in headers
        if region := options.get("region"):
            assert f"/{region}/s3/" in headers["Authorization"]


async def test_error_names_missing_profile(open_storage: Open) -> None:
    with pytest.raises(StoragePermissionError, match="nobody"):
        async with open_storage(profile="nobody"):
            pass


async def test_missing_credentials_raise_with_remedy(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with open_storage() as storage:
        with pytest.raises(StoragePermissionError, match="anonymous=True"):
            await storage.put("x", b"x")


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
async def test_newline_in_credentials_raises_before_any_request(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """This happens if a secret is read from a file."""
    monkeypatch.setenv(name, "c4n4ry\n")
    with pytest.raises(StoragePermissionError, match="contains a control character") as raised:
        async with open_storage():
            pass
    assert "c4n4ry" not in str(raised.value)
    assert not proxy.requests


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /nowhere/token", "/nowhere/token"),
        ("credential_process = false", "The credential_process of the profile failed"),
    ],
)
async def test_profile_with_missing_reference_raises_permission_error(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, words: str
) -> None:
    (tmp_path / "config").write_text(f"[profile two]\n{profile}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoragePermissionError, match=words):
        async with open_storage(profile="two") as storage:
            await storage.put("x", b"x")


async def test_profile_supplies_credentials(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The profile is found in the SDK's configuration files."""
    (tmp_path / "config").write_text("[profile two]\naws_access_key_id = AKIAOFPROFILETWO\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    proxy.plan = lambda request: "403"
    async with open_storage(profile="two") as storage:
        with pytest.raises(StoragePermissionError):
            await storage.put("x", b"x")
    assert "AKIAOFPROFILETWO" in proxy.requests[0].headers["Authorization"]


@pytest.mark.slow
async def test_upload_renews_expiring_credentials_midway(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The SDK renews credentials that expire within ten minutes, so these are renewed for each request.

    Each renewal returns a different key, which shows the key that signed each request. A running store given by
    ASYNCREC_TEST_S3 has a single key, which every renewal returns.
    """
    program, turns = tmp_path / "credentials.py", tmp_path / "turns"
    has_all_keys = KIND in ("moto", "seaweedfs")
    key, secret = (RENEWED_KEY, SECRET_KEY) if has_all_keys else _key_of_the_store()
    program.write_text(
        "import datetime, json, pathlib\n"
        f"turns = pathlib.Path({str(turns)!r})\n"
        "turns.touch()\n"
        "with turns.open('a') as file:\n    file.write('x')\n"
        "expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)\n"
        f"made = {{'Version': 1, 'AccessKeyId': {key!r}.format(len(turns.read_text())),\n"
        f"        'SecretAccessKey': {secret!r}, 'Expiration': expires.isoformat()}}\n"
        "print(json.dumps(made))\n"
    )
    (tmp_path / "config").write_text(f"[profile short]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    data = os.urandom(2 * CHUNK + 10)
    async with open_storage(profile="short") as storage:
        await storage.put("x", data)
        assert await storage.get("x") == data
    used = {
        request.headers["Authorization"].partition("Credential=")[2].partition("/")[0] for request in proxy.requests
    }
    assert len(turns.read_text()) >= 3
    assert len(used) >= (3 if has_all_keys else 1), used
    assert used <= {key.format(turn) for turn in range(1, 100)}


def _key_of_the_store() -> tuple[str, str]:
    return os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]


async def test_anonymous_requests_are_unsigned(open_storage: Open, proxy: Any) -> None:
    proxy.plan = lambda request: "403"
    async with open_storage(anonymous=True) as storage:
        with pytest.raises(StoragePermissionError):
            await storage.head("x")
    assert "Authorization" not in proxy.requests[0].headers


@pytest.mark.parametrize("how", ["verify", "AWS_CA_BUNDLE", "ca_bundle"])
@pytest.mark.parametrize(("kind", "words"), [("missing", "No such file"), ("no bundle", "PEM"), ("folder", "director")])
async def test_unusable_ca_bundle_raises_before_any_request(
    proxy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kind: str, words: str
) -> None:
    """The error names the setting that causes it; no request is sent or retried."""
    path = tmp_path / "authorities.pem"
    if kind == "no bundle":
        path.write_text("no certificate")
    if kind == "folder":
        path.mkdir()
    if how == "AWS_CA_BUNDLE":
        monkeypatch.setenv(how, str(path))
    if how == "ca_bundle":
        (tmp_path / "config").write_text(f"[default]\nca_bundle = {path}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {"verify": str(path)} if how == "verify" else {}
    with pytest.raises(StorageError, match=rf"authorities.pem, which .*{how}.*{words}") as caught:
        async with open_s3("s3://crawl", endpoint_url=proxy.endpoint, **options):
            pass
    assert not isinstance(caught.value, TransientStorageError)
    assert proxy.requests == []
