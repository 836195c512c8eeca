"""datum's own tests, of its source distribution, run as they are: against datum, and with our names in its modules.

The distribution holds the tests and not their data: images and annotations of the sizes that the tests name are made
here, and the module by which the tests write them.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from PIL import Image

VERSION = "1.11.1"  # the last that came with its tests; what it tests is the same in 1.13
SUITES = ["dataset", "loader", "tfrecord_writer", "tfr_reader", "parser", "export"]

# What fails, with its reason.
ON_OURS = {
    f"test_export.py::test_export_to_tfrecord[{kind}]": "the folder holds _manifest and _index beside datum's files"
    for kind in (
        "image_clf-tests/dummy_data/clf",
        "image_det-tests/dummy_data/det/voc",
        "image_seg-tests/dummy_data/seg/voc",
    )
}

# datum's modules look the names up in each other: they are replaced before a test is imported.
CONFTEST = """
import os
import numpy
numpy.unicode_ = numpy.str_  # which one test names, and NumPy 2 has not
if os.environ["SUITE"] == "ours":
    import datum.configs, datum.export.export, datum.reader, datum.reader.dataset, datum.reader.loader
    import datum.writer.tfrecord_writer
    from asyncrec.compat import datum as ours
    datum.configs.DatasetConfigs = ours.DatasetConfigs
    datum.reader.Dataset = datum.reader.dataset.Dataset = ours.Dataset
    datum.reader.load = datum.reader.loader.load = ours.load
    datum.writer.tfrecord_writer.TFRecordWriter = datum.export.export.TFRecordWriter = ours.TFRecordWriter
"""

UTILS = """
import json, os, tempfile
from datum.generator import image, text
from datum.serializer.serializer import DatumSerializer
from datum.utils.common_utils import AttrDict
from datum.writer.tfrecord_writer import TFRecordWriter

def _write(generator, path, counts, serializer="image", sparse=None):
    for split, count in counts.items():
        TFRecordWriter(generator, DatumSerializer(serializer), path, split, count, sparse_features=sparse,
                       image_set="ImageSets").create_records()

def _test_create_clf_records(path):
    _write(image.ClfDatumGenerator("tests/dummy_data/clf"), path, {"train": 1, "val": 1})

def _test_create_det_records(path):
    names = open("tests/dummy_data/det/voc/voc2012.names").read().splitlines()
    config = AttrDict(has_test_annotations=True, class_map={name: n + 1 for n, name in enumerate(names)})
    sparse = ["xmin", "xmax", "ymin", "ymax", "area", "labels", "pose", "is_truncated", "labels_difficult"]
    _write(image.DetDatumGenerator("tests/dummy_data/det/voc", gen_config=config), path, {"train": 2, "val": 1},
           sparse=sparse)

def _test_create_seg_records(path):
    _write(image.SegDatumGenerator("tests/dummy_data/seg/voc"), path, {"train": 2, "val": 1})

def _test_create_textjson_records(path, use_two_files=False):
    folder = tempfile.mkdtemp()
    data = {n: {"text": f"text {n}", "label": {"polarity": n, "question": f"meaning of {n}?"}} for n in range(1, 7)}
    parts = {"train": {n: data[n] for n in (1, 2, 3)}}
    if use_two_files:
        parts["train_2"] = {n: data[n] for n in (4, 5, 6)}
    for name, part in parts.items():
        with open(os.path.join(folder, f"{name}.json"), "w") as file:
            json.dump(part, file)
    _write(text.TextJsonDatumGenerator(folder), path, {"train": 3 * len(parts)}, "text")
    return {n: each for part in parts.values() for n, each in part.items()}
"""

ANNOTATION = """<annotation><size><width>{1}</width><height>{0}</height></size>{objects}</annotation>"""
OBJECT = """<object><name>{name}</name><pose>Left</pose><truncated>0</truncated><difficult>0</difficult>
<bndbox><xmin>{x}</xmin><ymin>1</ymin><xmax>300</xmax><ymax>60</ymax></bndbox></object>"""


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution, fetched once into this environment, beside its data."""
    store = Path(sys.prefix) / "originals"
    archive = store / f"datum-{VERSION}.tar.gz"
    if not archive.exists():
        fetch = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(store)]
        subprocess.run([sys.executable, "-m", *fetch, f"datum=={VERSION}"], check=True)
    root = tmp_path_factory.mktemp("datum")
    with tarfile.open(archive) as tar:
        tar.extractall(root, [each for each in tar if "/tests/" in each.name], filter="data")
    tests = root / f"datum-{VERSION}" / "tests"
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "utils.py").write_text(UTILS)
    make_data(tests / "dummy_data")
    return tests.parent


def make_data(folder: Path) -> None:
    for split in ("train", "val"):
        picture(folder / "clf" / split / "image_232.jpg", 2670, 2870)
        (folder / "clf" / f"{split}.csv").write_text(
            "filename,label_test1,label_test2,label_test3,label_test4\nimage_232,1,2,1,0\n"
        )
    # Of two images the parser's tests name the one that is stored first, and the data set's the other: its batches come
    # in another order, in datum too. What is stored first is decided by the hash of its name.
    sizes = {"det": [(500, 486), (281, 500)], "seg": [(366, 500), (281, 500)]}
    names = sorted(["2007_a", "2007_b"], key=lambda name: hashlib.md5(f"train{name}".encode()).digest())
    for kind, both in sizes.items():
        voc = folder / kind / "voc"
        pictures = dict(zip(names, both, strict=True))
        lists = {"train": names, "val": names[:1]}
        for split, listed in lists.items():
            for file in (voc / f"{split}.txt", voc / "ImageSets" / f"{split}.txt"):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(f"{name}\n" for name in listed))
        for number, (name, size) in enumerate(pictures.items()):
            picture(voc / "JPEGImages" / f"{name}.jpg", *size)
            picture(voc / "SegmentationClass" / f"{name}.png", *size)
            objects = "".join(
                OBJECT.format(name=each, x=174 + n) for n, each in enumerate(["cat", "dog"][: number + 1])
            )
            annotation = voc / "Annotations" / f"{name}.xml"
            annotation.parent.mkdir(exist_ok=True)
            annotation.write_text(ANNOTATION.format(*size, objects=objects))
        for file in ("voc2012.names", "classes.names"):
            (voc / file).write_text("cat\ndog\n")


def picture(path: Path, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (200, 100, 50)).save(path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("against", "failing"), [("datum", {}), ("ours", ON_OURS)])
def test_it_passes_but_for_what_is_listed(suite: Path, against: str, failing: dict[str, str]) -> None:
    files = [f"tests/test_{name}.py" for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "SUITE": against, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True)
    lines = re.findall(r"^(PASSED|FAILED|ERROR) tests/(\S+)", run.stdout, re.MULTILINE)
    outcomes = {name: outcome for outcome, name in lines}
    assert len(outcomes) == 27, run.stdout + run.stderr
    assert {name for name, outcome in outcomes.items() if outcome != "PASSED"} == failing.keys(), run.stdout
