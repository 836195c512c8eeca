"""Credentials appear in no output of a job, however they are passed and whatever fails.

The output includes logs down to DEBUG with their tracebacks, errors with their chains, reprs, pickles, and all stored
objects. Each credential contains a canary, and so do the tokens that a store issues.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import pickle
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fake_gcs import FakeGcs, Fault
from places import Failing, Place

import asyncrec
from asyncrec.testing._checks import content

# No response is withheld here, so tolerate slow ones.
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient")]

CANARY = "c4n4ry"
SECRET = f"{CANARY}/{CANARY}+{CANARY}/{CANARY}40characters"


class Shown:
    """All output of a job that a person might see."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.texts: list[str] = []

    def error(self, error: BaseException) -> None:
        seen: list[BaseException] = []
        todo: list[BaseException | None] = [error]
        while todo:
            one = todo.pop()
            if one is None or any(one is other for other in seen):
                continue
            seen.append(one)
            self.texts += [str(one), repr(one), repr(one.args), repr(vars(one))]
            self.texts += traceback.format_exception(one)
            with suppress(pickle.PicklingError, TypeError, AttributeError):
                self.texts.append(repr(pickle.dumps(one)))
            todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]

    def everything(self) -> str:
        logged = [self._caplog.text]
        for record in self._caplog.records:
            logged.append(record.getMessage())
            logged += [repr(value) for name, value in vars(record).items() if name not in ("exc_info", "pathname")]
            if record.exc_info and record.exc_info[1] is not None:
                self.error(record.exc_info[1])
        return "\n".join([*logged, *self.texts])


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> Shown:
    caplog.set_level(logging.DEBUG)
    # Ignore the logs of the servers and their libraries, which run in this process only for the test.
    for name in ("aiohttp.server", "aiohttp.web", "werkzeug", "moto"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return Shown(caplog)


async def job(place: Place, shown: Shown, **options: Any) -> None:
    """Write shards with their sidecars, and read them. Record each error and continue with the next step."""
    try:
        async with place.open(**options) as storage:
            shown.texts.append(repr(storage))
            for step in (_write, _read, _look):
                try:
                    await step(place, storage, shown)
                except Exception as error:
                    shown.error(error)
    except Exception as error:
        shown.error(error)
    place.calm()
    stored = await anyio.to_thread.run_sync(place.objects)
    shown.texts += [f"{key}: {data!r}" for key, data in stored.items()]


async def _write(place: Place, storage: Any, shown: Shown) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_records=2, metadata={"from": "a test"}
    ) as writer:
        shown.texts += [repr(writer), repr(writer.stats())]
        for number in range(4):
            await writer.write(content(place.chunk + 9 if number == 3 else 30, number), key=f"{number}")


async def _read(place: Place, storage: Any, shown: Shown) -> None:
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    shown.texts.append(repr(manifest))
    async with asyncrec.open_dataset(manifest, storage=storage) as dataset:
        shown.texts.append(repr(dataset))
        await dataset.get_many([0, 3])


async def _look(place: Place, storage: Any, shown: Shown) -> None:
    async for info in storage.list_objects():
        shown.texts.append(repr(info))
    await storage.head("pages")
    with pytest.raises(TypeError) as caught:
        pickle.dumps(storage)
    shown.error(caught.value)


# S3 -------------------------------------------------------------------------------------------------------------------


S3 = {"aws_access_key_id": "AKIAC4N4RYC4N4RY4444", "aws_secret_access_key": SECRET, "aws_session_token": f"{SECRET}=="}
FAILING: list[Failing | None] = [None, "refused", "down", "cut once"]


