"""Make the servers that all tests share importable for the tests in this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))  # tests are imported by path, shared modules by name
