from __future__ import annotations

from pathlib import Path

import pytest
import train_numpy


@pytest.mark.slow
def test_trained_model_beats_chance_and_is_reproducible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    reached = train_numpy.main([])
    assert reached > 1.5 / train_numpy.PACKAGES
    printed = capsys.readouterr().out
    assert printed.startswith("demo-data/library: ")
    assert "epoch 20: loss" in printed
    assert train_numpy.main([]) == reached, "the same data set, found again, in the same orders"
