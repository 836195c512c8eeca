"""`WarmPython` starts programs of Python as processes of their own, forked from one that has imported what they import.

A new interpreter takes 0.4 s of processor time until it has imported a command; one that is forked takes 0.01 s. Its
descriptors, arguments, folder, environment, session and terminal are its own, as those of a new interpreter are, and it
ends as one does. What a program imports, and when, is not for this: such a test starts an interpreter.

``python -I -S warm_python.py SOCKET MODULE ARGUMENT ...`` is such a program for a shell, with what the shell gives it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

__all__ = ["Child", "WarmPython"]


class WarmPython:
    """A context: the process that programs are forked from, with ``modules`` imported.

    Args:
        socket_path: where it listens; a path of at most a hundred bytes.
        environment: what differs in its own environment, as what Python reads when it starts.
    """

    def __init__(self, socket_path: Path | str, *modules: str, environment: Mapping[str, str] | None = None) -> None:
        self.socket_path = str(socket_path)
        self._modules = modules
        self._environment = dict(environment or {})

    def __enter__(self) -> WarmPython:
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", self.socket_path, *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | self._environment,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=60)  # its input ends, and so does it
        os.unlink(self.socket_path)

    def start(
        self,
        module: str,
        *arguments: str,
        folder: Path | str,
        stdin: int,
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """``python -m MODULE ARGUMENTS``, in a session of its own, whose terminal is stdin if that is one."""
        told = dict(os.environ if environment is None else environment)
        return Child(self.socket_path, [module, *arguments], str(folder), told, [stdin, stdout, stderr], session=True)

    def script(self, module: str) -> str:
        """Of a shell: the module with the script's arguments."""
        return f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" "{self.socket_path}" {module} "$@"\n'


class Child:
    """A program that was started, and may be waited for and killed.

    Attributes:
        pid: its number, which is that of its process group, too, when it has a session of its own.
    """

    def __init__(
        self,
        socket_path: str,
        argv: list[str],
        folder: str,
        environment: dict[str, str],
        descriptors: list[int],
        *,
        session: bool,
    ) -> None:
        self._code: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(socket_path)
        asked = json.dumps([argv, folder, environment, session]).encode()
        socket.send_fds(self._connection, [len(asked).to_bytes(4, "little")], descriptors)
        self._connection.sendall(asked)
        self.pid = self._number()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative where a signal ended it. Raises TimeoutError."""
        if self._code is None:
            self._connection.settimeout(timeout)
            self._code = os.waitstatus_to_exitcode(self._number())
            self._connection.close()
        return self._code

    def has_ended(self) -> bool:
        return self._code is not None or bool(select.select([self._connection], [], [], 0)[0])

    def kill(self) -> None:
        """Kill it, unless it has ended, with all of its session."""
        if not self.has_ended():
            with suppress(ProcessLookupError):  # it has ended since
                os.killpg(self.pid, signal.SIGKILL)

    def _number(self) -> int:
        return int.from_bytes(_exactly(self._connection, 4), "little")


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        block = connection.recv(size - len(read))
        if not block:
            raise EOFError("the process that programs are forked from has gone")
        read += block
    return read


def _serve(socket_path: str) -> Callable[[], None]:
    """Fork a child for each connection until the standard input ends. Returns in the child, with what it has to do."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_path)
    listener.listen(100)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([0, woken, listener], [], [])
        if 0 in ready:
            return lambda: None
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    _tell(running.pop(pid), status)
        if listener in ready:
            connection, _ = listener.accept()
            head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
            asked = json.loads(_exactly(connection, int.from_bytes(head, "little")))
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, before)
                for one in (listener, connection, *running.values()):
                    one.close()
                os.close(woken)
                os.close(wake)
                return lambda: _become(asked, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            running[pid] = connection
            connection.sendall(pid.to_bytes(4, "little"))


def _tell(connection: socket.socket, status: int) -> None:
    with suppress(OSError):  # nobody waits for it
        connection.sendall(status.to_bytes(4, "little"))
    connection.close()


def _become(asked: Any, descriptors: list[int]) -> None:
    """Be the program that was asked for."""
    import io
    import random
    import runpy

    (module, *arguments), folder, environment, session = asked
    if session:
        os.setsid()
    for at, descriptor in enumerate(descriptors):
        os.dup2(descriptor, at)
        os.close(descriptor)
    if session and os.isatty(0):
        os.close(os.open(os.ttyname(0), os.O_RDWR))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    for name, at, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "backslashreplace" if at == 2 else "strict"
        raw = open(at, mode + "b", 0 if unbuffered and at else -1, closefd=False)  # noqa: SIM115
        lines = at == 2 or os.isatty(at)
        through = unbuffered and at > 0
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    random.seed()
    sys.argv = [module, *arguments]
    sys.path[0] = folder
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _main() -> None:
    if sys.argv[1] == "--serve":
        for name in sys.argv[3:]:
            __import__(name)
        # What a child does it does as the main module, and ends as that.
        _serve(sys.argv[2])()
    else:
        # In the shell's session: what its terminal sends reaches both.
        child = Child(sys.argv[1], sys.argv[2:], os.getcwd(), dict(os.environ), [0, 1, 2], session=False)
        sys.exit(child.wait())


if __name__ == "__main__":
    _main()
