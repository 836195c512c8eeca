"""Storages share a client, work on either event loop, and close the client with the last storage."""

from __future__ import annotations

import asyncio

import pytest
from asyncrec_gcs import session as session_module
from asyncrec_gcs import sink as sink_module
from asyncrec_gcs import upload as upload_module
from asyncrec_gcs.options import Access
from asyncrec_gcs.plugin import open_gcs
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcloud.aio.auth.token import Token
from opening import CANARY, open_quick

import asyncrec
from asyncrec.storage import BridgedStorage, sheltered
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.testing._checks import content, send_all

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_credentials_of_this_machine")]
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])

DATA = content(3 * UNIT + 5)


@asyncio_only
async def test_storages_share_client_until_last_closes(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_native_cancellation_leaves_whole_object_or_none(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.timeout` and `task.cancel` ignore shielded scopes."""
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
async def test_native_timeout_during_sheltered_call_is_raised_afterwards() -> None:
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


async def test_schemes_open_storage_through_entry_point(gcs: FakeGcs) -> None:
    for scheme in ("gs", "gcs"):
        async with asyncrec.open_storage(f"{scheme}://bucket/some/folder") as storage:
            await storage.put("key", DATA)
            assert storage.root == "gs://bucket/some/folder"
        assert gcs.objects["bucket", "some/folder/key"].data == DATA


async def test_records_round_trip_through_gcs(gcs: FakeGcs) -> None:
    records = [content(n * 700, n) for n in range(200)]
    await asyncrec.write_records("gs://bucket/pages.tfrecord", records)
    assert await asyncrec.read_records("gs://bucket/pages.tfrecord") == records


async def test_storage_runs_natively_on_asyncio_and_bridged_on_trio(gcs: FakeGcs, anyio_backend: str) -> None:
    async with open_gcs("gs://bucket") as storage, open_gcs("gs://bucket/p") as below:
        assert isinstance(storage, BridgedStorage) == (anyio_backend == "trio")
        assert isinstance(below, PrefixedStorage)
