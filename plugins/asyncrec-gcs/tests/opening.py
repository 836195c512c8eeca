"""Opens a bucket as the plugin does, on either event loop, with a back-off short enough for tests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from asyncrec_gcs.options import Options
from asyncrec_gcs.storage import open_bucket
from fake_gcs import UNIT

from asyncrec.storage import BridgedStorage, on_asyncio
from asyncrec.storage._base import Storage
from asyncrec.storage._retry import RetryPolicy

# A token that tests look for in places where it must not appear.
CANARY = "ya29.c4n4ry-T0ken"


def open_quick(url: str = "gs://bucket", *, attempts: int = 10, **options: Any) -> AbstractAsyncContextManager[Storage]:
    parsed, prefix = Options.of(url, **({"chunk_size": UNIT} | options))
    assert not prefix
    opener = partial(open_bucket, parsed, policy=RetryPolicy(attempts=attempts, base=0.001, cap=0.005))
    return opener() if on_asyncio() else BridgedStorage(opener)
