"""TFRecorder's own six tests, in the same order and with the same two classes, run on asyncrec.

They were also run unchanged, in TFRecorder's repository (gdoras/TFRecorder a063660), with its modules replaced by those
of `asyncrec.compat.tfrecorder`. All six pass, while TFRecorder itself passes only five: its ``test_marshaller`` stores
a bool as an int, which TensorFlow 2.21 rejects. That repository has no package to install, so the behaviour that its
tests check is reproduced here.
"""

from __future__ import annotations

import os
import random
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncrec.compat.tfrecorder.factory as tf_factory
from asyncrec.compat.tfrecorder import _reading
from asyncrec.compat.tfrecorder.helpers import checker, marshaller
from asyncrec.compat.tfrecorder.helpers.decorator import tfrecordable
from asyncrec.compat.tfrecorder.helpers.marshaller import Example


class ToyExample1(Example):
    """An example with an array as source, and a label and a probability as target."""

    def __init__(self, name: str, label: int, likelihood: float, data_filepath: str) -> None:
        super().__init__()
        self._name, self._label, self._likelihood, self._data = name, label, likelihood, None
        self.data_filepath = data_filepath

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def name(self) -> str:
        return self._name

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    def likelihood(self) -> float:
        return self._likelihood

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, val: Any) -> None:
        self._data = val

    def load(self, add_row: bool = False, **kwargs: Any) -> None:
        data = np.load(self.data_filepath)
        if add_row:
            data = np.concatenate([data, np.zeros([1, data.shape[1]], dtype=np.float32)], axis=0)
        self.data = data

    def to_csv_row(self) -> list[object]:
        return [self._name, self._label, self._likelihood]

    @staticmethod
    def from_csv_row(row: list[str], data_dirpath: str = "", **kwargs: Any) -> ToyExample1:
        return ToyExample1(row[0], int(row[1]), float(row[2]), os.path.join(data_dirpath, f"{row[0]}.npy"))


class ToyExample2(Example):
    """An example with two arrays, a source and a target, which are cut into chunks."""

    def __init__(self, label: str, name: str | None = None) -> None:
        super().__init__()
        self._label, self.name, self._src_data, self._tgt_data = label, name, None, None

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def label(self) -> str:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def src_data(self) -> Any:
        return self._src_data

    @src_data.setter
    def src_data(self, val: Any) -> None:
        self._src_data = val

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def tgt_data(self) -> Any:
        return self._tgt_data

    @tgt_data.setter
    def tgt_data(self, val: Any) -> None:
        self._tgt_data = val

    def load(self, src_data_dirpath: str = "", tgt_data_dirpath: str = "", **kwargs: Any) -> None:
        self.src_data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))
        self.tgt_data = np.load(os.path.join(tgt_data_dirpath, f"{self.name}.npy"))

    def split(self, chunk_size_in_bins: int, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        chunks = []
        for number, start in enumerate(range(0, self.src_data.shape[0], chunk_size_in_bins)):
            chunk = ToyExample2(f"{self._label}_{number}")
            chunk.src_data = self.src_data[start : start + chunk_size_in_bins]
            chunk.tgt_data = self.tgt_data[start : start + chunk_size_in_bins]
            chunks.append(chunk)
        return chunks

    def to_csv_row(self) -> list[object]:
        return [self._label, self.name]

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> ToyExample2:
        return ToyExample2(label=row[0], name=row[1])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (_reading, marshaller):
        monkeypatch.setattr(module, "found_tensorflow", lambda: None)


def made(kind: type, count: int, shape: tuple[int, int] = (128, 4)) -> tuple[list[Any], dict[str, Any]]:
    """Return examples whose arrays are in files, and the keyword arguments that their methods need."""
    for folder in ("corpus/src", "corpus/tgt"):
        os.makedirs(folder)
    examples: list[Any] = []
    for number in range(count):
        for folder in ("corpus", "corpus/src", "corpus/tgt"):
            np.save(f"{folder}/e{number}.npy", np.random.random(shape).astype(np.float32))
        if kind is ToyExample1:
            likelihood = np.float32(random.random())
            examples.append(ToyExample1(f"e{number}", random.randint(0, 5), likelihood, f"corpus/e{number}.npy"))
        else:
            examples.append(ToyExample2(str(number), f"e{number}"))
    if kind is ToyExample1:
        return examples, {"data_dirpath": "corpus"}
    return examples, {"src_data_dirpath": "corpus/src", "tgt_data_dirpath": "corpus/tgt", "chunk_size_in_bins": 5}


def check(path: str, names: list[str], kind: Any, kwargs: dict[str, Any], count: int) -> None:
    """Check that each folder has its list and its files, and that the files together contain every example."""
    records = 0
    for name in names:
        assert os.path.exists(tf_factory.get_examples_list_filepaths(f"{path}/{name}"))
        paths = tf_factory.get_tfrecord_filepaths(f"{path}/{name}")
        assert paths
        assert all(map(os.path.exists, paths))
        records += len(list(tf_factory.generate_dataset(paths, kind)))
    assert records == count * (26 if kind is ToyExample2 else 1)  # 128 rows in chunks of 5


both = pytest.mark.parametrize("kind", [ToyExample1, ToyExample2])


@both
@pytest.mark.parametrize("add_row", [False, True])
def test_generate_and_save_tfrecords_files_for_examples(kind: type, add_row: bool) -> None:
    examples, kwargs = made(kind, 87, (37, 3))
    more = {"add_row": True} if add_row else {}
    assert checker.assert_example_serialize_deserialize_is_ok(
        examples, tfrecords_files_max_size_in_bytes=1e4, **kwargs, **more
    )


@both
def test_generate_and_save_tfrecords_files_for_examples_dict(kind: type) -> None:
    examples, kwargs = made(kind, 13)
    folds = {"train": examples[:-2], "eval": examples[-2:]}
    assert tf_factory.generate_and_save_tfrecords_files_for_examples_dict("tfrecords", folds, **kwargs) == {
        "train": 11,
        "eval": 2,
    }
    check("tfrecords", ["train", "eval"], kind, kwargs, 13)


@both
def test_generate_and_save_tfrecords_files_for_train_eval_test_examples_files(kind: type) -> None:
    """The lists of the three splits are used to generate the same splits again."""
    examples, kwargs = made(kind, 13)
    tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
        "original", examples, [0.5, 0.3, 0.2], **kwargs
    )
    names = ["train", "eval", "test"]
    check("original", names, kind, kwargs, 13)
    lists = [tf_factory.get_examples_list_filepaths(os.path.join("original", name)) for name in names]
    kwargs.update({"data_dirpath": "corpus", "add_row": True})
    tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files("again", kind, *lists, **kwargs)
    check("again", names, kind, kwargs, 13)


