"""Uploads that fail because of another writer, a damaged body, or blocks that the store has lost."""

from __future__ import annotations

from contextlib import nullcontext

import anyio
import pytest
from azure_api import FakeAzure
from azure_opening import CHUNK, open_quick
from crc32c import crc32c
from serving import Fault, nothing, nth

from asyncrec.errors import (
    IntegrityError,
    ObjectExistsError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage import Storage
from asyncrec.storage.http import PartBuffers
from asyncrec.testing._checks import content, send_all

pytestmark = pytest.mark.anyio

LONG = content(3 * CHUNK + 5)


async def write(storage: Storage, data: bytes = LONG, *, exclusive: bool = False) -> None:
    async with storage.open_sink("key", exclusive=exclusive) as sink:
        await send_all(sink, data)


async def test_upload_sends_short_object_whole_but_long_in_blocks(azure: FakeAzure) -> None:
    async with open_quick(azure.endpoint) as storage:
        await write(storage, b"short", exclusive=True)
        assert azure.log == ["put"]
        azure.reset()
        await write(storage)
        assert sorted(azure.log) == ["block"] * 4 + ["commit", "meta"]
        assert azure.blobs["key"].data == LONG
        assert not azure.staged


async def test_exclusive_sink_finds_existing_object_before_first_block(azure: FakeAzure) -> None:
    azure.store("key", b"older")
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(ObjectExistsError):
            await write(storage, exclusive=True)
    assert azure.log == ["meta"]


async def test_chunk_over_one_mebibyte_arrives_with_matching_checksum(azure: FakeAzure) -> None:
    """A thread copies the chunk and computes its checksum."""
    data = content((1 << 20) + 5)
    async with open_quick(azure.endpoint, chunk_size=(1 << 20) + 1) as storage:
        await write(storage, data)
    stored = azure.blobs["key"]
    assert (len(stored.data), crc32c(stored.data)) == (len(data), crc32c(data))
    assert stored.metadata["asyncrec_crc32c"] == f"{crc32c(data):08x}"


@pytest.mark.parametrize("in_c", [True, False], ids=["CRC64", "MD5"])
@pytest.mark.parametrize("data", [b"short", LONG], ids=["put", "block"])
async def test_damaged_body_is_resent(
    azure: FakeAzure, data: bytes, in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store compares a CRC-64, or an MD5 if asyncrec was built without C."""
    if not in_c:
        monkeypatch.setattr("asyncrec_azure.container.crc64nvme", lambda data: None)
    azure.plan = nth(1, Fault("damage"))
    async with open_quick(azure.endpoint) as storage:
        await write(storage, data)
    assert azure.blobs["key"].data == data


@pytest.mark.parametrize("how", ["refuses", "ignores", "answers"])
async def test_upload_falls_back_to_md5_without_crc64(azure: FakeAzure, how: str) -> None:
    """Azurite rejects a CRC-64, or ignores it in loose mode; another store may return one of the damaged data."""
    azure.crc64 = how
    azure.plan = nth(1, Fault("damage"), "block")
    async with open_quick(azure.endpoint) as storage:
        await write(storage)
        assert azure.blobs["key"].data == LONG
        azure.log.clear()
        await write(storage)
    assert azure.log.count("block") == 4, "from then on at once"


async def test_commit_deletes_wrongly_assembled_object(azure: FakeAzure) -> None:
    azure.plan = nth(1, Fault("corrupt"), "commit")
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(IntegrityError, match="196,613 bytes were sent, but the store has 196,612"):
            await write(storage)
    assert not azure.blobs


async def test_cleanup_keeps_object_replaced_by_another_writer(azure: FakeAzure) -> None:
    """Another writer publishes its object between our check and the deletion."""

    def plan(kind: str, n: int) -> Fault | None:
        if kind == "delete":
            azure.store("key", b"another's")
        return Fault("corrupt") if kind == "commit" else None

    azure.plan = plan
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(IntegrityError):
            await write(storage)
    assert azure.blobs["key"].data == b"another's"


@pytest.mark.parametrize("exclusive", [False, True])
async def test_writer_fails_after_foreign_commit_discards_its_blocks(azure: FakeAzure, exclusive: bool) -> None:
    """When an object is published, the store discards all writers' uncommitted blocks."""
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(ObjectExistsError if exclusive else StorageError, match=r"another|already"):
            async with storage.open_sink("key", exclusive=exclusive) as sink:
                await send_all(sink, LONG)
                await storage.put("key", b"another's")
    assert azure.blobs["key"].data == b"another's"


@pytest.mark.parametrize("data", [b"short", LONG], ids=["put", "commit"])
async def test_lost_publish_response_is_resolved_by_lookup(azure: FakeAzure, data: bytes) -> None:
    """Every response to the publishing request is lost, but the upload's id in the object shows that it is ours."""
    azure.plan = lambda kind, n: Fault("reset-after") if kind in ("put", "commit") else None
    async with open_quick(azure.endpoint, attempts=3) as storage:
        await write(storage, data, exclusive=True)
    assert azure.blobs["key"].data == data


async def test_error_notes_unknown_outcome_of_failed_commit(azure: FakeAzure) -> None:
    azure.plan = lambda kind, n: Fault("status", 500) if kind in ("commit", "meta") else None
    async with open_quick(azure.endpoint, attempts=2) as storage:
        with pytest.raises(TransientStorageError) as raised:
            await write(storage)
    assert any("it is unknown whether the object was published" in note for note in raised.value.__notes__)


async def test_rejected_block_fails_upload_without_publishing(azure: FakeAzure) -> None:
    azure.plan = nth(2, Fault("status", 403), "block")
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(StoragePermissionError):
            await write(storage)
    assert not azure.blobs
    assert "commit" not in azure.log


@pytest.mark.parametrize("refused", [False, True])
async def test_buffer_of_failed_block_is_not_reused(
    azure: FakeAzure, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """A connection that is being closed may still send from the buffer."""
    given: list[bool] = []
    monkeypatch.setattr(PartBuffers, "give", lambda self, part, *, reusable: given.append(reusable))
    azure.plan = nth(1, Fault("status", 403), "block") if refused else nothing
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(StoragePermissionError) if refused else nullcontext():
            await write(storage, LONG[:CHUNK])
    assert given == [not refused]


async def test_sink_limits_concurrent_blocks_and_frees_their_memory(azure: FakeAzure) -> None:
    """If the store does not respond, `send` blocks after ``max_concurrency`` blocks."""
    azure.plan = lambda kind, n: Fault("stall") if kind == "block" else None
    sent = 0
    async with open_quick(azure.endpoint, max_concurrency=2) as storage:
        with anyio.move_on_after(1):
            async with storage.open_sink("key") as sink:
                for _ in range(10):
                    await sink.send([bytes(CHUNK)])
                    sent += 1
        assert sent == 2
        azure.plan = nth(0, Fault("reset"))
        await write(storage)
    assert azure.blobs["key"].data == LONG


async def test_storage_closed_during_write_publishes_no_object(azure: FakeAzure) -> None:
    context = open_quick(azure.endpoint)
    storage = await context.__aenter__()
    sink_context = storage.open_sink("key")
    sink = await sink_context.__aenter__()
    await sink.send([LONG[:CHUNK]])
    await context.__aexit__(ValueError, ValueError(), None)
    with pytest.raises((anyio.ClosedResourceError, StorageError), match="closed"):
        await sink_context.__aexit__(None, None, None)
    assert "commit" not in azure.log
    assert not azure.blobs
