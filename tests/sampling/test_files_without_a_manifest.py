"""Files that no manifest lists are distinguished by their store's metadata, even if name and size are equal."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import DatasetError, ObjectChangedError

pytestmark = pytest.mark.anyio

KINDS = ["balanced", "shuffled"]


async def put(folder: Path, labels: Sequence[int], name: str = "p-0.tfrecord") -> None:
    await asyncrec.write_records(folder / name, [asyncrec.encode_example({"label": label}) for label in labels])


def labels_of(records: Sequence[bytes]) -> list[int]:
    return [int(asyncrec.decode_example(record)["label"][0]) for record in records]


@asynccontextmanager
async def streaming(folder: Path, kind: str) -> AsyncIterator[Any]:
    async with asyncrec.open_dataset(folder / "p-*.tfrecord") as dataset:
        if kind == "balanced":
            async with asyncrec.ClassBalancedSampler(dataset, 2, 4, class_feature="label", seed=1) as sampler:
                yield sampler
        else:
            async with dataset.shuffled(seed=1) as stream:
                yield stream.batches(4), stream


def reading(stream: Any) -> Any:
    return stream[0] if isinstance(stream, tuple) else stream


def stating(stream: Any) -> Any:
    return stream[1] if isinstance(stream, tuple) else stream


async def state_of(folder: Path, kind: str) -> tuple[dict[str, Any], list[bytes]]:
    """Return the state after one batch, and the next batch."""
    async with streaming(folder, kind) as stream:
        await anext(reading(stream))
        state = json.loads(json.dumps(stating(stream).state_dict()))
        return state, await anext(reading(stream))


async def test_classes_of_replaced_file_are_read_again(tmp_path: Path) -> None:
    await put(tmp_path, [0, 1] * 50)
    for labels in ([0, 1] * 50, [0] * 50 + [1] * 50):
        await put(tmp_path, labels)
        async with streaming(tmp_path, "balanced") as sampler:
            batch = labels_of(await anext(sampler))
        assert batch in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


@pytest.mark.parametrize("kind", KINDS)
async def test_state_with_replaced_file_is_rejected_naming_file(kind: str, tmp_path: Path) -> None:
    await put(tmp_path, [0, 1] * 50)
    await put(tmp_path, [0, 1] * 50, "p-1.tfrecord")
    state, _ = await state_of(tmp_path, kind)
    await put(tmp_path, [0] * 50 + [1] * 50, "p-1.tfrecord")
    async with streaming(tmp_path, kind) as stream:
        with pytest.raises(
            DatasetError, match=r"p-1\.tfrecord: the shard was replaced after the state was taken: .*etag"
        ):
            stating(stream).load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
async def test_state_resumes_over_copies_with_original_times(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    await put(tmp_path / "a", [0, 1] * 50)
    state, rest = await state_of(tmp_path / "a", kind)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")  # also copies modification times
    shutil.rmtree(tmp_path / "a")
    os.rename(tmp_path / "copy", tmp_path / "a")
    async with streaming(tmp_path / "a", kind) as stream:
        stating(stream).load_state_dict(state)
        assert await anext(reading(stream)) == rest


@pytest.mark.parametrize("kind", KINDS)
async def test_state_without_shard_versions_is_accepted(kind: str, tmp_path: Path) -> None:
    """States from before shard versions were recorded, and states of a data set with a manifest, have none."""
    await put(tmp_path, [0, 1] * 50)
    state, rest = await state_of(tmp_path, kind)
    del state["versions"]
    async with streaming(tmp_path, kind) as stream:
        stating(stream).load_state_dict(state)
        assert await anext(reading(stream)) == rest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("versions", [5, [5], [[0]], [[7, 1, None, "a", "b"]], [["0", 1, None, "a", "b"]]])
async def test_malformed_shard_versions_in_state_are_rejected(kind: str, versions: Any, tmp_path: Path) -> None:
    await put(tmp_path, [0, 1] * 50)
    state, _ = await state_of(tmp_path, kind)
    async with streaming(tmp_path, kind) as stream:
        with pytest.raises(
            ValueError, match=r"the state has versions=.*, but versions must be (versions of shards|a list)"
        ):
            stating(stream).load_state_dict(state | {"versions": versions})


async def test_states_over_manifest_contain_no_file_versions(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", max_shard_records=9) as writer:
        await writer.write_many([b"%d" % n for n in range(20)])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert "versions" not in dataset.shuffled().state_dict()


@pytest.mark.parametrize("handed_over", [False, True])
async def test_file_replaced_since_opening_is_rejected(handed_over: bool, tmp_path: Path) -> None:
    """Another process notices this as well if it opens the data set from the manifest that the first one made."""
    await put(tmp_path, [0, 1] * 50)
    async with asyncrec.open_dataset(tmp_path / "p-*.tfrecord") as dataset:
        await put(tmp_path, [0] * 50 + [1] * 50)
        if handed_over:
            manifest = pickle.loads(pickle.dumps(dataset.manifest))
            async with asyncrec.open_dataset(manifest) as opened:
                with pytest.raises(
                    ObjectChangedError, match=r"p-0\.tfrecord: the shard was replaced .*; open the data set again"
                ):
                    await opened.get(3)
        with pytest.raises(
            ObjectChangedError, match=r"p-0\.tfrecord: the shard was replaced .*; open the data set again"
        ):
            await dataset.get(3)
