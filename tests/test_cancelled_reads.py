"""A cancelled read returns no records and loses none, whatever is read and wherever it waits.

Each kind of reader is read to its end with some of its waits cancelled, in one of three ways: by an anyio scope, on
both loops; by asyncio's own ``task.cancel()``, which ignores shields; or by a cancellation that arrives just as the
awaited result does and replaces it. (``asyncio.wait_for`` behaves like that when it times out at the very moment the
result arrives.)
"""

from __future__ import annotations

import asyncio
import itertools
import random
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec import tools
from asyncrec._datasets.from_generator.writer import DatasetWriter
from asyncrec._datasets.reading.tuples import generate_dataset, get_tfrecord_filepaths
from asyncrec._records.position import BEGINNING
from asyncrec._records.reading.reader import open_reader_at
from asyncrec._sampling.interleave import cycle_shards
from asyncrec._sampling.random_access import in_order
from asyncrec.storage._local import open_files
from asyncrec.storage._local import source as local_source
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


class Cancelling:
    """Reads an iterator to its end, resuming after cancellations; ``cancels(n)`` says whether to cancel wait ``n``."""

    def __init__(self, how: str, cancels: Callable[[int], bool]) -> None:
        self._how = how
        self._cancels = cancels
        self.waits = 0
        self.cancelled = 0

    async def read(self, iterator: AsyncIterator[Any]) -> list[Any]:
        found: list[Any] = []
        while True:
            try:
                with anyio.CancelScope() as scope:
                    item = await self._driven(iterator.__anext__(), scope)  # type: ignore[arg-type]  # a coroutine
                    found += item if isinstance(item, list) else [item]
            except StopAsyncIteration:
                return found
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None, "within one"
                while task.cancelling():
                    task.uncancel()

    @types.coroutine
    def _driven(self, coroutine: Coroutine[Any, Any, Any], scope: anyio.CancelScope) -> Generator[Any, Any, Any]:
        send: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(send) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            self.waits += 1
            chosen = self._cancels(self.waits)
            self.cancelled += chosen
            if chosen and self._how == "scope":
                scope.cancel()
            if chosen and self._how == "task":
                task = asyncio.current_task()
                assert task is not None, "within one"
                task.cancel()
            send = error = None
            try:
                send = yield trap
                if chosen and self._how == "late":
                    error = asyncio.CancelledError()
            except BaseException as thrown:
                error = thrown


# If there are more waits than this, a random sample of this size is cancelled.
MOST_WAITS = 25

RECORDS = [b"%03d" % number * (number % 13) for number in range(120)]
LARGE = [bytes([number]) * ((1 << 20) + 77) for number in range(3)]
GZIP = asyncrec.CompressionOptions(type="GZIP", member_bytes=700)
COMPRESSIONS = ["", GZIP, "ZLIB"]


class Kind(NamedTuple):
    """How to write a reader's files to a folder, and how to open them as an iterator of records or lists of records."""

    write: Callable[[Path], Coroutine[Any, Any, object]]
    open: Callable[[Path], AbstractAsyncContextManager[AsyncIterator[Any]]]


class Far(MemoryStorage):
    """A storage that is read ahead, as a remote store is, and read again where damage is found."""

    read_ahead = 1 << 20


def reader(
    compression: Any = "",
    *,
    records: list[bytes] = RECORDS,
    damage: bool = False,
    far: bool = False,
    lists: bool = True,
) -> Kind:
    """Read a file with `open_reader`, using small chunks."""

    async def write(folder: Path) -> None:
        await asyncrec.write_records(folder / "a", records, compression=compression)
        data = bytearray((folder / "a").read_bytes())
        for part in (0.2, 0.25, 0.6) if damage else ():
            data[int(part * len(data))] ^= 0xFF
        (folder / "a").write_bytes(data)

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
        store: Any = LocalStorage(folder)
        if far:
            store = Far()
            await store.put("a", (folder / "a").read_bytes())
        sizes = {"chunk_size": 600, "inflate_bytes": 300} if records is RECORDS else {}
        made = await open_reader_at(store, "a", BEGINNING, path="a", on_corrupt="skip" if damage else "raise", **sizes)
        async with aclosing(made):
            yield made.batches() if lists else made

    return Kind(write, opened)