@pytest.mark.parametrize("place", ["s3"], indirect=True)
class TestS3:
    @pytest.mark.parametrize(
        ("source", "how"),
        [
            *(("options", how) for how in FAILING),
            *((source, "refused") for source in ("environment", "profile", "process")),
        ],
    )
    async def test_access_keys_never_appear_in_output(
        self, place: Place, shown: Shown, impatient: None, source: str, how: Failing | None,
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    ) -> None:  # fmt: skip
        options: dict[str, Any] = {}
        if source == "options":
            options |= S3
        elif source == "environment":
            for name, value in S3.items():
                monkeypatch.setenv(name.upper(), value)
        else:
            monkeypatch.delenv("AWS_ACCESS_KEY_ID")
            monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
            lines = [f"{name} = {value}" for name, value in S3.items()]
            if source == "process":
                names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
                answer = {"Version": 1, **dict(zip(names, S3.values(), strict=True))}
                (tmp_path / "answer").write_text(json.dumps(answer))
                lines = [f"credential_process = cat {tmp_path / 'answer'}"]
            (tmp_path / "config").write_text("\n".join(["[profile canary]", *lines]))
            monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
            options["profile"] = "canary"
        if how is not None:
            place.fail(0 if how != "cut once" else 3, how)
        await job(place, shown, **options)
        text = shown.everything()
        assert [value for value in S3.values() if value in text] == []

    @pytest.mark.parametrize("answer", ["whole", "cut", "refused"])
    async def test_container_credentials_never_appear_in_output(
        self, place: Place, shown: Shown, answer: str, impatient: None, gcs_server: FakeGcs,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """The environment's token is secret, and so are the credentials in a response, even in a malformed one."""
        names = ("AccessKeyId", "SecretAccessKey", "Token")
        text = json.dumps({**dict(zip(names, S3.values(), strict=True)), "Expiration": "2040-01-01T00:00:00Z"})
        gcs_server.reset()
        gcs_server.page = {"whole": (200, text), "cut": (200, text[:-3]), "refused": (403, f"no: {text}")}[answer]
        gcs_server.plan = lambda kind, n: Fault("answer")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{gcs_server.url}/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", f"{CANARY}-authorization")
        monkeypatch.setattr("aiobotocore.utils.AioContainerMetadataFetcher.RETRY_ATTEMPTS", 1, raising=False)
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        await job(place, shown)
        assert gcs_server.log, "longer than the limit"
        text = shown.everything()
        assert [value for value in (*S3.values(), f"{CANARY}-authorization") if value in text] == []

    @pytest.mark.slow(but=["HTTP_PROXY", "S3_ENDPOINT"])
    @pytest.mark.parametrize(
        "name", ["HTTP_PROXY", "http_proxy", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"]
    )
    async def test_passwords_in_addresses_never_appear_in_output(
        self, place: Place, shown: Shown, impatient: None, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A password may be in the address of a proxy, or of the store, although it does not belong there."""
        monkeypatch.setenv(name, f"http://user:{CANARY}-password@127.0.0.1:9")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        options = {"endpoint_url": None} if "PROXY" not in name.upper() else {}
        await job(place, shown, **options)
        assert CANARY not in shown.everything()


# GCS ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def credentials(gcs_server: FakeGcs, private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that writes a credentials file of some kind, and returns its path and its secrets."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr("gcloud.aio.auth.token.GCE_ENDPOINT_TOKEN", f"{gcs_server.url}/token")

    def write(kind: str, name: str = "credentials.json") -> tuple[str, list[str]]:
        described = {
            "type": kind,
            "token_uri": f"{gcs_server.url}/token",
            "client_id": "an-id",
            "client_email": "a@b.c",
        }
        secrets = {"client_secret": f"{CANARY}-client", "refresh_token": f"1//{CANARY}-refresh"}
        if kind == "service_account":
            secrets = {"private_key": private_key}
        elif kind == "broken":
            described["type"] = "service_account"
            secrets = {"private_key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"}
        (tmp_path / name).write_text(json.dumps(described | secrets))
        lines = [line for secret in secrets.values() for line in secret.splitlines() if "PRIVATE KEY" not in line]
        return str(tmp_path / name), lines

    return write


TOKEN_FAULTS: dict[str, Fault | None] = {
    "well": None,
    "refused": Fault("status", 400, words=f"invalid_grant: {CANARY}-echo"),
    "down": Fault("status", 503, words=f"{CANARY}-echo"),
    "reset": Fault("reset"),
    "cut": Fault("truncate"),
    "page": Fault("page"),
}


SOURCES, KINDS = ("option", "environment", "gcloud"), ("authorized_user", "service_account", "broken")
FILES = set(itertools.product(SOURCES, KINDS, TOKEN_FAULTS))
if "ASYNCREC_LONG" not in os.environ:  # each source, each kind and each fault, but not all combinations
    FILES = {case for case in FILES if (case[1:] == ("authorized_user", "refused")) + (case[::2] == ("option", "well"))}
    FILES |= {("option", "authorized_user", fault) for fault in TOKEN_FAULTS}
FILES = sorted(FILES)


@pytest.mark.parametrize("place", ["gcs"], indirect=True)
class TestGcs:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from gcloud.aio.auth.token import BaseToken
        from tenacity import wait_none

        monkeypatch.setattr(BaseToken.acquire_access_token.retry, "wait", wait_none())  # type: ignore[attr-defined]  # tenacity's

    @pytest.mark.parametrize("how", FAILING)
    async def test_token_never_appears_in_output(
        self, place: Place, shown: Shown, impatient: None, gcs_server: FakeGcs, how: Failing | None
    ) -> None:
        token = f"ya29.{CANARY}-token"
        gcs_server.token = token
        if how is not None:
            place.fail(0 if how != "cut once" else 3, how)
        await job(place, shown, token=token, anonymous=False)
        assert CANARY not in shown.everything()
        assert {headers.get("Authorization") for headers in gcs_server.seen} == {f"Bearer {token}"}

    @pytest.mark.parametrize(("source", "kind", "fault"), FILES)
    async def test_credentials_file_content_never_appears_in_output(
        self, place: Place, shown: Shown, impatient: None, gcs_server: FakeGcs, credentials: Any, source: str,
        kind: str, fault: str, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """The tokens that the file is exchanged for must not appear either."""
        name = "application_default_credentials.json" if source == "gcloud" else "credentials.json"
        path, secrets = credentials(kind, name)
        options: dict[str, Any] = {"anonymous": False}
        if source == "option":
            options["service_file"] = path
        elif source == "environment":
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
        gcs_server.plan = lambda kind, n: TOKEN_FAULTS[fault] if kind == "token" else None
        await job(place, shown, **options)
        text = shown.everything()
        assert [secret for secret in [*secrets, *gcs_server.tokens, f"{CANARY}-echo"] if secret in text] == []
        assert bool(gcs_server.tokens) == (kind != "broken" and fault in ("well", "cut"))

    @pytest.mark.parametrize("name", ["GOOGLE_APPLICATION_CREDENTIALS", "service_file"])
    async def test_file_content_passed_as_path_is_rejected(
        self, place: Place, shown: Shown, credentials: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some platforms set the content instead of a path. It is rejected, and the error does not quote it."""
        path, _ = credentials("authorized_user")
        inside = Path(path).read_text()
        options: dict[str, Any] = {"anonymous": False}
        if name == "service_file":
            options[name] = inside
        else:
            monkeypatch.setenv(name, inside)
        await job(place, shown, **options)
        text = shown.everything()
        assert name in text
        assert "not its content" in text
        assert CANARY not in text

    @pytest.mark.parametrize("name", ["STORAGE_EMULATOR_HOST", "endpoint", "HTTP_PROXY", "HTTPS_PROXY"])
    async def test_passwords_in_addresses_never_appear_in_output(
        self, place: Place, shown: Shown, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A password may be in an address, although it does not belong there."""
        address = f"http://user:{CANARY}-password@127.0.0.1:9"
        options: dict[str, Any] = {"endpoint": None}
        if name == "endpoint":
            options["endpoint"] = address
        else:
            monkeypatch.setenv(name, address)
            options = {} if "PROXY" in name else options
        await job(place, shown, **options)
        assert CANARY not in shown.everything()
