"""Fixtures and pytest hooks shared by the tests of the library and of its plugins."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from anyio._backends._trio import TestRunner, TrioBackend

ROOT = Path(__file__).parent


class _PlainRunner(TestRunner):
    """Runs a test with `trio.run`, as a program would, unless an async fixture must share its loop.

    anyio's own runner runs trio as the guest of another loop, and each wait then passes through a thread. That costs a
    tenth of the processor time of tests on trio, and no program runs like that.
    """

    _shared = False

    def run_fixture(self, fixture_func: Callable[..., Coroutine[Any, Any, Any]], kwargs: dict[str, Any]) -> Any:
        self._shared = True
        return super().run_fixture(fixture_func, kwargs)

    def run_asyncgen_fixture(
        self, fixture_func: Callable[..., AsyncGenerator[Any, Any]], kwargs: dict[str, Any]
    ) -> Iterable[Any]:
        self._shared = True
        return super().run_asyncgen_fixture(fixture_func, kwargs)

    def run_test(self, test_func: Callable[..., Coroutine[Any, Any, Any]], kwargs: dict[str, Any]) -> None:
        if self._shared:
            super().run_test(test_func, kwargs)
        else:
            trio.run(partial(test_func, **kwargs), **self._options)


TrioBackend.create_test_runner = classmethod(lambda cls, options: _PlainRunner(**options))  # type: ignore[method-assign]


# Tests of code that may behave differently on asyncio and on trio: tasks, cancellation, threads, bridges between loops.
# With --short, only these folders and files also run on trio.
LOOPS_DIFFER = (
    "tests/blocking/",
    "tests/concurrency/",
    "tests/records/test_budget.py",
    "tests/shards/test_leaving.py",
    "tests/storage/",
    "tests/stores/test_cancellation.py",
    "tests/test_cancelled_reads.py",
    "tests/test_tasks.py",
)

# A test that takes more processor seconds than this, without its set-up, must be marked slow. The documented limit is
# half of this, because a test may be the first to import a module, and the machine may be busy.
TOO_LONG = 2.0

# The longest tests run first, so that no worker is still running one when the others have finished.
LONGEST = [
    "tests/shards/test_torture.py",
    "tests/simulation/test_simulation.py",
    "tests/stores/test_chaos.py",
    "plugins/asyncrec-scrapy/tests/test_crawls.py",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--short",
        action="store_true",
        help="run no test that is marked slow, and use trio only where the loops differ, as `make test` does",
    )


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """Run each async test on asyncio and on trio. If it is marked ``virtual_clock``, its waits take no time."""
    if request.node.get_closest_marker("virtual_clock"):
        from asyncrec.testing import virtual_backend

        return virtual_backend(request.param)
    return str(request.param)


def pytest_configure(config: pytest.Config) -> None:
    """If all tests are collected, let each worker start with a different folder.

    The workers share compiled test modules. In a new checkout, workers that started with the same folder would all
    compile the same modules at the same time.
    """
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args_source is config.ArgsSource.TESTPATHS:
        parts = _parts(config)
        begin = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = [str(path) for path in parts[begin:] + parts[:begin]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests in the same order in all workers: the longest first, then by folder and file."""
    if config.option.short:
        config.hook.pytest_deselected(items=[item for item in items if not _is_short(item)])
        items[:] = filter(_is_short, items)
    longest = {ROOT / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(longest)), "plugins" in item.path.parts, item.path.parts))


def _is_short(item: pytest.Item) -> bool:
    """Return whether --short runs the test. A test that names its loops by ``parametrize`` runs on all of them."""
    slow = item.get_closest_marker("slow")
    if slow and not any(each in item.name for each in slow.kwargs.get("but", ())):
        return False
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("anyio_backend") != "trio" or item.nodeid.startswith(LOOPS_DIFFER):
        return True
    return any("anyio_backend" in mark.args[0] for mark in item.iter_markers("parametrize"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Record the processor time of each test, including that of child processes that have ended."""
    begun = _processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", _processor_seconds() - begun))


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With --short, list the tests that should be marked slow, so that the short run stays short."""
    if config.option.short:
        took = [
            (dict(each.user_properties).get("cpu", 0.0), each.nodeid) for each in terminalreporter.getreports("passed")
        ]
        if found := sorted((each for each in took if each[0] > TOO_LONG), reverse=True):
            terminalreporter.section(f"more than {TOO_LONG:.0f} s of processor time: mark them slow")
            for seconds, name in found:
                terminalreporter.write_line(f"{seconds:6.1f}  {name}")


def _parts(config: pytest.Config) -> list[Path]:
    """Return the folders and files of tests directly below the collected folders."""
    return [path for folder in config.args for path in sorted(Path(folder).iterdir()) if _has_tests(path, config)]


def _has_tests(path: Path, config: pytest.Config) -> bool:
    if path.is_dir():
        return not any(fnmatch(path.name, pattern) for pattern in [*config.getini("norecursedirs"), "__pycache__"])
    return any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))
