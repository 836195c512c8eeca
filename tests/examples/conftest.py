"""The examples import each other as they do when run: from their own folder. These tests share `site_server`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "examples"), str(Path(__file__).parent)]
