"""What the tests of the library and of its plugins share."""

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
    """Runs a test as a program runs, by `trio.run`, unless a fixture is async and has to be on the same loop.

    anyio's own has trio as the guest of another loop: whenever there is nothing to do but to wait, a thread is told to
    wait, and tells when it has. That is a tenth of the processor time of tests on trio, and no program runs like that.
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


# Where asyncio and trio can come to different ends: tasks, cancellation, threads, bridges from one loop to the other.
# With --short, only these folders and files run on trio, too.
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

# A test that takes more processor seconds than this, its set-up aside, is to be marked slow. Half of that is left to
# what a test may happen to be the first to import, and to a busy machine.
TOO_LONG = 2.0

# What takes longest comes first, so that no worker is at it when the others have ended.
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
        help="as `make test` does: no test that is marked slow, and trio only where the loops differ (conftest.py)",
    )


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """Each async test runs on asyncio and on trio; if it is marked ``virtual_clock``, its waits take no time."""
    if request.node.get_closest_marker("virtual_clock"):
        from asyncrec.testing import virtual_backend

        return virtual_backend(request.param)
    return str(request.param)


def pytest_configure(config: pytest.Config) -> None:
    """Where all is asked for, let each worker begin to collect elsewhere.

    What one has compiled, with its assertions rewritten, the others load: in a new checkout, all of them would compile
    everything at the same time.
    """
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args_source is config.ArgsSource.TESTPATHS:
        parts = _parts(config)
        begin = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = [str(path) for path in parts[begin:] + parts[:begin]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same order in all workers: the longest first, then by folder and file, whichever was collected first."""
    if config.option.short:
        config.hook.pytest_deselected(items=[item for item in items if not _is_short(item)])
        items[:] = filter(_is_short, items)
    longest = {ROOT / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(longest)), "plugins" in item.path.parts, item.path.parts))


def _is_short(item: pytest.Item) -> bool:
    """Whether --short runs it. A test that names its loops by ``parametrize`` runs on those."""
    slow = item.get_closest_marker("slow")
    if slow and not any(each in item.name for each in slow.kwargs.get("but", ())):
        return False
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("anyio_backend") != "trio" or item.nodeid.startswith(LOOPS_DIFFER):
        return True
    return any("anyio_backend" in mark.args[0] for mark in item.iter_markers("parametrize"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Note the processor time of each test, and of the processes that it started and that have ended."""
    begun = _processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", _processor_seconds() - begun))


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With --short, name the tests that belong in the long run, so that the short one stays short."""
    if config.option.short:
        took = [
            (dict(each.user_properties).get("cpu", 0.0), each.nodeid) for each in terminalreporter.getreports("passed")
        ]
        if found := sorted((each for each in took if each[0] > TOO_LONG), reverse=True):
            terminalreporter.section(f"more than {TOO_LONG:.0f} s of processor time: to be marked slow")
            for seconds, name in found:
                terminalreporter.write_line(f"{seconds:6.1f}  {name}")


def _parts(config: pytest.Config) -> list[Path]:
    """The folders and files of tests right below those that are collected."""
    return [path for folder in config.args for path in sorted(Path(folder).iterdir()) if _has_tests(path, config)]


def _has_tests(path: Path, config: pytest.Config) -> bool:
    if path.is_dir():
        return not any(fnmatch(path.name, pattern) for pattern in [*config.getini("norecursedirs"), "__pycache__"])
    return any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))
