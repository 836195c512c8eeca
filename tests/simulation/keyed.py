"""A theme in which processes repeatedly merge a manifest while writers with keys run; then keys are looked up."""

from __future__ import annotations

import json
import zlib
from typing import Any

import asyncrec
from asyncrec._shards.writing.keys import key_digest

from . import contents
from .book import identity
from .bystanders import compactor
from .cast import writer
from .operations import Drawing, theme

__all__ = ["look_up", "unnamed_runs"]


@theme("keys", 1.0)
def keys(drawing: Drawing) -> None:
    """Draw rolling writers that skip known keys, processes that merge, and sometimes a writer that replaces all."""
    rng = drawing.rng
    path = drawing.target(local=rng.random() < 0.3)
    start = 0.0
    for _ in range(rng.choice((2, 3, 4, 5))):
        spec = writer(drawing, path, fixed=False, mode="replace" if rng.random() < 0.15 else "append")
        drawing.process(spec, start=start)
        start += rng.choice((2.0, 20.0, drawing.later()))
    machine = path.split("/")[1] if path.startswith("/") else "m0"
    for _ in range(rng.choice((1, 2, 3))):
        compactor(drawing, path, machine)


async def look_up(world: Any, path: str) -> None:
    """Check that looking up a key returns the first record with this key in the shards' own keys files."""
    try:
        manifest = await asyncrec.read_manifest(path)
    except asyncrec.ObjectNotFoundError:
        return
    first: dict[bytes, bytes] = {}
    for shard in contents.shards_of(contents.tree(world, path.rpartition("/")[0]), manifest):
        if shard.problems:
            return  # `judgement` reports these problems
        for record, digest in zip(shard.records, shard.keys or (), strict=False):
            first.setdefault(digest, record)
    wanted = dict.fromkeys(record.key for record in world.book.records if record.key is not None)
    async with asyncrec.open_dataset(manifest) as dataset:
        for key in wanted:
            expected = first.get(key_digest(key))
            try:
                found = await dataset.get_by_key(key)
            except KeyError:
                found = None
            if found != expected:
                said = [None if each is None else identity(each) for each in (found, expected)]
                world.book.complain("a key finds its first record", f"{path}: {key!r} finds {said[0]}, not {said[1]}")


def unnamed_runs(files: dict[str, bytes]) -> list[str]:
    """Return the runs of keys among a manifest's objects that none of its checkpoints names."""
    named = {
        run["name"]
        for key, data in files.items()
        if key.endswith(".jsonl.gz")
        for run in json.loads(zlib.decompressobj(31).decompress(data))["runs"]  # the first line is a GZIP member
    }
    return [key for key in files if key.endswith(".run") and key.rpartition("/")[2] not in named]
