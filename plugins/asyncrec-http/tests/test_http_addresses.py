"""How URLs are used: redirects, headers, certificates and proxies; secrets in them are never shown."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from asyncrec_http.options import Options
from asyncrec_http.plugin import open_http
from serving import Fault
from store_checks import everything
from web_server import WebServer

from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage._registry import located
from asyncrec.storage._resuming_source import receive_exactly
from asyncrec.testing._checks import content

pytestmark = pytest.mark.anyio

DATA = content(5_000)
LONG = content(400_000)  # longer than the first request asks for


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a/b.tfrecord", "a/b.tfrecord"), ("a b", "a%20b"), ("a%20b", "a%20b"), ("100%", "100%25"),
        ("caf\u00e9", "caf%C3%A9"), ("a#b", "a%23b"), ("x?sig=a%2Fb&y=1", "x?sig=a%2Fb&y=1"),
    ],
)  # fmt: skip
async def test_unescaped_characters_of_key_are_escaped(web: WebServer, key: str, path: str) -> None:
    web.store(path, DATA)
    async with open_http(web.url) as storage:
        assert await storage.get(key) == DATA
    async with located(f"{web.url}/{key}") as (storage, found):
        assert await storage.get(found) == DATA


async def test_query_option_is_appended_to_every_url(web: WebServer) -> None:
    web.store("data/x?sv=1&sig=s", DATA)
    async with open_http(f"{web.url}/data", query="?sv=1&sig=s") as storage:
        assert await storage.get("x") == DATA


async def test_source_follows_redirects_and_reuses_final_address(web: WebServer) -> None:
    web.redirects = {"x": f"{web.url}/y", "y": "/z?sig=1"}
    web.store("z?sig=1", LONG)
    async with open_http(web.url) as storage, storage.open_source("x") as source:
        assert await receive_exactly(source, 300_000) == LONG[:300_000]
        assert web.log == ["GET"] * 4
        # The target of the redirect is gone, and the original URL now redirects elsewhere.
        web.redirects["y"] = "/z?sig=2"
        web.files["z?sig=2"] = web.files.pop("z?sig=1")
        assert await receive_exactly(source, 10) == LONG[300_000:300_010]


async def test_redirect_loop_raises_storage_error(web: WebServer) -> None:
    web.redirects = {"x": "/y", "y": "/x"}
    async with open_http(web.url) as storage:
        with pytest.raises(StorageError, match="redirected more than 5 times"):
            await storage.head("x")


@pytest.mark.parametrize(
    "target", ["http://[::1/x?sig=c4n4ry", "http://host:port/x?sig=c4n4ry", "http:///x?sig=c4n4ry"]
)
async def test_redirect_to_invalid_address_raises_storage_error(web: WebServer, target: str) -> None:
    web.redirects = {"x": target}
    async with open_http(web.url) as storage:
        with pytest.raises(StorageError, match="/x: looking up the file: ") as raised:
            await storage.head("x")
    assert "c4n4ry" not in everything(raised.value)


async def test_headers_are_sent_only_to_configured_server(web: WebServer) -> None:
    web.wanted = {"Authorization": "Bearer c4n4ry"}
    with WebServer().serving() as other:
        other.store("x", DATA)
        web.redirects = {"x": f"{other.url}/x"}
        async with open_http(web.url, headers={"Authorization": "Bearer c4n4ry"}) as storage:
            assert await storage.get("x") == DATA
        assert web.seen
        assert other.seen
        assert not any("Authorization" in headers for headers in other.seen)
    async with open_http(web.url) as storage:
        with pytest.raises(StoragePermissionError):
            await storage.head("x")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with this server's own certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both.pem").write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return folder


async def test_ca_file_determines_trusted_servers(web: WebServer, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "both.pem")
    with WebServer().serving(tls=context) as server:
        server.store("x", DATA)
        async with open_http(server.url, ca_file=str(certificate / "cert.pem")) as storage:
            assert await storage.get("x") == DATA
            server.redirects = {"y": f"{web.url}/x"}
            with pytest.raises(StorageError, match="redirected from https to http"):
                await storage.head("y")
        async with open_http(server.url) as storage:
            with pytest.raises(StorageError, match="does not trust"):
                await storage.head("x")
    with pytest.raises(StorageError, match=r"the certificate file .*none\.pem, which .*ca_file"):
        async with open_http("https://127.0.0.1", ca_file=str(certificate / "none.pem")):
            pass


@pytest.mark.parametrize("by", ["option", "environment"])
async def test_proxy_serves_requests_by_option_or_environment(
    web: WebServer, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The proxy in this test responds without a server, and receives complete URLs."""
    options = {}
    if by == "option":
        options = {"proxy": web.url}
    else:
        monkeypatch.setenv("HTTP_PROXY", web.url)
    web.store("http://elsewhere.invalid/x", DATA)
    async with open_http("http://elsewhere.invalid", **options) as storage:
        assert await storage.get("x") == DATA


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("https://user:c4n4ry@host/x", {}, "must not contain credentials"),
        ("https://c4n4ry@host/x", {}, "must not contain credentials"),
        ("https://:c4n4ry@host/x", {}, "must not contain credentials"),
        ("https:///x", {}, "must have the form"),
        ("https://host:port/x", {}, "must have the form"),
        ("https://host/x?sig=c4n4ry", {}, "as the option query"),
        ("https://host", {"headers": {"A b": "c4n4ry"}}, "a dict of names"),
        ("https://host", {"headers": {"A": "c4n4ry\n"}}, "cannot be sent"),
        ("https://host", {"headers": {"Range": "c4n4ry"}}, "cannot be set by the caller"),
    ],
)
def test_options_reject_invalid_values_without_showing_secrets(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Options.of(url, **options)
    assert "c4n4ry" not in str(raised.value)


def test_options_reject_unknown_name_with_type_error() -> None:
    with pytest.raises(TypeError, match="http has no option token"):
        Options.of("https://host", token=1)


@pytest.mark.parametrize(
    "fault", [Fault("status", 403), Fault("status", 503), Fault("status", 404), Fault("reset"), Fault("truncate")],
    ids=lambda fault: f"{fault.how}-{fault.status}",
)  # fmt: skip
async def test_secrets_never_appear_in_error_log_or_repr(
    web: WebServer, fault: Fault, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers secrets in a signed URL, headers, the query, and redirects."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("asyncrec.storage._retry.anyio.sleep", _at_once)
    secrets = ("c4n4ry-1", "c4n4ry-2", "c4n4ry-3", "c4n4ry-4")
    signed, led = "x?X-Amz-Signature=c4n4ry-1&sig=c4n4ry-2", "z?token=c4n4ry-3&sig=c4n4ry-2"
    web.store(led, DATA)
    web.redirects = {signed: f"/{led}"}
    texts = []
    async with open_http(web.url, headers={"X-Api-Key": "c4n4ry-4"}, query="sig=c4n4ry-2") as storage:
        assert await storage.get("x?X-Amz-Signature=c4n4ry-1") == DATA
        texts += [repr(storage), repr(Options.of(web.url, headers={"A": "c4n4ry-4"}, query="sig=c4n4ry-2"))]
        web.plan = lambda kind, n: fault if kind == "GET" else None
        try:
            await storage.get("x?X-Amz-Signature=c4n4ry-1")
        except OSError as error:
            texts += [str(error), repr(error), *getattr(error, "__notes__", ())]
            texts.append(repr(error.__cause__))
    text = "\n".join([*texts, caplog.text])
    assert len(texts) > 2
    assert not [secret for secret in secrets if secret in text]


async def _at_once(_: float) -> None: ...
