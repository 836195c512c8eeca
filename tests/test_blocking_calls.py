"""Files are never opened, linked, listed or removed on the event loop's thread, only in worker threads."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

_EVENTS = {
    "open", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.truncate",
}  # fmt: skip
_PACKAGE = str(Path(asyncrec.__file__).parent)

# An audit hook cannot be removed again, so there is a single one, which does nothing except during these tests.
_watched: list[str] | None = None
_loop = 0


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None or event not in _EVENTS or threading.get_ident() != _loop:
        return
    frame: Any = sys._getframe(1)
    ours = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib" in name:  # a name is imported on first use, as the docs promise
            return
        if not ours and name.startswith(_PACKAGE):
            ours = f"{event} in {Path(name).name}:{frame.f_lineno}, {frame.f_code.co_name}"
        frame = frame.f_back
    if ours:
        _watched.append(ours)


sys.addaudithook(_audit)


@pytest.fixture
def blocking_calls() -> Iterator[list[str]]:
    global _watched, _loop
    _watched, _loop = [], threading.get_ident()
    yield _watched
    _watched = None


async def died(path: Path, **options: Any) -> None:
    with pytest.raises(RuntimeError, match="as asked"):
        async with asyncrec.open_sharded_writer(path, on_error="discard", **options) as writer:
            for number in range(50):
                await writer.write(b"%d" % number, key=str(number))
            await writer.flush()
            raise RuntimeError("as asked")


def damage(folder: Path) -> None:
    (journal,) = folder.glob(".*.tfrecord.*.partial")
    with journal.open("ab") as file:
        file.write(b"\xa5" * 500)


def test_blocking_calls_reach_audit_hook(tmp_path: Path, blocking_calls: list[str]) -> None:
    from asyncrec._shards.journal.home import LocalHome
    from asyncrec.storage._local.storage import LocalStorage

    assert LocalHome(LocalStorage(tmp_path)).headers() == []
    assert [call.split(" in ")[0] for call in blocking_calls] == ["os.listdir"]


async def test_write_and_read_make_no_blocking_calls(tmp_path: Path, blocking_calls: list[str]) -> None:
    records = [b"record"] * 100
    for mode in ("w", "a"):
        async with asyncrec.open_writer(tmp_path / "new" / "file", mode=mode) as writer:  # type: ignore[call-overload]  # one of them
            await writer.write_many(records)
            await writer.flush()
    assert await asyncrec.read_records(tmp_path / "new" / "file") == 2 * records
    assert blocking_calls == []


@pytest.mark.parametrize("options", [{}, {"num_shards": 3}, {"num_shards": 3, "mode": "replace"}])
async def test_sharded_write_and_random_access_make_no_blocking_calls(
    tmp_path: Path, blocking_calls: list[str], options: dict[str, Any]
) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", **options) as writer:
        for number in range(100):
            await writer.write(b"%d" % number, key=str(number))
    async with asyncrec.open_dataset(tmp_path / "pages", cache=tmp_path / "cache") as dataset:
        assert await dataset.get_by_key("42") == b"42"
        async with dataset.shuffled(seed=1) as stream:
            assert len([record async for record in stream]) == 100
    assert blocking_calls == []


@pytest.mark.parametrize("options", [{}, {"num_shards": 2}])
@pytest.mark.parametrize("spooled", [False, True])
async def test_recovery_makes_no_blocking_calls(
    tmp_path: Path, blocking_calls: list[str], options: dict[str, Any], spooled: bool
) -> None:
    storage = MemoryStorage() if spooled else None
    if spooled:
        options = options | {"storage": storage, "spool": tmp_path}
    await died(tmp_path / "pages" if not spooled else Path("pages"), **options)
    seen = list(blocking_calls)
    if not options.get("num_shards"):
        damage(tmp_path)
    recovery = await asyncrec.recover(
        tmp_path if spooled else tmp_path / "pages", to="pages" if spooled else None, storage=storage
    )
    assert recovery.records == 50
    assert bool(recovery.damaged) == (not options.get("num_shards"))
    seen += [call for call in blocking_calls[len(seen) :] if "test_blocking_calls" not in call]
    assert seen == []


async def test_tools_make_no_blocking_calls(tmp_path: Path, blocking_calls: list[str]) -> None:
    import pyarrow as pa
    from asyncrec_report import report
    from pyarrow import parquet

    storage = MemoryStorage()
    table = pa.BufferOutputStream()
    parquet.write_table(pa.table({"n": [1, 2, 3]}), table)
    await storage.put("rows.parquet", table.getvalue().to_pybytes())
    await tools.convert("rows.parquet", str(tmp_path / "set"), storage=storage)
    await tools.reshard(str(tmp_path / "set"), str(tmp_path / "again"), num_shards=2)
    assert (await tools.verify(str(tmp_path / "again"))).ok
    await report(str(tmp_path / "again"))
    assert blocking_calls == []


async def test_combining_tools_make_no_blocking_calls(tmp_path: Path, blocking_calls: list[str]) -> None:
    source = tmp_path / "source"
    async with asyncrec.open_sharded_writer(source, max_shard_records=40) as writer:
        for number in range(100):
            await writer.write(asyncrec.encode_example({"n": number % 30}), key=str(number))
    await tools.filter(source, tmp_path / "few", where=[tools.Where("n", "10", "<")])
    await tools.sample(source, tmp_path / "drawn", records=20)
    await tools.dedupe(source, tmp_path / "once")
    await tools.merge([tmp_path / "few", tmp_path / "drawn"], tmp_path / "merged")
    assert (await tools.diff(source, tmp_path / "merged")).only_first
    assert len((await tools.ls(tmp_path)).entries) == 5
    async with tools.open_tail(source, records=3) as tail:
        assert [len(records) async for records in tail] == [3]
    assert blocking_calls == []


async def test_recovering_watched_writer_makes_no_blocking_calls(
    tmp_path: Path, blocking_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrec._shards.writing.telling.STATUS_SECONDS", 0.001)
    await died(tmp_path / "pages")
    async with asyncrec.open_sharded_writer(tmp_path / "pages", flush_seconds=0.001) as writer:
        await writer.write_many([b"x"] * 10)
        while not list(tmp_path.glob(".*~status.partial")):  # a task of the writer creates it
            await anyio.lowlevel.checkpoint()
        await writer.wait(writer.stats().records, "spooled")
        assert (await tools.watch(tmp_path / "pages")).records == 50
    assert [call for call in blocking_calls if "test_blocking_calls" not in call] == []


async def test_spool_makes_no_blocking_calls(tmp_path: Path, blocking_calls: list[str]) -> None:
    options: dict[str, Any] = {"storage": MemoryStorage(), "spool": tmp_path, "max_shard_records": 20}
    async with asyncrec.open_sharded_writer("pages", **options) as writer:
        for number in range(50):
            await writer.write(b"%d" % number, key=str(number))
            await writer.flush()
    assert blocking_calls == []


@pytest.mark.parametrize("given", ["by a generator", "by an async generator"])
async def test_generator_data_set_makes_no_blocking_calls(
    tmp_path: Path, blocking_calls: list[str], given: str
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 3, 2, 8, 2))
    del blocking_calls[:]

    def examples(split: str) -> Iterator[tuple[str, dict[str, object]]]:
        for number in range(200):
            yield str(number), {"n": number, "body": b"x" * 100, "image": image}

    async def later(split: str) -> AsyncIterator[tuple[str, dict[str, object]]]:
        for example in examples(split):
            yield example

    writer = asyncrec.DatasetWriter(
        examples if given == "by a generator" else later, None, tmp_path / "set", "train", memory_limit=4_000
    )
    await writer.create_records()
    async with asyncrec.open_split(tmp_path / "set", "train") as split:
        assert len([record async for record in split]) == 200
    assert blocking_calls == []


async def test_streams_and_samplers_make_no_blocking_calls(tmp_path: Path, blocking_calls: list[str]) -> None:
    schema = asyncrec.Schema({"n": asyncrec.FixedLen([], "int64")})
    async with asyncrec.open_sharded_writer(tmp_path / "pages", num_shards=4, schema=schema) as writer:
        for number in range(200):
            await writer.write({"n": number % 5})
    files = await asyncrec.list_shards(tmp_path / "pages")
    async with asyncrec.interleave(files, cycle_length=2, shuffle_buffer=20, seed=1) as stream:
        taken = [await anext(stream) for _ in range(30)]
        state = stream.state_dict()
    async with asyncrec.interleave(files, cycle_length=2, shuffle_buffer=20, seed=1) as stream:
        stream.load_state_dict(state)
        assert len(taken + [record async for record in stream]) == 200
    for _ in range(2):  # the first pass stores the classes, the second reads them
        async with (
            asyncrec.open_dataset(tmp_path / "pages") as dataset,
            asyncrec.ClassBalancedSampler(dataset, 2, 2, class_feature="n", seed=1) as sampler,
        ):
            assert len(await anext(aiter(sampler))) == 4
    assert blocking_calls == []


async def test_spilled_tables_make_no_blocking_calls(
    tmp_path: Path, blocking_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrec._sampling.random_access.newest._MEMORY", 1000)
    monkeypatch.setattr("asyncrec.tools._identity._MEMORY", 1000)
    async with asyncrec.open_sharded_writer(tmp_path / "pages", on_duplicate="write") as writer:
        for number in range(200):
            await writer.write(asyncrec.encode_example({"n": number}), key=f"key {number % 150}")
    async with asyncrec.open_dataset(tmp_path / "pages", newest="n") as dataset:
        assert len([record async for record in dataset]) == 150
    assert (await tools.dedupe(tmp_path / "pages", tmp_path / "once", by="key")).records == 150
    assert (await tools.diff(tmp_path / "pages", tmp_path / "once", by="key")).first_records == 200
    assert blocking_calls == []
