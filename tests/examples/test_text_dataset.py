from __future__ import annotations

from pathlib import Path

import pytest
from text_dataset import main

import asyncrec

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_real_text_round_trips_as_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await main(str(tmp_path), modules=30)
    shown = capsys.readouterr().out
    modules = {}
    for split in ("train", "test"):
        async with asyncrec.open_split(tmp_path / "docstrings", split) as reader:
            assert len(reader) > 0
            examples = [example async for example in reader]
        assert all(len(example["text"].split()) == example["words"] for example in examples)
        modules[split] = {example["origin/module"] for example in examples}
        assert f"{len(examples):,}" in shown
    assert not modules["train"] & modules["test"]
    assert "train[:10%]+test[-5:]" in shown
