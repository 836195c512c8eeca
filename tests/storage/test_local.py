"""`LocalStorage` beyond the storage kit: system faults, durability, the page cache, and unusual files."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
)
from asyncrec.storage._base import ByteSink, UnfinishedUploads
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local import source as local_source
from asyncrec.storage._local import unfinished
from asyncrec.storage._local.disk import Disk, partial_name
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = pytest.mark.anyio


class System:
    """A replacement for `os` that records calls, and fails those for which ``fault(name, n)`` returns an error code."""

    def __init__(self, fault: Callable[[str, int], int | None] = lambda name, n: None) -> None:
        self.fault = fault
        self.calls: list[str] = []
        self.short = False  # reads and writes transfer only half of what is requested

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            self.calls.append(name)
            code = self.fault(name, len(self.calls))
            if code is not None:
                raise OSError(code, os.strerror(code))
            if self.short and name == "writev":
                half = max(1, sum(memoryview(buffer).nbytes for buffer in args[1]) // 2)
                return real(args[0], [memoryview(b"".join(args[1]))[:half]])
            if self.short and name == "pwrite":
                return real(args[0], memoryview(args[1])[: max(1, len(args[1]) // 2)], args[2])
            if self.short and name == "pread":
                return real(args[0], max(1, args[1] // 2), args[2])
            return real(*args)

        return call


@pytest.fixture(autouse=True)
def lives_in_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that sets whether the tests' folder counts as a tmpfs; by default it does not."""

    def set_(value: bool) -> None:
        monkeypatch.setattr(Disk, "lives_in_memory", lambda self, device: value)

    set_(False)
    return set_


def on(function: str, code: int) -> Callable[[str, int], int | None]:
    return lambda name, n: code if name == function else None


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


async def write(storage: LocalStorage, key: str, data: bytes, *, exclusive: bool = False, flush: bool = False) -> None:
    async with storage.open_sink(key, exclusive=exclusive) as sink:
        chunks = ChunkWriter(sink)
        await chunks.write([data[:100], data[100:]])
        if flush:
            await chunks.flush()
        await chunks.finish()


# System faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
async def test_failing_calls_leave_older_object_or_no_files(
    tmp_path: Path, exclusive: bool, older: bool, code: int
) -> None:
    """The caller gets a typed error that names the path; no unfinished file or open descriptor is left."""
    key = "sub/other" if exclusive and older else "sub/x"  # an existing one would be rejected at once
    if older:
        await LocalStorage(tmp_path).put("sub/x", b"older")
    before = names(tmp_path)
    data = content(250_000)
    descriptors = open_files()
    for k in range(1, 100):
        system = System(lambda name, n: code if n == k else None)  # noqa: B023  # used within this turn only
        storage = LocalStorage(tmp_path, chunk_size=100_000, system=system)
        error: StorageError | None = None
        try:
            await write(storage, key, data, exclusive=exclusive)
        except StorageError as raised:
            error = raised
        assert open_files() == descriptors
        if error is None:
            # Nothing failed except perhaps the removal of an exclusive object's second name.
            assert (tmp_path / key).read_bytes() == data
            if k > len(system.calls):
                break
            # Or the parent of an existing folder could not be opened; this storage need not make that durable.
            assert system.calls[k - 1] == "unlink" or (
                code == errno.EACCES and system.calls[k - 1] in ("open", "fsync")
            )
            if older and not exclusive:
                (tmp_path / "sub/x").write_bytes(b"older")
            for name in set(names(tmp_path)) - set(before):
                (tmp_path / name).unlink()
            continue
        assert str(tmp_path) in str(error)
        assert error.errno == code
        assert isinstance(error, StoragePermissionError) == (code == errno.EACCES)
        if older and not exclusive and system.calls.count("replace") == 1 and system.calls[-1] != "unlink":
            # The fault happened after the older object was replaced, so the new one exists and is complete.
            assert (tmp_path / key).read_bytes() == data
            (tmp_path / key).write_bytes(b"older")
        assert names(tmp_path) == before, f"call {k}, {system.calls[-3:]}"
        assert not older or (tmp_path / "sub/x").read_bytes() == b"older"
    assert k > 8


