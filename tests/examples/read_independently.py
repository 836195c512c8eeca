"""Helpers shared by the tests of `examples/independent_reader.py`: running it, and writing data sets for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from crc32c import crc32c

import asyncrec

ROOT = Path(__file__).parents[2]
READER = ROOT / "examples" / "independent_reader.py"
DATASETS = ROOT / "tests" / "vectors" / "datasets"
NOW = "2026-11-27T00:00:00.000000Z"
SCHEMA = {"id": asyncrec.FixedLen((), "int64")}


async def run(*args: object) -> tuple[list[Any], str]:
    """Run the reader with only Python's standard library; return the values it prints and the reason for a refusal."""
    done = await anyio.run_process([sys.executable, "-P", "-I", "-S", READER, *map(str, args)], check=False)
    said = done.stderr.decode()
    assert (done.returncode, said[:8]) in ((0, ""), (1, "refused:")), said
    return [json.loads(line) for line in done.stdout.splitlines()], said


async def read(*args: object) -> list[Any]:
    lines, refused = await run(*args)
    assert not refused
    return lines


def records_in(lines: Sequence[Any]) -> list[bytes]:
    return [bytes.fromhex(line["record"]) for line in lines]


async def write(path: Path, numbers: range, *, keyless: int = -1, **options: Any) -> list[str]:
    """Write examples with their numbers as keys, except for one without a key; return the keys."""
    async with asyncrec.open_sharded_writer(path, schema=SCHEMA, **options) as writer:
        for number in numbers:
            await writer.write({"id": number}, key=None if number == keyless else str(number))
    return [str(number) for number in numbers if number != keyless]


def list_files(folder: Path, files: dict[str, tuple[bytes, int, str]]) -> Path:
    """Make a data set of files with the given contents, numbers of records and compressions, as the page describes."""
    lines: list[Any] = [{"version": 1, "writer": "w1", "time": NOW, "shards": len(files), "closed": True}]
    for name, (content, records, compression) in files.items():
        (folder / name).write_bytes(content)
        sums = {"crc32c": f"{crc32c(content):08x}", "end_crc32c": f"{crc32c(content[-4096:]):08x}"}
        sizes = {"records": records, "bytes": len(content)}
        lines.append({"path": name, **sizes, **sums, "compression": compression, "committed": NOW})
    segment = folder / "_manifest" / "pages" / "w1-000001.jsonl"
    segment.parent.mkdir(parents=True)
    segment.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "pages"
