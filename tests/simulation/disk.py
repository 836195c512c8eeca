"""A simulated disk. After a power cut, it contains all fsynced data and a random part of the other data.

A folder records the changes to its names since it was last synced, in order. A power cut keeps only the first of these
changes, or an arbitrary subset. A rename is a single change, which is either kept completely or not at all.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .process import Process

__all__ = ["Machine", "Node", "OpenFile", "failure"]

_EPOCH = 1_700_000_000.0  # the wall-clock time at which a world begins
_USER, _GROUP = os.geteuid(), os.getegid()


@dataclass(eq=False)
class Node:
    """A file or a folder. ``durable`` is the content at the last fsync, or `None` before the first."""

    number: int
    folder: bool
    modified: float
    data: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None
    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)
    links: int = 0
    mode: int = 0o644
    locks: dict[str, OpenFile] = field(default_factory=dict)  # by host, or shared if hosts see each other's locks


@dataclass(eq=False)
class OpenFile:
    node: Node
    process: Process
    path: str
    position: int = 0
    appends: bool = False
    strand: Any = None  # the strand (thread) that took the lock


class _Status(NamedTuple):
    """A result of `os.stat`."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_nlink: int
    st_size: int
    st_mtime_ns: int
    st_uid: int
    st_gid: int

    @property
    def st_blocks(self) -> int:
        return -(-self.st_size // 512)  # simulated files have no holes

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


def failure(code: int, path: str = "") -> OSError:
    return OSError(code, os.strerror(code), path or None)


class Machine:
    """The tree below ``/<name>``, and its open descriptors.

    Attributes:
        now: a function that returns the world's time.
        reaped: the descriptors that were closed because their process had ended.
        spare: the number of free bytes.
    """

    def __init__(self, name: str, device: int, now: Callable[[], float]) -> None:
        self.name = name
        self.device = device
        self.now = now
        self.files: dict[int, OpenFile] = {}
        self.spare = 1 << 40
        self.links_work = True
        self._numbers = 1
        self._descriptors = 1_000_000 * device  # descriptors are unique in a world
        self.reaped: set[int] = set()
        self.root = self._node(folder=True)
        self.root.links = 1

    def _node(self, *, folder: bool) -> Node:
        self._numbers += 1
        return Node(self._numbers, folder, self.now())

    # -- names --------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Node:
        node = self.root
        for part in path.split("/")[2:]:
            if not part:
                continue
            if not node.folder:
                raise failure(errno.ENOTDIR, path)
            found = node.names.get(part)
            if found is None:
                raise failure(errno.ENOENT, path)
            node = found
        return node

    def parent(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        if not folder:
            raise failure(errno.EROFS, path)
        node = self.find(folder)
        if not node.folder:
            raise failure(errno.ENOTDIR, path)
        if len(os.fsencode(name)) > 255:
            raise failure(errno.ENAMETOOLONG, path)
        return node, name

    def change(self, folder: Node, names: dict[str, Node | None]) -> None:
        for name, node in names.items():
            old = folder.names.pop(name, None)
            if old is not None:
                old.links -= 1
            if node is not None:
                folder.names[name] = node
                node.links += 1
        folder.changes.append(names)
        folder.modified = self.now()

    def make(self, path: str, *, folder: bool) -> Node:
        parent, name = self.parent(path)
        if name in parent.names:
            raise failure(errno.EEXIST, path)
        node = self._node(folder=folder)
        self.change(parent, {name: node})
        return node

    def status(self, node: Node) -> _Status:
        mode = stat.S_IFDIR | 0o755 if node.folder else stat.S_IFREG | node.mode
        modified = int((_EPOCH + node.modified) * 1e9)
        return _Status(mode, node.number, self.device, node.links, len(node.data), modified, _USER, _GROUP)

    # -- descriptors --------------------------------------------------------------------------------------------------

    def open(self, node: Node, process: Process, path: str) -> int:
        self._descriptors += 1
        self.files[self._descriptors] = OpenFile(node, process, path)
        return self._descriptors

    def close(self, fd: int) -> None:
        file = self.files.pop(fd)
        for host in [host for host, holder in file.node.locks.items() if holder is file]:
            del file.node.locks[host]

    def close_all(self, process: Process) -> None:
        for fd in [fd for fd, file in self.files.items() if file.process is process]:
            self.close(fd)
            self.reaped.add(fd)

    def put(self, file: OpenFile, data: bytes, position: int) -> int:
        node = file.node
        grown = position + len(data) - len(node.data)
        if grown > self.spare:
            data = data[: max(0, len(data) - (grown - self.spare))]
            if not data:
                raise failure(errno.ENOSPC, file.path)
            grown = position + len(data) - len(node.data)
        if grown > 0:
            self.spare -= grown
        if position > len(node.data):
            node.data.extend(bytes(position - len(node.data)))
        node.data[position : position + len(data)] = data
        node.modified = self.now()
        return len(data)

    def sync(self, node: Node) -> None:
        if node.folder:
            node.durable_names = dict(node.names)
            node.changes.clear()
        else:
            node.durable = bytes(node.data)

    # -- the power cut ------------------------------------------------------------------------------------------------

    def cut_power(self, rng: random.Random) -> None:
        """Cut the power. All open files and a part of the unsynced changes are lost."""
        self.reaped.update(self.files)
        self.files.clear()
        kept: dict[Node, bytes] = {}

        def survive(folder: Node) -> None:
            names = dict(folder.durable_names)
            changes = folder.changes
            order, place = rng.random(), rng.randrange(len(changes) + 1)
            if order < 0.4:
                applied = changes[:place]
            elif order < 0.6:  # filesystems do not guarantee that older changes survive
                applied = changes[place:] if order < 0.5 else changes[-1:]
            else:
                share = rng.choice((0.0, 0.5, 0.9, 1.0))
                applied = [change for change in changes if rng.random() < share]
            for change in applied:
                for name, node in change.items():
                    if node is None:
                        names.pop(name, None)
                    else:
                        names[name] = node
            folder.names, folder.durable_names = names, dict(names)
            folder.changes = []
            for node in names.values():
                node.locks.clear()
                if node.folder:
                    survive(node)
                elif node not in kept:
                    kept[node] = _some_of(rng, node.durable or b"", bytes(node.data))

        survive(self.root)
        for node, content in kept.items():
            node.data = bytearray(content)
            node.durable = content
            node.links = 0
        self._count_links(self.root)

    def _count_links(self, folder: Node) -> None:
        for node in folder.names.values():
            node.links = 1 if node.folder else node.links + 1
            if node.folder:
                self._count_links(node)


def _some_of(rng: random.Random, durable: bytes, current: bytes) -> bytes:
    if not current.startswith(durable):  # overwritten or truncated
        return rng.choice((durable, current))
    rest = current[len(durable) :]
    match rng.randrange(4):
        case 0:
            return durable
        case 1:
            return current
        case 2:
            return durable + rest[: rng.randrange(len(rest) + 1)]
        case _:
            return durable + bytes(len(rest))
