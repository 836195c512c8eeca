"""The code on the training how-to pages runs from top to bottom, with PyTorch and with TensorFlow."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def blocks_of(page: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a page's blocks of code, and return the names that they define."""
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        exec(block, namespace)
    return namespace


# PyTorch warns about forking while threads run: the portal has one, whose event loop is recreated in the child.
@pytest.mark.filterwarnings("ignore")
def test_pytorch_training_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("train-with-pytorch", tmp_path, monkeypatch)
    assert float(names["loss"].detach()) < 0.3
    assert sum(names["rest"]) == 2000 - 10 * 64 + 2000  # the rest of one epoch, and another epoch
    assert len(names["labels"]) > 10
    for labels in names["labels"]:
        assert sorted(Counter(labels.tolist()).values()) == [8, 8]
    assert sorted(Counter(names["label"].tolist()).values()) == [8, 8]  # the last batch of an endless stream
    assert tuple(names["batch"][0].shape) == (64, 8)
    assert names["accuracy"] > 0.9


# Each step of the page's loop is recorded, and the process is killed at one of them.
WATCHED = """
import sys

checkpoint, log, workers, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
cross_entropy, steps = torch.nn.functional.cross_entropy, 0


def watched(given, label):
    global steps
    steps += 1
    loss = cross_entropy(given, label)
    with open(log, "a") as file:
        print(f"{loss.item():.4f}", *label.tolist(), file=file)
    if steps == last:
        os.kill(os.getpid(), 9)
    return loss


torch.nn.functional.cross_entropy = watched
train(epochs=3, workers=workers, path=checkpoint)
"""


@pytest.mark.timeout(300)  # six processes load PyTorch, one after another
def test_documented_loop_resumes_after_kill_with_other_workers(tmp_path: Path) -> None:
    data, first, loop = blocks_of("train-with-pytorch")[:3]
    assert "def train(" in loop
    begins, calls = data.index("for name, count"), loop.index("accuracy = train(")
    script = data[:begins] + first[: first.index("dataset = ShuffledDataset")] + loop[:calls] + WATCHED
    subprocess.run([sys.executable, "-c", data], cwd=tmp_path, check=True)

    def steps(checkpoint: str, workers: int, last: int) -> list[str]:
        log = tmp_path / f"{checkpoint}-{workers}-{last}.log"
        arguments = [checkpoint, str(log), str(workers), str(last)]
        ended = subprocess.run([sys.executable, "-W", "ignore", "-c", script, *arguments], cwd=tmp_path)
        assert ended.returncode == (-9 if last else 0)
        return log.read_text().splitlines()

    whole = steps("whole.pt", 0, 0)
    assert len(whole) == 3 * 32
    killed = steps("killed.pt", 2, 47)
    assert killed == whole[:47]
    again = steps("killed.pt", 3, 20)  # from the checkpoint at step 40 to step 60
    assert again == whole[40:60]
    assert steps("killed.pt", 1, 0) == whole[50:]  # the 20th of these steps was not saved


def test_tensorflow_training_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("train-with-tensorflow", tmp_path, monkeypatch)
    assert names["history"].history["accuracy"][-1] > 0.5
    assert sum(len(batch["label"]) for batch in names["dataset"]) == 2000
