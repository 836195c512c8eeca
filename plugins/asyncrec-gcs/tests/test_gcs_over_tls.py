"""Objects and ranges are read correctly over TLS, with a single connection."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from asyncrec_gcs.plugin import open_gcs
from certificates import Certificate
from fake_gcs import FakeGcs
from opening import CANARY, open_quick

from asyncrec.errors import StorageError
from asyncrec.testing._checks import content, receive_all

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

LARGE = content((5 << 20) + 7)
SIZES = [0, 1, 10_000, 600_000, len(LARGE)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.made(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def secure(certificate: Certificate) -> Iterator[FakeGcs]:
    with FakeGcs().serving(tls=certificate.server) as server:
        for size in SIZES:
            server.put(str(size), LARGE[:size])
        yield server


async def test_objects_and_ranges_are_read_over_one_connection(
    secure: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is an emulator, whose certificate is not verified."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", secure.url)
    async with open_quick() as storage:
        for size in SIZES:
            assert await storage.get(str(size)) == LARGE[:size]
        async with storage.open_source(str(len(LARGE)), start=1_000_000, end=4_000_001) as source:
            assert await receive_all(source, 300_000) == LARGE[1_000_000:4_000_001]
        assert secure.connections == 1


async def test_sixteen_concurrent_reads_return_whole_objects(secure: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", secure.url)
    async with open_quick() as storage:

        async def one(size: int) -> None:
            assert await storage.get(str(size)) == LARGE[:size]

        async with anyio.create_task_group() as tasks:
            for size in SIZES[1:] * 4:
                tasks.start_soon(one, size)
        assert secure.connections <= 16


async def test_reads_stay_correct_after_cancelled_read(secure: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", secure.url)
    async with open_quick() as storage:
        for steps in range(0, 60, 6):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(storage.get, str(len(LARGE)))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert await storage.get("10000") == LARGE[:10_000]


async def test_untrusted_certificate_is_rejected(secure: FakeGcs) -> None:
    async with open_gcs("gs://bucket", endpoint=secure.url, token=CANARY) as storage:
        with pytest.raises(StorageError, match="certificate"):
            await storage.get("1")
    assert not secure.log
