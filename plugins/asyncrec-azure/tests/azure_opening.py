"""Opens a container as the plugin does, on either event loop, with a back-off short enough for tests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from asyncrec_azure.options import Options
from asyncrec_azure.storage import open_container

from asyncrec.storage import BridgedStorage, RetryPolicy, Storage, on_asyncio

# The emulator's well-known key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CHUNK = 64 << 10


def open_quick(
    endpoint: str, *, url: str = "az://crawl", attempts: int = 10, **options: Any
) -> AbstractAsyncContextManager[Storage]:
    credentials = {} if {"sas_token", "anonymous", "connection_string"} & set(options) else {"account_key": KEY}
    address = {} if "connection_string" in options else {"endpoint": endpoint}
    parsed, prefix = Options.of(url, **{"chunk_size": CHUNK} | address | credentials | options)
    assert not prefix
    opener = partial(open_container, parsed, policy=RetryPolicy(attempts=attempts, base=0.001, cap=0.005))
    return opener() if on_asyncio() else BridgedStorage(opener)