def shards(compression: Any, *, examples: bool = False) -> Callable[[Path], Coroutine[Any, Any, None]]:
    """Return a function that writes four shards with different numbers of records."""

    async def write(folder: Path) -> None:
        for number in range(4):
            records = [b"%d:%d" % (number, i) * 3 for i in range(7 + 9 * number)]
            if examples:
                records = [asyncrec.encode_example({"text": record}) for record in records]
            await asyncrec.write_records(folder / f"s{number}.tfrecord", records, compression=compression)

    return write


async def far_from(folder: Path) -> Far:
    store = Far()
    for path in sorted(folder.iterdir()):
        await store.put(path.name, path.read_bytes())
    return store


CACHES = itertools.count()


def a_cache(folder: Path) -> Path:
    """Return a new, empty cache folder, so that everything has to be downloaded."""
    return folder.with_name(f"{folder.name}-cache-{next(CACHES)}")


def interleaved(
    compression: Any = "",
    *,
    lists: int = 0,
    resumed: bool = False,
    far: bool = False,
    cached: bool = False,
    **options: Any,
) -> Kind:
    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
        paths: list[Any] = sorted(folder.iterdir())
        if cached:
            options.update(cache=a_cache(folder))
        options.update(cycle_length=3, block_length=2, seed=1)
        if far:
            options["storage"] = await far_from(folder)
            paths = [path.name for path in paths]
        state = None
        if resumed:
            async with asyncrec.interleave(paths, **options) as stream:
                await anext(stream.batches(30))
                state = stream.state_dict()
        async with asyncrec.interleave(paths, **options) as stream:
            if state is not None:
                stream.load_state_dict(state)
            yield stream.batches(lists) if lists else stream

    return Kind(shards(compression), opened)


def sampled(compression: Any = "", **options: Any) -> Kind:
    def opened(folder: Path) -> Any:
        return asyncrec.InterleaveSampler(folder, bytes, 2, 4, num_repeat=2, seed=1, **options)

    return Kind(shards(compression), opened)


def shuffled(compression: Any = "", *, lists: int = 0, cached: bool = False, **options: Any) -> Kind:
    async def write(folder: Path) -> None:
        async with asyncrec.open_sharded_writer(folder / "x", max_shard_records=50, compression=compression) as writer:
            await writer.write_many(RECORDS)

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
        async with asyncrec.open_dataset(folder / "x", cache=a_cache(folder) if cached else None) as dataset:
            async with dataset.shuffled(seed=1, buffer_size=40, **options) as stream:
                yield stream.batches(lists) if lists else stream

    return Kind(write, opened)


