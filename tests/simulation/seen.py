"""A theme in which writers write pages with few distinct bodies, so that many pages are stored as revisits."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import asyncrec
from asyncrec import pages

from .book import Record, identity
from .bystanders import bystanders, compactor, elsewhere
from .cast import writer
from .operations import Drawing, theme

__all__ = ["look", "options_of", "page_of"]


@theme("seen", 1.5)
def seen(drawing: Drawing) -> None:
    """Draw rolling writers of pages that die and are restarted, processes that merge, and a last one that deletes."""
    rng = drawing.rng
    where = rng.choice(("local", "local", "spool", "store", "store"))
    path = drawing.target(local=where == "local")
    start = 0.0
    for number in range(rng.choice((1, 2, 2, 3))):
        spool = f"/m0/{path.split('/')[-2]}-spool{number}" if where == "spool" else None
        spec = writer(drawing, path, fixed=False, spool=spool)
        spec.pop("partition_by", None)
        spec["bodies"] = rng.choice((1, 3, 10))
        if rng.random() < 0.7:
            spec["options"].pop("on_duplicate", None)
        if rng.random() < 0.4:  # a revisit and its body may be in two shards, either of which may end first
            spec["options"].update(open_shards=rng.choice((2, 4)), max_shard_records=rng.choice((1, 2, 3)))
        machine = "m0" if spool is not None else elsewhere(drawing, path)
        drawing.process(spec, start=start, machine=machine)
        start += rng.choice((0.5, 5.0, 60.0, drawing.later()))
    for _ in range(rng.choice((0, 1, 1))):
        compactor(drawing, path, "m0")
    if rng.random() < 0.4:
        pauses = [rng.choice((0.0, 30.0)) for _ in range(rng.randint(1, 3))]
        spec = {"kind": "delete", "path": path, "share": rng.randrange(3), "pauses": pauses}
        drawing.process(spec, start=200_000.0, machine=elsewhere(drawing, path))
    bystanders(drawing, path)


def options_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a writer of pages, or none for other writers."""
    return {"schema": pages.PAGE, "key_feature": "url", "seen": "digest"} if "bodies" in spec else {}


def page_of(record: Record, url: str) -> dict[str, Any]:
    """Return the page for a record, with a feature that identifies the record even in a revisit."""
    record.key, record.data = url.encode(), b"<<%d>>" % record.number
    content = _body(record)
    return {
        "url": url,
        "date": "2026-11-28T00:00:00Z",
        "status": 200,
        "content": content,
        "content_type": record.data.decode(),
        "digest": pages.payload_digest(content),
    }


def _body(record: Record) -> bytes:
    return b"body %d" % (record.number % record.run.spec["bodies"]) * 20


async def look(world: Any, path: str) -> None:
    """Check that each page has its body, and that a writer that ended cleanly stored each body only once."""
    runs = [run for run in world.book.of(path) if "bodies" in run.spec]
    try:
        manifest = await asyncrec.read_manifest(path) if runs else None
    except asyncrec.ObjectNotFoundError:
        manifest = None
    if manifest is None or world.settings["damaging"]:
        return
    whole: Counter[tuple[int, bytes]] = Counter()
    async with asyncrec.open_dataset(manifest) as dataset:
        found = [page async for page in dataset.examples()]
        for page in found:
            record = world.book.records[identity(page["content_type"].encode()) or 0]
            try:
                content = (await pages.resolve(dataset, page))["content"]
            except KeyError:
                content = None
            if content != _body(record) and not _was_deleted_meanwhile(world, record):
                world.book.complain("a revisit has its body", f"{path}: record {record.number}")
            if not pages.is_revisit(page):
                whole[record.run.number, page["content"]] += 1
    deleted = any(deletion.target == path for deletion in world.book.deletions)
    for (number, body), times in whole.items():
        run = world.book.runs[number]
        partitions = '"partition"' in json.dumps(run.spec["tasks"])
        if times > 1 and run.outcome == "clean" and not partitions and not deleted:
            world.book.complain("a body is stored once", f"{path}: {body[:8]!r} of run {number} {times} times")
    _sizes(world, path, manifest)


def _was_deleted_meanwhile(world: Any, record: Record) -> bool:
    """Return whether a deletion began before all writers' records were committed. Writers do not notice deletions.

    The records of a writer that failed or died may be committed by a later recovery.
    """
    ended = [run.ended if run.outcome == "clean" else None for run in world.book.of(record.run.target)]
    return any(
        deletion.target == record.run.target and any(end is None or end > deletion.asked for end in ended)
        for deletion in world.book.deletions
    )


def _sizes(world: Any, path: str, manifest: Any) -> None:
    """Check that the keys files also contain the digests of contents."""
    for shard in manifest.shards:
        if shard.keys is not None and shard.keys.bytes != 32 * shard.records:
            world.book.complain("contents stand beside the keys", f"{path}: {shard.path}")
