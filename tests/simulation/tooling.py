"""Operations that run tools, which make a target from a source or clean up."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectNotFoundError

from .operations import operation
from .writing import compression

__all__ = ["MAKERS", "make"]

# Whether each tool makes its target all at once. If not, the target grows, and running the tool again completes it.
MAKERS = {"reshard": True, "convert": False, "copy": True, "repair": True}


async def make(spec: dict[str, Any], machine: str) -> None:
    """Run the tool once."""
    options = dict(spec["options"])
    if "compression" in options:
        options["compression"] = compression(options["compression"])
    if options.pop("spills", False):
        options["temporary_folder"] = f"/{machine}/tmp"
        options["memory_limit"] = 2000
    await getattr(tools, spec["tool"])(spec["source"], spec["target"], **options)


@operation("make")
async def make_target(world: Any, process: Any, spec: dict[str, Any]) -> None:
    kind = "whole" if MAKERS[spec["tool"]] else "resumed"
    run = world.book.begin(spec["target"], kind, process, spec, world.loop.now)
    async with world.running(run):
        run.opened = run.leaving = world.loop.now
        world.timing.comes_to(process, "leaving")
        await make(spec, process.machine.name)


@operation("recover")
async def recover(world: Any, process: Any, spec: dict[str, Any]) -> None:
    with contextlib.suppress(ObjectNotFoundError):  # no job has begun
        await asyncrec.recover(spec["path"], to=spec.get("to"))
    if not (gives_up := spec.get("gives_up")):
        return
    # Declare writers dead, as an operator would, who may be wrong. A writer that is proven alive is not affected.
    for run in world.book.of(spec["target"]):
        if run.writer and run.ended is None and (gives_up == "any" or run.process.dead):
            gives_up_now = not (spec.get("says_dead") and run.flushes_to_store)
            run.given_up += gives_up_now
            how = {"dead": [run.writer]} if spec.get("says_dead") else {"abandon": [run.writer]}
            try:
                await asyncrec.recover(spec["path"], to=spec.get("to"), **how)
            except ObjectNotFoundError:
                run.given_up -= gives_up_now
            except ConflictError as error:
                run.given_up += ("is still running" not in str(error)) - gives_up_now


@operation("verify")
async def verify(world: Any, process: Any, spec: dict[str, Any]) -> None:
    await tools.verify(spec["path"], **spec["options"])


@operation("compact")
async def compact(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Merge the manifest repeatedly while others work. Segments merged at least a minute earlier are deleted."""
    for pause in spec["pauses"]:
        with contextlib.suppress(ObjectNotFoundError):
            await tools.compact(spec["path"], grace=spec["grace"], manifest_only=True)
        await anyio.sleep(pause)


@operation("uploads")
async def uploads(world: Any, process: Any, spec: dict[str, Any]) -> None:
    await tools.uploads(spec["path"], remove=True)
