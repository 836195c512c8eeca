"""The code of the how-to pages about tables and engines runs from top to bottom, and prints the output shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import run_page


@pytest.mark.parametrize("page", ["tables", "use-ray"])
@pytest.mark.usefixtures("started_ray")
@pytest.mark.timeout(600)
def test_engine_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)
