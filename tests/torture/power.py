"""Cut the power. Data that was not fsynced may be lost, but no acknowledged record.

`ForgetfulSystem` is a layer between the local backend and `os`. It records which file contents and which names in
folders each fsync made durable. At the cut, it creates a copy of the folder from the durable data and a random part of
the rest: for each unsynced name, its old or its new state; for each file, its synced bytes, followed by nothing, the
rest, a part of the rest, or zeros. From then on, every operation fails. `recover` must find all acknowledged records in
the copy.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from row import Row

import asyncrec
from asyncrec._framing.compression import CompressionOptions
from asyncrec.errors import StorageError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing._clock import virtual_backend

_CHANGES = ("open", "write", "writev", "pwrite", "fsync", "replace", "link", "unlink", "mkdir", "rmdir")


class ForgetfulSystem:
    """A replacement for `os` for a local backend in one folder, where the power is cut before change number ``cut``."""

    def __init__(self, root: Path, survivors: Path, cut: int, rng: random.Random) -> None:
        self.root = root
        self.survivors = survivors
        self.off = False
        self._left = cut
        self._rng = rng
        self._lock = threading.RLock()
        self._contents: dict[int, bytes] = {}  # durable contents, by inode
        self._names: dict[str, dict[str, int]] = {str(root): {}}  # durable names and their inodes, by folder

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name not in _CHANGES:
            return call

        def change(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                if not self.off:
                    self._left -= 1
                    if self._left < 0:
                        self._survive()
                        self.off = True
                if self.off:
                    raise OSError(errno.EIO, "the power is off")
                result = call(*arguments, **options)
                if name == "fsync":
                    self._synced(arguments[0])
                return result

        return change

    def _synced(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isdir(path):
            self._names[path] = {name: os.stat(os.path.join(path, name)).st_ino for name in os.listdir(path)}
        else:
            self._contents[os.fstat(fd).st_ino] = Path(path.removesuffix(" (deleted)")).read_bytes()

    def _survive(self) -> None:
        """Copy a possible state of the disk after the cut, folder by folder."""
        now: dict[int, bytes] = {}
        for path in self.root.rglob("*"):
            if path.is_file():
                now[path.stat().st_ino] = path.read_bytes()
        kept: dict[int, bytes] = {}

        def content(inode: int) -> bytes:
            if inode not in kept:
                kept[inode] = self._some_of(self._contents.get(inode, b""), now.get(inode, b""))
            return kept[inode]

        def copy(folder: str, to: Path) -> None:
            to.mkdir(parents=True)
            durable = self._names.get(folder, {})
            current = {name: os.stat(os.path.join(folder, name)).st_ino for name in os.listdir(folder)}
            for name in durable.keys() | current.keys():
                inode = (durable if self._rng.random() < 0.5 else current).get(name)
                path = os.path.join(folder, name)
                if inode is None:
                    continue
                if os.path.isdir(path):
                    copy(path, to / name)
                else:
                    (to / name).write_bytes(content(inode))

        copy(str(self.root), self.survivors)

    def _some_of(self, durable: bytes, current: bytes) -> bytes:
        """Return a file's content after the cut. Files here only grow or change in their unsynced part."""
        rest = current[len(durable) :]
        match self._rng.randrange(4):
            case 0:
                return durable
            case 1:
                return durable + rest
            case 2:
                return durable + rest[: self._rng.randrange(len(rest) + 1)]
            case _:
                return durable + bytes(len(rest))


async def _write(storage: LocalStorage, seed: int, tell: Callable[[str, int], None]) -> None:
    rng = random.Random(seed)
    options: dict[str, Any] = (
        {"num_shards": rng.randint(1, 3)}
        if rng.random() < 0.3
        else {"max_shard_records": rng.choice([5, 20, 1000]), "open_shards": rng.randint(1, 3)}
    )
    rolling = "num_shards" not in options
    kind = rng.choice(["", "", "GZIP", "ZLIB"])
    options["compression"] = CompressionOptions(type=kind, **({"member_bytes": 2000} if kind == "GZIP" else {}))
    keyed = rng.random() < 0.5
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for number in range(60):
            record = b"%06d:" % number + random.Random(f"{seed} {number}").randbytes(number % 7 * 100)
            await writer.write(record, key=b"%d" % number if keyed else None)
            chance = rng.random()
            if chance < 0.15:
                await writer.flush(require="spooled")
                tell("s", number)
            elif chance < 0.2 and rolling:
                await writer.commit()
                tell("c", number)
    tell("c", 59)


async def _recovered(storage: LocalStorage) -> asyncrec.Recovery:
    try:
        return await asyncrec.recover("pages", storage=storage)
    except FileNotFoundError:  # no trace of the job survived
        return asyncrec.Recovery()


async def _numbers(storage: LocalStorage) -> list[int]:
    try:
        manifest = await asyncrec.read_manifest("pages", storage=storage)
    except FileNotFoundError:
        return []
    found: list[int] = []
    for shard in manifest.shards:
        records = await asyncrec.read_records(shard.path, storage=storage)
        size = (await storage.head(shard.path)).size
        if (len(records), size) != (shard.records, shard.bytes):
            raise AssertionError(f"the manifest is wrong about {shard.path}")
        found += [int(record[:6]) for record in records]
    return found


async def _one(seed: int, folder: Path) -> list[str]:
    rng = random.Random(seed)
    root = folder / "before"
    root.mkdir()
    system = ForgetfulSystem(root, folder / "after", int(10 ** (rng.random() * 2.6)), rng)
    told = {"s": -1, "c": -1}

    def tell(level: str, number: int) -> None:
        if not system.off:
            told[level] = number

    storage = LocalStorage(root, chunk_size=rng.choice([100, 1000, 1 << 20]), system=system)
    try:
        await _write(storage, seed, tell)
    except (StorageError, OSError):
        if not system.off:
            raise
    if not system.off:
        return []  # the writer ended before the cut
    survivors = LocalStorage(folder / "after")
    try:
        before = await _numbers(survivors)
        recovery = await _recovered(survivors)
        after = await _numbers(survivors)
        again = await _recovered(survivors)
    except Exception as error:
        return [repr(error)]
    problems = []
    if lost := set(range(told["c"] + 1)) - set(before):
        problems.append(f"committed and lost: {sorted(lost)[:5]}")
    if lost := set(range(max(told.values()) + 1)) - set(after):
        problems.append(f"spooled and lost: {sorted(lost)[:5]}; {recovery}")
    if len(set(after)) != len(after):
        problems.append("records are there twice")
    if again != asyncrec.Recovery():
        problems.append(f"recovering once more did something: {again}")
    return problems


def power_cuts(seed: int, rounds: int) -> Row:
    lost = 0
    base = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    for number in range(rounds):
        name, options = virtual_backend("trio" if number % 2 else "asyncio")
        folder = base / str(number)
        folder.mkdir()
        if problems := anyio.run(_one, seed * 1_000_003 + number, folder, backend=name, backend_options=options):
            lost += 1
            print(f"power cut {number} of seed {seed}:\n  " + "\n  ".join(problems), flush=True)
        shutil.rmtree(folder)
    shutil.rmtree(base)
    return Row("the power is cut, and forgets what was not fsynced", rounds, lost, seed)


ROUNDS = [power_cuts]
