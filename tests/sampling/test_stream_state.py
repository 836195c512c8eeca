"""A stream's state identifies its shards, and states of every version remain readable."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import DatasetError, ObjectNotFoundError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def golden(storage: Any, kind: str) -> AsyncIterator[Any]:
    """Open the streams from which the states in tests/vectors were taken."""
    for n in range(5):
        records = [b"%d:%d" % (n, i) for i in range(10 + 3 * n)]
        await asyncrec.write_records(f"data/s{n}.tfrecord", records, storage=storage)
    paths = [f"data/s{n}.tfrecord" for n in range(5)]
    options: dict[str, Any] = {"seed": 5, "storage": storage}
    if kind == "interleave":
        async with asyncrec.interleave(paths, cycle_length=3, block_length=2, shuffle_buffer=6, **options) as stream:
            yield stream
    else:
        options |= {"class_fn": lambda record: record[:1], "shuffle_buffer": 4, "num_repeat": 2}
        async with asyncrec.InterleaveSampler("data", bytes, 2, 8, **options) as sampler:
            yield sampler


@pytest.mark.parametrize("version", [1])
@pytest.mark.parametrize("kind", ["interleave", "sampler"])
async def test_stream_resumes_from_state_of_any_version(kind: str, version: int, vectors: Path) -> None:
    taken = json.loads((vectors / "states" / f"version-{version}.json").read_text())[kind]
    assert taken["state"]["version"] == version
    async with golden(MemoryStorage(), kind) as stream:
        stream.load_state_dict(taken["state"])
        rest: list[Any] = [item async for item in stream]
    assert json.loads(json.dumps(rest, default=bytes.decode)) == taken["rest"]


@pytest.mark.parametrize("kind", ["interleave", "sampler"])
async def test_state_of_later_version_is_rejected_with_explanation(kind: str, vectors: Path) -> None:
    state = json.loads((vectors / "states" / "version-1.json").read_text())[kind]["state"] | {"version": 2}
    async with golden(MemoryStorage(), kind) as stream:
        with pytest.raises(
            ValueError, match="reads only its own states of version 1; load the state into the kind of object that"
        ):
            stream.load_state_dict(state)


@asynccontextmanager
async def streaming(folder: Path, kind: str) -> AsyncIterator[Any]:
    if kind == "interleave":
        async with asyncrec.interleave(sorted(folder.iterdir()), cycle_length=2) as stream:
            yield stream
    else:
        async with asyncrec.InterleaveSampler(folder, bytes, 2, 8, shards_per_cycle=2, seed=1, num_repeat=1) as stream:
            yield stream


async def taken_of(folder: Path, kind: str) -> tuple[dict[str, Any], list[Any]]:
    for n in range(4):
        await asyncrec.write_records(folder / f"s{n}.tfrecord", [b"%d/%03d" % (n, i) for i in range(50)])
    async with streaming(folder, kind) as stream:
        for _ in range(2):
            await anext(stream)
        state = json.loads(json.dumps(stream.state_dict()))
        return state, [item async for item in stream]


@pytest.mark.parametrize("records", [50, 51, 10])
@pytest.mark.parametrize("kind", ["interleave", "sampler"])
async def test_replaced_shard_is_rejected_before_first_record(kind: str, records: int, tmp_path: Path) -> None:
    """This holds even if the new shard has the same name, size and number of records."""
    state, _ = await taken_of(tmp_path, kind)
    await asyncrec.write_records(tmp_path / "s0.tfrecord", [b"N/%03d" % i for i in range(records)])
    async with streaming(tmp_path, kind) as stream:
        with pytest.raises(DatasetError, match=r"s0\.tfrecord: the shard was replaced after the state was taken"):
            stream.load_state_dict(state)
            await anext(stream)


@pytest.mark.parametrize("kind", ["interleave", "sampler"])
async def test_copy_with_original_times_is_resumed(kind: str, tmp_path: Path) -> None:
    """Files on another disk have different inodes."""
    (tmp_path / "a").mkdir()
    state, rest = await taken_of(tmp_path / "a", kind)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")  # also copies modification times
    shutil.rmtree(tmp_path / "a")
    os.rename(tmp_path / "copy", tmp_path / "a")
    async with streaming(tmp_path / "a", kind) as stream:
        stream.load_state_dict(state)
        assert [item async for item in stream] == rest


@pytest.mark.parametrize("given", [1, 2, 63, 64, 65, 99])
async def test_interleave_state_detects_replaced_shard_from_first_record_on(given: int, tmp_path: Path) -> None:
    for n in range(4):
        await asyncrec.write_records(tmp_path / f"s{n}.tfrecord", [b"%d/%03d" % (n, i) for i in range(50)])
    async with streaming(tmp_path, "interleave") as stream:
        for _ in range(given):
            await anext(stream)
        state = json.loads(json.dumps(stream.state_dict()))
    await asyncrec.write_records(tmp_path / "s0.tfrecord", [b"N/%03d" % i for i in range(50)])
    async with streaming(tmp_path, "interleave") as stream:
        stream.load_state_dict(state)
        with pytest.raises(DatasetError, match=r"s0\.tfrecord: the shard was replaced after the state was taken"):
            await anext(stream)


async def test_missing_shard_is_detected_before_first_record(tmp_path: Path) -> None:
    state, _ = await taken_of(tmp_path, "interleave")
    paths = sorted(tmp_path.iterdir())
    paths[1].unlink()
    async with asyncrec.interleave(paths, cycle_length=2) as stream:
        stream.load_state_dict(state)
        with pytest.raises(ObjectNotFoundError, match="s1"):
            await anext(stream)


async def test_state_lists_versions_of_current_shards_only(tmp_path: Path) -> None:
    state, _ = await taken_of(tmp_path, "interleave")
    assert [each[0] for each in state["versions"]] == [0, 1]


async def test_state_without_digest_of_classes_is_rejected() -> None:
    """A sampler that has not been entered does not know the classes, but it is at its beginning."""
    storage = MemoryStorage()
    await asyncrec.write_records("pages.tfrecord", [b"%d" % number for number in range(200)], storage=storage)
    async with asyncrec.open_dataset("pages.tfrecord", storage=storage) as dataset:

        def made() -> asyncrec.ClassBalancedSampler:
            return asyncrec.ClassBalancedSampler(dataset, 3, 2, class_fn=len, seed=1)

        beginning = made().state_dict()
        async with made() as sampler:
            first = await anext(sampler)
            state = sampler.state_dict()
        del state["classes"]
        async with made() as sampler:
            with pytest.raises(ValueError, match=r"the state has classes=None, but .*: the state is damaged"):
                sampler.load_state_dict(state)
            sampler.load_state_dict(beginning)
            assert await anext(sampler) == first
