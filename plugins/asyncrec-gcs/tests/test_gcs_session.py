"""Clients and credentials: shared, refreshed, and seen nowhere."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from asyncrec_gcs import session as session_module
from asyncrec_gcs import sink as sink_module
from asyncrec_gcs import upload as upload_module
from asyncrec_gcs.options import Access, Options
from asyncrec_gcs.plugin import open_gcs
from asyncrec_gcs.shelter import sheltered
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcloud.aio.auth.token import BaseToken, Token
from opening import open_quick
from tenacity import wait_none

import asyncrec
from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage import BridgedStorage
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = pytest.mark.anyio
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])

CANARY = "ya29.c4n4ry-T0ken"
DATA = content(3 * UNIT + 5)


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gcs: FakeGcs) -> None:
    """Nothing of the machine's is found: not its files, not its metadata server."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr("gcloud.aio.auth.token.GCE_ENDPOINT_TOKEN", f"{gcs.url}/token")
    monkeypatch.setattr(BaseToken.acquire_access_token.retry, "wait", wait_none())  # type: ignore[attr-defined]  # tenacity's


@pytest.fixture
def service_file(tmp_path: Path, gcs: FakeGcs) -> str:
    path = tmp_path / "credentials.json"
    secrets = {"client_id": "c4n4ry-id", "client_secret": "c4n4ry-secret", "refresh_token": "c4n4ry-refresh"}
    path.write_text(json.dumps({"type": "authorized_user", "token_uri": f"{gcs.url}/token"} | secrets))
    return str(path)


# How credentials are found ------------------------------------------------------------------------------------------


async def test_a_given_token_is_sent(gcs: FakeGcs) -> None:
    gcs.token = CANARY
    async with open_quick(token=CANARY, endpoint=gcs.url) as storage:
        await storage.put("key", DATA)
        assert await storage.get("key") == DATA
    assert {headers.get("Authorization") for headers in gcs.seen} == {f"Bearer {CANARY}"}


async def test_the_emulator_and_anonymous_get_no_credentials(gcs: FakeGcs, service_file: str) -> None:
    async with open_quick(service_file=service_file) as storage:
        await storage.put("key", DATA)
    async with open_quick(anonymous=True, endpoint=gcs.url) as storage:
        assert await storage.get("key") == DATA
    assert not any("Authorization" in headers for headers in gcs.seen)


@pytest.mark.parametrize("how", ["option", "environment", "gcloud", "metadata"])
async def test_credentials_are_found_as_usual(
    gcs: FakeGcs, service_file: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "environment":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_file)
    if how == "gcloud":
        Path(service_file).rename(Path(service_file).with_name("application_default_credentials.json"))
    options = {"service_file": service_file} if how == "option" else {}
    async with open_quick(endpoint=gcs.url, **options) as storage:
        await storage.put("key", DATA)
        assert await storage.get("key") == DATA
    assert len(gcs.tokens) == 1, "one token serves until it expires"
    assert gcs.counts["token"] == 1


async def test_a_withdrawn_token_is_replaced_in_the_middle_of_an_upload(gcs: FakeGcs, service_file: str) -> None:
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        async with storage.open_sink("key") as sink:
            await sink.send([DATA[:UNIT]])
            gcs.tokens.append("withdraws the one before")
            await sink.send([DATA[UNIT : 2 * UNIT]])
            await sink.send([DATA[2 * UNIT : 3 * UNIT]])
        assert gcs.objects["bucket", "key"].data == DATA[: 3 * UNIT]
    assert gcs.counts["token"] == 2


async def test_a_token_that_stays_refused_is_a_permission_error_with_a_remedy(gcs: FakeGcs) -> None:
    gcs.token = "another"
    async with open_quick(token=CANARY, endpoint=gcs.url) as storage:
        with pytest.raises(StoragePermissionError, match="GOOGLE_APPLICATION_CREDENTIALS"):
            await storage.head("key")
    assert gcs.log == ["meta"]


