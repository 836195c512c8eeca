"""Fixtures that give each test its own site and crawls."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_crawls import crawl, site, warm  # importable because of the line above

__all__ = ["crawl", "site", "warm"]
