"""What runs inside pytest: it says how each test went, chooses tests and sorts them, or notes the lines they reach."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

__all__ = ["Choosing", "Nothing", "Reaching", "Telling", "twin_of"]


_TRACED_SECONDS = 6.0


def twin_of(test: str) -> str:
    """The same test on asyncio."""
    before, bracket, parameters = test.partition("[")
    return before + bracket + parameters.replace("trio", "asyncio")


class Telling:
    """A line of JSON for each test that begins, fails or passes."""

    def __init__(self, told: TextIO) -> None:
        self._told = told
        self._begun = 0.0

    def _tell(self, *what: Any) -> None:
        self._told.write(json.dumps(what) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun = time.monotonic()
        self._tell("begun", nodeid, self._begun)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell("failed", report.nodeid, 0)
        elif report.when == "teardown":
            self._tell("passed", report.nodeid, round(time.monotonic() - self._begun, 4))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell("failed", report.nodeid, 0)


class Nothing:
    """Every test, as it comes."""


class Choosing:
    """Only these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._place]
        chosen.sort(key=lambda item: self._place[item.nodeid])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._place])
        items[:] = chosen


class Reaching:
    """Which lines each test runs: written to ``target`` as ``{test: {module: lines as bits, in hex}}``, and which were
    stopped: a test has so much of the processor's time here, and what it has not reached by then counts as not reached.
    """

    def __init__(self, tree: Path, packages: list[str], target: Path) -> None:
        import coverage

        self._tree, self._target = tree, target
        data = str(target.with_suffix(".coverage"))
        include = [f"{tree}/{package}/*" for package in packages]
        self._coverage = coverage.Coverage(data_file=data, include=include, config_file=False)
        # A file of tests may use none of them, and warnings are errors.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._stopped: list[str] = []
        self._coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """On asyncio alone, where a test runs on trio, too: it reaches the same lines, in half the time."""
        tests = {item.nodeid for item in items}
        items[:] = [item for item in items if item.nodeid == twin_of(item.nodeid) or twin_of(item.nodeid) not in tests]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        def stop(*_: object) -> None:
            self._stopped.append(item.nodeid)
            pytest.fail("it has reached enough", pytrace=False)

        self._coverage.switch_context(item.nodeid)
        signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, _TRACED_SECONDS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        reached: dict[str, dict[str, str]] = {}
        for file in data.measured_files():
            name = str(Path(file).relative_to(self._tree))
            bits: dict[str, int] = {}
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    bits[context] = bits.get(context, 0) | 1 << line
            for context, lines in bits.items():
                reached.setdefault(context, {})[name] = f"{lines:x}"
        self._target.write_text(json.dumps([reached, self._stopped]))