@pytest.mark.parametrize(
    ("function", "code", "kind", "says"),
    [
        ("writev", errno.ENOSPC, StorageError, "free some space"),
        ("writev", errno.EDQUOT, StorageError, "quota"),
        ("fsync", errno.EIO, StorageError, "the disk reported a failure"),
        ("open", errno.EACCES, StoragePermissionError, "Permission denied"),
        ("open", errno.EROFS, StoragePermissionError, "read-only"),
        ("open", errno.EMFILE, StorageError, "ulimit -n"),
        ("replace", errno.EPERM, StoragePermissionError, "publishing"),
        ("mkdir", errno.EPERM, StoragePermissionError, "writing"),
        ("writev", errno.EFBIG, StorageError, "smaller shards"),
    ],
)
async def test_write_error_names_remedy(
    tmp_path: Path, function: str, code: int, kind: type[StorageError], says: str
) -> None:
    storage = LocalStorage(tmp_path / "new", system=System(on(function, code)))
    with pytest.raises(kind, match=says) as caught:
        await storage.put("x", b"data")
    assert f"{tmp_path}/new/x" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("function", "code", "kind"),
    [
        ("open", errno.EACCES, StoragePermissionError),
        ("open", errno.ENOENT, ObjectNotFoundError),
        ("fstat", errno.EIO, StorageError),
        ("pread", errno.EIO, StorageError),
    ],
)
@pytest.mark.parametrize(("in_memory", "size"), [(False, 2 << 20), (True, 2 << 20), (True, 1000)])
async def test_read_error_names_file(
    tmp_path: Path,
    lives_in_memory: Callable[[bool], None],
    function: str,
    code: int,
    kind: type[StorageError],
    in_memory: bool,
    size: int,
) -> None:
    lives_in_memory(in_memory)
    (tmp_path / "x").write_bytes(bytes(3 << 20))
    storage = LocalStorage(tmp_path, system=System(on(function, code)))
    descriptors = open_files()
    with pytest.raises(kind, match=f"{tmp_path}/x"):
        async with storage.open_source("x") as source:
            await source.receive(size)
    assert open_files() == descriptors


@pytest.mark.parametrize("operation", ["head", "delete"])
async def test_permission_error_names_path(tmp_path: Path, operation: str) -> None:
    (tmp_path / "x").write_bytes(b"")
    storage = LocalStorage(tmp_path, system=System(lambda name, n: errno.EACCES))
    with pytest.raises(StoragePermissionError, match=f"{tmp_path}/x"):
        await getattr(storage, operation)("x")


async def test_unreadable_folder_listing_raises_error_naming_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoragePermissionError, match=str(tmp_path)):
        [info async for info in LocalStorage(tmp_path).list_objects()]


async def test_short_writes_and_reads_are_completed(tmp_path: Path) -> None:
    system = System()
    system.short = True
    storage = LocalStorage(tmp_path, chunk_size=1 << 20, system=system)
    data = content(3_500_000)
    await write(storage, "x", data, flush=True)
    assert (tmp_path / "x").read_bytes() == data
    async with storage.open_source("x") as source:
        assert await source.receive(3 << 20) == data[: 3 << 20]  # one large request is one block
        assert await receive_all(source) == data[3 << 20 :]


async def test_file_of_wrong_length_is_not_published(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(IntegrityError, match=r"4 bytes were written, but the file has 2"):
        async with storage.open_sink("x") as sink:
            await sink.send([b"data"])
            (partial,) = tmp_path.iterdir()
            os.truncate(partial, 2)
    assert names(tmp_path) == []


async def test_sink_with_swallowed_error_publishes_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, system=System(lambda name, n: errno.ENOSPC if name == "writev" else None))
    with pytest.raises(StorageError, match="not published"):
        async with storage.open_sink("x") as sink:
            with pytest.raises(StorageError, match="free some space"):
                await sink.send([b"data"])
            with pytest.raises(StorageError, match="abandoned"):
                await sink.send([b"data"])
    assert names(tmp_path) == []


async def test_sink_accepts_more_buffers_than_one_system_call(tmp_path: Path) -> None:
    buffers = [b"%07d" % n for n in range(2 * unfinished._IOV_MAX + 3)]
    async with LocalStorage(tmp_path).open_sink("x") as sink:
        await sink.send(buffers)
    assert (tmp_path / "x").read_bytes() == b"".join(buffers)


