"""The account and credentials from options, the URL or the environment, and errors if they cannot be used."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from asyncrec_azure.access import Access
from asyncrec_azure.container import info_of
from asyncrec_azure.errors import translate
from asyncrec_azure.options import Options
from asyncrec_azure.plugin import open_azure
from azure_api import FakeAzure
from azure_opening import KEY, open_quick
from serving import Server

from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError

ADDRESS = "https://data.blob.core.windows.net"


def access(url: str = "az://crawl", **options: Any) -> Access:
    return Options.of(url, **options)[0].access


@pytest.mark.parametrize(
    ("url", "container", "root", "prefix"),
    [
        ("az://crawl", "crawl", "az://crawl", ""),
        ("az://crawl/a/b/", "crawl", "az://crawl", "a/b"),
        ("abfs://crawl/a", "crawl", "abfs://crawl", "a"),
        ("abfss://crawl@data.dfs.core.windows.net/a", "crawl", "abfss://crawl@data.dfs.core.windows.net", "a"),
    ],
)
def test_url_names_container_and_prefix(
    monkeypatch: pytest.MonkeyPatch, url: str, container: str, root: str, prefix: str
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "data")
    options, found = Options.of(url)
    assert (options.container, options.root, found) == (container, root, prefix)
    assert options.access.endpoint == ADDRESS
    assert options.access.identity


def test_environment_supplies_omitted_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "data")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
    assert access() == Access(endpoint=ADDRESS, account="data", account_key="c2VjcmV0")
    assert access(anonymous=True).account_key is None
    assert access(sas_token="?sig=x").sas_token == "sig=x"
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x")
    assert access().sas_token == "sv=1&sig=x"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=other")
    assert access().connection_string == "AccountName=other"
    assert access(account="data").connection_string is None


def test_environment_credentials_apply_only_to_environment_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "data")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig=x")
    assert access("abfs://crawl@data.dfs.core.windows.net").sas_token == "sig=x"
    other = access("abfs://crawl@other.dfs.core.windows.net")
    assert other.sas_token is None
    assert other.identity
    assert access(account="other").sas_token is None


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("az://crawl", {}, "no storage account is named"),
        ("://crawl", {"account": "x"}, "must have the form"),
        ("az:crawl", {"account": "x"}, "must have the form"),
        ("az://", {"account": "x"}, "names no container"),
        ("az://user:s3cr3t@host/x", {}, "pass credentials as options"),
        ("az://crawl@host/x", {}, "abfs://"),
        ("abfs://crawl@/x", {}, "abfs://"),
        ("abfs://crawl@a.dfs.core.windows.net/x", {"account": "b"}, "the URL already names the account"),
        ("az://crawl", {"account": "a", "account_key": "s3cr3t", "sas_token": "s3cr3t"}, "cannot be combined"),
        ("az://crawl", {"account": "a", "connection_string": "s3cr3t"}, "names the account"),
        ("az://crawl", {"endpoint": "ftp://x"}, "must begin with"),
        ("az://crawl", {"endpoint": "https://u:s3cr3t@x"}, "must not contain credentials"),
        ("az://crawl", {"endpoint": "https://s3cr3t@x"}, "must not contain credentials"),
        ("az://crawl", {"endpoint": "https://:s3cr3t@x"}, "must not contain credentials"),
        ("az://crawl", {"endpoint": "https://x?sig=s3cr3t"}, "or a query"),
        ("az://crawl", {"account": "acc", "chunk_size": 1}, "chunk_size"),
        ("az://crawl", {"account": "acc", "max_concurrency": 0}, "max_concurrency"),
        ("az://crawl", {"account": "Bad_Name"}, "'Bad_Name' is not a valid account name"),
        ("az://crawl", {"account": "acc", "account_key": "s3cr3t\n"}, "azure contains a control character"),
        ("az://crawl", {"endpoint": "http://127.0.0.1:1/acc"}, "an identity is sent only over https://"),
    ],
)
def test_options_reject_invalid_values_without_showing_secrets(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Options.of(url, **options)
    assert "s3cr3t" not in str(raised.value)


def test_option_of_wrong_type_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"the option account of azure must be str \| None, not int"):
        Options.of("az://crawl", account=5)


def test_options_reject_unknown_name_with_type_error() -> None:
    with pytest.raises(TypeError, match="azure has no option chunks"):
        Options.of("az://crawl", account="a", chunks=1)


@pytest.mark.anyio
async def test_storage_accepts_connection_string_and_sas_token_unchanged(azure: FakeAzure) -> None:
    whole = f"AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={azure.endpoint};"
    async with open_quick("", connection_string=whole) as storage:
        await storage.put("key", b"x")
    azure.authorization, azure.signature = None, "s1g="
    async with open_quick(azure.endpoint, sas_token="?sv=2024-01-01&sig=s1g%3D") as storage:
        assert await storage.get("key") == b"x"
        assert [info.key async for info in storage.list_objects()] == ["key"]


@pytest.mark.anyio
async def test_error_hides_invalid_connection_string() -> None:
    with pytest.raises(ValueError, match="connection_string") as raised:
        async with open_azure("az://crawl", connection_string="c4n4ry"):
            pass
    assert "c4n4ry" not in str(raised.value)


@pytest.mark.anyio
async def test_anonymous_head_raises_permission_error(azure: FakeAzure) -> None:
    azure.authorization = "Bearer"
    async with open_quick(azure.endpoint, anonymous=True) as storage:
        with pytest.raises(StoragePermissionError, match="HTTP 403 AuthenticationFailed"):
            await storage.head("key")


class Identity(Server):
    """A stand-in for a machine's managed identity service."""

    def kind_of(self, request: Any) -> str:
        return "token"

    async def answer(self, request: Any, kind: str, how: str) -> Any:
        from aiohttp import web

        expires = int(datetime.datetime.now().timestamp()) + 3600
        body = {"access_token": "c4n4ry-t0ken", "expires_on": str(expires), "resource": "r", "token_type": "Bearer"}
        return web.Response(text=json.dumps(body), content_type="application/json")


