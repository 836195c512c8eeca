"""After a world: it is recovered, time passes, and what is there is compared with what was told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError

from . import contents, judgement
from .tooling import make

__all__ = ["examine"]

_DAY = 86_400.0


def _specs(world: Any) -> Iterator[dict[str, Any]]:
    for part in world.plan["processes"]:
        yield from ({"machine": part["machine"], **spec} for spec in part["operations"])


def _machine(path: str) -> str:
    return path.split("/")[1] if path.startswith("/") else "m0"


async def examine(world: Any) -> None:
    datasets = dict.fromkeys(
        spec["path"] if "path" in spec else spec["target"]
        for spec in _specs(world)
        if spec["kind"] in ("sharded", "split") or (spec["kind"] == "make" and spec["tool"] != "repair")
    )
    spools = dict.fromkeys(
        spec["options"]["spool"] for spec in _specs(world) if spec["kind"] == "sharded" and "spool" in spec["options"]
    )
    await _recover_all(world, [*spools, *datasets])
    await asyncio.sleep(1200.0)  # what is published and in no manifest may have been under way
    await _recover_all(world, [*spools, *datasets])
    await _make_again(world)
    for path in datasets:
        await _look(world, path, verified=True)
    for spec in _specs(world):
        if spec["kind"] == "make" and spec["tool"] == "repair":
            judgement.of_file(world, spec["target"], contents.tree(world, spec["target"].rpartition("/")[0]))
    for path in dict.fromkeys(spec["path"] for spec in _specs(world) if spec["kind"] == "file"):
        await _look_at_file(world, path)
    if world.book.complaints:
        return
    await asyncio.sleep(3 * _DAY)
    for path in dict.fromkeys([*datasets, *spools]):
        await world.do(f"uploads {path}", _machine(path), partial(_tidy, path, path in datasets))
    for path in datasets:
        await _look(world, path, verified=False)
    judgement.of_leftovers(world, list(datasets), list(spools))


async def _recover_all(world: Any, paths: list[str]) -> None:
    for path in paths:
        await world.do(f"recover {path}", _machine(path), partial(_recover, path))


async def _recover(path: str) -> None:
    with contextlib.suppress(
        ObjectExistsError
    ):  # documented: shards that belong together, whose names others have taken
        await asyncrec.recover(path)


async def _tidy(path: str, is_dataset: bool) -> None:
    folder = path.rpartition("/")[0] if is_dataset else path
    await tools.uploads(folder + "/", remove=True)
    if is_dataset:
        with contextlib.suppress(ObjectNotFoundError):
            await tools.verify(path, delete=True)


async def _make_again(world: Any) -> None:
    """A tool that was killed or failed is run again, and succeeds."""
    done = set()
    for spec in _specs(world):
        if spec["kind"] != "make" or spec["target"] in done:
            continue
        done.add(spec["target"])
        if any(run.outcome == "clean" for run in world.book.of(spec["target"])):
            continue
        run = world.book.begin(spec["target"], "whole", None, spec, world.loop.now)

        async def again(spec: dict[str, Any] = spec, run: Any = run) -> None:
            try:
                await make(spec, spec["machine"])
            except ObjectExistsError:
                if not _is_there(world, spec["target"]):
                    raise
            run.outcome = "clean"

        await world.do(f"{spec['tool']} again", _machine(spec["target"]), again)


def _is_there(world: Any, target: str) -> bool:
    folder, _, name = target.rpartition("/")
    files = contents.tree(world, folder)
    return name in files or any(key.startswith(f"_manifest/{name}/") for key in files)


async def _look(world: Any, path: str, *, verified: bool) -> None:
    found: dict[str, Any] = {}

    async def read() -> None:
        try:
            found["manifest"] = await asyncrec.read_manifest(path)
        except ObjectNotFoundError:
            found["manifest"] = None
        if verified and found["manifest"] is not None:
            found["verified"] = await tools.verify(path)

    await world.do(f"look {path}", _machine(path), read)
    if "manifest" not in found:
        return
    folder = path.rpartition("/")[0]
    manifest = found["manifest"]
    shards = contents.shards_of(contents.tree(world, folder), manifest) if manifest is not None else []
    judgement.of_dataset(world, path, shards)
    report = found.get("verified")
    if report is not None:
        wrong = [problem for shard in shards for problem in shard.problems] + judgement.wrong_keys(world, shards)
        if report.ok and wrong:
            world.book.complain("verify tells the truth", f"{path}: it says ok, and {wrong[0]}")
        elif not report.ok and not wrong:
            world.book.complain("verify tells the truth", f"{path}: it is not ok: {report.to_json()}"[:400])


async def _look_at_file(world: Any, path: str) -> None:
    spec = next(spec for spec in _specs(world) if spec["kind"] == "file" and spec["path"] == path)
    if spec["mode"] == "a" and any(run.opened is not None for run in world.book.of(path)):

        async def open_again() -> None:
            async with asyncrec.open_writer(path, mode="a", compression=spec["compression"]):
                pass

        await world.do(f"open {path}", _machine(path), open_again)
    judgement.of_file(world, path, contents.tree(world, path.rpartition("/")[0]))
