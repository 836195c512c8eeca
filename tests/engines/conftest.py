"""Start Ray once, with two processors and the smallest object store that works."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def started_ray() -> Iterator[None]:
    import ray

    ray.init("local", num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
