"""When a job fails because of its disk, repeating the call continues the work and deletes the failed call's files."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio


# Return whether an operation fails, given its number, its name, and its path ("" if it has none).
Fails: TypeAlias = Callable[[int, str, str], bool]


class Disk:
    """A replacement for `os` whose changing operations fail if ``fails`` returns true for them."""

    def __init__(self, fails: Fails) -> None:
        self.operations: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in (
            "fsync",
            "ftruncate",
            "link",
            "mkdir",
            "open",
            "pwrite",
            "replace",
            "unlink",
            "write",
            "writev",
        ):
            return real

        def call(*args: Any) -> Any:
            self.operations.append(name)
            if self._fails(len(self.operations) - 1, name, "" if isinstance(args[0], int) else os.fspath(args[0])):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        return call


def once(k: int) -> Fails:
    return lambda number, name, path: number == k


def for_good(k: int) -> Fails:
    return lambda number, name, path: number >= k


def and_removes_no_index(k: int) -> Fails:
    return lambda number, name, path: number == k or (number > k and name == "unlink" and "/_index/" in path)


def and_removes_no_keys(k: int) -> Fails:
    return lambda number, name, path: number == k or (number > k and name == "unlink" and "/_keys/" in path)


def and_removes_no_unfinished_shard(k: int) -> Fails:
    return lambda number, name, path: number == k or (number > k and name == "unlink" and ".tfrecord.w.partial" in path)


@pytest.mark.slow
async def test_recovered_records_have_keys_after_any_failure(tmp_path: Path) -> None:
    """A record without its key would be crawled again and then be stored twice."""

    async def write(folder: Path, system: Any = os) -> None:
        storage = LocalStorage(folder, system=system)
        async with asyncrec.open_sharded_writer("pages", writer_id="w", storage=storage) as writer:
            for key in ("a", "b"):
                await writer.write(key.encode(), key=key)

    async for folder, about in failing_in_turn(tmp_path, and_removes_no_unfinished_shard, write):
        with suppress(ObjectNotFoundError):  # it failed before it made anything
            await asyncrec.recover(folder / "pages")
        async with asyncrec.open_sharded_writer(folder / "pages", on_duplicate="skip") as writer:
            for key in ("a", "b"):
                await writer.write(key.encode(), key=key)
        async with tools.open_records(folder / "pages") as stream:
            records = [found.data async for some in stream for found in some]
        assert sorted(records) == [b"a", b"b"], about


@pytest.mark.slow
@pytest.mark.parametrize("kind", [once, for_good, and_removes_no_index, and_removes_no_keys])
async def test_conversion_repeated_after_any_failure_writes_records_once(
    tmp_path: Path, kind: Callable[[int], Fails]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % number for number in range(9)))

    async def convert(folder: Path, system: Any = os) -> None:
        storage = LocalStorage(folder, system=system)
        await tools.convert(tmp_path / "in.jsonl", "pages", target_storage=storage)

    async for folder, about in failing_in_turn(tmp_path, kind, convert):
        await convert(folder)
        for path in folder.rglob("*.partial"):
            os.utime(path, (0, 0))  # small old files are presumed dead
        await asyncrec.recover(folder / "pages")
        async with tools.open_records(folder / "pages") as stream:
            records = [found.data async for some in stream for found in some]
        assert [asyncrec.decode_example(each)["n"] for each in records] == list(range(9)), about
        verified = await tools.verify(folder / "pages")
        assert (verified.ok, verified.orphans) == (True, []), about
        assert list(folder.rglob("*.partial")) == [], about


@pytest.mark.slow
@pytest.mark.parametrize("kind", [and_removes_no_index, and_removes_no_keys])
async def test_next_fixed_writer_removes_leftovers_of_any_failure(tmp_path: Path, kind: Callable[[int], Fails]) -> None:
    async def write(folder: Path, system: Any = os) -> None:
        storage = LocalStorage(folder, system=system)
        async with asyncrec.open_sharded_writer("pages", num_shards=1, mode="replace", storage=storage) as writer:
            await writer.write(b"record", key="key")

    async for folder, about in failing_in_turn(tmp_path, kind, write):
        await write(folder)
        parts = [path for part in ("_index", "_keys") for path in (folder / part).iterdir()]
        assert [path.name for path in parts if path.name.endswith(".partial")] == [], about


async def failing_in_turn(
    tmp_path: Path, kind: Callable[[int], Fails], act: Callable[[Path, Any], Awaitable[None]]
) -> AsyncIterator[tuple[Path, str]]:
    """Call ``act`` once for each of its operations, on a disk that fails there; yield the folder and what failed."""
    calm = Disk(lambda number, name, path: False)
    await act(tmp_path / "calm", calm)
    for k in range(len(calm.operations)):
        folder = tmp_path / f"{kind.__name__}{k}"
        with suppress(StorageError):  # cleanup errors are not raised
            await act(folder, Disk(kind(k)))
        yield folder, f"{kind.__name__} at {calm.operations[k]} (number {k})"


async def test_full_disk_error_counts_safe_and_unsafe_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = False
    disk = Disk(lambda number, name, path: full and name in ("pwrite", "writev"))
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(storage.disk, "system", disk)
    returned = 0
    with pytest.raises(StorageError) as caught:
        async with asyncrec.open_sharded_writer("pages", storage=storage, flush_seconds=None) as writer:
            await writer.write_many([b"safe"] * 100)
            assert await writer.flush() == "spooled"
            full = True
            while True:
                await writer.write(bytes(100_000))
                returned += 1
    command = f"'asyncrec recover {tmp_path / 'pages'}'"
    said = (
        f"0 records were committed, 100 more are on the disk (to commit them, run {command}), {returned} accepted "
        "records are not safe: write them again"
    )
    assert said in caplog.text
    assert any(said in note for note in caught.value.__notes__)
    full = False
    assert (await asyncrec.recover(tmp_path / "pages")).records == 100
