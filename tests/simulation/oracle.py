"""At a world's end, recover everything, let time pass, and compare the contents with the promises that were made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.names import manifest_prefix, segment_of
from asyncrec._shards.manifest.segment import parse_segment
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError

from . import contents, deleted, judgement, keyed, queues, seen
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
        if spec["kind"] in ("sharded", "split", "joint", "consume")
        or (spec["kind"] == "make" and spec["tool"] != "repair")
    )
    spools = _spools(world)
    await _recover_all(world, [*spools, *datasets])
    await asyncio.sleep(1200.0)  # wait for late effects of unanswered requests
    await _recover_all(world, [*spools, *datasets])
    for path in datasets:
        await _give_up_unproven(world, path, [spool for spool in spools if _target_of(world, spool) == path])
    await _make_again(world)
    for path in datasets:
        judgement.of_endings(world, path)
        await _look(world, path, verified=True)
    for spec in _specs(world):
        if spec["kind"] == "make" and spec["tool"] == "repair":
            judgement.of_file(world, spec["target"], contents.tree(world, spec["target"].rpartition("/")[0]))
    for path in dict.fromkeys(spec["path"] for spec in _specs(world) if spec["kind"] == "file"):
        await _look_at_file(world, path)
    if world.book.complaints:
        return
    for path in datasets:
        await _compact(world, path)
    await asyncio.sleep(3 * _DAY)
    for path in dict.fromkeys([*datasets, *spools]):
        await world.do(f"uploads {path}", _machine(path), partial(_tidy, path, path in datasets))
    manifests = {path: await _look(world, path, verified=False) for path in datasets}
    judgement.of_leftovers(world, manifests, list(spools))
    for path in datasets:
        for trace in deleted.traces(world, path):
            world.book.complain("no byte of what was deleted is left", f"{path}: {trace}")


async def _compact(world: Any, path: str) -> None:
    """Merge the manifest, and check that the data set is unchanged and no stray checkpoints or runs are left."""
    found: dict[str, Any] = {}

    async def compact() -> None:
        for _ in range(2):
            with contextlib.suppress(ObjectNotFoundError):
                before = await asyncrec.read_manifest(path)
                found["report"] = report = await tools.compact(path, grace=60.0, manifest_only=True)
                after = await asyncrec.read_manifest(path)
                if before != after or report.id != before.id:
                    world.book.complain("a checkpoint says what its segments said", f"{path}: {report}")
            await asyncio.sleep(100.0)
        await keyed.look_up(world, path)
        await seen.look(world, path)

    await world.do(f"look up {path}", _machine(path), partial(keyed.look_up, world, path))
    await world.do(f"compact {path}", _machine(path), compact)
    if (report := found.get("report")) is not None and report.written:
        below = contents.tree(world, f"{path.rpartition('/')[0]}/_manifest/{path.rpartition('/')[2]}")
        columns = [key for key in below if key.endswith(".jsonl.gz")]
        if len(columns) > 2:
            world.book.complain("nobody's checkpoint is left", f"{path}: {columns}")
        if runs := keyed.unnamed_runs(below):
            world.book.complain("nobody's run of keys is left", f"{path}: {runs}")


async def _recover_all(world: Any, paths: list[str]) -> None:
    for path in paths:
        for machine in _machines(world, path):
            await world.do(f"recover {path}", machine, partial(_recover, world, path))


def _machines(world: Any, path: str) -> list[str]:
    """Return the machines that may be able to prove a writer of this path dead."""
    if path.startswith("/"):
        return [_machine(path)]
    return sorted({"m0", *(part["machine"] for part in world.plan["processes"])})


async def _recover(world: Any, path: str) -> None:
    to = _spools(world).get(path)
    try:
        with contextlib.suppress(ObjectNotFoundError):  # no job had begun
            await asyncrec.recover(path, to=to)
    except ConflictError:
        # Some jobs were abandoned elsewhere but still have files here. Declare them dead again, as an operator would.
        given_up = _given_up_here(world, path)
        if not given_up:
            raise
        await asyncrec.recover(path, to=to, abandon=given_up)


def _given_up_here(world: Any, path: str) -> list[str]:
    """Return the writers that have a header on the disk and a tombstone in the manifest."""
    folder = path if path in _spools(world) else path.rpartition("/")[0]
    target = _target_of(world, path)
    name = target.rpartition("/")[2]
    below = contents.tree(world, target.rpartition("/")[0])
    notes = [key for key in contents.tree(world, folder) if key.startswith(f".{name}.") and key.endswith(".partial")]
    writers = [key[len(name) + 2 : -len(".partial")] for key in notes]
    prefix = manifest_prefix(name)
    logs = {found[0]: key for key in sorted(below) if (found := segment_of(key.removeprefix(prefix)))}
    return [each for each in writers if each in logs and parse_segment(below[logs[each]], name=each).abandoned]


def _spools(world: Any) -> dict[str, str]:
    """Return the data set's path for each spool."""
    return {
        spec["options"]["spool"]: spec["path"]
        for spec in _specs(world)
        if spec["kind"] in ("sharded", "consume") and "spool" in spec["options"]
    }


