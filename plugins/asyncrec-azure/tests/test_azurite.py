"""The kit on Azurite, Microsoft's emulator, which is an independent implementation: `make test-azurite`.

In `make test`, which does not need Node, this module has no tests.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from asyncrec_azure.plugin import open_azure  # importable because of the lines above
from azure.storage.blob import ContainerClient
from azure_opening import CHUNK, KEY
from test_azure_conformance import AzureCases

from asyncrec.storage import Storage

PROGRAM = os.environ.get("ASYNCREC_TEST_AZURITE")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert PROGRAM is not None, "asked for by the Makefile"
    command = [PROGRAM, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort", str(port)]
    with subprocess.Popen(command, cwd=tmp_path_factory.mktemp("azurite")) as program:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert program.poll() is None, "Azurite has ended"
                    assert time.monotonic() < deadline, "Azurite does not listen"
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/devstoreaccount1"
        finally:
            program.kill()


class AzuriteCases(AzureCases):
    @pytest.fixture(autouse=True)
    def store(self, endpoint: str) -> Iterator[None]:
        self.endpoint = endpoint
        self.sdk = ContainerClient(endpoint, "kit", credential=KEY)
        with self.sdk:
            self.sdk.create_container()
            yield
            self.sdk.delete_container()

    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        url, options = self.by_url(None)
        return open_azure(url, **options)

    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        return "az://kit", {"endpoint": self.endpoint, "account_key": KEY, "chunk_size": CHUNK}

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.sdk.upload_blob(key, data, overwrite=True)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        blob = self.sdk.get_blob_client(key)
        return blob.download_blob().readall() if blob.exists() else None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [str(name) for name in self.sdk.list_blob_names()]


if PROGRAM is not None:

    class TestAzurite(AzuriteCases):
        """Collected only if Azurite is installed."""
