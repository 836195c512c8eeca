"""Make the helper modules in this folder importable by name; test modules are imported by path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
