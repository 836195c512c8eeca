"""Credentials are found and refreshed, and errors about them are helpful."""

from __future__ import annotations

import asyncio
import gc
import traceback
from pathlib import Path

import anyio
import pytest
from fake_gcs import UNIT, FakeGcs, Fault
from opening import CANARY, open_quick

from asyncrec.errors import StoragePermissionError, TransientStorageError
from asyncrec.testing._checks import content

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_credentials_of_this_machine")]
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])

DATA = content(3 * UNIT + 5)


async def test_token_option_is_sent_with_requests(gcs: FakeGcs) -> None:
    gcs.token = CANARY
    async with open_quick(token=CANARY, endpoint=gcs.url) as storage:
        await storage.put("key", DATA)
        assert await storage.get("key") == DATA
    assert {headers.get("Authorization") for headers in gcs.seen} == {f"Bearer {CANARY}"}


async def test_emulator_and_anonymous_get_no_credentials(gcs: FakeGcs, service_file: str) -> None:
    async with open_quick(service_file=service_file) as storage:
        await storage.put("key", DATA)
    async with open_quick(anonymous=True, endpoint=gcs.url) as storage:
        assert await storage.get("key") == DATA
    assert not any("Authorization" in headers for headers in gcs.seen)


@pytest.mark.parametrize("how", ["option", "environment", "gcloud", "metadata"])
async def test_credentials_are_found_in_standard_places(
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


async def test_upload_replaces_withdrawn_token_midway(gcs: FakeGcs, service_file: str) -> None:
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        async with storage.open_sink("key") as sink:
            await sink.send([DATA[:UNIT]])
            gcs.tokens.append("withdraws the one before")
            await sink.send([DATA[UNIT : 2 * UNIT]])
            await sink.send([DATA[2 * UNIT : 3 * UNIT]])
        assert gcs.objects["bucket", "key"].data == DATA[: 3 * UNIT]
    assert gcs.counts["token"] == 2


async def test_rejected_token_raises_permission_error_with_remedy(gcs: FakeGcs) -> None:
    gcs.token = "another"
    async with open_quick(token=CANARY, endpoint=gcs.url) as storage:
        with pytest.raises(StoragePermissionError, match="GOOGLE_APPLICATION_CREDENTIALS"):
            await storage.head("key")
    assert gcs.log == ["meta"]


async def test_rejected_credentials_raise_permission_error(gcs: FakeGcs, service_file: str) -> None:
    gcs.plan = lambda kind, n: Fault("status", 400, words="invalid_grant c4n4ry-refresh") if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        with pytest.raises(StoragePermissionError, match="rejected these credentials") as raised:
            await storage.head("key")
    assert "c4n4ry" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_token_rejection_is_permanent_for_each_status(gcs: FakeGcs, service_file: str, status: int) -> None:
    gcs.plan = lambda kind, n: Fault("status", status) if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file, attempts=2) as storage:
        with pytest.raises(StoragePermissionError, match=f"rejected these credentials: HTTP {status}"):
            await storage.head("key")


@pytest.mark.parametrize("fault", [Fault("status", 500), Fault("reset")])
async def test_token_request_succeeds_after_transient_failure(gcs: FakeGcs, service_file: str, fault: Fault) -> None:
    gcs.put("key", DATA)
    gcs.plan = lambda kind, n: fault if kind == "token" else None
    async with open_quick(endpoint=gcs.url, service_file=service_file, attempts=2) as storage:
        with pytest.raises(TransientStorageError, match=r"gs://bucket/key.*no token could be obtained"):
            await storage.head("key")
        gcs.plan = lambda kind, n: None
        assert (await storage.head("key")).size == len(DATA)


@pytest.mark.parametrize("fault", [Fault("status", 503), Fault("status", 429), Fault("reset")])
async def test_metadata_server_outage_is_transient_after_first_token(gcs: FakeGcs, fault: Fault) -> None:
    gcs.put("key", DATA)
    async with open_quick(endpoint=gcs.url, attempts=2) as storage:
        await storage.head("key")
        gcs.tokens.append("withdraws the one before")
        gcs.plan = lambda kind, n: fault if kind == "token" else None
        with pytest.raises(TransientStorageError, match=r"gs://bucket/key.*no token could be obtained"):
            await storage.head("key")
        gcs.plan = lambda kind, n: None
        assert (await storage.head("key")).size == len(DATA)


@asyncio_only
async def test_cancelled_token_request_leaves_no_task_running(gcs: FakeGcs, service_file: str) -> None:
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


@pytest.mark.slow
@asyncio_only
async def test_storage_keeps_no_finished_request_tasks(gcs: FakeGcs, service_file: str) -> None:
    gcs.put("key", DATA)

    def ended() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.Task) and each.done() for each in gc.get_objects())

    async with open_quick(endpoint=gcs.url, service_file=service_file) as storage:
        await storage.head("key")
        before = ended()
        for _ in range(5):
            await storage.head("key")
        assert ended() <= before


async def test_missing_credentials_raise_permission_error_naming_options(gcs: FakeGcs) -> None:
    gcs.plan = lambda kind, n: Fault("status", 404) if kind == "token" else None
    async with open_quick(endpoint=gcs.url) as storage:
        with pytest.raises(StoragePermissionError, match="anonymous=True"):
            await storage.head("key")


@pytest.mark.parametrize("text", ["c4n4ry", "{}", '{"type": "c4n4ry"}', None])
async def test_opening_rejects_unusable_credentials_file(gcs: FakeGcs, tmp_path: Path, text: str | None) -> None:
    """An unusable file never makes the plugin look for other credentials."""
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StoragePermissionError, match=r"broken\.json") as raised:
        async with open_quick(endpoint=gcs.url, service_file=str(path)):
            raise AssertionError("opened")
    assert "c4n4ry" not in "".join(traceback.format_exception(raised.value))


async def test_cancelled_token_waiter_leaves_request_to_others(gcs: FakeGcs, service_file: str) -> None:
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
