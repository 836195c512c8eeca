"""`WarmPython` starts Python programs in new processes by forking a process that has already imported their modules.

A new interpreter needs 0.4 s of CPU time to import a command; a forked one needs 0.01 s. Like a new interpreter, it has
its own descriptors, arguments, folder, environment, session and terminal, and exits in the same way. Tests of what a
program imports, and when, cannot use this and must start a new interpreter.

``python -I -S warm_python.py SOCKET MODULE ARGUMENT ...`` runs such a program from a shell, which provides the
descriptors, the folder and the environment.
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
    """A context manager for the process that programs are forked from, with ``modules`` already imported.

    Args:
        socket_path: the path of the socket on which the process listens; at most a hundred bytes long.
        environment: changes to the process's own environment, such as variables that Python reads at startup.
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
        self._process.communicate(timeout=60)  # the process exits when its input ends
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
        """Run ``python -m MODULE ARGUMENTS`` in its own session, whose terminal is stdin if that is a terminal."""
        told = dict(os.environ if environment is None else environment)
        return Child(self.socket_path, [module, *arguments], str(folder), told, [stdin, stdout, stderr], session=True)

    def script(self, module: str) -> str:
        """Return a shell script that runs the module with the script's arguments."""
        return f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" "{self.socket_path}" {module} "$@"\n'


class Child:
    """A program that was started and can be waited for and killed.

    Attributes:
        pid: the process id, which is also that of its process group if it has its own session.
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
        """Return the exit code, which is negative if a signal ended the program. Raises TimeoutError."""
        if self._code is None:
            self._connection.settimeout(timeout)
            self._code = os.waitstatus_to_exitcode(self._number())
            self._connection.close()
        return self._code

    def has_ended(self) -> bool:
        return self._code is not None or bool(select.select([self._connection], [], [], 0)[0])

    def kill(self) -> None:
        """Kill the program and everything in its process group, unless it has ended."""
        if not self.has_ended():
            with suppress(ProcessLookupError):  # it has just ended
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
    """Fork a child for each connection until stdin ends. In the child, return the function that it must run."""
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
    with suppress(OSError):  # no process is waiting for it
        connection.sendall(status.to_bytes(4, "little"))
    connection.close()


def _become(asked: Any, descriptors: list[int]) -> None:
    """Turn this process into the requested program."""
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
        # A child runs its program from the main module, so that it ends like one.
        _serve(sys.argv[2])()
    else:
        # The child is in the shell's session, so signals from its terminal reach both processes.
        child = Child(sys.argv[1], sys.argv[2:], os.getcwd(), dict(os.environ), [0, 1, 2], session=False)
        sys.exit(child.wait())


if __name__ == "__main__":
    _main()