# Publishing ----------------------------------------------------------------------------------------------------------


async def test_publishing_call_order_survives_crash(tmp_path: Path) -> None:
    system = System()
    storage = LocalStorage(tmp_path, system=system)
    await storage.put("a/b/x", b"data")
    order = [call for call in system.calls if call not in ("lstat", "fstat", "stat")]
    made = ["mkdir", "open", "fsync"]  # creates a folder and makes its name in its parent durable
    begun = ["open", "unlink", "open"]  # finds out what mode the object will get; the unfinished file stays private
    assert order == [*made, *made, *begun, "writev", "fchmod", "fsync", "replace", "open", "fsync"]
    system.calls.clear()
    await storage.put("a/b/y", b"data", exclusive=True)
    order = [call for call in system.calls if call not in ("lstat", "fstat", "stat")]
    ending = ["link", "open", "fsync", "unlink"]
    assert order == [*begun, "writev", "fchmod", "fsync", *ending], "never without either name"


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
async def test_exclusive_writers_exclude_each_other_without_hard_links(tmp_path: Path, code: int) -> None:
    storage = LocalStorage(tmp_path, system=System(on("link", code)))
    outcome: list[str] = []

    async def race(data: bytes) -> None:
        try:
            await storage.put("x", data, exclusive=True)
            outcome.append(data.decode())
        except ObjectExistsError:
            outcome.append("lost")

    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(race, b"%d" % n)
    assert len(outcome) - outcome.count("lost") == 1
    assert (tmp_path / "x").read_text() in outcome
    assert names(tmp_path) == ["x"]


