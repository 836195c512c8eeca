"""`os`, `open`, `fcntl` and so on, as the processes of a world see them. Paths below ``/<machine>`` are on its disk.

At each call, the process may die, other processes may run, and the disk may fail.
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any, Protocol

from .disk import Machine, OpenFile, failure
from .process import PROCESS, Killed, Process
from .streams import Entries, Entry, Raw, SystemPath

__all__ = ["System", "World"]

# The functions of `os` that do not access files, which are the real ones.
_NO_FILES = {"fsdecode", "fsencode", "fspath", "getegid", "geteuid", "getuid", "major", "minor", "strerror", "sysconf"}


class World(Protocol):
    """The methods of a world that the system calls need."""

    def call(self, process: Process, name: str, path: str) -> None:
        """Prepare for a system call. Raises the disk's error if the call fails."""

    def machine_of(self, fd: int) -> Machine: ...
    def misuse(self, what: str) -> None: ...
    def shortened(self, size: int) -> int: ...
    def in_memory(self, machine: Machine) -> bool: ...
    def shared(self, machine: Machine) -> bool: ...
    def boot(self, process: Process) -> str: ...
    def removed(self, process: Process, path: str) -> None:
        """Note that the last name of a non-empty file was removed."""


class System:
    """A replacement for `os`. Of the real functions, only those that do not access files are available."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.path = SystemPath(self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if callable(found) and not isinstance(found, type) and name not in _NO_FILES:
            raise NotImplementedError(f"os.{name} would touch the real system: the simulation has to have it")
        setattr(self, name, found)  # cached
        return found

    # -- the calling process ------------------------------------------------------------------------------------------

    def _call(self, name: str, path: str = "") -> Process:
        process = PROCESS.get()
        if process is None or process.dead:
            raise Killed
        self._world.call(process, name, path)
        if process.dead:
            raise Killed
        return process

    def _at(self, path: Any, name: str) -> tuple[Process, str]:
        text = os.fsdecode(path)
        process = self._call(name, text)
        if text.split("/")[1:2] != [process.machine.name]:
            raise failure(errno.ENOENT, text)
        return process, text

    def node(self, path: Any, name: str) -> Any:
        process, text = self._at(path, name)
        return process.machine.find(text)

    def _file(self, fd: int, name: str) -> tuple[Process, OpenFile]:
        process = PROCESS.get()
        if process is None or process.dead:
            raise Killed
        file = process.machine.files.get(fd)
        if file is None or file.process is not process:
            self._world.misuse(f"{name} of a descriptor that is not open")
            raise failure(errno.EBADF)
        self._call(name, file.path)
        return process, file

    # -- files --------------------------------------------------------------------------------------------------------

    def getpid(self) -> int:
        process = PROCESS.get()
        return process.pid if process is not None else 1

    def cpu_count(self) -> int:
        return 2

    process_cpu_count = cpu_count

    def sched_getaffinity(self, pid: int) -> set[int]:
        return set(range(self.cpu_count()))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        process, text = self._at(path, "open")
        machine = process.machine
        try:
            node = machine.find(text)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            node = machine.make(text, folder=False)
        else:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise failure(errno.EEXIST, text)
            if node.folder and flags & (os.O_WRONLY | os.O_RDWR):
                raise failure(errno.EISDIR, text)
            if not node.folder and flags & os.O_DIRECTORY:
                raise failure(errno.ENOTDIR, text)
        if flags & os.O_TRUNC:
            node.data.clear()
        return int(machine.open(node, process, text))

    def close(self, fd: int) -> None:
        # This call never fails and never triggers a fault, because cleanup also makes it on the loop's thread, and
        # finalizers may make it in any process.
        machine = self._world.machine_of(fd)
        if fd in machine.files:
            machine.close(fd)
        elif fd not in machine.reaped:
            self._world.misuse("close of a descriptor that is not open")
            raise failure(errno.EBADF)

    def write(self, fd: int, data: Any) -> int:
        process, file = self._file(fd, "write")
        view = bytes(memoryview(data).cast("B"))
        view = view[: self._world.shortened(len(view))]
        if file.appends:
            file.position = len(file.node.data)
        count = int(process.machine.put(file, view, file.position))
        file.position += count
        return count

    def writev(self, fd: int, buffers: Any) -> int:
        return self.write(fd, b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers))

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        process, file = self._file(fd, "pwrite")
        view = bytes(memoryview(data).cast("B"))
        return int(process.machine.put(file, view[: self._world.shortened(len(view))], position))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        _, file = self._file(fd, "pread")
        if file.node.folder:
            raise failure(errno.EISDIR, file.path)
        block = bytes(file.node.data[position : position + size])
        return block[: self._world.shortened(len(block))]

    def read(self, fd: int, size: int) -> bytes:
        _, file = self._file(fd, "read")
        block = bytes(file.node.data[file.position : file.position + size])
        file.position += len(block)
        return block

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        block = self.pread(fd, size, position)
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            part = block[done : done + view.nbytes]
            view[: len(part)] = part
            done += len(part)
        return len(block)

    def posix_fadvise(self, fd: int, position: int, size: int, advice: int) -> None:
        self._file(fd, "posix_fadvise")

    def lseek(self, fd: int, position: int, how: int = os.SEEK_SET) -> int:
        _, file = self._file(fd, "lseek")
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: file.position, os.SEEK_END: len(file.node.data)}
        if (base := bases.get(how)) is None:  # SEEK_DATA and SEEK_HOLE are not supported
            raise failure(errno.EINVAL)
        file.position = base + position
        return file.position

    def fsync(self, fd: int) -> None:
        process, file = self._file(fd, "fsync")
        process.machine.sync(file.node)

    fdatasync = fsync

    def ftruncate(self, fd: int, size: int) -> None:
        process, file = self._file(fd, "ftruncate")
        data = file.node.data
        del data[size:]
        data.extend(bytes(size - len(data)))
        file.node.modified = process.machine.now()

    def fchmod(self, fd: int, mode: int) -> None:
        _, file = self._file(fd, "fchmod")
        file.node.mode = mode

    def fstat(self, fd: int) -> Any:
        process, file = self._file(fd, "fstat")
        return process.machine.status(file.node)

    def stat(self, path: Any, **_: Any) -> Any:
        if isinstance(path, int):
            return self.fstat(path)
        process, text = self._at(path, "stat")
        return process.machine.status(process.machine.find(text))

    lstat = stat

    def utime(self, path: Any, *_: Any, **__: Any) -> None:
        process, text = self._at(path, "utime")
        process.machine.find(text).modified = process.machine.now()

    # -- names --------------------------------------------------------------------------------------------------------

    def replace(self, source: Any, target: Any) -> None:
        process, text = self._at(source, "replace")
        machine = process.machine
        (old, name), (new, to) = machine.parent(text), machine.parent(os.fsdecode(target))
        node = old.names.get(name)
        if node is None:
            raise failure(errno.ENOENT, text)
        there = new.names.get(to)
        if there is not None and there.folder:
            raise failure(errno.EISDIR, os.fsdecode(target))
        if there is node:
            return
        if old is new:
            machine.change(old, {to: node, name: None})
        else:
            machine.change(new, {to: node})
            machine.change(old, {name: None})

    rename = replace

    def link(self, source: Any, target: Any, **_: Any) -> None:
        process, text = self._at(source, "link")
        machine = process.machine
        if not machine.links_work:
            raise failure(errno.EPERM, text)
        node = machine.find(text)
        folder, name = machine.parent(os.fsdecode(target))
        if name in folder.names:
            raise failure(errno.EEXIST, os.fsdecode(target))
        machine.change(folder, {name: node})

    def unlink(self, path: Any, **_: Any) -> None:
        process, text = self._at(path, "unlink")
        folder, name = process.machine.parent(text)
        node = folder.names.get(name)
        if node is None:
            raise failure(errno.ENOENT, text)
        if node.folder:
            raise failure(errno.EISDIR, text)
        process.machine.change(folder, {name: None})
        if not node.links and node.data:
            self._world.removed(process, text)

    remove = unlink

    def mkdir(self, path: Any, mode: int = 0o777, **_: Any) -> None:
        process, text = self._at(path, "mkdir")
        process.machine.make(text, folder=True)

    def makedirs(self, path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        text = os.fsdecode(path)
        parts = text.split("/")
        for end in range(3, len(parts) + 1):
            try:
                self.mkdir("/".join(parts[:end]))
            except FileExistsError:
                if end == len(parts) and not (exist_ok and self.path.isdir(text)):
                    raise

    def rmdir(self, path: Any, **_: Any) -> None:
        process, text = self._at(path, "rmdir")
        folder, name = process.machine.parent(text)
        node = process.machine.find(text)
        if not node.folder:
            raise failure(errno.ENOTDIR, text)
        if node.names:
            raise failure(errno.ENOTEMPTY, text)
        process.machine.change(folder, {name: None})

    def listdir(self, path: Any) -> list[str]:
        node = self.node(path, "listdir")
        if not node.folder:
            raise failure(errno.ENOTDIR, os.fsdecode(path))
        return list(node.names)

    def scandir(self, path: Any) -> Entries:
        folder = os.fsdecode(path)
        return Entries([Entry(self, folder, name) for name in self.listdir(path)])

    # -- functions outside `os` ---------------------------------------------------------------------------------------

    def open_stream(self, path: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
        """Replace the built-in ``open``."""
        text = os.fsdecode(path)
        if text == "/proc/swaps":
            return io.StringIO("Filename Type Size Used Priority\n")
        if text.startswith("/proc/self/fdinfo/"):
            return io.StringIO("pos:\t0\nmnt_id:\t1\n")
        if text == "/proc/sys/kernel/random/boot_id":
            process = PROCESS.get()
            return io.StringIO(self._world.boot(process) if process is not None else "none")
        if text == "/proc/self/mountinfo":
            process = PROCESS.get()
            machine = process.machine if process is not None else None
            kind = "tmpfs" if machine is not None and self._world.in_memory(machine) else "ext4"
            kind = "fuse.sshfs" if machine is not None and self._world.shared(machine) else kind
            device = machine.device if machine is not None else 0
            return io.StringIO(f"1 1 {os.major(device)}:{os.minor(device)} / / rw - {kind} none rw\n")
        flags = {"r": os.O_RDONLY, "a": os.O_CREAT | os.O_WRONLY, "w": os.O_CREAT | os.O_TRUNC | os.O_WRONLY}[mode[0]]
        fd = self.open(text, flags)
        file = self._world.machine_of(fd).files[fd]  # without a system call, at which a fault could strike
        file.appends = mode[0] == "a"
        return io.BufferedReader(Raw(self, fd)) if mode[0] == "r" else io.BufferedWriter(Raw(self, fd))

    def remove_tree(self, path: Any, ignore_errors: bool = False) -> None:
        """Replace `shutil.rmtree`."""
        try:
            for entry in self.scandir(path):
                if entry.is_dir():
                    self.remove_tree(entry.path, ignore_errors)
                else:
                    self.unlink(entry.path)
            self.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise
