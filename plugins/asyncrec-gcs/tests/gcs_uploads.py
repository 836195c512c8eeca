"""Data and helpers for the tests of uploads."""

from __future__ import annotations

from fake_gcs import UNIT, FakeGcs
from opening import open_quick

from asyncrec.storage._base import ByteSink, Storage
from asyncrec.testing._checks import content, send_all

DATA = content(5 * UNIT + 77)


async def write(storage: Storage, data: bytes = DATA, key: str = "key", *, exclusive: bool = False) -> ByteSink:
    async with storage.open_sink(key, exclusive=exclusive) as sink:
        await send_all(sink, data)
    return sink


async def requests_of_a_write(gcs: FakeGcs, **options: int) -> list[str]:
    async with open_quick(**options) as storage:
        await write(storage)
    log = list(gcs.log)
    gcs.reset()
    return log
