"""Checks that the tests of several stores share."""

from __future__ import annotations

import pickle
import random
import traceback
from collections.abc import Callable, Mapping

import anyio

from asyncrec.errors import StorageError
from asyncrec.storage import Storage
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.testing._checks import content, receive_all, send_all

__all__ = ["everything", "write_much"]


async def write_much(storage: Storage, seed: int, *, unit: int, calm: Callable[[], None]) -> Mapping[str, bytes]:
    """Write 60 exclusive objects of all sizes, eight at a time, to a failing store, and read each one back.

    Check that at most one write fails in the end, and that the objects listed after ``calm`` has stopped the faults are
    those that the writers know of. Return the objects that must exist.
    """
    draw = random.Random(seed)
    bodies = {
        f"shard-{n:03}": content(draw.choice([0, 1, unit, 2 * unit, draw.randrange(6 * unit)]), n) for n in range(60)
    }
    wrote: dict[str, object] = {}
    failed: list[str] = []
    limiter = anyio.CapacityLimiter(8)

    async def one(key: str, data: bytes) -> None:
        async with limiter:
            try:
                async with storage.open_sink(key, exclusive=True) as sink:
                    await send_all(sink, data)
                wrote[key] = sink.published
            except StorageError:
                failed.append(key)
                return
            async with ResumingSource(storage, key, read_ahead=2 * unit) as source:
                assert await receive_all(source) == data

    async with anyio.create_task_group() as group:
        for key, data in bodies.items():
            group.start_soon(one, key, data)
    calm()
    listed = {info.key: info async for info in storage.list_objects()}
    assert listed == wrote
    # Each request is tried ten times; with one attempt in four failing, hardly any request exhausts them.
    assert len(failed) <= 1
    return {key: bodies[key] for key in wrote}


def everything(error: BaseException) -> str:
    """Return all text that might be logged about an error, including its entire chain."""
    texts, todo, seen = [], [error], set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        texts += [str(one), repr(one), repr(one.args), repr(vars(one)), "".join(traceback.format_exception(one))]
        try:
            texts.append(repr(pickle.dumps(one)))
        except (pickle.PicklingError, TypeError, AttributeError) as reason:
            texts.append(str(reason))
        todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return "\n".join(texts)