@both
def test_generate_and_save_train_eval_test_tfrecords_files_for_examples(kind: type) -> None:
    """The same examples are split in three different ways, one after the other."""
    examples, kwargs = made(kind, 13)
    for number, ratios in enumerate([0.8, [0.7, 0.3], [0.5, 0.3, 0.2]]):
        tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
            f"tfrecords_{number}", examples, ratios, **kwargs
        )
        names = ["train", "eval", "test"][: 3 if number == 2 else 2]
        check(f"tfrecords_{number}", names, kind, kwargs, 13)


@both
def test_generate_and_save_tfrecords_files_for_examples_file(kind: type) -> None:
    examples, kwargs = made(kind, 13)
    Example.to_csv_file("corpus/examples.csv", examples)
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        "tfrecords", kind, "corpus/examples.csv", [0.5, 0.3, 0.2], **kwargs
    )
    check("tfrecords", ["train", "eval", "test"], kind, kwargs, 13)
    config = ConfigParser()
    assert config.read("tfrecords/tfrecord_files_config.txt")
    assert config["examples"]["class_name"] == kind.__name__


def test_example() -> None:
    """Each type is written and read back; a double is treated as a float; 64-bit arrays raise TypeError."""
    given = {
        "BOOL": True, "INT32": 4, "INT64": 1 << 40, "FLOAT": 0.1, "DOUBLE": 0.2, "STRING": "é",
        "ARRAY_INT32": np.ones((3, 4), np.int32), "ARRAY_FLOAT32": np.random.random((3, 4)).astype(np.float32),
    }  # fmt: skip

    fields = {
        name: tfrecordable(dtype=getattr(Example.Field, f"TYPE_{name}"))(lambda self, name=name: self.values[name])
        for name in given
    }
    kind: Any = type("ToyExample", (Example,), {"values": given, **fields})
    types = {name: getattr(Example.Field, f"TYPE_{name}") for name in given} | {"DOUBLE": Example.Field.TYPE_FLOAT}
    assert kind.get_tfrecordable_ordered_dict() == types
    assert kind().get_byte_size() != 0
    for value, read in zip(given.values(), kind.parse_from_string(kind().serialize_to_string()), strict=True):
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, np.frombuffer(read, value.dtype).reshape(3, 4))
        else:
            assert read == (np.float32(value) if isinstance(value, float) else value)
    for name, array in {"ARRAY_INT32": np.ones(2, np.int64), "ARRAY_FLOAT32": np.random.random(2)}.items():
        kind.values = given | {name: array}
        with pytest.raises(TypeError, match="but the field is declared as"):
            kind().serialize_to_string()