async def test_folder_without_fsync_support_is_accepted(tmp_path: Path) -> None:
    class NoFolderSync(System):
        def __getattr__(self, name: str) -> Any:
            if name == "fsync":
                return self._fsync
            return super().__getattr__(name)

        def _fsync(self, fd: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                raise OSError(errno.EINVAL, "Invalid argument")
            os.fsync(fd)

    await LocalStorage(tmp_path, system=NoFolderSync()).put("a/x", b"data")
    assert names(tmp_path) == ["a/x"]


async def test_folder_with_failed_sync_is_removed(tmp_path: Path) -> None:
    """Otherwise the next object in the folder would assume that the folder is durable."""
    storage = LocalStorage(tmp_path, system=System(on("fsync", errno.EIO)))
    with pytest.raises(StorageError, match="the disk reported a failure"):
        await storage.put("a/b/x", b"data")
    assert list(tmp_path.iterdir()) == []


async def test_symlink_in_place_of_object_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    os.symlink("target", tmp_path / "x")
    await LocalStorage(tmp_path).put("x", b"data")
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert (tmp_path / "x").read_bytes() == b"data"


async def test_name_of_255_bytes_is_accepted_but_longer_rejected(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    key = "é" * 127 + "x"
    await storage.put(key, b"data")
    assert names(tmp_path) == [key]
    with pytest.raises(StorageError, match="255 bytes"):
        async with storage.open_sink(key + "y") as sink:
            await sink.send([b"data"])


def test_names_of_unfinished_files_are_valid_and_distinct() -> None:
    for name in ("x", "é" * 127, "x" * 255, "\udcff" * 200):
        partial = partial_name(name)
        assert len(os.fsencode(partial)) <= 255
        assert partial != partial_name(name)


# Flushing, and the files that are kept -------------------------------------------------------------------------------


async def test_acknowledged_flush_survives_exception(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, chunk_size=1_000)
    data = content(5_700)
    with pytest.raises(KeyError):
        async with storage.open_sink("sub/x") as sink:
            chunks = ChunkWriter(sink)
            await chunks.write([data[:2_300]])
            assert await chunks.flush() == 2_300
            await chunks.write([data[2_300:3_100]])
            assert await chunks.flush() == 3_100
            await chunks.write([data[3_100:]])
            raise KeyError
    (unfinished,) = [info async for info in storage.list_unfinished()]
    assert unfinished.key.startswith("sub/.x.")
    kept = await storage.get(unfinished.key)
    assert len(kept) >= 3_100
    assert data.startswith(kept)
    assert [info async for info in storage.list_objects()] == []
    assert isinstance(storage, UnfinishedUploads)
    await storage.remove_unfinished(unfinished)
    await storage.remove_unfinished(unfinished)
    assert names(tmp_path) == []


async def test_acknowledged_flush_survives_failed_later_write(tmp_path: Path) -> None:
    system = System()
    storage = LocalStorage(tmp_path, chunk_size=1_000, system=system)
    data = content(3_000)
    with pytest.raises(StorageError, match="free some space"):
        async with storage.open_sink("x") as sink:
            await sink.flush([data[:600]])
            system.fault = on("writev", errno.ENOSPC)
            await sink.send([data[:1_000]])
    (name,) = names(tmp_path)
    assert (tmp_path / name).read_bytes() == data[:600]


async def test_empty_flush_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with LocalStorage(tmp_path).open_sink("x") as sink:
            assert await sink.flush([]) == 0
            raise KeyError
    assert names(tmp_path) == []


async def test_flush_syncs_unfinished_file_and_its_name(tmp_path: Path) -> None:
    system = System()
    async with LocalStorage(tmp_path, system=system).open_sink("x") as sink:
        assert await sink.flush([b"ab", b"cd"]) == 4
        assert [call for call in system.calls if call in ("fsync", "open")][-3:] == ["fsync", "open", "fsync"]
        syncs = system.calls.count("fsync")
        assert await sink.flush([b"ab", b"cd", b"ef"]) == 6
        assert system.calls.count("fsync") == syncs + 1
        await sink.send([b"abcdefg"])
    assert (tmp_path / "x").read_bytes() == b"abcdefg"


async def test_remove_unfinished_rejects_finished_objects(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(ValueError, match="is not an unfinished upload"):
        await storage.remove_unfinished(await storage.put("x", b"data"))
    with pytest.raises(ValueError, match="unfinished"):
        storage.open_sink(".x.1234.partial")
    assert names(tmp_path) == ["x"]


# asyncio's native cancellation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_cancellation_leaves_whole_object_or_no_trace(anyio_backend: str, tmp_path: Path) -> None:
    """``task.cancel()``, which ignores anyio's shields, is called before each system call."""
    data = content(250_000)
    descriptors = open_files()
    loop = asyncio.get_running_loop()
    cancelled = 0
    for k in range(1, 100):
        task: asyncio.Task[None]

        def cancel(name: str, n: int) -> None:
            if n == k:  # noqa: B023  # used within this turn only
                done = anyio.from_thread.run_sync(task.cancel)  # noqa: B023  # likewise
                assert done

        system = System(cancel)
        storage = LocalStorage(tmp_path, chunk_size=100_000, system=system)
        task = loop.create_task(write(storage, "x", data, exclusive=True))
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
        assert task.cancelled() or k > len(system.calls) or (tmp_path / "x").exists()
        assert open_files() == descriptors
        if (tmp_path / "x").exists():
            assert (tmp_path / "x").read_bytes() == data
            (tmp_path / "x").unlink()
        assert names(tmp_path) == []
        if k > len(system.calls):
            break
    assert cancelled > 5


# Reading -------------------------------------------------------------------------------------------------------------


async def test_cached_blocks_are_read_without_thread(tmp_path: Path) -> None:
    if not local_source._NOWAIT:
        pytest.fail("Linux has RWF_NOWAIT")
    system = System()
    data = content(3 << 20)
    (tmp_path / "x").write_bytes(data)
    async with LocalStorage(tmp_path, system=system).open_source("x") as source:
        assert await receive_all(source, 256 << 10) == data
    if "pread" in system.calls:  # tmpfs does not support RWF_NOWAIT, so it is tried once
        assert system.calls.count("preadv") == 1
    else:
        assert system.calls.count("preadv") == 1 + 12  # the first one only tests whether it is supported


async def test_sink_chunk_size_is_reduced_on_request(tmp_path: Path) -> None:
    async with LocalStorage(tmp_path).open_sink("x") as sink:
        usual = sink.chunk_size
        sink.hold_at_most(usual + 1)
        assert sink.chunk_size == usual
        sink.hold_at_most(100_000)
        assert sink.chunk_size == 100_000
        sink.hold_at_most(0)
        assert 0 < sink.chunk_size < 100_000
        await sink.send([bytes(sink.chunk_size)])
    assert (tmp_path / "x").stat().st_size == sink.chunk_size


async def test_file_in_memory_is_accessed_without_thread(
    tmp_path: Path, lives_in_memory: Callable[[bool], None]
) -> None:
    """This applies once the file is open. Opening, publishing and very large chunks still use a thread."""
    lives_in_memory(True)
    loop = threading.get_ident()
    threads: list[tuple[str, bool]] = []
    system = System(lambda name, n: threads.append((name, threading.get_ident() == loop)))
    data = content(5 << 20)
    storage = LocalStorage(tmp_path, system=system, chunk_size=1 << 20)
    await write(storage, "x", data)
    assert [here for name, here in threads if name == "writev"] == [False, True, True, True, True]
    assert not any(here for name, here in threads if name in ("open", "fsync", "replace"))
    threads.clear()
    async with storage.open_source("x") as source:
        assert await receive_all(source, 256 << 10) == data
    assert {here for name, here in threads if name == "pread"} == {True}
    await write(LocalStorage(tmp_path, system=system, chunk_size=8 << 20), "x", data + data)
    assert (tmp_path / "x").read_bytes() == data + data


async def test_files_in_memory_are_written_one_per_loop_turn(
    tmp_path: Path, lives_in_memory: Callable[[bool], None]
) -> None:
    """If all files were written in the same turn, the loop would be blocked for that much longer."""
    lives_in_memory(True)
    turns, writes = 0, list[int]()
    system = System(lambda name, n: writes.append(turns) if name == "writev" else None)
    storage = LocalStorage(tmp_path, system=system, chunk_size=1 << 20)

    async def send(sink: ByteSink) -> None:
        for _ in range(3):
            await sink.send([bytes(1 << 20)])

    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        sinks = [await stack.enter_async_context(storage.open_sink(str(n))) for n in range(4)]
        for sink in sinks:
            await sink.send([bytes(1 << 20)])  # the first opens the file
        writes.clear()
        for sink in sinks:
            tasks.start_soon(send, sink)
        while len(writes) < 12:
            turns += 1
            await anyio.lowlevel.checkpoint()
    # Two are possible, because trio may run one after a turn was counted and one before the next count.
    assert max(Counter(writes).values()) <= 2


async def test_in_memory_write_is_cancelled_between_chunks(
    tmp_path: Path, lives_in_memory: Callable[[bool], None]
) -> None:
    lives_in_memory(True)
    storage = LocalStorage(tmp_path, chunk_size=1_000)
    with anyio.CancelScope() as scope:
        async with storage.open_sink("x") as sink:
            await sink.send([bytes(1_000)])
            scope.cancel()
            await sink.send([bytes(1_000)])
    assert scope.cancelled_caught
    assert names(tmp_path) == []


@pytest.mark.parametrize("size", [7, 5_000, 200_000, 256 << 10, (1 << 20) - 1, 1 << 20, 2 << 20, 1 << 24])
@pytest.mark.parametrize("cached", ["never", "unsupported", "sometimes", "partly"])
async def test_every_way_of_reading_returns_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, cached: str
) -> None:
    data = content(5_000_001 if size > 100 else 5_001)
    (tmp_path / "x").write_bytes(data)
    if cached == "never":
        monkeypatch.setattr(local_source, "_NOWAIT", 0)
    asked = 0

    class Cache(System):
        def preadv(self, fd: int, buffers: list[memoryview], offset: int, flags: int) -> int:
            nonlocal asked
            asked += 1
            if cached == "unsupported":
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            if cached == "sometimes" and asked % 3 == 0:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            if cached == "partly" and asked % 3 == 0:
                return os.preadv(fd, [buffers[0][: len(buffers[0]) // 2 or 1]], offset)
            return os.preadv(fd, buffers, offset)

    storage = LocalStorage(tmp_path, system=Cache())
    async with storage.open_source("x", start=3) as source:
        assert await source.receive(2) == data[3:5]
        assert await receive_all(source, size) == data[5:]
        assert sum(map(len, source._ahead)) <= 1 << 20  # type: ignore[attr-defined]  # of the local source
    if cached == "unsupported":
        assert asked == 1


async def test_threaded_source_holds_bounded_number_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_source, "_NOWAIT", 0)
    system = System()
    (tmp_path / "x").write_bytes(bytes(8 << 20))
    async with LocalStorage(tmp_path, system=system).open_source("x") as source:
        held = []
        while await source.receive(256 << 10):
            held.append(sum(map(len, source._ahead)))  # type: ignore[attr-defined]  # of the local source
    assert max(held) == 3 * (256 << 10)
    assert held[0] == 0  # a reader of one block pays only for that block


async def test_growing_file_is_read_to_size_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    async with LocalStorage(tmp_path).open_source("x") as source:
        with path.open("ab") as file:
            file.write(b"after")
        assert await receive_all(source) == b"before"
    assert await LocalStorage(tmp_path).get("x") == b"beforeafter"


@pytest.mark.parametrize("size", [100, 1 << 20, 4 << 20])
async def test_file_truncated_during_reading_raises_object_changed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(5_000))
    async with LocalStorage(tmp_path).open_source("x") as source:
        await source.receive(100)
        os.truncate(path, 50)
        with pytest.raises(ObjectChangedError, match="the file was truncated from 5,000 to 100 bytes"):
            await receive_all(source, size)


async def test_file_changed_in_place_no_longer_matches_etag(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    info = await storage.put("x", b"data")
    os.utime(tmp_path / "x", ns=(1, 1))
    with pytest.raises(ObjectChangedError, match="open it again"):
        async with storage.open_source("x", info=info):
            raise AssertionError("not reached")


async def test_invalid_arguments_raise_value_error(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("x", b"data")
    for start, end in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="range"):
            storage.open_source("x", start=start, end=end)
    async with storage.open_source("x") as source:
        with pytest.raises(ValueError, match="max_bytes"):
            await source.receive(0)
    for key in ("a//b", "a/"):
        with pytest.raises(ValueError, match="empty segment"):
            await storage.head(key)
    with pytest.raises(ValueError, match="chunk_size"):
        LocalStorage(tmp_path, chunk_size=0)


# Unusual files -------------------------------------------------------------------------------------------------------


async def test_irregular_file_is_not_listed_as_object(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.symlink("nowhere", tmp_path / "dangling")
    storage = LocalStorage(tmp_path)
    with pytest.raises(StorageError, match="not a regular file"):
        await storage.get("pipe")
    with pytest.raises(ObjectNotFoundError, match="folder"):
        await storage.get("folder")
    with pytest.raises(ObjectNotFoundError):
        await storage.get("dangling")
    assert [info async for info in storage.list_objects()] == []


async def test_links_are_followed_except_cycles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y").write_bytes(b"y")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "x").write_bytes(b"x")
    os.symlink(root / "a", root / "a" / "b" / "circle")
    os.symlink(root, root / "self")
    os.symlink(tmp_path / "elsewhere", root / "out")
    os.symlink(root / "a" / "x", root / "file")
    os.symlink("loop", root / "loop")
    storage = LocalStorage(root)
    keys = [info.key async for info in storage.list_objects()]
    assert keys == ["a/x", "file", "out/y"]
    assert await storage.get("out/y") == b"y"
    assert [info.key async for info in storage.list_objects("a/b/")] == []


async def test_file_name_outside_utf_8_is_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).write_bytes(b"odd")
    storage = LocalStorage(tmp_path)
    (info,) = [info async for info in storage.list_objects()]
    assert await storage.get(info.key) == b"odd"


async def test_missing_root_is_created_on_first_write(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "not" / "yet")
    assert [info async for info in storage.list_objects()] == []
    assert not (tmp_path / "not").exists()
    await storage.put("x", b"data")
    assert names(tmp_path) == ["not/yet/x"]


async def test_relative_root_survives_change_of_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("data")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    await storage.put("x", b"data")
    assert names(tmp_path) == ["data/x"]
    with pytest.raises(ObjectNotFoundError, match="looking up data/y: No such file or directory"):
        await storage.head("y")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_storage_may_predate_and_outlive_event_loop(tmp_path: Path, backend: str) -> None:
    storage = LocalStorage(tmp_path)
    for n in range(2):
        anyio.run(storage.put, f"{n}", b"data", backend=backend)
    assert names(tmp_path) == ["0", "1"]


# Many objects and large objects --------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_thousand_concurrent_small_objects_leak_no_descriptors(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    descriptors = open_files()

    async def put(worker: int) -> None:
        for n in range(worker, 1_000, 16):
            await storage.put(f"{n % 7}/{n}", b"%d" % n)

    async with anyio.create_task_group() as group:
        for worker in range(16):
            group.start_soon(put, worker)
    keys = [info.key async for info in storage.list_objects()]
    assert keys == sorted(f"{n % 7}/{n}" for n in range(1_000))
    assert await storage.get("5/999") == b"999"
    assert open_files() == descriptors


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_sizes_around_two_chunks_round_trip(tmp_path: Path, extra: int) -> None:
    storage = LocalStorage(tmp_path)
    async with storage.open_sink("x") as sink:
        data = content(2 * sink.chunk_size + extra)
        await send_all(sink, data)
    assert await storage.get("x") == data


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield lambda mask: os.umask(mask)
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("mask", "published"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600), (0, 0o666)])
async def test_unfinished_file_is_private_and_object_follows_umask(
    tmp_path: Path, umask: Callable[[int], int], mask: int, published: int, exclusive: bool
) -> None:
    umask(mask)
    async with LocalStorage(tmp_path).open_sink("x", exclusive=exclusive) as sink:
        await sink.send([b"data"])
        (partial,) = tmp_path.iterdir()
        assert mode(partial) == 0o600
        await sink.flush([b"more"])
        assert mode(partial) == 0o600
        await sink.send([b"more"])
    assert [(path.name, mode(path)) for path in tmp_path.iterdir()] == [("x", published)]


@pytest.mark.parametrize("fault", ["replace", "fsync", "fchmod"])
async def test_unpublished_remainder_stays_private(tmp_path: Path, umask: Callable[[int], int], fault: str) -> None:
    system = System()
    storage = LocalStorage(tmp_path, system=system)
    with pytest.raises(StorageError):
        async with storage.open_sink("x") as sink:
            await sink.flush([b"data"])
            await sink.send([b"data"])
            calls: list[str] = []

            def once(name: str, n: int) -> int | None:
                calls.append(name)
                return errno.EIO if name == fault and calls.count(name) == 1 else None

            system.fault = once
    (partial,) = tmp_path.iterdir()
    assert (partial.name.endswith(".partial"), mode(partial)) == (True, 0o600)


async def test_early_opened_partial_file_receives_no_data(tmp_path: Path, umask: Callable[[int], int]) -> None:
    inodes: list[int] = []
    system = System()

    class Watching(System):
        def __getattr__(self, name: str) -> Any:
            if name == "open":
                return self._opened
            return getattr(system, name)

        def _opened(self, path: str, *args: Any) -> int:
            fd = os.open(path, *args)
            if path.endswith(".partial"):
                keep = os.open(path, os.O_RDONLY)  # so that the inode number is not reused
                inodes.append(os.fstat(keep).st_ino)
                spies.append(keep)
            return fd

    spies: list[int] = []
    try:
        await LocalStorage(tmp_path, system=Watching()).put("x", b"data")
        assert (tmp_path / "x").stat().st_ino == inodes[-1] != inodes[0]
        assert os.pread(spies[0], 10, 0) == b""
    finally:
        for spy in spies:
            os.close(spy)


async def test_objects_of_private_folder_are_private(tmp_path: Path, umask: Callable[[int], int]) -> None:
    storage = LocalStorage(tmp_path)
    storage.private = True
    await storage.put("x", b"data")
    async with storage.owned_by("w").open_sink("y") as sink:
        await sink.send([b"data"])
    assert [mode(tmp_path / name) for name in ("x", "y")] == [0o600, 0o600]


async def test_existing_folder_keeps_its_mode(tmp_path: Path, umask: Callable[[int], int]) -> None:
    disk = LocalStorage(tmp_path).disk
    disk.make_folder(str(tmp_path / "a" / "b"), 0o700)
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o755, 0o700]
    disk.make_folder(str(tmp_path / "a"), 0o700)
    assert mode(tmp_path / "a") == 0o755


async def test_object_modification_time_equals_file_time(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"data")
    os.utime(tmp_path / "key", ns=(0, 1_700_000_000_123_456_000))
    modified = (await LocalStorage(tmp_path).head("key")).modified
    assert modified.timestamp() == pytest.approx(1_700_000_000.123456, abs=1e-5)
