"""Reads over TLS, through proxies, and from unusual stores: direct where possible, and always correct."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from aiohttp import web
from asyncrec_s3.plugin import open_s3
from certificates import Certificate
from https_store import Asked, HttpsStore, Tunnels, refusal

from asyncrec.errors import ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.testing._checks import content, receive_all

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

LARGE = content((5 << 20) + 7)
SIZES = [0, 1, 10_000, 600_000, len(LARGE)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.made(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["https", "http"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Use TLS for tests of TLS, and plain HTTP for all others."""
    return str(request.param)


Run = Callable[..., AbstractAsyncContextManager[tuple[HttpsStore, Any]]]


@pytest.fixture
def run(certificate: Certificate, scheme: str, store: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a store with an object of each of `SIZES` and opens it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    @asynccontextmanager
    async def running(host: str = "127.0.0.1", **options: Any) -> AsyncIterator[tuple[HttpsStore, Any]]:
        server = HttpsStore()
        server.keys[store.access_key] = store.secret_key
        server.objects = {str(size): LARGE[:size] for size in SIZES}
        async with server.serving(certificate if scheme == "https" else None):
            options = {
                "endpoint_url": f"{scheme}://{host}:{server.port}", "verify": str(certificate.path), **options,
            }  # fmt: skip
            async with open_s3("s3://bucket", **options) as storage:
                yield server, storage

    return running


async def check(storage: Any) -> None:
    """Check that whole objects, ranges and sequential reads return the stored bytes."""
    for size in SIZES:
        assert await storage.get(str(size)) == LARGE[:size]
    async with storage.open_source(str(len(LARGE)), start=1_000_000, end=4_000_001) as source:
        assert await receive_all(source, 300_000) == LARGE[1_000_000:4_000_001]
    info = await storage.head("600000")
    async with storage.open_source("600000", start=599_990, info=info) as source:
        assert await receive_all(source, 1000) == LARGE[599_990:600_000]


async def test_objects_and_ranges_are_read_over_one_connection(run: Run) -> None:
    async with run() as (server, storage):
        await check(storage)
        before = len(server.asked)
        for _ in range(5):
            await storage.get(str(len(LARGE)))
        assert not any(asked.by_sdk for asked in server.asked[before:])
        assert len(server.connections) == 1


async def test_sixteen_concurrent_reads_return_whole_objects(run: Run) -> None:
    async with run() as (server, storage):
        await storage.get("1")

        async def one(size: int) -> None:
            assert await storage.get(str(size)) == LARGE[:size]

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for size in SIZES[1:] * 4:
                    tasks.start_soon(one, size)
        assert len(server.connections) <= 16


@pytest.mark.parametrize("scheme", ["https"], indirect=True)
async def test_untrusted_certificate_is_rejected(run: Run) -> None:
    async with run(verify=True) as (server, storage):
        with pytest.raises(StorageError, match=r"(?i)certificate|ssl"):
            await storage.get("1")
        assert not server.asked


@pytest.mark.parametrize("scheme", ["https"], indirect=True)
async def test_certificate_is_not_checked_with_verify_disabled(run: Run) -> None:
    async with run(verify=False) as (_, storage):
        await check(storage)


@pytest.mark.parametrize("secure", [False, True])
async def test_reads_return_same_bytes_through_proxy(
    run: Run, scheme: str, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    """This includes a proxy that is itself reached over TLS, with the store's TLS inside."""
    async with Tunnels().serving(certificate if secure else None) as proxy:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy.url)
        async with run() as (server, storage):
            await check(storage)
            assert len(proxy.asked) == len(server.connections) == 1
            assert proxy.asked[0].startswith("CONNECT" if scheme == "https" else "GET http://")
            before = len(server.asked)
            assert await storage.get(str(len(LARGE))) == LARGE
            assert [asked.by_sdk for asked in server.asked[before:]] == [False]


async def test_virtual_host_requests_are_signed_and_sent_directly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo",
        lambda host, *rest, **named: real("127.0.0.1" if host == "bucket.localhost" else host, *rest, **named),
    )  # fmt: skip
    async with run("localhost", addressing_style="virtual") as (server, storage):
        await check(storage)
        assert {asked.host for asked in server.asked} == {f"bucket.localhost:{server.port}"}
        assert not server.asked[1].by_sdk


async def test_unsigned_reads_stay_unsigned(run: Run) -> None:
    async with run(anonymous=True) as (server, storage):
        server.keys.clear()
        await check(storage)
        assert {asked.access_key for asked in server.asked} == {""}
        assert not server.asked[1].by_sdk


