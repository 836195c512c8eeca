"""While ``~latest.json`` is damaged, no checkpoint is deleted and a warning is logged; ``--latest`` repairs it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import asyncrec
from asyncrec._shards.commit.compaction import Compaction, compact_manifest
from asyncrec._shards.manifest.names import latest_key

from .manifest_store import Store, Writer

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def compact(store: Store, writer: Writer, **options: Any) -> Compaction:
    await writer.commit()
    store.now += HOUR
    return await compact_manifest(store, "pages", path="pages", grace=60.0, **options)


@pytest.mark.parametrize("content", [b"{}", b"[" * 100_000], ids=["says nothing", "is too long"])
async def test_checkpoint_named_by_damaged_latest_is_kept(caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    store = Store()
    writer = Writer(store, "a")
    kept = [(await compact(store, writer, latest=True)).checkpoint]
    await store.put(latest_key("pages"), content)
    kept += [(await compact(store, writer)).checkpoint for _ in range(3)]
    assert set(kept) <= {f"_manifest/pages/{key}" for key in await store.keys()}
    assert "_manifest/pages/~latest.json: the file does not name a checkpoint; it is damaged" in caplog.text
    assert "compact --latest" in caplog.text

    done = await compact(store, writer, latest=True)
    assert done.latest is not None
    assert (await asyncrec.read_manifest(done.latest, storage=store)).records > 0
    assert kept[0] in (await compact(store, writer)).deleted
