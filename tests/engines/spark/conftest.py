"""Start Spark once, with two processors and two attempts for each task."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
# For the workers, which are started by a separate Python.
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
