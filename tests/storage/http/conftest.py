"""Lets the tests of this folder use the servers that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))  # tests are imported by path; what they share, by name
