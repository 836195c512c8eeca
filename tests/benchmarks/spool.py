"""Sharded writing with a spool, compared with writing the same shards locally, until everything is committed.

The store behind the spool discards every byte, so that only the spool is measured: writing to the disk, reading it
back, and passing it on. A store always adds the cost of a network and a client, with or without a spool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import MIB, Case, Target
from records import Main, timed

_SHARD = 64 * MIB


def _writer(case: Case, *, spooled: bool, **options: Any) -> Main:
    import asyncrec
    from asyncrec.storage._base import Buffer, ByteSink, ObjectInfo
    from asyncrec.storage._memory import MemoryStorage

    class Dropping(ByteSink):
        chunk_size = 8 * MIB

        def __init__(self) -> None:
            self.size = 0

        async def send(self, buffers: Sequence[Buffer]) -> None:
            self.size += sum(map(len, buffers))

        async def flush(self, tail: Sequence[Buffer]) -> int:
            return 0

    class NullStore(MemoryStorage):
        """Keeps the manifest and discards everything else."""

        def open_sink(self, key: str, *, exclusive: bool = False) -> Any:
            return super().open_sink(key, exclusive=exclusive) if key.startswith("_manifest") else self._drop(key)

        @asynccontextmanager
        async def _drop(self, key: str) -> AsyncIterator[ByteSink]:
            sink = Dropping()
            yield sink
            sink.published = ObjectInfo(key, sink.size, "none", None, datetime.now(UTC))

    batch = [bytes([n % 256]) * case.size for n in range(1000)]

    async def main(path: Path) -> None:
        target: dict[str, Any] = {"path": str(path / "pages")}
        if spooled:
            target = {"path": "pages", "storage": NullStore(), "spool": path}
        async with asyncrec.open_sharded_writer(**target, max_shard_bytes=_SHARD, open_shards=2, **options) as writer:
            left = case.count
            while left > 0:
                await writer.write_many(batch[:left])
                left -= 1000

    return main


def local(case: Case) -> Main:
    return _writer(case, spooled=False)


def spooled(case: Case) -> Main:
    return _writer(case, spooled=True)


_SIZES = [("4M x 128 B", 4_000_000, 128), ("130k x 4 KiB", 130_000, 4096), ("500 x 1 MiB", 500, MIB)]

CASES = [
    Case(
        name=f"sharded write {name}, spool",
        count=count,
        size=size,
        contenders={"asyncrec local": timed(local), "asyncrec spool": timed(spooled)},
    )
    for name, count, size in _SIZES
]

TARGETS = [Target(f"sharded write {name}, spool", "asyncrec spool", "asyncrec local", 0.7) for name, _, _ in _SIZES]
