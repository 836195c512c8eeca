from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest
from images_from_csv import SHAPES, Image, draw, main, read_png, write_png

import asyncrec

pytestmark = pytest.mark.anyio


async def test_every_image_is_in_one_split_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await main(str(tmp_path), images=100)
    shown = capsys.readouterr().out
    assert "2 left out" in shown
    found: dict[bytes, int] = {}
    for split, count in (("train", 69), ("eval", 19), ("test", 10)):
        paths = await asyncrec.datasets.get_tfrecord_filepaths(tmp_path / "shapes" / split)
        async with asyncrec.datasets.generate_dataset(paths, Image) as dataset:
            values = [each async for each in dataset]
        assert abs(len(values) - count) <= 2
        assert f" {len(values)} " in shown
        assert all(brightness.shape == (32,) for _, _, brightness in values)
        found |= {png: label for label, png, _ in values}
    listed = csv.reader((tmp_path / "images" / "images.csv").read_text().splitlines())
    drawn = {(tmp_path / "images" / name).read_bytes(): SHAPES.index(shape) for name, shape in listed}
    assert len(found) == 98
    assert found.items() <= drawn.items()


async def test_image_class_reads_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(write_png(draw("disc", random.Random(1))))
    asyncrec.example.check_round_trip(Image, ["a.png", "disc"], images=tmp_path)


def test_png_images_round_trip() -> None:
    pixels = draw("stripes", random.Random(1))
    assert np.array_equal(read_png(write_png(pixels)), pixels)
