"""The operation of a joint job: tasks make shards in one or more attempts, and a driver commits the shards."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from asyncrec._shards.writing.detached_job import begin_detached_job
from asyncrec._shards.writing.joint_job import open_joint_job, open_share

from .book import Record
from .operations import operation
from .writing import BodyError, compression

__all__: list[str] = []


@operation("joint")
async def joint(world: Any, process: Any, spec: dict[str, Any]) -> None:
    options = {**spec["options"], "compression": compression(spec["options"]["compression"])}
    replaces = options["mode"] == "replace"
    run = world.book.begin(spec["path"], "whole", process, spec, world.loop.now, replaces=replaces)
    detached = options.pop("detached")
    opened = _detached(spec["path"], **options) if detached else open_joint_job(spec["path"], **options)
    async with world.running(run), opened as job:
        run.writer, run.opened = job.share.writer, world.loop.now
        if job.header is None if detached else job.committed is not None:
            run.replaces = False  # an earlier run with this id has replaced the data set, so this one does nothing
            return
        entries: list[Any] = []

        async def make(number: int, part: dict[str, Any]) -> None:
            records = [world.book.offer(run, number, part["size"], None) for _ in range(part["count"])]
            for attempt in part["attempts"]:
                made = await _made(job.share, number, records, attempt, spec["limits"])
                if attempt == "counts":
                    entries.extend(made)
                    for record in records:
                        record.state, record.ticket = "taken", record.number + 1

        async with anyio.create_task_group() as group:
            for number, part in enumerate(spec["parts"]):
                group.start_soon(make, number, part)
        run.leaving = world.loop.now
        world.timing.comes_to(process, "leaving")
        await job.commit(entries, records=len(run.records), **({"storage_options": None} if detached else {}))


@asynccontextmanager
async def _detached(path: str, *, take_over: bool, **options: Any) -> AsyncIterator[Any]:
    """Begin a detached job as Spark does. If the body fails, abandon the job from a copy, as another process would."""
    job = pickle.loads(pickle.dumps(await begin_detached_job(path, **options)))
    try:
        yield job
    except Exception:
        await job.give_up(storage_options=None)
        raise


async def _made(share: Any, number: int, records: list[Record], attempt: str, limits: dict[str, int]) -> list[Any]:
    """Return the shards of one attempt, or none if it failed. The caller does not commit a lost attempt's shards."""
    try:
        async with open_share(share, part=number, **limits) as writer:
            for at in range(0, len(records), 3):
                await writer.write([record.data for record in records[at : at + 3]])
            if attempt == "fails":
                raise BodyError
    except BodyError:
        return []
    return writer.entries
