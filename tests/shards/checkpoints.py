"""Helpers that encode checkpoints in memory, decode them, and split them into lines."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

from asyncrec._shards.manifest.checkpoint import CheckpointDecoder, encode_checkpoint
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.merging import plus
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time


def encoded(history: History, number: int = 1) -> bytes:
    return b"".join(encode_checkpoint(history, name="pages", number=number, time=format_time(0)))


def decoded(content: bytes, pieces: int = 1) -> History:
    decoder = CheckpointDecoder("checkpoint")
    size = max(1, -(-len(content) // pieces))
    for at in range(0, len(content), size):
        decoder.feed(content[at : at + size])
    return decoder.finish()


def made(count: int) -> History:
    """Return a history with ``count`` shards."""
    entries = [
        ShardEntry(
            path=f"p-w-{n:06d}.tfrecord",
            records=n,
            bytes=n * 17,
            crc32c=n * 31,
            end_crc32c=0,
            compression="",
            committed=format_time(n),
        )
        for n in range(count)
    ]
    return plus(History(), [Segment(writer="w", time=format_time(count), add=tuple(entries), closed=True)])


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """Return the lines of a checkpoint as `zcat` and `jq` would read them."""
    with gzip.open(io.BytesIO(content), "rt", encoding="ascii") as file:
        return [json.loads(line) for line in file]


def members_of(lines: list[Any]) -> bytes:
    """Encode lines as a checkpoint stores them, each in its own gzip member."""
    return b"".join(member(json.dumps(line, separators=(",", ":")).encode() + b"\n") for line in lines)


def member(line: bytes, level: int = 6) -> bytes:
    return gzip.compress(line, level, mtime=0)
