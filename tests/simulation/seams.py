"""Connect asyncrec to a world by replacing the names in its modules that refer to the operating system.

Only asyncrec's own modules are patched, and only while worlds run. pytest, its threads and the rest of Python keep
their clocks and files. Patched names look up the world in `current`, so patching once suffices for thousands of worlds.
"""

from __future__ import annotations

import datetime as real_datetime
import errno
import fcntl as real_fcntl
import gc
import importlib
import os
import pathlib
import pkgutil
import random
import secrets as real_secrets
import shutil as real_shutil
import socket as real_socket
import sys
import tempfile as real_tempfile
import threading as real_threading
import time as real_time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import anyio.to_thread

import asyncrec

from . import store, threads
from .disk import failure
from .process import PROCESS

__all__ = ["LIVES", "current", "knobs", "patched"]

# The folder, on each machine, of the locked files that prove processes alive.
LIVES = "lives"

# Modules that a world does not use. All others are loaded before patching; otherwise they use the real system.
_LEFT_OUT = ("compat", "cli", "integrations", "blocking", "__main__")

current: list[Any] = []  # the running world, if any


class _Around:
    """A module with some names replaced."""

    def __init__(self, module: Any, **others: Any) -> None:
        self.__dict__.update(others)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        setattr(self, name, found)  # cached
        return found


class _System:
    """The `os` of the running world."""

    def __getattr__(self, name: str) -> Any:
        if not current:
            return getattr(os, name)
        found = getattr(current[-1].system, name)
        setattr(self, name, found)  # cached until the world changes
        return found


@contextmanager
def inside(world: Any) -> Iterator[None]:
    """Make this the running world within the context."""
    current.append(world)
    vars(_os).clear()
    try:
        yield
    finally:
        current.pop()
        vars(_os).clear()


def _wall() -> float:
    process = PROCESS.get()
    return float(current[-1].wall(process)) if current else real_time.time()


def _clock() -> float:
    return float(current[-1].loop.now) if current else real_time.monotonic()


class _Dates(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, real_datetime.datetime)


class _Datetime(real_datetime.datetime, metaclass=_Dates):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return real_datetime.datetime.fromtimestamp(_wall(), tz)


class _Path(pathlib.PosixPath):
    """A path on the world's disk."""

    def exists(self, **_: Any) -> bool:
        return bool(_os.path.exists(self))

    def is_dir(self, **_: Any) -> bool:
        return bool(_os.path.isdir(self))

    def is_file(self, **_: Any) -> bool:
        return bool(_os.path.isfile(self))

    def stat(self, **_: Any) -> Any:
        return _os.stat(self)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            _os.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def read_bytes(self) -> bytes:
        with _open(self, "rb") as file:
            return bytes(file.read())


def _open(*args: Any, **options: Any) -> Any:
    return current[-1].system.open_stream(*args, **options) if current else open(*args, **options)


def _flock(fd: int, how: int) -> None:
    process = PROCESS.get()
    world = current[-1]
    _, file = world.system._file(fd, "flock")
    locks = file.node.locks
    host = process.host if process is not None and world.shared(process.machine) else ""
    while locks.get(host) not in (None, file):
        if how & real_fcntl.LOCK_NB:
            raise failure(errno.EWOULDBLOCK, file.path)
        if threads.Strand.running is not None:
            threads.Strand.running.stop()
        elif (holder := locks.get(host)) is not None and holder.strand is not None:
            holder.strand.resume()
        else:
            raise failure(errno.EWOULDBLOCK, file.path)
    if process is not None and not process.dead:
        if how & real_fcntl.LOCK_UN:
            locks.pop(host, None)
        else:
            locks[host] = file
        file.strand = threads.Strand.running
        if not how & real_fcntl.LOCK_UN:
            world.timing.comes_to(process, "locking")


def _token_bytes(size: int = 32) -> bytes:
    return bytes(current[-1].secrets.randbytes(size)) if current else real_secrets.token_bytes(size)


def _mkdtemp(suffix: str = "", prefix: str = "tmp", dir: Any = None) -> str:
    path = f"{os.fsdecode(dir)}/{prefix}{_token_bytes(4).hex()}{suffix}"
    _os.mkdir(path)
    return path


def _rmtree(*args: Any, **options: Any) -> None:
    if current:
        _os.remove_tree(*args, **options)


def _host() -> str:
    """Return the name of the host, which is unique."""
    process = PROCESS.get()
    return process.host if current and process is not None else real_socket.gethostname()


def _lives(real_folder: Any) -> str:
    process = PROCESS.get()
    if not current or process is None:
        return str(real_folder())
    return f"/{process.machine.name}/{LIVES}{'' if process.host == process.machine.name else '-' + process.host}"


