"""Arrow's readers return the newest version of each key, in each part and to each worker, and read nothing else."""

from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec import FixedLen, Schema, blocking, open_dataset, open_sharded_writer
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.integrations.arrow import open_batches, plan_batches, read_parts, to_table
from asyncrec.storage import MemoryStorage, Storage

pytestmark = pytest.mark.anyio

SCHEMA = Schema({"n": FixedLen((), "int64"), "date": FixedLen((), "int64")})


async def write(path: Any, versions: list[tuple[str | None, int]], **options: Any) -> None:
    given: dict[str, Any] = {"max_shard_records": 40, "on_duplicate": "write", "schema": SCHEMA, **options}
    async with open_sharded_writer(path, **given) as writer:
        for number, (key, date) in enumerate(versions):
            await writer.write({"n": number, "date": date}, key=key)


async def numbers(path: Any, **options: Any) -> list[int]:
    async with open_batches(path, newest="date", **options) as reader:
        found = [n async for batch in reader for n in batch.column("n").to_pylist()]
        assert reader.records == len(found)
    return found


# 100 pages. Every third one has a second version; for every other one of those, the second version is newer.
VERSIONS: list[tuple[str | None, int]] = [(f"{n}", 2) for n in range(100)]
VERSIONS += [(f"{n}", 3 if n % 6 == 0 else 1) for n in range(0, 100, 3)]
NEWEST = [n for n in range(100) if n % 6] + [100 + n // 3 for n in range(0, 100, 6)]


@pytest.mark.parametrize("options", [{}, {"compression": "GZIP"}, {"index": False}], ids=str)
async def test_newest_version_of_each_key_is_read(tmp_path: Path, options: dict[str, Any]) -> None:
    await write(tmp_path / "d", VERSIONS, **options)
    assert await numbers(tmp_path / "d") == NEWEST
    assert to_table(tmp_path / "d", newest="date", columns=["n"]).to_pydict() == {"n": NEWEST}


async def test_workers_together_read_each_newest_version_once(tmp_path: Path) -> None:
    await write(tmp_path / "d", VERSIONS)
    found = [await numbers(tmp_path / "d", worker=(number, 7)) for number in range(7)]
    assert [*chain(*found)] == NEWEST
    assert {len(each) for each in found} == {len(NEWEST) // 7, len(NEWEST) // 7 + 1}


async def test_pickled_plan_parts_are_read_completely(tmp_path: Path) -> None:
    await write(tmp_path / "d", VERSIONS)
    plan = pickle.loads(pickle.dumps(plan_batches(tmp_path / "d", newest="date", part_bytes=200)))
    assert plan.records == len(NEWEST)
    assert len(plan.parts) > 10
    found = [read_parts(plan.maker, [part]).read_all()["n"].to_pylist() for part in plan.parts]
    assert [*chain(*found)] == NEWEST


async def test_shard_holding_only_old_versions_is_not_read(tmp_path: Path) -> None:
    await write(tmp_path / "d", [(f"{n}", 1) for n in range(10)], writer_id="a")
    await write(tmp_path / "d", [(f"{n}", 2) for n in range(10)], writer_id="b")
    (part,) = plan_batches(tmp_path / "d", newest="date").parts
    assert "d-b-" in part.path


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*"abcdef", None]), st.integers(0, 3)), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(1, 4),
)
async def test_newest_rows_match_data_set(
    anyio_backend: str, versions: list[tuple[str | None, int]], per_shard: int, workers: int
) -> None:
    storage: Storage = MemoryStorage()
    await write("d", [*versions, ("a", 0)], storage=storage, max_shard_records=per_shard)
    async with open_dataset("d", storage=storage, newest="date") as dataset:
        expected = [example["n"] async for example in dataset.examples()]
    found = [await numbers("d", storage=storage, worker=(at, workers)) for at in range(workers)]
    assert [*chain(*found)] == expected


async def test_invalid_newest_option_is_rejected(tmp_path: Path) -> None:
    await write(tmp_path / "d", VERSIONS[:10])
    await write(tmp_path / "plain", [(None, 1)])
    with pytest.raises(ArgumentValueError, match="no feature 'dote'"):
        to_table(tmp_path / "d", newest="dote")
    with pytest.raises(DatasetError, match="was written with a key"):
        to_table(tmp_path / "plain", newest="date")
    with pytest.raises(ArgumentValueError, match="cannot be combined with a split"):
        to_table(tmp_path, split="train", newest="date")
    with blocking.open_writer(tmp_path / "file.tfrecord") as writer:
        writer.write(b"")
    with pytest.raises(DatasetError, match="only a data set has keys"):
        to_table(tmp_path / "file.tfrecord", newest="date", schema=SCHEMA)
