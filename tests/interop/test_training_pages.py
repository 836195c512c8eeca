"""What the how-tos of training show runs from top to bottom, with PyTorch and with TensorFlow."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's blocks leave."""
    text = (PAGES / f"{page}.md").read_text("utf-8")
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(block, namespace)
    return namespace


# PyTorch warns of a fork under threads: the portal's is one, and its loop is made anew in the child.
@pytest.mark.filterwarnings("ignore")
def test_train_with_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("train-with-pytorch", tmp_path, monkeypatch)
    assert float(names["loss"]) < 0.3
    assert sum(names["rest"]) == 2000 - 10 * 64 + 2000  # the rest of an epoch, and another
    assert len(names["labels"]) > 10
    for labels in names["labels"]:
        assert sorted(Counter(labels.tolist()).values()) == [8, 8]
    assert sorted(Counter(names["label"].tolist()).values()) == [8, 8]  # the last of those that never end
    assert tuple(names["batch"]["emb"].shape) == (64, 8)


def test_train_with_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("train-with-tensorflow", tmp_path, monkeypatch)
    assert names["history"].history["accuracy"][-1] > 0.5
    assert sum(len(batch["label"]) for batch in names["dataset"]) == 2000
