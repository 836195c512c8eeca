"""What the tests of the library and of its plugins share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from anyio._backends._trio import TestRunner, TrioBackend


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


# What takes longest comes first, so that no worker is at it when the others have ended.
LONGEST = [
    "tests/shards/test_torture.py",
    "tests/simulation/test_simulation.py",
    "tests/stores/test_chaos.py",
    "plugins/asyncrec-scrapy/tests/test_crawls.py",
]


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
    longest = {config.rootpath / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(longest)), "plugins" in item.path.parts, item.path.parts))


def _parts(config: pytest.Config) -> list[Path]:
    """The folders and files of tests right below those that are collected."""
    return [path for folder in config.args for path in sorted(Path(folder).iterdir()) if _has_tests(path, config)]


def _has_tests(path: Path, config: pytest.Config) -> bool:
    if path.is_dir():
        return not any(fnmatch(path.name, pattern) for pattern in [*config.getini("norecursedirs"), "__pycache__"])
    return any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))