async def a_split(folder: Path) -> None:
    def numbered(split: str, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for i in range(count):
            yield i, {"id": i}

    await DatasetWriter(numbered, None, folder, "train", num_shards=3, count=40).create_records()


@asynccontextmanager
async def split_of(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
    async with asyncrec.open_split(folder, "train[10:]") as reading:
        yield reading.batches()


@asynccontextmanager
async def tuples_of(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
    async with generate_dataset(await get_tfrecord_filepaths(folder)) as reading:
        yield reading


@asynccontextmanager
async def ordered(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
    async with asyncrec.open_dataset(folder / "*.tfrecord") as dataset:
        yield dataset.batches()


async def write_versions(folder: Path) -> None:
    async with asyncrec.open_sharded_writer(folder / "x", max_shard_records=20, on_duplicate="write") as writer:
        for number in range(60):
            await writer.write(asyncrec.encode_example({"n": number % 7}), key=str(number % 40))


@asynccontextmanager
async def newest(folder: Path) -> AsyncIterator[AsyncIterator[Any]]:
    async with asyncrec.open_dataset(folder / "x", newest="n") as dataset:
        yield dataset.batches()


EVERY = tools.Where("text", "x", "!=")

KINDS: dict[str, Kind] = {
    **{f"reader {getattr(c, 'type', c)}": reader(c) for c in COMPRESSIONS},
    "reader, record by record": reader(GZIP, lists=False),
    "large records": reader(records=LARGE),
    "large records, GZIP": reader("GZIP", records=LARGE),
    **{f"damaged {getattr(c, 'type', c)}": reader(c, damage=True) for c in COMPRESSIONS},
    **{f"far {getattr(c, 'type', c)}": reader(c, far=True) for c in COMPRESSIONS},
    **{f"far and damaged {getattr(c, 'type', c)}": reader(c, far=True, damage=True) for c in COMPRESSIONS},
    "interleave": interleaved(),
    "interleave, in batches": interleaved(GZIP, lists=7),
    "interleave, many open": interleaved(GZIP, lists=7),
    "interleave by a pool": interleaved(GZIP, lists=7, parallelism=2),
    "interleave in a store": interleaved(GZIP, lists=7, far=True, resumed=True),
    "interleave and shuffle": interleaved(GZIP, lists=7, shuffle_buffer=10),
    "interleave from a state": interleaved(GZIP, lists=7, shuffle_buffer=10, resumed=True),
    "interleave through a cache": interleaved(GZIP, lists=7, cached=True),
    "sampler": sampled(GZIP, prefetch_size=0),
    "sampler with its task": sampled(prefetch_size=3),
    "sampler by class": sampled(GZIP, prefetch_size=0, class_fn=lambda record: record[:1], shuffle_buffer=5),
    "sampler with threads": sampled(prefetch_size=0, parallelism=3),
    "shuffled": shuffled(lists=7),
    "shuffled blocks": shuffled(GZIP, mode="block", block_bytes=160),
    "shuffled and skipping": shuffled(GZIP, lists=7, mode="global", on_corrupt="skip"),
    "shuffled through a cache": shuffled(lists=7, cached=True),
    "a split": Kind(a_split, split_of),
    "tuples": Kind(a_split, tuples_of),
    "a data set in order": Kind(shards(""), ordered),
    "the newest in order": Kind(write_versions, newest),
    "records of the tools": Kind(shards(""), tools.open_records),
    "records of the tools, chosen": Kind(shards("", examples=True), partial(tools.open_records, where=[EVERY])),
}


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Bypass the page cache, so that a worker thread does every file read, and make closing a file wait once."""
    monkeypatch.setattr(local_source, "_NOWAIT", 0)
    monkeypatch.setattr(open_files, "_NOWAIT", 0)
    leave = local_source.LocalSource.__aexit__

    async def left(self: local_source.LocalSource, *error: Any) -> None:
        await leave(self, *error)
        await checkpoint()

    monkeypatch.setattr(local_source.LocalSource, "__aexit__", left)
    if "many open" in request.node.name:
        monkeypatch.setattr(cycle_shards, "_MOST_OPEN", 1)
    if "in order" in request.node.name:
        monkeypatch.setattr(in_order, "_STEP_RECORDS", 7)


@pytest.mark.slow(but=[
    "reader GZIP-scope", "large records-scope", "damaged GZIP-scope", "interleave by a pool",
    "asyncio-interleave from a state-scope", "sampler with its task", "trio-sampler by class-scope",
    "shuffled blocks-scope", "a split-scope", "asyncio-tuples", "asyncio-records of the tools, chosen",
    "asyncio-reader, record by record-task", "asyncio-shuffled-task", "asyncio-interleave-task",
    "asyncio-a data set in order-task",
])  # fmt: skip
@pytest.mark.parametrize("how", ["scope", "task", "late"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_record_is_read_once_despite_cancellation_anywhere(
    kind: str, how: str, tmp_path: Path, anyio_backend_name: str
) -> None:
    if how != "scope" and anyio_backend_name == "trio":
        return  # these two kinds of cancellation are specific to asyncio
    await KINDS[kind].write(tmp_path)

    async def read(cancels: Callable[[int], bool]) -> tuple[list[Any], Cancelling]:
        async with KINDS[kind].open(tmp_path) as iterator:
            cancelling = Cancelling(how, cancels)
            return await cancelling.read(iterator), cancelling

    expected, whole = await read(lambda n: False)
    assert len(expected) > 2
    chances = random.Random(0)
    waits = range(1, whole.waits + 1)
    for chosen in waits if len(waits) <= MOST_WAITS else sorted(chances.sample(waits, MOST_WAITS)):
        found, _ = await read(lambda n, chosen=chosen: n == chosen)  # type: ignore[misc]  # a default
        assert found == expected, f"cancelled at wait {chosen} of {whole.waits}"
    for _ in range(5):
        # Only the first 200 waits: loading a state has to succeed without interruption.
        drawn = {n for n in range(200) if chances.random() < 0.3}
        found, cancelling = await read(lambda n, drawn=drawn: n in drawn)  # type: ignore[misc]
        assert found == expected, f"cancelled at {cancelling.cancelled} of {cancelling.waits} waits: {sorted(drawn)}"
