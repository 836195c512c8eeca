"""The base classes of the conformance kits, whose cases run under pytest.

Replace a case that a plugin cannot pass with a case that shows the plugin's actual behaviour::

    @replaces_case("the store has no conditional write")
    async def test_exclusive_creation(self): ...

An override without `replaces_case`, or an override of a case that does not exist, raises `TypeError` when the class is
defined.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NoReturn, TypeVar

import anyio

from asyncrec.errors import ArgumentTypeError
from asyncrec.plugins._manager import Plugins
from asyncrec.storage._other_loop import run_soon

F = TypeVar("F", bound=Callable[..., Any])
AsyncCase = Callable[..., Coroutine[Any, Any, None]]

_IMPORT_SECONDS = 60
# Packages that take tenths of a second to import, or that import an event loop. A plugin's hooks need none of them.
_HEAVY = ("anyio", "asyncio", "google", "numpy", "pandas", "pyarrow", "rich", "trio", "typer")


def replaces_case(reason: str) -> Callable[[F], F]:
    """Mark a method that replaces a case of the kit. ``reason`` states why the plugin cannot pass the case."""
    if not reason or not isinstance(reason, str):
        raise ArgumentTypeError(
            "replaces_case needs a reason: a sentence that says why the plugin cannot pass the case"
        )

    def mark(case: F) -> F:
        case.replaces_case = reason  # type: ignore[attr-defined]  # the mark that __init_subclass__ looks for
        return case

    return mark


def nothing_to_try(reason: str) -> NoReturn:
    """Skip a case that does not apply to this plugin. pytest shows the reason."""
    import pytest

    pytest.skip(reason)


def check_import(module: str) -> None:
    """Import a plugin's module in a new process. Raise `AssertionError` if it imports slow packages."""
    program = f"import sys, {module}; print(*(set({_HEAVY!r}) & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=_IMPORT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"importing {module} imports {done.stdout.strip()}"


class Kit:
    """The base class of kits. A kit derives from this class and defines cases; a plugin's tests derive from the kit.

    Attributes:
        case_seconds: the real time in seconds after which an async case is cancelled and fails. A distant store, or one
            that takes long to write a thousand objects, may need more.
    """

    case_seconds: float = 120.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("asyncrec.testing."):
            for name, case in list(vars(cls).items()):
                if name.startswith("test_") and inspect.iscoroutinefunction(case):
                    setattr(cls, name, _bounded(case))
            return
        inherited = {
            name: case
            for base in reversed(cls.__mro__)
            if base.__module__.startswith("asyncrec.testing.")
            for name, case in vars(base).items()
            if name.startswith("test_")
        }
        for name in sorted(inherited):
            case = getattr(cls, name)
            if case is not inherited[name] and not getattr(case, "replaces_case", None):
                raise ArgumentTypeError(
                    f"{cls.__name__}.{name} overrides a case of the kit; mark it with @replaces_case(reason)"
                )
        for name, case in vars(cls).items():
            if getattr(case, "replaces_case", None) and name not in inherited:
                raise ArgumentTypeError(
                    f"{cls.__name__}.{name} is marked with @replaces_case, but the kit has no case with this name"
                )

    def missing(self, hook: str) -> NotImplementedError:
        """Return the error for a hook that is not implemented."""
        return NotImplementedError(f"{type(self).__name__} does not define {hook}; implement this hook of the kit")


class PluginKit(Kit):
    """The cases that every kind of plugin must pass.

    Attributes:
        plugin: the module that the entry point names.
    """

    plugin: str

    def plugins(self) -> Plugins:
        """Return a plugin manager with only this plugin."""
        plugins = Plugins()
        plugins.loaded = True  # prevents the search for other plugins
        plugins.register(self.plugin, import_module(self.plugin))
        return plugins

    def test_entry_point(self) -> None:
        """The plugin's entry point is found: the plugin is installed, or its metadata is on ``sys.path``."""
        named = {entry.value for entry in entry_points(group="asyncrec")}
        assert self.plugin in named, f"the group 'asyncrec' has no entry point {self.plugin!r}; it has {sorted(named)}"

    def test_cheap_import(self) -> None:
        """Importing the plugin's module imports no slow packages. Import these only in the functions that use them.

        Even ``asyncrec --help`` imports the module.
        """
        check_import(self.plugin)


def _bounded(case: AsyncCase) -> AsyncCase:
    """Wrap a case so that it is cancelled after `Kit.case_seconds` and fails with an error that names the case.

    A thread measures the time, because the event loop's own timeout would expire as soon as no task can run if the loop
    has a virtual clock.
    """

    @wraps(case)
    async def bounded(self: Kit, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        soon = run_soon()
        with anyio.CancelScope() as scope:

            def give_up() -> None:
                with suppress(RuntimeError):  # the event loop has just been closed
                    soon(scope.cancel)

            timer = threading.Timer(self.case_seconds, give_up)
            timer.daemon = True
            timer.start()
            try:
                await case(self, *args, **kwargs)
            finally:
                timer.cancel()
        if scope.cancelled_caught:
            raise AssertionError(
                f"{case.__name__} did not end within {self.case_seconds:g} s (case_seconds); some call probably "
                "never returns"
            )

    return bounded
