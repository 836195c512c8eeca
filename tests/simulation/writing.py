"""Operations that write: sharded writers of every kind, files, and `DatasetWriter`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import anyio

import asyncrec
from asyncrec._framing.compression import CompressionOptions

from . import seen
from .book import Record, Run
from .operations import operation

__all__ = ["BodyError", "compression"]


class BodyError(Exception):
    """Raised by simulated user code within a writer's context."""


class _Refusal(Exception):
    """Raised by a simulated user's `partition_by`."""


def compression(kind: str) -> Any:
    return CompressionOptions(type="GZIP", member_bytes=1000) if kind == "members" else kind


@operation("sharded")
async def sharded(world: Any, process: Any, spec: dict[str, Any]) -> None:
    options = dict(spec["options"])
    options["compression"] = compression(options.get("compression", ""))
    options.update(seen.options_of(spec))
    fixed = "num_shards" in options
    if spec.get("partition_by"):
        options["partition_by"] = _partition_by
    run = world.book.begin(
        spec["path"],
        "fixed" if fixed else "rolling",
        process,
        spec,
        world.loop.now,
        replaces=options.get("mode") == "replace",
        skips=options.get("on_duplicate") == "skip",
        one_shard=not fixed and options.get("open_shards", 1) == 1,
    )
    async with world.running(run):
        async with asyncrec.open_sharded_writer(spec["path"], **options) as writer:
            run.opened = world.loop.now
            run.writer = writer.writer_id
            async with anyio.create_task_group() as group:
                for number, actions in enumerate(spec["tasks"]):
                    group.start_soon(_act, world, run, writer, number, actions)
            run.leaving = world.loop.now
            world.timing.comes_to(process, "leaving")
        stats = writer.stats()
        if stats.buffered_bytes or stats.reserved_bytes:
            world.book.complain("room is given back", f"{stats.buffered_bytes} + {stats.reserved_bytes} bytes are not")


def _partition_by(record: bytes) -> int:
    if record.endswith(b"!"):
        raise _Refusal
    return record[-1]


async def _act(world: Any, run: Run, writer: Any, task: int, actions: list[list[Any]]) -> None:
    for what, *arguments in actions:
        match what:
            case "write":
                await _write(world, run, writer, task, *arguments)
            case "many":
                await _write_many(world, run, writer, task, *arguments)
            case "flush":
                last = run.flushes()
                world.timing.comes_to(run.process, "flushing")
                async with Limited(arguments[0] if arguments else None) as limit:
                    level = await writer.flush()
                if not limit.ran_out:
                    run.promise("committed" if level == "committed" else level, last, world.loop.now)
            case "commit":
                last = run.last_ticket
                async with Limited(arguments[0] if arguments else None) as limit:
                    await writer.commit()
                if not limit.ran_out:
                    run.promise("committed", last, world.loop.now)
            case "wait":
                level, limit_of = arguments
                last = run.flushes()
                world.timing.comes_to(run.process, "flushing")
                async with Limited(limit_of) as limit:
                    await writer.wait(last, level)
                if not limit.ran_out:
                    run.promise(level, last, world.loop.now)
            case "sleep":
                await anyio.sleep(arguments[0])
            case "hold":
                run.process.hold(world.loop.now, arguments[0])
                world.timing.comes_to(run.process, "holding")
                await anyio.sleep(arguments[0])
            case "bad":
                with contextlib.suppress(TypeError):
                    await writer.write("no bytes")
            case "fail":
                raise BodyError
        check_memory(world, writer)


def check_memory(world: Any, writer: Any) -> None:
    stats = writer.stats()
    if hasattr(stats, "memory_limit") and stats.buffered_bytes > stats.memory_limit:
        world.book.complain("memory is bounded", f"{stats.buffered_bytes} of {stats.memory_limit} bytes are held")


async def _write(
    world: Any, run: Run, writer: Any, task: int, size: int, key: str | None, options: dict[str, Any]
) -> None:
    keyed = None if key is None else key.encode()
    record = world.book.offer(run, task, size, keyed)
    if options.get("raises"):
        record.data += b"!"
    given: dict[str, Any] = {}
    if keyed is not None:
        given["key"] = keyed
        world.timing.comes_to(run.process, "first key")
    if "partition" in options:
        given["partition"] = options["partition"]
    ticket = None
    form = _form(record.data, options)
    if "bodies" in run.spec:
        form = seen.page_of(record, f"http://{run.number}/{task}/{key or record.number}")
        given.pop("key", None)
        keyed = record.key
    try:
        async with Limited(options.get("limit")):
            ticket = await writer.write(form, **given)
    except _Refusal:
        pass
    except BaseException:
        if process_lives(run):
            record.state = "refused"
        raise
    if ticket is None:
        record.state = "refused"
        if run.skips and keyed is not None and writer.has(keyed) and not _known(world, record):
            world.book.complain("a refusal takes no key", f"record {record.number} was refused, its key is known")
    elif ticket in run.tickets:
        record.state = "dropped"
    else:
        _taken(world, run, record, ticket)


