"""The objects that exist when a world begins: a data set in each compression, a JSON lines file, and a damaged file.

They are made once, from a fixed seed, in a separate world without faults, so that every world gets the same objects.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

import asyncrec
from asyncrec._framing.crc import masked_crc32c

__all__ = ["CONVERTED", "DAMAGED", "SOURCE", "lay_out", "prepare"]

# The path, and a list with the number of the first record, the number of records, and the number of shards.
SOURCE = ("sim://bucket/source/pages", [1_000_000, 240, 3])
CONVERTED = ("sim://bucket/lines/pages.jsonl", [2_000_000, 60, 1])
DAMAGED = ("sim://bucket/damaged/pages.tfrecord", [3_000_000, 40, 1])

_KINDS = {"": "", "-plain": "", "-gzip": "GZIP", "-members": "members", "-zlib": "ZLIB"}
_made: dict[str, bytes] = {}


def lay_out(world: Any) -> None:
    """Put the source objects into the world's store."""
    for key, data in _made.items():
        world.bucket.publish(key, data, exclusive=True)


def _record(number: int) -> bytes:
    return b"<<%d>>" % number + b"%d " % number * 20


def _frame(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def prepare() -> None:
    """Make the source objects once. Call this within `seams.patched`."""
    from .plan import draw
    from .playing import small
    from .world import World
    from .writing import compression

    if _made:
        return
    np.unique([0])  # its lazy imports decide where small manifests are parsed, which must not vary
    plan = draw(0)
    plan["settings"].update(failing=0.0, short=0.0, skews=False, late=False, lax=False, parts=1 << 20, checksums=True)
    plan.update(processes=[], faults=[])
    world = World(plan)

    async def write() -> None:
        base, count, shards = SOURCE[1]
        for suffix, kind in _KINDS.items():
            async with asyncrec.open_sharded_writer(
                f"sim://bucket/source{suffix}/pages",
                max_shard_records=-(-count // shards),
                compression=compression(kind),
                writer_id="source",
            ) as writer:
                for number in range(count):
                    await writer.write(_record(base + number), key=f"k{number}")

    async def play() -> None:
        await world.do("prepare", "m0", write)

    world._play = play  # type: ignore[method-assign]
    with small(plan["settings"]):
        world.play()
    assert not world.book.complaints, world.book.complaints
    made = {key: found.data for key, found in world.bucket.objects.items()}
    base, count, _ = CONVERTED[1]
    lines = [json.dumps({"text": f"<<{base + number}>>", "n": number}) for number in range(count)]
    made["lines/pages.jsonl"] = "\n".join(lines).encode()
    base, count, _ = DAMAGED[1]
    frames = [_frame(_record(base + number)) for number in range(count)]
    made["damaged/pages.tfrecord"] = b"".join(frames[:20]) + b"damage" * 20 + b"".join(frames[20:])
    _made.update(made)