async def _run_sync(*args: Any, **options: Any) -> Any:
    if not current:
        return await anyio.to_thread.run_sync(*args, **options)
    return await current[-1].threads.run_sync(*args, **options)


_os: Any = _System()
_OTHERS: dict[str, tuple[Any, Any]] = {
    "os": (os, _os),
    "time": (real_time, _Around(real_time, time=_wall, monotonic=_clock, perf_counter=_clock)),
    "threading": (
        real_threading,
        _Around(real_threading, Lock=threads.Lock, RLock=lambda: threads.Lock(again=True), Event=threads.Event),
    ),
    "secrets": (
        real_secrets,
        _Around(
            real_secrets,
            token_bytes=_token_bytes,
            token_hex=lambda size=32: _token_bytes(size).hex(),
            randbelow=lambda end: current[-1].secrets.randrange(end),
            randbits=lambda bits: current[-1].secrets.getrandbits(bits),
        ),
    ),
    "fcntl": (real_fcntl, _Around(real_fcntl, flock=_flock)),
    "shutil": (
        real_shutil,
        _Around(real_shutil, rmtree=lambda *args, **options: current and _os.remove_tree(*args, **options)),
    ),
    "socket": (real_socket, _Around(real_socket, gethostname=_host)),
    "tempfile": (real_tempfile, _Around(real_tempfile, mkdtemp=_mkdtemp)),
    "datetime": (real_datetime.datetime, _Datetime),
    "Path": (pathlib.Path, _Path),
    "to_thread": (anyio.to_thread, _Around(anyio.to_thread, run_sync=_run_sync)),
    "run_sync": (anyio.to_thread.run_sync, _run_sync),
    "perf_counter": (real_time.perf_counter, _clock),
}


def modules() -> list[Any]:
    """Load and return all modules of asyncrec."""
    for found in pkgutil.walk_packages(asyncrec.__path__, "asyncrec."):
        without = found.name in sys.modules and sys.modules[found.name] is None  # the C code, in tests that disable it
        if not without and not any(part in _LEFT_OUT for part in found.name.split(".")):
            importlib.import_module(found.name)
    return _loaded()


@cache
def _loaded() -> list[Any]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if module is not None
        and name.partition(".")[0] == "asyncrec"
        and not any(part in _LEFT_OUT for part in name.split("."))
    ]


@contextmanager
def patched() -> Iterator[None]:
    """Let asyncrec access only the world in `current` within this context."""
    from asyncrec._concurrency import tasks
    from asyncrec._shards.journal import tokens as life
    from asyncrec.storage import _retry as retry

    undo: list[tuple[Any, str, Any]] = []

    def put(target: Any, name: str, value: Any) -> None:
        undo.append((target, name, target.__dict__.get(name, undo)))
        setattr(target, name, value)

    for module in modules():
        for name, (real, other) in _OTHERS.items():
            if module.__dict__.get(name) is real:
                put(module, name, other)
        put(module, "open", _open)
    put(retry, "_jitter", _Jitter())
    real_folder = life._folder
    put(life, "_folder", lambda: _lives(real_folder))
    make_scope = tasks.TaskScope.__init__

    def make_known_scope(scope: tasks.TaskScope) -> None:
        make_scope(scope)
        if current:
            current[-1].scopes.append(scope)

    put(tasks.TaskScope, "__init__", make_known_scope)
    asyncrec.storage.register_writer_factory(store.SCHEME, store.factory(lambda: current[-1].bucket))
    gc.collect()
    gc.freeze()  # worlds collect garbage, which is faster if older objects stay frozen
    try:
        yield
    finally:
        for target, name, value in reversed(undo):
            if value is undo:
                delattr(target, name)
            else:
                setattr(target, name, value)


class _Jitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return float(current[-1].secrets.uniform(a, b)) if current else super().uniform(a, b)


@cache
def _placed(place: str) -> list[tuple[Any, str]]:
    """Return the modules that contain a constant: the named one or, for ``*``, all that have imported it."""
    module_name, _, name = place.partition(":")
    modules = _loaded() if module_name == "*" else [importlib.import_module(module_name)]
    return [(module, name) for module in modules if name in vars(module)]


@contextmanager
def knobs(values: dict[str, float]) -> Iterator[None]:
    """Set constants that affect only speed, given as ``module:NAME`` or ``*:NAME``, to make rare events common."""
    undo = []
    for place, value in values.items():
        for module, name in _placed(place):
            undo.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in undo:
            setattr(module, name, value)