@pytest.mark.anyio
async def test_managed_identity_obtains_tokens_through_sdk(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on App Service, the environment contains its address. Azure's SDK sends tokens only over TLS."""
    with Identity().serving() as identity:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        from asyncrec_azure.client import _prepare

        _, credential = _prepare(access(account="data"))

        async def token() -> str:
            try:
                return str((await credential.get_token("https://storage.azure.com/.default")).token)
            finally:
                await credential.close()

        if anyio.get_cancelled_exc_class().__module__.startswith("asyncio"):
            assert await token() == "c4n4ry-t0ken"
            assert identity.log == ["token"]


@pytest.mark.anyio
async def test_identity_failure_is_transient_after_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncrec_azure.client import _prepare
    from azure.core.credentials import AccessToken
    from azure.identity import CredentialUnavailableError

    unavailable = CredentialUnavailableError("no answer")
    answers: list[Any] = [unavailable, AccessToken("c4n4ry-t0ken", 0), unavailable]

    class Credential:
        async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, AccessToken)
            return answer

    monkeypatch.setattr("azure.identity.aio.DefaultAzureCredential", Credential)
    _, credential = _prepare(access(account="data"))
    raised: list[type] = []
    for _ in range(3):
        try:
            assert (await credential.get_token("scope")).token == "c4n4ry-t0ken"
        except Exception as error:
            raised.append(type(translate(error, "az://crawl/key: looking")))
    assert raised == [StoragePermissionError, TransientStorageError]


@pytest.mark.anyio
async def test_error_names_missing_ca_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the certificate file .*none\.pem, which .*ca_file"):
        async with open_azure("az://crawl", account="data", ca_file=str(tmp_path / "none.pem"), anonymous=True):
            pass


@pytest.mark.parametrize("wrong", [{"size": "9"}, {"size": None}, {"etag": None}, {"etag": ""}, {"modified": "today"}])
def test_response_without_valid_object_metadata_is_rejected(wrong: dict[str, Any]) -> None:
    """A proxy, or a server that is not a blob store, responds like this."""
    right = {"size": 9, "etag": '"0x1"', "modified": datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)}
    assert info_of("key", **right, metadata={}).etag == "0x1"
    with pytest.raises(ValueError, match="does not describe"):
        info_of("key", **{**right, **wrong}, metadata={})
