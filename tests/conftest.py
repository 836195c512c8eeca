"""What every test of the library shares."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

# Before asyncrec is imported, as it is without a compiler: `ASYNCREC_TEST_NATIVE=none make test-all`.
if os.environ.get("ASYNCREC_TEST_NATIVE") == "none":
    sys.modules["asyncrec._native._c"] = None  # type: ignore[assignment]  # what makes an import fail

# A shell lets its background jobs ignore Ctrl-C; so would every process that a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines are slow and busy now and then, which is no fault of an example. A server that judges a change (.ci/run says
# CI) tries the same examples each time; everybody else tries new ones.
settings.register_profile("asyncrec", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("asyncrec")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Say how many processes `-n auto` means: half as many again as processors, since tests also wait for servers."""
    return len(os.sched_getaffinity(0)) * 3 // 2 or 1


def pytest_configure(config: pytest.Config) -> None:
    """Keep the locks by which jobs are known to live in a folder of this run alone; with --short, try fewer examples.

    Who is killed leaves his for a month, and each process that begins a job on a store looks once at all there are.
    """
    if config.getoption("short", False):
        settings.register_profile("asyncrec", settings.get_profile("asyncrec"), max_examples=25)
        settings.load_profile("asyncrec")
    folder = tempfile.mkdtemp(prefix="asyncrec-tests-")
    os.environ["XDG_RUNTIME_DIR"] = folder
    config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Keep what was collected from the garbage collector: all tests are a million objects, and half a second for it.

    Some two hundred times it is asked to look; then, it looks at what the tests made.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Files that TensorFlow wrote, and manifest.json, which says what they hold."""
    return Path(__file__).parent / "vectors"
