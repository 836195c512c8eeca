"""Spark, started once: on two processors, where a task that fails is tried a second time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
# Of the workers, which begin as another Python does.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from faulty import FaultySource
    from started import start

    session = start()
    session.dataSource.register(FaultySource)
    yield session
    session.stop()
