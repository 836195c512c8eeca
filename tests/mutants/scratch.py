"""A copy of the tree in which modules may be broken, and pytest run there in a process that is forked for it.

The tree that people work in is only read. What is slow to import and never changed is imported once, before forking.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import inside

__all__ = ["Ran", "Running", "Scratch", "warm"]

_HEAVY = (
    "pytest", "hypothesis.extra.pytestplugin", "xdist.plugin", "pytest_asyncio.plugin", "pytest_timeout",
    "anyio.pytest_plugin", "anyio._backends._asyncio", "anyio._backends._trio", "trio", "trio.testing", "numpy",
    "google.protobuf.message", "crc32c", "isal.isal_zlib", "pluggy", "rich.progress", "rich.console", "typer",
    "aiobotocore.session", "aiohttp.web", "gcloud.aio.auth", "gcloud.aio.storage", "moto.server", "flask",
    "pyarrow.parquet", "warcio",
)  # fmt: skip
# What was imported before forking is not rewritten, which matters to nobody.
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
_LINKED = (".so",)


def warm() -> None:
    for name in _HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)


@dataclass
class Ran:
    """How pytest ended: its exit status (-1: it was killed), what failed, and for how long it ran."""

    status: int
    failed: list[str]
    passed: dict[str, float]
    at: str  # the test that was running when it was killed,
    since: float  # and for how long
    seconds: float
    said: str


class Scratch:
    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.tree = root, place / "tree"
        self._place = place
        self._sync()

    def _sync(self) -> None:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=self.root, check=True, capture_output=True, text=True).stdout.split("\0")
        wanted = {Path(name) for name in names if name and (self.root / name).is_file()}
        wanted |= {
            path.relative_to(self.root) for path in (self.root / "asyncrec").rglob("*") if path.suffix in _LINKED
        }
        for name in wanted:
            source, copy = self.root / name, self.tree / name
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
        for copy in [*self.tree.rglob("*")]:
            name = copy.relative_to(self.tree)
            kept = name in wanted or "__pycache__" in name.parts or ".hypothesis" in name.parts
            if copy.is_file() and not kept:
                copy.unlink()

    def pytest(self, arguments: Sequence[str], plugin: Callable[[], Any], **limits: Any) -> Running:
        return Running(self, arguments, plugin, **limits)

    @property
    def place(self) -> Path:
        return self._place


class Running:
    """A pytest in a forked process, with a process group of its own, which ends with it."""

    def __init__(
        self,
        scratch: Scratch,
        arguments: Sequence[str],
        plugin: Callable[[], Any],
        *,
        seconds: float,
        broken: Any = None,
    ) -> None:
        self._scratch, self._seconds = scratch, seconds
        self._said = scratch.place / "said.txt"
        self._told = scratch.place / "told.jsonl"
        self._told.unlink(missing_ok=True)
        self._temporary = scratch.place / "tmp"
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._broken = broken
        if broken is not None:
            broken.begin(scratch.tree)
        self._begun = time.monotonic()
        self._ran: Ran | None = None
        self._pid = os.fork()
        if self._pid == 0:
            self._child(arguments, plugin)
        atexit.register(self.stop)

    def _child(self, arguments: Sequence[str], plugin: Callable[[], Any]) -> None:
        status = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            said = os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            self._move_in()
            import pytest

            told = open(self._told, "a", buffering=1)  # noqa: SIM115 - as long as the process
            own = [plugin(), inside.Telling(told)]
            fixed = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", *_QUIET]
            status = int(pytest.main([*fixed, f"--basetemp={self._temporary}", *arguments], plugins=own))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _move_in(self) -> None:
        """The paths of the tree become those of the copy, here and in processes that are started from here."""
        root, tree = str(self._scratch.root), str(self._scratch.tree)
        prefixes = tuple(f"{root}/{name}" for name in ("plugins", "tests"))
        moved = [
            path.replace(root, tree, 1) if path == root or path.startswith(prefixes) else path
            for path in sys.path
            if path not in ("", f"{root}/tests")
        ]
        sys.path[:] = [tree, *(path for path in moved if path != tree)]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.partition(".")[0] in ("asyncrec", "mutants")]:
            if name.startswith("asyncrec"):
                del sys.modules[name]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path.startswith(tree))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        os.environ["CI"] = "true"  # Hypothesis tries the same examples each time
        os.chdir(tree)

    def poll(self) -> Ran | None:
        """What came of it, once it has ended or its time is over."""
        if self._ran is not None:
            return self._ran
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._begun
        if pid == 0 and seconds < self._seconds:
            return None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if pid == 0:
            os.waitpid(self._pid, 0)
        code = -1 if pid == 0 else os.waitstatus_to_exitcode(status)
        if self._broken is not None:
            self._broken.end(self._scratch.tree)
        atexit.unregister(self.stop)
        self._ran = self._read(code, seconds)
        return self._ran

    def stop(self) -> None:
        if self._ran is None:
            self._seconds = 0.0
            self.poll()

    def wait(self) -> Ran:
        while True:
            ran = self.poll()
            if ran is not None:
                return ran
            time.sleep(0.02)

    def _read(self, code: int, seconds: float) -> Ran:
        ran = Ran(code, [], {}, "", 0.0, seconds, "")
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        for line in lines:
            with suppress(ValueError):
                what, test, took = json.loads(line)
                if what == "begun":
                    ran.at, ran.since = test, time.monotonic() - took
                elif what == "failed":
                    ran.failed.append(test)
                else:
                    ran.passed[test] = took
        if self._said.exists():
            ran.said = self._said.read_text(errors="replace")[-4000:]
        shutil.rmtree(self._temporary, ignore_errors=True)
        return ran