def _target_of(world: Any, path: str) -> str:
    return _spools(world).get(path, path)


async def _give_up_unproven(world: Any, path: str, spools: list[str]) -> None:
    """Declare the jobs dead that no machine can prove dead, as an operator would, so that their objects are removed."""

    async def give_up() -> None:
        try:
            found = await asyncrec.recover(path)
        except ObjectNotFoundError:  # no job had begun
            return
        if found.in_use:
            world.book.complain("a lock dies with its process", f"{path}: {found.in_use}")
        unproven = [job.id for job in found.unfinished]
        # A job can be unproven only if a disk lost its locked file or failed to create it.
        harmed = world.power_cuts or world.disks_fail
        # A detached job, which belongs to no process, cannot be proven dead either.
        detached = any(spec["kind"] == "joint" and spec["options"]["detached"] for spec in _specs(world))
        if unproven and not harmed and not detached and len(_machines(world, path)) == 1:
            world.book.complain("a dead job is proven dead", f"{path}: {found.unfinished}")
        if unproven:
            await asyncrec.recover(path, abandon=unproven)
            for spool in spools:
                await _recover(world, spool)

    await world.do(f"give up {path}", _machine(path), give_up)


async def _tidy(path: str, is_dataset: bool) -> None:
    folder = path.rpartition("/")[0] if is_dataset else path
    await tools.uploads(folder + "/", remove=True)
    if is_dataset:
        with contextlib.suppress(ObjectNotFoundError):
            await tools.verify(path, delete=True)


async def _make_again(world: Any) -> None:
    """Rerun each tool that was killed or failed. This time it must succeed."""
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
                if world.settings["damaging"]:
                    return  # a copy may find damaged objects under its names, which `verify --delete` must remove first
            run.outcome = "clean"

        await world.do(f"{spec['tool']} again", spec["machine"], again)


def _is_there(world: Any, target: str) -> bool:
    folder, _, name = target.rpartition("/")
    files = contents.tree(world, folder)
    return name in files or any(key.startswith(f"_manifest/{name}/") for key in files)


async def _look(world: Any, path: str, *, verified: bool) -> Any:
    """Judge a data set's objects and return its manifest."""
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
        return None
    folder = path.rpartition("/")[0]
    manifest = found["manifest"]
    shards = contents.shards_of(contents.tree(world, folder), manifest) if manifest is not None else []
    if any(run.kind == "queue" for run in world.book.of(path)):
        queues.judge(world, path, shards, {} if manifest is None else dict(manifest.progress))
    else:
        judgement.of_dataset(world, path, shards)
    report = found.get("verified")
    if report is not None:
        wrong = [problem for shard in shards for problem in shard.problems] + judgement.wrong_keys(world, shards)
        if report.ok and wrong:
            world.book.complain("verify tells the truth", f"{path}: it says ok, and {wrong[0]}")
        elif not report.ok and not wrong:
            world.book.complain("verify tells the truth", f"{path}: it is not ok: {report.to_json()}"[:400])
    return manifest


async def _look_at_file(world: Any, path: str) -> None:
    spec = next(spec for spec in _specs(world) if spec["kind"] == "file" and spec["path"] == path)
    if spec["mode"] == "a" and any(run.opened is not None for run in world.book.of(path)):

        async def open_again() -> None:
            async with asyncrec.open_writer(path, mode="a", compression=spec["compression"]):
                pass

        await world.do(f"open {path}", _machine(path), open_again)
    judgement.of_file(world, path, contents.tree(world, path.rpartition("/")[0]))
