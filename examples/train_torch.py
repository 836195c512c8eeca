"""`train_numpy.py` with PyTorch: the same pages and features, from a DataLoader with two workers.

    pip install '.[torch]'                  # in a checkout; `make demo` writes the pages
    python examples/train_torch.py

Each worker opens the data set and takes its share of the batches, so no page occurs twice in an epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader
from train_numpy import BATCH, PACKAGES, Task, find_data, find_task

from asyncrec import blocking
from asyncrec.integrations.torch import ShuffledDataset

EPOCHS = 10
WORKERS = 2


class ToTensors:
    """Converts records to tensors: float32 (n, 256) and int64 (n,). A class, so that a worker can receive it."""

    def __init__(self, task: Task, *, test: bool) -> None:
        self._task = task
        self._test = test

    def __call__(self, records: Sequence[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
        features, labels = self._task.arrays(records, test=self._test)
        return torch.from_numpy(features), torch.from_numpy(labels)


def main(path: str) -> float:
    with blocking.open_dataset(path) as dataset:
        manifest = dataset.manifest  # a snapshot that all workers and epochs read
        task, _ = find_task(dataset)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, PACKAGES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    pages = ShuffledDataset(manifest, batch_size=BATCH, transform=ToTensors(task, test=False), seed=0)
    loader = DataLoader(pages, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    for epoch in range(EPOCHS):
        pages.set_epoch(epoch)
        total = batches = 0.0
        for features, labels in loader:
            if len(labels):
                loss = nn.functional.cross_entropy(model(features), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total, batches = total + loss.item(), batches + 1
        print(f"epoch {epoch + 1:2}: loss {total / batches:.3f}")
    right = seen = 0
    unseen = ShuffledDataset(manifest, batch_size=BATCH, transform=ToTensors(task, test=True))
    with torch.no_grad():
        for features, labels in DataLoader(unseen, batch_size=None):
            right += int((model(features).argmax(dim=1) == labels).sum())
            seen += len(labels)
    print(f"accuracy on {seen} unseen pages: {right / seen:.0%}")
    return right / seen


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else find_data())
