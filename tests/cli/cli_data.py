"""Data and helpers for the command-line tests; conftest.py makes this module importable by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import numpy as np

import asyncrec

__all__ = ["Result", "Run", "example", "no_rights", "write_data", "write_examples"]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def ok(self) -> str:
        """Return the output of the command, after checking that it succeeded."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self.out


Run = Callable[..., Result]

SCHEMA = asyncrec.Schema(
    {
        "label": asyncrec.FixedLen((), "int64"),
        "text": asyncrec.FixedLen((), "bytes"),
        "emb": asyncrec.FixedLen((4,), "float32"),
        "tags": asyncrec.VarLen("bytes"),
    }
)


def example(number: int) -> bytes:
    """Return a record whose text contains terminal control characters."""
    features = {
        "label": number % 3,
        "text": f"text {number} \x1b[31mred\x07",
        "emb": np.arange(4, dtype=np.float32) / 10,
        "tags": ["a", "b"][: number % 3],
    }
    return asyncrec.encode_example(features)


async def write_data(folder: str, **options: Any) -> None:
    """Write the data sets ``pages`` and ``zipped`` with 30 records in 3 shards each, and a plain file."""
    for name, compression in (("pages", ""), ("zipped", "GZIP")):
        async with asyncrec.open_sharded_writer(
            f"{folder}/{name}",
            max_shard_records=10,
            schema=SCHEMA,
            compression=compression,
            metadata={"made": "here"},
            **options,
        ) as writer:
            for number in range(30):
                await writer.write(example(number), key=f"key {number}")
    await asyncrec.write_records(f"{folder}/plain.tfrecord", [b"hello %d" % n for n in range(5)], **options)


def write_examples(folder: Path) -> None:
    """Write an input for every command: the data sets in ``data``, a damaged file, a table, and a folder of files."""
    anyio.run(write_data, str(folder / "data"))
    content = bytearray((folder / "data/plain.tfrecord").read_bytes())
    content[60] ^= 1
    (folder / "damaged.tfrecord").write_bytes(content)
    (folder / "table.csv").write_text("kind,n\n" + "a,1\nb,2\n" * 5)
    for name in "ab":
        for number in range(5):
            path = folder / "files" / name / f"{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")


@contextmanager
def no_rights(path: Path) -> Iterator[None]:
    """Make a file or folder inaccessible. Root, which may access everything, becomes another user in the meantime."""
    mode = path.stat().st_mode
    path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(mode)
