"""Wherever a writer with ``seen=`` is killed, its flushed records are kept, and no revisit lacks its body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local.storage import LocalStorage

from .mortal import Killed, Process
from .seeing import opened, page, stored, write

pytestmark = pytest.mark.anyio

BODIES = [b"one" * 30, b"two" * 30, b"one" * 30, b"three" * 30, b"two" * 30, b"one" * 30, b"four" * 30, b"four" * 30]


def urls() -> Iterator[str]:
    return (f"w/{number}" for number in range(len(BODIES)))


async def crawl(storage: Storage, flushed: list[str], **options: Any) -> None:
    """Write all pages, flushing now and then; after each flush, append the URLs flushed so far to ``flushed``."""
    async with opened(storage, max_shard_records=3, exit_timeout=5, dead_after=120.0, **options) as writer:
        for number, (url, body) in enumerate(zip(urls(), BODIES, strict=True)):
            await writer.write(page(url, body))
            if number % 3 == 1 and await writer.flush() != "buffered":
                flushed[:] = list(urls())[: number + 1]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"compression": "GZIP", "open_shards": 2}], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["disk", "store", "spool"])
async def test_each_revisit_keeps_body_after_kill_at_any_step(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    for after in count(8, 7):
        folder = tmp_path / str(after)
        storage: Storage = LocalStorage(folder / "crawl") if kind == "disk" else MemoryStorage()
        spool = {"spool": folder / "spool"} if kind == "spool" else {}
        await write(storage, [page("before/", b"one" * 30)])
        process = Process(storage, after=after)
        flushed: list[str] = []
        with suppress(Killed, StorageError):
            await crawl(process.storage, flushed, **options, **spool)
        if not process.dead:
            break
        await _recover(storage, spool.get("spool"))
        found = await stored(storage)
        assert [each for each in found if each.body != _body(each.url)] == [], after
        assert {each.url for each in found} >= set(flushed), after
        await write(storage, [page(f"again/{url}", body) for url, body in zip(urls(), BODIES, strict=True)])
        assert [each for each in await stored(storage) if each.body != _body(each.url)] == [], after
        assert (await asyncrec.tools.verify("pages", storage=storage)).ok
    assert after > 30


def _body(url: str) -> bytes:
    return b"one" * 30 if url == "before/" else BODIES[int(url.rpartition("/")[2])]


async def _recover(storage: Storage, spool: Path | None) -> None:
    if spool is not None:
        if spool.exists():
            await asyncrec.recover(spool, to="pages", storage=storage)
        return
    with suppress(ObjectNotFoundError):
        found = await asyncrec.recover("pages", storage=storage)
        for job in found.unfinished:
            await asyncrec.recover("pages", storage=storage, dead=[job.id])


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 31, 32, 33, 48, 64])
async def test_torn_journal_is_truncated_after_last_digest_pair(tmp_path: Path, cut: int) -> None:
    storage = LocalStorage(tmp_path / "crawl")
    process = Process(storage)
    with pytest.raises((Killed, StorageError)):
        async with opened(process.storage) as writer:
            for number in range(4):
                await writer.write(page(f"{number}/", b"%d" % (number % 2)))
            await writer.flush()
            process.kill()
            raise Killed
    [keys] = (tmp_path / "crawl" / "_keys").glob(".*.partial")
    assert keys.stat().st_size == 4 * 32
    keys.write_bytes(keys.read_bytes()[:-cut])
    await asyncrec.recover("pages", storage=storage)
    left = 4 - -(-cut // 32)
    assert [each.url for each in await stored(storage)] == [f"{number}/" for number in range(left)]
    await write(storage, [page("again/", b"1")])
    assert (await stored(storage))[-1].refers_to == ("1/" if left > 1 else "")