async def test_refused_credentials_are_a_permission_error(gcs: FakeGcs, service_file: str) -> None:
    gcs.plan = lambda kind, n: Fault("status", 400, words="invalid_grant c4n4ry-refresh") if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        with pytest.raises(StoragePermissionError, match="refused a token") as raised:
            await storage.head("key")
    assert "c4n4ry" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_each_way_of_refusing_credentials_is_for_good(gcs: FakeGcs, service_file: str, status: int) -> None:
    gcs.plan = lambda kind, n: Fault("status", status) if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file, attempts=2) as storage:
        with pytest.raises(StoragePermissionError, match=f"refused a token: HTTP {status}"):
            await storage.head("key")


@pytest.mark.parametrize("fault", [Fault("status", 500), Fault("reset")])
async def test_a_token_that_cannot_be_had_now_may_be_had_later(gcs: FakeGcs, service_file: str, fault: Fault) -> None:
    gcs.put("key", DATA)
    gcs.plan = lambda kind, n: fault if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file, attempts=2) as storage:
        with pytest.raises(TransientStorageError, match=r"gs://bucket/key.*no token could be had"):
            await storage.head("key")
        gcs.plan = lambda kind, n: None
        assert (await storage.head("key")).size == len(DATA)


async def test_a_token_goes_to_the_endpoint_and_to_nobody_else(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store names the address of an upload session, which may be elsewhere."""
    with FakeGcs().serving() as other:
        other.token = None
        gcs.token = CANARY
        opening = gcs._open

        async def elsewhere(*args: Any) -> Any:
            answer = await opening(*args)
            other.sessions.update(gcs.sessions)
            answer.headers["Location"] = answer.headers["Location"].replace(gcs.url, other.url)
            return answer

        monkeypatch.setattr(gcs, "_open", elsewhere)  # as a store may
        async with open_quick(token=CANARY, endpoint=gcs.url, attempts=2) as storage:
            with suppress(StorageError, AssertionError):
                await storage.put("key", DATA)
        assert gcs.seen[0]["Authorization"] == f"Bearer {CANARY}"
        assert other.seen
        assert not any("Authorization" in headers for headers in other.seen)


@asyncio_only
async def test_who_leaves_while_a_token_is_asked_for_leaves_nothing_running(gcs: FakeGcs, service_file: str) -> None:
    gcs.plan = lambda kind, n: Fault("stall") if kind == "token" else None
    before = asyncio.all_tasks()
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(storage.head, "key")
                await asyncio.to_thread(gcs.reached.wait)
                scope.cancel()
    assert asyncio.all_tasks() <= before
    await asyncio.to_thread(gcs.wait_until_idle)


async def test_no_credentials_at_all_are_a_permission_error_that_names_the_ways(gcs: FakeGcs) -> None:
    gcs.plan = lambda kind, n: Fault("status", 404) if kind == "token" else None
    async with open_quick(endpoint=gcs.url) as storage:
        with pytest.raises(StoragePermissionError, match="anonymous=True"):
            await storage.head("key")


@pytest.mark.parametrize("text", ["c4n4ry", "{}", '{"type": "c4n4ry"}', None])
async def test_a_file_of_credentials_that_cannot_be_used_is_an_error_on_opening(
    gcs: FakeGcs, tmp_path: Path, text: str | None
) -> None:
    """And never means that others are looked for."""
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StoragePermissionError, match=r"broken\.json") as raised:
        async with open_quick(endpoint=gcs.url, service_file=str(path)):
            raise AssertionError("opened")
    assert "c4n4ry" not in "".join(traceback.format_exception(raised.value))


async def test_cancelling_one_who_waits_for_a_token_leaves_it_to_the_others(gcs: FakeGcs, service_file: str) -> None:
    gcs.put("key", DATA)
    gcs.taking.clear()
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        found: list[int] = []

        async def head() -> None:
            found.append((await storage.head("key")).size)

        async with anyio.create_task_group() as group:
            group.start_soon(head)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as other:
                    other.start_soon(head)
                    while not gcs.counts["token"]:
                        await anyio.lowlevel.checkpoint()
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            gcs.taking.set()
    assert found == [len(DATA)]
    assert gcs.counts["token"] == 1


# Clients ------------------------------------------------------------------------------------------------------------


@asyncio_only
async def test_storages_that_agree_share_a_client_which_the_last_closes(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[session_module.Client] = []

    class Counted(session_module.Client):
        def __init__(self, access: Access, token: Token) -> None:
            super().__init__(access, token)
            clients.append(self)

    monkeypatch.setattr(session_module, "Client", Counted)
    async with open_quick(), open_quick("gs://another") as one:
        async with open_quick() as two:
            await two.put("key", DATA)
        await one.put("key", DATA)
        async with open_quick(token=CANARY):
            assert len(clients) == 2
        assert [client._session.closed for client in clients] == [False, True]
    assert clients[0]._session.closed


@asyncio_only
async def test_native_cancellation_too_leaves_all_or_nothing(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.timeout` and `task.cancel` know nothing of shielded scopes."""
    monkeypatch.setattr(upload_module, "_OPEN_SECONDS", 0.01)
    monkeypatch.setattr(sink_module, "_PUBLISH_SECONDS", 0.01)
    for kind in ("open", "put", "last"):
        gcs.reset()
        gcs.plan = nth(1, Fault("stall"), kind)
        async with open_quick() as storage:

            async def write() -> None:
                async with storage.open_sink("key") as sink:  # awaited within the loop
                    await send_all(sink, DATA)

            task = asyncio.create_task(write())
            await asyncio.to_thread(gcs.reached.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not gcs.objects
        assert not gcs.unfinished


@asyncio_only
async def test_a_native_timeout_that_comes_while_sheltered_still_counts() -> None:
    release = asyncio.Event()

    async def operation() -> str:
        await release.wait()
        return "done"

    result = ""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            asyncio.get_running_loop().call_later(0.03, release.set)
            result = await sheltered(operation(), limit=5)
            await asyncio.sleep(5)
    assert result == "done"
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_opened_by_its_scheme_it_is_found_by_its_entry_point(gcs: FakeGcs) -> None:
    for scheme in ("gs", "gcs"):
        async with asyncrec.open_storage(f"{scheme}://bucket/some/folder") as storage:
            await storage.put("key", DATA)
            assert storage.root == "gs://bucket/some/folder"
        assert gcs.objects["bucket", "some/folder/key"].data == DATA


async def test_records_go_there_and_come_back(gcs: FakeGcs) -> None:
    records = [content(n * 700, n) for n in range(200)]
    await asyncrec.write_records("gs://bucket/pages.tfrecord", records)
    assert await asyncrec.read_records("gs://bucket/pages.tfrecord") == records


# Secrets ------------------------------------------------------------------------------------------------------------


def everything(error: BaseException) -> str:
    """All that somebody might log of an error, with all it is chained to."""
    texts, todo, seen = [], [error], set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        texts += [str(one), repr(one), repr(one.args), repr(vars(one)), "".join(traceback.format_exception(one))]
        try:
            texts.append(repr(pickle.dumps(one)))
        except (pickle.PicklingError, TypeError, AttributeError) as reason:
            texts.append(str(reason))
        todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return "\n".join(texts)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 401, words=f"Invalid Credentials: Bearer {CANARY}, token={CANARY}"),
        Fault("status", 403, words=f"denied {CANARY} upload_id=SESSION"),
        Fault("status", 503, words=f"{CANARY} upload_id=SESSION"),
        Fault("status", 404, words=f"{CANARY}"),
        Fault("status", 412, words=f"{CANARY}"),
        Fault("reset"),
        Fault("truncate"),
        Fault("expire"),
        Fault("corrupt"),
        Fault("page"),
    ],
    ids=lambda fault: f"{fault.how}-{fault.status}",
)
async def test_secrets_are_in_no_error_log_repr_or_pickle(
    gcs: FakeGcs, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """A token and the addresses of sessions, whatever fails, and though the store repeats them."""
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    sessions: set[str] = set()

    async def attempt(operation: Callable[[], object]) -> None:
        try:
            await operation()  # type: ignore[misc]  # each is a coroutine function
        except (StorageError, AssertionError) as error:
            texts.append(everything(error))

    for first in range(1, 9):
        gcs.reset()
        gcs.token = CANARY
        gcs.put("key", DATA)

        def plan(kind: str, n: int, first: int = first) -> Fault | None:
            sessions.update(gcs.sessions)
            return fault if n >= first and kind != "abort" else None

        gcs.plan = plan
        async with open_quick(token=CANARY, endpoint=gcs.url, attempts=2) as storage:

            async def write() -> None:
                async with storage.open_sink("new") as sink:  # awaited within the loop
                    texts.append(repr(sink))
                    await send_all(sink, DATA)

            async def read() -> None:
                async with storage.open_source("key") as source:  # awaited within the loop
                    texts.append(repr(source))
                    await receive_all(source)

            async def listing() -> None:
                [info async for info in storage.list_objects()]  # awaited within the loop

            for operation in (write, read, listing):
                await attempt(operation)
            texts.append(repr(storage))
    text = "\n".join([*texts, caplog.text, *(repr(vars(record)) for record in caplog.records)])
    assert texts
    assert CANARY not in text
    assert not [upload for upload in sessions if upload in text]
    assert "upload_id=SESSION" not in text


@asyncio_only
async def test_a_storage_is_not_pickled_and_says_why(gcs: FakeGcs) -> None:
    async with open_quick(token=CANARY) as storage:
        with pytest.raises(TypeError, match="open another") as raised:
            pickle.Pickler(io.BytesIO()).dump(storage)
    assert CANARY not in everything(raised.value)
    options, _ = Options.of("gs://bucket", token=CANARY)
    assert CANARY not in repr(options)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("gs://", {}, "names no bucket"),
        ("gs:bucket", {}, "not of the form"),
        ("gs://user:c4n4ry@bucket/x", {}, "options of their own"),
        ("gs://bucket", {"token": "c4n4ry\n"}, "printable"),
        ("gs://bucket", {"token": "c4n4ry", "anonymous": True}, "exclude each other"),
        ("gs://bucket", {"endpoint": "ftp://c4n4ry"}, "http://"),
        ("gs://bucket", {"endpoint": "http://user:c4n4ry@host"}, "no credentials"),
        ("gs://bucket", {"chunk_size": 1000}, "multiple of 256 KiB"),
        ("gs://bucket", {"max_concurrency": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_opened(url: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Options.of(url, **options)
    assert "c4n4ry" not in str(raised.value)


def test_an_unknown_option_is_a_type_error_that_lists_the_known() -> None:
    with pytest.raises(TypeError, match="has no option tokn; it has anonymous, chunk_size"):
        Options.of("gs://bucket", tokn="x")


def test_the_environment_names_a_file_of_credentials_where_no_option_says_anything(
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
    with pytest.raises(ValueError, match="GOOGLE_APPLICATION_CREDENTIALS is the path") as caught:
        chosen()
    assert "c4n4ry" not in str(caught.value)
    with pytest.raises(ValueError, match="service_file is the path"):
        chosen(service_file='{"private_key": "c4n4ry"}')


def test_a_url_is_a_bucket_and_a_prefix_without_slashes_around_it() -> None:
    def parts(url: str) -> tuple[str, str]:
        options, prefix = Options.of(url)
        return options.bucket, prefix

    assert parts("gs://bucket") == parts("gs://bucket/") == parts("gcs://bucket") == ("bucket", "")
    assert parts("gs://bucket/a/b/") == ("bucket", "a/b")


def test_an_emulator_may_be_named_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    access = Options.of("gs://bucket")[0].access
    assert (access.endpoint, access.emulator) == ("http://localhost:4443", True)
    access = Options.of("gs://bucket", endpoint="https://storage.example/")[0].access
    assert (access.endpoint, access.emulator) == ("https://storage.example", False)


async def test_it_runs_natively_on_asyncio_and_over_the_bridge_on_trio(gcs: FakeGcs, anyio_backend: str) -> None:
    async with open_gcs("gs://bucket") as storage, open_gcs("gs://bucket/p") as below:
        assert isinstance(storage, BridgedStorage) == (anyio_backend == "trio")
        assert isinstance(below, PrefixedStorage)