def process_lives(run: Run) -> bool:
    return not run.process.dead


def _form(data: bytes, options: dict[str, Any]) -> Any:
    return bytearray(data) if options.get("mutable") else data


def _known(world: Any, record: Record) -> bool:
    return any(other.key == record.key and other is not record for other in world.book.records)


def _taken(world: Any, run: Run, record: Record, ticket: int) -> None:
    run.tickets.add(ticket)
    record.state, record.ticket, record.taken = "taken", ticket, world.loop.now


async def _write_many(
    world: Any, run: Run, writer: Any, task: int, count: int, size: int, options: dict[str, Any]
) -> None:
    records = [world.book.offer(run, task, size, None) for _ in range(count)]
    forms: list[Any] = [record.data for record in records]
    if "bodies" in run.spec:
        forms = [seen.page_of(record, f"http://{run.number}/{task}/{record.number}") for record in records]
    given = {"partition": options["partition"]} if "partition" in options else {}
    done = False
    async with Limited(options.get("limit")):
        last = await writer.write_many(forms, **given)
        done = True
    if done:
        # Others may have written while this call waited, but tickets increase in any case.
        for number, record in enumerate(records):
            _taken(world, run, record, (last or 0) - count + 1 + number)


class Limited:
    """A time limit: ``["anyio", seconds]`` cancels with anyio, ``["asyncio", seconds]`` with ``Task.cancel()``."""

    def __init__(self, limit: list[Any] | None) -> None:
        self.ran_out = False
        self._scope: Any = None
        if limit is not None:
            how, seconds = limit
            self._scope = anyio.move_on_after(seconds) if how == "anyio" else asyncio.timeout(seconds)

    async def __aenter__(self) -> Limited:
        if isinstance(self._scope, anyio.CancelScope):
            self._scope.__enter__()
        elif self._scope is not None:
            await self._scope.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool:
        if isinstance(self._scope, anyio.CancelScope):
            left = self._scope.__exit__(*error)
            self.ran_out = self._scope.cancelled_caught
            return bool(left)
        if self._scope is not None:
            try:
                await self._scope.__aexit__(*error)
            except TimeoutError:
                self.ran_out = True
                return True
        return False


@operation("file")
async def file(world: Any, process: Any, spec: dict[str, Any]) -> None:
    run = world.book.begin(spec["path"], "file", process, spec, world.loop.now, replaces=spec["mode"] == "w")
    async with world.running(run):
        async with asyncrec.open_writer(spec["path"], mode=spec["mode"], compression=spec["compression"]) as writer:
            run.opened = world.loop.now
            async with anyio.create_task_group() as group:
                for number, actions in enumerate(spec["tasks"]):
                    group.start_soon(_act_on_file, world, run, writer, number, actions)
            run.leaving = world.loop.now
            world.timing.comes_to(process, "leaving")


async def _act_on_file(world: Any, run: Run, writer: Any, task: int, actions: list[list[Any]]) -> None:
    for what, *arguments in actions:
        if what == "write":
            record = world.book.offer(run, task, arguments[0], None)
            taken = False
            try:
                async with Limited(arguments[2].get("limit")):
                    await writer.write(record.data)
                    taken = True
            except BaseException:
                if process_lives(run):
                    record.state = "refused"
                raise
            if taken:
                _taken(world, run, record, len(run.tickets) + 1)
            else:
                record.state = "refused"
        elif what == "flush":
            last = run.last_ticket
            async with Limited(arguments[0] if arguments else None) as limit:
                level = await writer.flush()
            if not limit.ran_out:
                run.promise(level, last, world.loop.now)
        elif what == "sleep":
            await anyio.sleep(arguments[0])
        elif what == "fail":
            raise BodyError


@operation("split")
async def split(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Write the split ``pages`` of a folder with `DatasetWriter`."""
    folder, _, name = spec["path"].rpartition("/")
    run = world.book.begin(spec["path"], "whole", process, spec, world.loop.now, replaces=True)
    records = [world.book.offer(run, 0, spec["size"], b"%d-%d" % (run.number, n)) for n in range(spec["count"])]

    def generate(**_: Any) -> Any:
        for record in records:
            yield record.key.decode(), {"data": [record.data]}

    async with world.running(run):
        writer = asyncrec.DatasetWriter(
            generate,
            lambda example: example["data"][0],
            folder,
            name,
            num_shards=spec["num_shards"],
            memory_limit=spec["memory_limit"],
            temporary_folder=f"/{process.machine.name}/tmp",
            progress=False,
        )
        run.opened = world.loop.now
        for number, record in enumerate(records):
            _taken(world, run, record, number + 1)
        run.leaving = world.loop.now
        world.timing.comes_to(process, "leaving")
        await writer.create_records()
