"""A run of keys that is damaged, gone or made to harm is passed over: the shards' own keys say the same."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.checkpoint_blocks import encode_block, encode_columns
from asyncrec._shards.manifest.key_run import ENTRY_BYTES, MAGIC, KeyRun, RunTail
from asyncrec.errors import ManifestError

from .keyed_store import Far, looked_up, write

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("part", ["tail", "block", "gone", "cut", "other"])
async def test_a_run_that_cannot_be_read_is_passed_over(part: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(40)], writer="a")
    await tools.compact("pages", storage=storage)
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
    # The next checkpoint has no use for it.
    await tools.compact("pages", storage=storage)
    await write(storage, ["last"], writer="z")
    await tools.compact("pages", storage=storage)
    caplog.clear()
    assert await looked_up(storage, ("k7", "more", "last")) == {"k7": b"a 7", "more": b"more", "last": b"z 0"}
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


async def test_every_damaged_byte_gives_the_right_record() -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(8)], writer="a", per_shard=4)
    await tools.compact("pages", storage=storage)
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
def test_a_checkpoint_that_names_an_impossible_run_is_refused(changed: dict[str, Any]) -> None:
    run = KeyRun("~keys-000001~a.run", len(MAGIC) + 3 * ENTRY_BYTES + 100, 7, 3, 2, 100)
    assert KeyRun.from_json(run.to_json(), "x") == run
    with pytest.raises(ManifestError, match=r"x: the name of a run of keys is invalid: \{'name':"):
        KeyRun.from_json(run.to_json() | changed, "x")


def test_a_tail_that_counts_otherwise_is_refused() -> None:
    rows = np.zeros(3, np.int64)
    paths = encode_columns(b"a\0b\0c\0", [rows.astype(np.uint32), rows])
    more = encode_columns(b"a\0b\0", [rows.astype(np.uint32), rows])
    for tail in (
        encode_block(0, 3, paths, json=False)[:-1],
        encode_block(0, 3, paths, json=False),  # the blocks' own rows are not there
        encode_block(1, 0, encode_columns(b"", []), json=False) + encode_block(0, 3, paths, json=False),
        encode_block(0, 3, more, json=False),
        encode_block(2, 3, paths, json=False),
        b"x" * 10,
    ):
        run = KeyRun("~keys-000001~a.run", len(MAGIC) + ENTRY_BYTES + len(tail), 7, 1, 3, len(tail))
        with pytest.raises(ManifestError):
            RunTail.decode(tail, run)
