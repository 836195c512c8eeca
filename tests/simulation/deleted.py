"""A theme in which processes delete records by key while others write, merge, recover, replace and delete."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import anyio

import asyncrec
from asyncrec import tools
from asyncrec._shards.writing.keys import key_digest
from asyncrec.errors import StorageError

from . import contents
from .book import Deletion, Record, identity
from .bystanders import bystanders, elsewhere
from .cast import writer
from .operations import Drawing, operation, theme

__all__ = ["traces"]

# Keys are divided into this many shares, and each deletion deletes the keys of one share.
_SHARES = 3


@theme("deleted", 1.5)
def deleted(drawing: Drawing) -> None:
    """Draw writers with keys, and processes that repeatedly delete some of these keys."""
    rng = drawing.rng
    path = drawing.target(local=rng.random() < 0.5)
    drawing.plan["settings"]["knobs"]["asyncrec.tools._delete:_PIECE_SHARDS"] = rng.choice((1, 2, 256))
    fixed = rng.random() < 0.15
    start = 0.0
    for _ in range(1 if fixed else rng.choice((1, 2, 3))):
        mode = "append" if fixed or rng.random() < 0.9 else "replace"
        drawing.process(writer(drawing, path, fixed=fixed, mode=mode), start=start, machine=elsewhere(drawing, path))
        start += rng.choice((0.5, 5.0, drawing.later()))
    for _ in range(rng.choice((1, 1, 2, 3))):
        pauses = [rng.choice((0.0, 1.0, 30.0, 700.0)) for _ in range(rng.randint(1, 4))]
        spec = {"kind": "delete", "path": path, "share": rng.randrange(_SHARES), "pauses": pauses}
        begin = rng.choice((1.0 + rng.random(), 30 * rng.random(), drawing.later(), start + 1.0))
        drawing.process(spec, start=begin, machine=elsewhere(drawing, path))
    bystanders(drawing, path)


@operation("delete")
async def delete(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Delete a share of the keys of all writers, and then check the data set."""
    path, book = spec["path"], world.book
    for pause in spec["pauses"]:
        offered = {record.key for record in book.records if record.run.target == path and record.key is not None}
        keys = frozenset(key for key in offered if zlib.crc32(key) % _SHARES == spec["share"])
        if keys:
            deletion = Deletion(path, keys, world.loop.now)
            book.deletions.append(deletion)
            with contextlib.suppress(StorageError):  # no data set yet; a store failure; a conflict with another process
                report = await tools.delete(path, keys=sorted(keys))
                deletion.ended = world.loop.now
                if not report.unfinished and not report.uncommitted and not world.settings["late"]:
                    for trace in _traces(world, path, filter(deletion.must_have, book.records)):
                        if not trace.partition(":")[0].endswith(".run"):  # left for a compaction in progress to delete
                            book.complain("a receipt names all that is left", f"{path}: {trace}")
                await _look(world, deletion)
        await anyio.sleep(pause)


async def _look(world: Any, deletion: Deletion) -> None:
    """Check that a reader that opens the data set now gets no record that the deletion must have deleted."""
    async with asyncrec.open_dataset(deletion.target) as dataset:
        async for data in dataset:
            number = identity(data)
            if number is not None and deletion.must_have(world.book.records[number]):
                world.book.complain("what was deleted is not found", f"{deletion.target}: record {number}")


def traces(world: Any, path: str) -> Iterator[str]:
    """Yield the places in uncompressed files where bytes of a deleted record or its key remain."""
    return _traces(world, path, [each for each in world.book.records if world.book.must_be_deleted(each)])


def _traces(world: Any, path: str, records: Iterable[Record]) -> Iterator[str]:
    files = contents.tree(world, path.rpartition("/")[0])
    gone = [record for record in records if record.run.target == path]
    stays = {record.key for record in world.book.records if record not in gone}
    for record in gone:
        wanted = [b"<<%d>>" % record.number]
        if record.key is not None and record.key not in stays:
            wanted.append(key_digest(record.key))
        for key, content in files.items():
            if any(each in content for each in wanted):
                yield f"{key}: record {record.number}"