async def test_compressed_objects_are_returned_without_decompression(run: Run) -> None:
    async with run() as (server, storage):
        server.headers = {"Content-Encoding": "gzip"}
        await check(storage)


async def test_responses_closing_connection_are_read_whole(run: Run) -> None:
    async with run() as (server, storage):
        server.ends = True
        await check(storage)
        assert len(server.connections) == len(server.asked)


async def test_ranges_without_content_length_are_read_whole(run: Run) -> None:
    async with run() as (server, storage):
        info = await storage.head(str(len(LARGE)))
        server.chunked = True
        for _ in range(3):
            async with storage.open_source(str(len(LARGE)), start=5, end=3_000_000, info=info) as source:
                assert await receive_all(source, 1 << 20) == LARGE[5:3_000_000]
            async with storage.open_source("600000", start=5) as source:
                assert await receive_all(source, 1 << 20) == LARGE[5:600_000]
        # If a response omits its size, it is not read further: HEAD returns the size.
        assert len(server.connections) == 1 + 3


async def test_reads_stay_correct_after_cancelled_read(run: Run) -> None:
    async with run() as (_, storage):
        await storage.get("1")
        for steps in range(0, 60, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(storage.get, str(len(LARGE)))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert await storage.get("10000") == LARGE[:10_000]


@pytest.mark.parametrize(
    "elsewhere",
    [
        (301, "PermanentRedirect"), (302, "Found"), (307, "TemporaryRedirect"),
        (400, "AuthorizationHeaderMalformed"),
    ],
)  # fmt: skip
async def test_reads_follow_bucket_to_new_region(run: Run, elsewhere: tuple[int, str]) -> None:
    region = "us-east-1"

    def plan(asked: Asked) -> web.Response | None:
        status, code = elsewhere
        if asked.region == region:
            return None
        return refusal(status, code, f"<Region>{region}</Region>", {"x-amz-bucket-region": region})

    async with run() as (server, storage):
        server.plan = plan
        await check(storage)
        region = "eu-west-1"
        await check(storage)
        assert server.asked[-1].region == region
        before = len(server.asked)
        assert await storage.get("10000") == LARGE[:10_000]
        assert [asked.by_sdk for asked in server.asked[before:]] == [False]


async def test_expired_token_raises_and_next_read_recovers(run: Run) -> None:
    for status in (400, 403):
        async with run() as (server, storage):
            await storage.get("1")
            server.plan = lambda asked, status=status: refusal(status, "ExpiredToken")
            with pytest.raises(StoragePermissionError, match="ExpiredToken"):
                await storage.get("1")
            server.plan = lambda asked: None
            before = len(server.asked)
            await storage.get("1")
            assert [asked.by_sdk for asked in server.asked[before:]] == [False]
            await check(storage)
            with pytest.raises(ObjectNotFoundError):
                await storage.get("none")


@pytest.mark.parametrize("status", [400, 403])
async def test_renewed_credentials_sign_next_read(
    run: Run, scheme: str, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Each credential is rejected as soon as there is a newer one."""
    given: list[str] = []

    async def give(request: web.BaseRequest) -> web.Response:
        given.append(f"AKIARENEWED{len(given)}")
        expiration = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return web.json_response(
            {"AccessKeyId": given[-1], "SecretAccessKey": f"secret of {given[-1]}", "Token": f"token-{len(given)}",
             "Expiration": expiration}
        )  # fmt: skip

    def plan(asked: Asked) -> web.Response | None:
        server.keys = {given[-1]: f"secret of {given[-1]}"}
        return None if asked.access_key == given[-1] else refusal(status, "ExpiredToken")

    runner = web.ServerRunner(web.Server(give, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{runner.addresses[0][1]}/")
    try:
        async with run() as (server, storage):
            server.plan = plan
            await check(storage)
            assert len({asked.access_key for asked in server.asked}) > 5
            assert not server.asked[1].by_sdk
    finally:
        await runner.cleanup()


async def test_store_rejecting_direct_reads_is_read_through_sdk(run: Run) -> None:
    async with run() as (server, storage):
        server.plan = lambda asked: None if asked.by_sdk else refusal(400, "InvalidRequest")
        await check(storage)
        before = len(server.asked)
        assert await storage.get("10000") == LARGE[:10_000]
        assert [asked.by_sdk for asked in server.asked[before:]] == [True]
