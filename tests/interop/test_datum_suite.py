"""The tests in datum's source distribution run unchanged, with datum and with our names in its modules.

The distribution contains the tests but not their data, so images and annotations of the expected sizes are made here,
as is the module with which the tests write them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Test modules are imported by path, but helper modules are imported by name.
sys.path.insert(0, str(Path(__file__).parent))

from originals import datum_source, make_data

SUITES = ["dataset", "loader", "tfrecord_writer", "tfr_reader", "parser", "export"]

# The tests that fail, with the reasons.
ON_OURS = {
    f"test_export.py::test_export_to_tfrecord[{kind}]": "the folder holds _manifest and _index beside datum's files"
    for kind in (
        "image_clf-tests/dummy_data/clf",
        "image_det-tests/dummy_data/det/voc",
        "image_seg-tests/dummy_data/seg/voc",
    )
}

# datum's modules import names from each other, so the names are replaced before any test is imported.
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


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the distribution with its data."""
    tests = datum_source(tmp_path_factory.mktemp("datum")) / "tests"
    shutil.rmtree(tests.parent / "datum")  # so that the installed package is used
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "utils.py").write_text(UTILS)
    make_data(tests / "dummy_data")
    return tests.parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("against", "failing"), [("datum", {}), ("ours", ON_OURS)])
def test_datum_suite_passes_except_listed_tests(suite: Path, against: str, failing: dict[str, str]) -> None:
    files = [f"tests/test_{name}.py" for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "SUITE": against, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True)
    lines = re.findall(r"^(PASSED|FAILED|ERROR) tests/(\S+)", run.stdout, re.MULTILINE)
    outcomes = {name: outcome for outcome, name in lines}
    assert len(outcomes) == 27, run.stdout + run.stderr
    assert {name for name, outcome in outcomes.items() if outcome != "PASSED"} == failing.keys(), run.stdout
