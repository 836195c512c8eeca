"""asyncrec can run entirely in a world: names that refer to the system are looked up when used, not when defined."""

from __future__ import annotations

import fcntl
import inspect
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import seams

_REAL = (os, time, threading, secrets, fcntl, shutil, socket, tempfile)
# These may be the real functions, because they have no effects.
_PURE = (os.fspath, os.fsdecode, os.fsencode)


def means_the_system(value: Any) -> bool:
    """Return whether an object is a system module or a function of one, but not a class, which may be an annotation."""
    if any(value is module for module in _REAL):
        return True
    if not inspect.isroutine(value) or any(value is function for function in _PURE):
        return False
    name = getattr(value, "__name__", "")
    return any(getattr(module, name, None) is value for module in _REAL)


def bound(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a module, its functions and its classes bound when they were defined."""
    for name, value in vars(module).items():
        if not isinstance(value, ModuleType):
            yield name, value
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for inner, member in [(name, value), *(vars(value).items() if inspect.isclass(value) else ())]:
            function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
            yield f"{name}.{inner}", function
            for default in (*(getattr(function, "__defaults__", None) or ()), *_keywords(function)):
                yield f"{name}.{inner}, a default", default


def _keywords(function: Any) -> list[Any]:
    return list((getattr(function, "__kwdefaults__", None) or {}).values())


def test_modules_bind_no_system_functions_at_definition() -> None:
    found = [
        f"{module.__name__}: {name}"
        for module in seams.modules()
        for name, value in bound(module)
        if means_the_system(value)
    ]
    assert found == []


def test_bound_system_functions_are_detected() -> None:
    module = ModuleType("bad")
    exec(
        "import os, time\n"
        "from time import perf_counter\n"
        "class A:\n"
        "    clock = time.monotonic\n"
        "    def __init__(self, system=os): pass\n"
        "    @staticmethod\n"
        "    def of(*, stat=os.stat): pass\n"
        "async def wait(path=os.curdir, *, unlink=os.unlink): pass\n",
        vars(module),
    )
    assert [name for name, value in bound(module) if means_the_system(value)] == [
        "perf_counter",
        "A.clock",
        "A.__init__, a default",
        "A.of, a default",
        "wait.wait, a default",
    ]
