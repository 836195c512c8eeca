"""A run of keys that is damaged, missing or malicious is ignored; the shards' own keys give the same result."""

from __future__ import annotations

import logging
import zlib
from random import Random
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.key_run import ENTRY_BYTES, MAGIC, KeyRun, RunTail
from asyncrec._shards.manifest.texts import TextColumn
from asyncrec.errors import ManifestError

from .keyed_store import Far, looked_up, write

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("part", ["tail", "block", "gone", "cut", "other"])
async def test_unreadable_key_run_is_ignored(part: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(40)], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    [(key, info)] = (await storage.runs()).items()
    content = bytearray(await storage.get(key))
    if part == "gone":
        await storage.delete(key)
    else:
        content[-5 if part == "tail" else len(MAGIC) + 3] ^= 1
        if part == "cut":
            content = content[: len(MAGIC) + 100]
        elif part == "other":
            content = bytearray(Random(1).randbytes(info.size))
        await storage.put(key, bytes(content))
    caplog.clear()
    assert await looked_up(storage, ("k7", "no")) == {"k7": b"a 7", "no": None}
    assert [line for line in caplog.records if "a run of keys cannot be read" in line.getMessage()]
    assert all("path" in vars(line) for line in caplog.records)
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        assert (writer.has("k7"), writer.has("no")) == (True, False)
        await writer.write(b"more", key="more")
    # The next checkpoint does not use the damaged run.
    await tools.compact("pages", storage=storage, manifest_only=True)
    await write(storage, ["last"], writer="z")
    await tools.compact("pages", storage=storage, manifest_only=True)
    caplog.clear()
    assert await looked_up(storage, ("k7", "more", "last")) == {"k7": b"a 7", "more": b"more", "last": b"z 0"}
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


async def test_lookups_are_correct_despite_any_damaged_byte() -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(8)], writer="a", per_shard=4)
    await tools.compact("pages", storage=storage, manifest_only=True)
    [key] = await storage.runs()
    content = await storage.get(key)
    wanted = {f"k{n}": f"a {n}".encode() for n in range(8)} | {"no": None}
    for at in range(0, len(content), 3):
        await storage.put(key, content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        assert await looked_up(storage, wanted) == wanted, at


@pytest.mark.parametrize(
    "changed",
    [
        {"entries": 1 << 40},
        {"entries": -1},
        {"tail": 1 << 60},
        {"bytes": 1.5},
        {"shards": 1 << 30},
        {"name": "../x"},
        {"name": "~keys-1~x.run"},
        {"more": 1},
    ],
)
def test_checkpoint_naming_impossible_key_run_is_rejected(changed: dict[str, Any]) -> None:
    run = KeyRun("~keys-000001~a.run", len(MAGIC) + 3 * ENTRY_BYTES + 100, 7, 3, 2, 100)
    assert KeyRun.from_json(run.to_json(), "x") == run
    with pytest.raises(ManifestError, match=r"x: the checkpoint names an impossible run of keys, .*: \{'name':"):
        KeyRun.from_json(run.to_json() | changed, "x")


def test_key_run_tail_with_wrong_count_is_rejected() -> None:
    rows = np.zeros(3, np.int64)
    tail = RunTail(TextColumn.of("abc"), rows.astype(np.uint32), rows, np.zeros(1, np.uint64), np.zeros(1, np.uint32))

    def run_of(content: bytes) -> KeyRun:
        return KeyRun("~keys-000001~a.run", len(MAGIC) + ENTRY_BYTES + len(content), 7, 1, 3, len(content))

    good = tail.encode()
    assert list(RunTail.decode(good, run_of(good)).paths) == ["a", "b", "c"]
    raw = zlib.decompress(good)
    for content in (
        good[:-1],
        good + b"x",
        zlib.compress(raw[:-2]),  # a path is missing
        zlib.compress(raw[:-1]),
        zlib.compress(raw[:40]),
        zlib.compress(b""),
        zlib.compress(raw[:24] + raw[32:]),  # the blocks' own numbers are missing
        zlib.compress(raw + b"d\0"),
        zlib.compress(raw + b"d"),
        zlib.compress(b"\0" * 100_000),
        b"x" * 10,
    ):
        with pytest.raises(ManifestError):
            RunTail.decode(content, run_of(content))
