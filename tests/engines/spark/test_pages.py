"""The code of the Spark and Beam how-to pages runs from top to bottom, and prints the output that they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import run_page


@pytest.mark.timeout(600)
def test_spark_page_runs(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("use-spark")


@pytest.mark.timeout(600)
def test_beam_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("use-beam")
