"""Train a small model on the demo's pages: it guesses the package of a standard library file from the file's bytes.

    make demo && python examples/train_numpy.py           # on demo-data/pages
    python examples/train_numpy.py --data FOLDER/NAME     # any data set with `url`, `package` and `content`

Without the demo's data, it first creates a small data set from your Python's standard library. The model is softmax
regression on a histogram of the 256 byte values, in pure NumPy. It is not a good classifier, but it does much better
than chance.

Where to look: `train` draws batches in a new order each epoch, and `features_of` computes the features of a page.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import asyncrec
from asyncrec import blocking, pages

PACKAGES = 6  # the number of classes: the packages with the most pages
BATCH = 64
EPOCHS = 20
LEARNING_RATE = 5.0  # decreases linearly to almost 0
MOST_FILES = 60  # per package, in the data set that `make_pages` creates

PAGE = asyncrec.Schema({**pages.PAGE.features, "package": asyncrec.FixedLen((), "str")})  # the demo's schema
READ = asyncrec.Schema({name: PAGE.features[name] for name in ("url", "package", "content")}, allow_extra=True)

Floats = NDArray[np.float32]


def make_pages(to: str) -> None:
    """Write the source files of the standard library as a small data set of pages, each with its package."""
    library = Path(sysconfig.get_paths()["stdlib"])
    with blocking.open_sharded_writer(
        to, max_shard_bytes=1 << 20, schema=PAGE, key_feature="url", mode="new"
    ) as writer:
        for folder in sorted(path for path in library.iterdir() if (path / "__init__.py").exists()):
            for file in sorted(folder.rglob("*.py"))[:MOST_FILES]:
                url = file.relative_to(library).as_posix()
                writer.write({**pages.page(url, file.read_bytes()), "package": folder.name})


def features_of(content: bytes) -> Floats:
    """float32 (256,): the square root of each byte value's relative frequency. The squares add up to 1."""
    counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    return np.sqrt(counts / max(1, len(content)), dtype=np.float32)


def is_test(url: str) -> bool:
    """Whether a page is a test page: one in five, chosen by a hash of the URL, so that all runs choose the same."""
    return blake2b(url.encode(), digest_size=1).digest()[0] < 51


class Task:
    """The classification task: the packages, and the conversion of records to arrays."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = list(packages)
        self._labels = {package: label for label, package in enumerate(packages)}

    def arrays(self, records: Sequence[bytes], *, test: bool) -> tuple[Floats, NDArray[np.int64]]:
        """float32 (n, 256) and int64 (n,): features and labels of the test pages, or of the training pages."""
        columns = READ.decode_batch(records)
        chosen = [
            (features_of(content), self._labels[package])
            for url, package, content in zip(columns["url"], columns["package"], columns["content"], strict=True)
            if package in self._labels and is_test(url) == test
        ]
        features = np.array([features for features, _ in chosen], np.float32).reshape(-1, 256)
        return features, np.array([label for _, label in chosen], np.int64)


def find_task(dataset: blocking.Dataset) -> tuple[Task, Counter[str]]:
    """The packages with the most pages, and their numbers of pages."""
    with dataset.shuffled() as stream:
        counts = Counter(
            package for records in stream.batches(BATCH) for package in READ.decode_batch(records)["package"]
        )
    largest = counts.most_common(PACKAGES)
    return Task([package for package, _ in largest]), Counter(dict(largest))


def scores(features: Floats, weights: Floats) -> Floats:
    """float32 (n, classes): the log probabilities."""
    raw = features @ weights[:-1] + weights[-1]
    raw -= raw.max(axis=1, keepdims=True)
    logs: Floats = raw - np.log(np.exp(raw).sum(axis=1, keepdims=True))
    return logs


def train(dataset: blocking.Dataset, task: Task, counts: Counter[str], weights: Floats, epoch: int) -> float:
    """Run one epoch of gradient descent on ``weights``, float32 (257, classes), in place. Return the mean loss."""
    # The sizes of packages differ widely: weight each package equally.
    importance = np.array([1 / counts[package] for package in task.packages], np.float32)
    importance /= importance.mean()
    rate = LEARNING_RATE * (1 - epoch / EPOCHS)
    losses = []
    with dataset.shuffled(seed=0, epoch=epoch) as stream:
        for records in stream.batches(BATCH):
            features, labels = task.arrays(records, test=False)
            if not len(labels):
                continue
            logs = scores(features, weights)
            rows = np.arange(len(labels))
            losses.append(float(-logs[rows, labels].mean()))
            error = np.exp(logs)
            error[rows, labels] -= 1
            error *= importance[labels, None] / len(labels)
            weights[:-1] -= rate * features.T @ error
            weights[-1] -= rate * error.sum(axis=0)
    return float(np.mean(losses))


def accuracy(dataset: blocking.Dataset, task: Task, weights: Floats) -> tuple[float, float]:
    """The accuracy on test pages, averaged over the packages, and the accuracy of random guesses."""
    right, all_ = np.zeros(len(task.packages)), np.zeros(len(task.packages))
    with dataset.shuffled() as stream:
        for records in stream.batches(BATCH):
            features, labels = task.arrays(records, test=True)
            np.add.at(all_, labels, 1)
            np.add.at(right, labels, scores(features, weights).argmax(axis=1) == labels)
    seen = all_ > 0
    return float((right[seen] / all_[seen]).mean()), 1 / int(seen.sum())


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", metavar="URL", help="the data set: folder and name (demo-data/pages if it exists)")
    path = parser.parse_args(arguments).data or find_data()
    with blocking.open_dataset(path) as dataset:
        task, counts = find_task(dataset)
        print(f"{path}: {len(dataset):,} pages; " + ", ".join(f"{name or '(top)'} {n:,}" for name, n in counts.items()))
        weights = np.zeros((257, len(task.packages)), np.float32)
        for epoch in range(EPOCHS):
            loss = train(dataset, task, counts, weights, epoch)
            if epoch % 5 == 4:
                print(f"epoch {epoch + 1:2}: loss {loss:.3f}")
        reached, chance = accuracy(dataset, task, weights)
    print(f"accuracy on unseen pages, mean over packages: {reached:.0%}; by chance {chance:.0%}")
    return reached


def find_data(folder: str = "demo-data") -> str:
    """The path of the demo's pages, or of a small data set that is created if it does not exist."""
    for name in ("pages", "library"):
        try:
            if blocking.read_manifest(f"{folder}/{name}").schema == PAGE.to_json():  # skip pages of an older demo
                return f"{folder}/{name}"
        except asyncrec.ObjectNotFoundError:
            continue
    make_pages(f"{folder}/library")
    return f"{folder}/library"


if __name__ == "__main__":
    main(sys.argv[1:])
