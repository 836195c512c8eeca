"""Stores that run in their own processes: moto and SeaweedFS for S3, the plugin's fake for GCS, Azurite for Azure.

Starting a store creates neither an event loop nor a thread in the parent process, so the parent can still fork.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_WEED = ROOT / ".venv-seaweedfs/bin/weed"
_AZURITE = ROOT / ".venv-azurite/node_modules/.bin/azurite-blob"
# Azurite's key, which is public.
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_KIB = 1 << 10
_LARGE = 8 << 20


@dataclass(frozen=True)
class Store:
    """The URL and options of a bucket. ``chunk`` is the part size, which is as small as the store allows."""

    kind: str
    url: str
    options: dict[str, Any]
    chunk: int

    def in_one_part(self) -> Store:
        """Return the same store with parts larger than any flush entry."""
        return replace(self, options=self.options | {"chunk_size": _LARGE}, chunk=_LARGE)

    def for_round(self, name: str) -> Store:
        """Return the store for one round. In moto it is a new bucket, because a listing scans all keys of a bucket."""
        if self.kind != "moto":
            return replace(self, url=f"{self.url}/{name}")
        request = urllib.request.Request(f"{self.options['endpoint_url']}/round-{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return replace(self, url=f"s3://round-{name}/round")


def kinds(*, real: bool) -> list[str]:
    """Return the available kinds of stores. ``real`` ones need `make test-seaweedfs` and `make test-azurite`."""
    here = [("seaweedfs", _WEED.exists()), ("azurite", _AZURITE.exists())]
    return ["moto", "gcs", *(kind for kind, is_here in here if real and is_here)]


def prepare(store: Store) -> None:
    """Let this process's client send parts as small as the store's."""
    if store.kind == "moto":
        from asyncrec_s3 import options

        options.MIN_PART = store.chunk  # type: ignore[misc]


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Store]:
    """Run a store, with its files in ``folder``, until the body or this process ends."""
    told, tell = os.pipe()
    alive, keep = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(told)
            os.close(keep)
            _serve(kind, folder, tell, alive)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(alive)
    try:
        answer = b""
        while block := os.read(told, 1 << 16):
            answer += block
        os.close(told)
        if not answer:
            raise RuntimeError(f"{kind} has not started")
        yield Store(kind, **json.loads(answer))
    finally:
        os.close(keep)
        os.waitpid(child, 0)


def _serve(kind: str, folder: Path, tell: int, alive: int) -> None:
    for plugin in ("s3", "gcs"):
        sys.path.insert(0, str(ROOT / f"plugins/asyncrec-{plugin}/tests"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    with open(folder / "server.log", "wb") as log:  # moto prints a traceback for each response with status 500
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    with {"moto": _s3, "seaweedfs": _s3, "gcs": _gcs, "azurite": _azurite}[kind](kind, folder) as store:
        os.write(tell, json.dumps(store).encode())
        os.close(tell)
        os.read(alive, 1)  # blocks until the other end is closed


@contextmanager
def _s3(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    os.environ |= {"ASYNCREC_TEST_S3": kind, "PATH": f"{_WEED.parent}{os.pathsep}{os.environ['PATH']}"}
    from s3_store import SMALLEST_PART, running_store

    if kind == "moto":
        _one_at_a_time()
    with running_store(folder) as store:
        keys = {"aws_access_key_id": store.access_key, "aws_secret_access_key": store.secret_key}
        options = {"endpoint_url": store.endpoint, "region": "us-east-1", **keys, "chunk_size": SMALLEST_PART}
        yield {"url": f"s3://{store.bucket}", "options": options, "chunk": SMALLEST_PART}


def _one_at_a_time() -> None:
    """Make moto serve requests serially. Otherwise, two requests that create the same object may both succeed."""
    from moto.s3.responses import S3Response

    lock = threading.RLock()

    def locked(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any) -> Any:
            with lock:  # acquired after reading the body, so that a stopped client does not block others
                return func(*args)

        return call

    for name in ("_key_response", "_bucket_response"):
        setattr(S3Response, name, locked(getattr(S3Response, name)))


@contextmanager
def _gcs(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    from fake_gcs import UNIT, FakeGcs

    with FakeGcs().serving() as server:
        options = {"endpoint": server.url, "anonymous": True, "chunk_size": UNIT}
        yield {"url": "gs://bucket", "options": options, "chunk": UNIT}


@contextmanager
def _azurite(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    from azure.storage.blob import ContainerClient

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    with subprocess.Popen([_AZURITE, *options, "--blobPort", str(port)], cwd=folder) as program:
        try:
            deadline = time.monotonic() + 60
            while program.poll() is None and time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
            with ContainerClient(endpoint, "torture", credential=_AZURITE_KEY) as container:
                container.create_container()
            access = {"endpoint": endpoint, "account_key": _AZURITE_KEY, "chunk_size": 64 * _KIB}
            yield {"url": "az://torture", "options": access, "chunk": 64 * _KIB}
        finally:
            program.kill()
