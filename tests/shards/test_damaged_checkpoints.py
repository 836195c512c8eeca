"""Checkpoints are not trusted: an inconsistent one raises an error instead of silently hiding a shard."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ManifestError
from asyncrec.storage import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def compacted() -> tuple[MemoryStorage, str]:
    """Return a store with a data set of three shards, and the key of its checkpoint."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1, metadata={"a": 1}) as writer:
        await writer.write_many([b"1", b"2", b"3"])
    report = await tools.compact("pages", storage=storage, manifest_only=True)
    assert report.checkpoint is not None
    return storage, report.checkpoint.removeprefix("memory://").lstrip("/")


def members(lines: list[bytes]) -> bytes:
    """Encode lines as a checkpoint stores them, each in its own gzip member, but uncompressed."""
    return b"".join(gzip.compress(line, 0) for line in lines)


def changed(line: bytes) -> Iterator[bytes]:
    """Yield the line with one byte changed, for each byte: a digit to a different one, a quote to something else."""
    for at in range(len(line) - 1):
        yield line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


async def test_checkpoint_missing_any_line_is_rejected() -> None:
    storage, key = await compacted()
    lines = gzip.decompress(await storage.get(key)).splitlines(keepends=True)
    assert len(lines) > 5
    for number in range(len(lines)):
        await storage.put(key, members(lines[:number] + lines[number + 1 :]))
        with pytest.raises(ManifestError, match="checkpoint-000001"):
            await asyncrec.read_manifest("pages", storage=storage)


@pytest.mark.slow
async def test_checkpoint_with_any_byte_changed_is_read_or_rejected() -> None:
    storage, key = await compacted()
    lines = gzip.decompress(await storage.get(key)).splitlines(keepends=True)
    refused = 0
    for number, line in enumerate(lines):
        for other in changed(line):
            await storage.put(key, members([*lines[:number], other, *lines[number + 1 :]]))
            try:
                await asyncrec.read_manifest("pages", storage=storage)
            except ManifestError:
                refused += 1
    assert refused >= 500


async def with_progress(**columns: object) -> tuple[MemoryStorage, str]:
    """Return a data set whose checkpoint has these columns in its line for two sources."""
    storage, key = await compacted()
    lines = gzip.decompress(await storage.get(key)).splitlines(keepends=True)
    row = {"kind": "progress", "source": ["a", "b"], "turn": 1, "position": [2, 3], "released": 0, **columns}
    end = json.loads(lines[-1])
    end["rows"]["progress"] = 2
    await storage.put(
        key, members([*lines[:-1], *(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in (row, end))])
    )
    return storage, key


async def test_checkpoint_stores_source_progress() -> None:
    storage, _ = await with_progress(released=[0, 1], turn=[0, 1])
    assert (await asyncrec.read_manifest("pages", storage=storage)).progress == {"b": 3}


@pytest.mark.parametrize(
    "columns",
    [
        {"source": ["b", "a"]},
        {"source": ["a", "a"]},
        {"source": ["", "a"]},
        {"source": ["a", "a\n"]},
        {"source": ["a", "b" * 513]},
        {"source": ["a", 1]},
        {"source": ["a"]},
        {"turn": [1, -1]},
        {"turn": [1, 2**63]},
        {"turn": [1, True]},
        {"position": [1, -2]},
        {"position": [1, 2**63]},
        {"released": -1},
        {"later": 1},
    ],
    ids=lambda value: str(value)[:20],
)
async def test_checkpoint_with_damaged_progress_is_rejected(columns: dict[str, object]) -> None:
    storage, _ = await with_progress(**columns)
    with pytest.raises(ManifestError, match="checkpoint-000001"):
        await asyncrec.read_manifest("pages", storage=storage)
