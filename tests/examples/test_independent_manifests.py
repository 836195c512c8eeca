"""For any segments and checkpoints of a manifest, `examples/independent_reader.py` reads the same as asyncrec."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import independent_reader
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec import tools


class Segments:
    """Random but plausible segments, by three writers with a few paths."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.last = dict.fromkeys("abc", 0)
        self.ended: set[str] = set()
        self.shards: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.paths = [
            "p-00000-of-00001.tfrecord",
            *(f"p-{writer}-00000{n}.tfrecord" for writer in "ab" for n in (0, 1)),
        ]

    def time(self, second: int | None = None) -> str:
        second = self.draw.randrange(3) if second is None else second
        return f"2026-01-01T00:00:{second:02d}.000000Z"

    def sidecar(self, *paths: str) -> Any:
        path = self.draw.choice((None, *paths))
        return path and {"path": path, "bytes": self.draw.randrange(9), "crc32c": "00000000", "format": 1}

    def shard(self, writer: str) -> dict[str, Any]:
        path = self.draw.choice(self.paths)
        named = path.replace("p-0", f"p-{writer}-0")
        sizes = {"records": self.draw.randrange(3), "bytes": 64, "crc32c": f"{self.draw.randrange(3):08x}"}
        index = self.sidecar(f"_index/{path}.index", f"_index/{named}.index", f"_index/odd{self.draw.randrange(3)}")
        more = {"end_crc32c": "00000000", "index": index, "keys": self.sidecar(f"_keys/{named}.keys")}
        extra: dict[str, Any] = self.draw.choice(({}, {"largest": 300 << 20}, {"unknown": [1]}))
        shard = {"path": path, **sizes, **more, "committed": self.time(), "compression": "GZIP", **extra}
        # Segments may repeat a shard, but all agree about a shard that was committed once.
        return self.shards.setdefault((path, shard["committed"], *sizes.values()), shard)

    def segment(self, writer: str, *, closed: bool) -> str:
        abandoned = closed and self.draw.random() < 0.3
        added = [self.shard(writer) for _ in range(self.draw.randrange(4))]
        head = {
            "version": 1,
            "writer": writer,
            "time": self.time(self.last[writer]),
            "shards": len(added),
            "closed": closed,
        }
        if not abandoned:
            said = self.draw.choice(({}, {"m": self.draw.randrange(3)}, {"k": writer}))
            head |= {"remove": self.draw.sample(self.paths, self.draw.randrange(3)), "metadata": said}
        return "".join(json.dumps(line) + "\n" for line in (head | {"abandoned": abandoned}, *added))

    def add_to(self, folder: Path) -> None:
        """Add some new segments."""
        for writer in self.draw.choices("abc", k=self.draw.randrange(6)):
            if writer not in self.ended:
                self.last[writer] += 1
                closed = self.draw.random() < 0.3
                self.ended.update(writer * closed)
                path = folder / f"{writer}-{self.last[writer]:06d}.jsonl"
                path.write_text(self.segment(writer, closed=closed))


def compare_manifests(path: Path) -> bool:
    """Compare how both readers interpret a manifest; return whether it describes a data set."""
    try:
        commits = independent_reader.read_manifest(path.parent, path.name)
    except ValueError:
        with pytest.raises(asyncrec.errors.ObjectNotFoundError):
            anyio.run(asyncrec.read_manifest, path)
        return False
    said = independent_reader.described(commits, independent_reader.snapshot_of(commits))
    manifest = anyio.run(asyncrec.read_manifest, path)
    assert (said["id"], said["metadata"]) == (manifest.id, manifest.metadata)
    for told, entry in zip(said["shards"], manifest.shards, strict=True):
        assert (told["path"], told["committed"], told["writer"]) == (entry.path, entry.committed, told["writer"])
        for mine, theirs in ((told["index"], entry.index), (told["keys"], entry.keys)):
            assert (mine and (mine["path"], mine["bytes"])) == (theirs and (theirs.path, theirs.bytes))
    return True


@given(st.randoms(use_true_random=False))
def test_independent_reader_agrees_for_any_segments_and_checkpoints(draw: Random) -> None:
    segments = Segments(draw)
    with TemporaryDirectory() as folder:
        path = Path(folder, "p")
        manifest = Path(folder, "_manifest", "p")
        manifest.mkdir(parents=True)
        for _ in range(3):
            segments.add_to(manifest)
            if compare_manifests(path) and draw.random() < 0.8:
                anyio.run(partial(tools.compact, path, manifest_only=True))
                compare_manifests(path)
