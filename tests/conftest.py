"""Fixtures and pytest hooks shared by all the library's tests."""

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

# Set before asyncrec is imported, to test it as if it had been built without a compiler: `ASYNCREC_TEST_NATIVE=none
# make test-all`.
if os.environ.get("ASYNCREC_TEST_NATIVE") == "none":
    sys.modules["asyncrec._native._c"] = None  # type: ignore[assignment]  # what makes an import fail

# A shell makes its background jobs ignore Ctrl-C. Every process that a test starts and then interrupts would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Test machines are sometimes slow or busy, which says nothing about an example, so there is no deadline. In CI (.ci/run
# sets CI), the same examples are tried on every run; elsewhere, new ones are drawn each time.
settings.register_profile("asyncrec", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("asyncrec")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for `-n auto`: 1.5 per processor, since tests also wait for servers."""
    return len(os.sched_getaffinity(0)) * 3 // 2 or 1


def pytest_configure(config: pytest.Config) -> None:
    """Keep this run's job locks in a separate folder; with --short, try fewer examples.

    A killed job leaves its lock file behind for a month, and every process that starts a job on a store looks through
    all lock files once.
    """
    if config.getoption("short", False):
        settings.register_profile("asyncrec", settings.get_profile("asyncrec"), max_examples=25)
        settings.load_profile("asyncrec")
    folder = tempfile.mkdtemp(prefix="asyncrec-tests-")
    os.environ["XDG_RUNTIME_DIR"] = folder
    config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: they are a million objects, which take half a second to scan.

    The collector runs about two hundred times in a test run. From here on, it only scans what the tests themselves
    create.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Return the folder of files written by TensorFlow; its manifest.json describes their contents."""
    return Path(__file__).parent / "vectors"
