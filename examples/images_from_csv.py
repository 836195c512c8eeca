"""Convert images listed in a CSV file to train, eval and test splits, and read them back as arrays.

    python examples/images_from_csv.py [FOLDER]

The images are PNG files of discs, squares and stripes that this program creates. `Image` declares the features of an
example and how to load it. `write_splits_from_csv` does the rest, and loads eight images at a time in worker threads.
"""

from __future__ import annotations

import csv
import random
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from rich.console import Console
from rich.table import Table

import asyncrec

SIZE = 32  # width and height in pixels
IMAGES = 300
SHAPES = ("disc", "square", "stripes")
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Image(asyncrec.example.DeclaredExample):
    """An image: its label, its unchanged PNG file, and the mean brightness of each row."""

    def __init__(self, path: str, label: int) -> None:
        super().__init__()
        self.path = path
        self._label = label
        self._png: bytes | None = None
        self._brightness: Any = None

    @asyncrec.example.tfrecordable(dtype=asyncrec.example.DeclaredExample.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @asyncrec.example.tfrecordable(dtype=asyncrec.example.DeclaredExample.Field.TYPE_BYTES)
    def png(self) -> bytes | None:
        return self._png

    @asyncrec.example.tfrecordable(dtype=asyncrec.example.DeclaredExample.Field.TYPE_ARRAY_FLOAT32)
    def brightness(self) -> Any:
        return self._brightness

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Image:
        return Image(row[0], SHAPES.index(row[1]))

    def to_csv_row(self) -> list[object]:
        return [self.path, SHAPES[self._label]]

    def load(self, *, images: Path = Path(), **kwargs: Any) -> None:
        """Runs in a worker thread, just before the example is written."""
        self._png = (images / self.path).read_bytes()
        pixels = read_png(self._png)
        if not pixels.any():
            raise asyncrec.example.IgnoreExample("the image is black")
        self._brightness = pixels.mean(axis=(1, 2), dtype=np.float32) / np.float32(255)


async def main(folder: str, images: int = IMAGES) -> None:
    source = Path(folder) / "images"
    rows = await anyio.to_thread.run_sync(draw_images, source, images)
    target = f"{folder}/shapes"
    result = await asyncrec.write_splits_from_csv(
        target,
        Image,
        rows,
        ratios=[0.7, 0.2, 0.1],
        stratify_by=1,
        seed=7,
        max_shard_bytes=20_000,  # small, so that a split has several shards
        images=source,
    )

    table = Table("split", "shards", "images", *SHAPES, "mean brightness")
    for split, manifest in result.manifests.items():
        labels, brightness = [], []
        async with asyncrec.datasets.generate_dataset(
            await asyncrec.datasets.get_tfrecord_filepaths(f"{target}/{split}")
        ) as dataset:
            async for label, png, rows_of_image in dataset:  # in the order of declaration
                assert read_png(png).shape == (SIZE, SIZE, 3)
                labels.append(label)
                brightness.append(rows_of_image.mean())
        counts = (str(labels.count(label)) for label in range(len(SHAPES)))
        table.add_row(split, str(len(manifest.shards)), str(len(labels)), *counts, f"{np.mean(brightness):.2f}")
    Console().print(table, f"{result.ignored} left out, because they are black. The data set is in {target}")


def draw_images(folder: Path, count: int) -> Path:
    """Create ``count`` images and a CSV file that lists them. Every fiftieth image is black."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    with open(folder / "images.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number in range(count):
            shape = SHAPES[number % len(SHAPES)]
            pixels = draw(shape, chance)
            if number % 50 == 49:
                pixels[:] = 0
            (folder / f"{number:04d}.png").write_bytes(write_png(pixels))
            writer.writerow([f"{number:04d}.png", shape])
    return folder / "images.csv"


def draw(shape: str, chance: random.Random) -> Pixels:
    """A shape in a random colour at a random place on a dark background."""
    y, x = np.mgrid[:SIZE, :SIZE]
    row, column = chance.randrange(8, SIZE - 8), chance.randrange(8, SIZE - 8)
    size = chance.randrange(4, 9)
    inside = {
        "disc": (y - row) ** 2 + (x - column) ** 2 <= size**2,
        "square": np.maximum(abs(y - row), abs(x - column)) <= size,
        "stripes": (x + y) // size % 2 == 0,
    }[shape]
    pixels = np.full((SIZE, SIZE, 3), 20, np.uint8)
    pixels[inside] = [chance.randrange(100, 256) for _ in range(3)]
    return pixels


def write_png(pixels: Pixels) -> bytes:
    """An RGB PNG with 8 bits per channel, and no filter in any row (RFC 2083)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def read_png(data: bytes) -> Pixels:
    """The pixels of a PNG that `write_png` made. For other files, use a library."""
    width, height = struct.unpack_from(">2I", data, 16)
    (length,) = struct.unpack_from(">I", data, 33)
    lines = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(height, 1 + 3 * width)
    return lines[:, 1:].reshape(height, width, 3)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo-data")
