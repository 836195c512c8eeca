"""With TensorFlow installed, `asyncrec.compat.tfrecorder` returns a ``tf.data.Dataset``, as TFRecorder did."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from asyncrec import blocking
from asyncrec.compat import tfrecorder as tf_factory
from asyncrec.compat.tfrecorder import Example, tfrecordable

SCRIPTS = sorted((Path(__file__).parents[1] / "compat/tfrecorder_scripts").glob("*.py"))


class ToyExample(Example):
    """The class from TFRecorder's documentation, with a field of every other type in addition to its two."""

    def __init__(self, name: str, label: int) -> None:
        super().__init__()
        self.name = name
        self._label = label
        self._data: Any = None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, val: Any) -> None:
        self._data = val

    @tfrecordable(dtype=Example.Field.TYPE_BOOL)
    def even(self) -> bool:
        return self._label % 2 == 0

    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def large(self) -> int:
        return self._label << 40

    @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    def half(self) -> float:
        return self._label / 2

    @tfrecordable(dtype=Example.Field.TYPE_DOUBLE)
    def tenth(self) -> float:
        return self._label / 10

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def text(self) -> str:
        return f"é{self._label}"

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
    def grid(self) -> Any:
        return np.full((2, 3), self._label, np.int32)

    def load(self, src_data_dirpath: str = "", **kwargs: Any) -> None:
        self.data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> ToyExample:
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self) -> list[object]:
        return [self.name, self._label]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    os.mkdir("data")
    with open("list.csv", "w", newline="") as file:
        for number in range(50):
            np.save(f"data/e{number}.npy", np.full(number % 3 + 1, number, np.float32))
            csv.writer(file).writerow([f"e{number}", number])
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path="save", example_class=ToyExample, examples_list_filepath="list.csv", src_data_dirpath="data"
    )
    return "save/train"


@pytest.mark.parametrize("example_class", [None, ToyExample])
def test_documented_loop_runs_over_dataset(saved: str, example_class: Any) -> None:
    tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(dirpath=saved)
    dataset = tf_factory.generate_dataset(tfrecord_filepaths, example_class)
    assert isinstance(dataset, tf.data.Dataset)
    dtypes = [spec.dtype for spec in dataset.element_spec]
    assert dtypes == [tf.int32, tf.float32, tf.bool, tf.int64, tf.float32, tf.float32, tf.string, tf.int32]
    for _ in range(2):  # a dataset can be iterated again
        seen = 0
        for label, data, even, large, half, tenth, text, grid in dataset:
            number = int(label)
            assert data.numpy().tolist() == [number] * (number % 3 + 1)
            assert (bool(even), int(large), float(half)) == (number % 2 == 0, number << 40, number / 2)
            assert (float(tenth), text.numpy().decode()) == (np.float32(number / 10), f"é{number}")
            assert grid.numpy().tolist() == [number] * 6  # flat, as in TFRecorder
            seen += 1
        assert seen == 40


def test_dataset_methods_work_and_model_trains(saved: str) -> None:
    paths = tf_factory.get_tfrecord_filepaths(saved)
    dataset = tf_factory.generate_dataset(paths, dataset_num_shuffled_tfrecord_files=10, num_workers=2, worker_index=1)
    pairs = dataset.map(lambda label, data, *rest: (tf.ensure_shape(rest[-1], (6,)), label)).batch(8).repeat(3)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert len(model.fit(pairs, epochs=1, verbose=0).history["loss"]) == 1
    assert sum(len(label) for _, label in pairs) == 60


def test_tensorflow_parses_records_like_tfrecorder(saved: str) -> None:
    """With ``parse_single_example`` and ``decode_raw``, scalars have one element, and arrays are their bytes."""
    features = {
        "label": tf.io.FixedLenFeature((), tf.int64),
        "data": tf.io.FixedLenFeature((), tf.string),
        "half": tf.io.FixedLenFeature((), tf.float32),
        "text": tf.io.FixedLenFeature((), tf.string),
    }
    for record in tf.data.TFRecordDataset(tf_factory.get_tfrecord_filepaths(saved)):
        example = tf.io.parse_single_example(record, features)
        number = int(example["label"])
        assert tf.io.decode_raw(example["data"], tf.float32).numpy().tolist() == [number] * (number % 3 + 1)
        assert float(example["half"]) == number / 2


def test_class_reads_files_written_by_tfrecorder(tmp_path: Path) -> None:
    """TFRecorder's files contain no shapes for the arrays, and are numbered: ``0.tfr``."""

    class Pair(Example):
        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self) -> int:
            raise NotImplementedError

        @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
        def data(self) -> Any:
            raise NotImplementedError

    for file in (0, 1, 10):
        with tf.io.TFRecordWriter(str(tmp_path / f"{file}.tfr")) as writer:
            feature = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[file])),
                "data": tf.train.Feature(bytes_list=tf.train.BytesList(value=[np.arange(3, dtype=np.int32).tobytes()])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    paths = tf_factory.get_tfrecord_filepaths(str(tmp_path))
    found = [(int(label), data.numpy().tolist()) for label, data in tf_factory.generate_dataset(paths, Pair)]
    assert found == [(file, [0, 1, 2]) for file in (0, 1, 10)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_output_is_unchanged_with_tensors(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Like ``tests/compat/test_tfrecorder_scripts.py``, but with the tensors of a ``tf.data.Dataset``."""
    monkeypatch.chdir(tmp_path)
    source = re.sub(r"(?m)^(import|from) tfrecorder\.", r"\1 asyncrec.compat.tfrecorder.", script.read_text())
    exec(compile(source, script.name, "exec"), {"__name__": "script"})
    assert capsys.readouterr().out.splitlines() == script.with_suffix(".out").read_text().splitlines()


def test_graph_parsing_fills_missing_fields_with_zero(saved: str) -> None:
    """TFRecorder's ``generate_dataset`` used ``dataset.map(Example.parse_from_string)``."""
    paths = tf_factory.get_tfrecord_filepaths(saved)
    ours = [tuple(value.numpy() for value in values) for values in tf_factory.generate_dataset(paths, ToyExample)]
    theirs = tf.data.TFRecordDataset(paths).map(ToyExample.parse_from_string)
    for values, expected in zip(theirs.as_numpy_iterator(), ours, strict=True):
        for one, other in zip(values, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    nothing = [value.numpy() for value in ToyExample.parse_from_string(b"")]
    assert [value if isinstance(value, bytes) else value.tolist() for value in nothing] == [
        0, [], False, 0, 0.0, 0.0, b"", [],
    ]  # fmt: skip


def values(dataset: Any) -> list[Any]:
    return [[np.asarray(value).tolist() for value in example] for example in dataset.as_numpy_iterator()]


def test_iterator_continues_from_checkpoint(saved: str, tmp_path: Path) -> None:
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(saved), ToyExample)
    iterator = iter(dataset)
    for _ in range(15):
        next(iterator)
    kept = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "checkpoint"))
    another = iter(dataset)
    tf.train.Checkpoint(iterator=another).restore(kept)
    assert int(next(another)[0]) == int(next(iterator)[0])


def test_tensorflow_seed_determines_order(saved: str) -> None:
    paths = tf_factory.get_tfrecord_filepaths(saved)
    orders = []
    for seed in (5, 5, 6):
        tf.random.set_seed(seed)
        dataset = tf_factory.generate_dataset(paths, ToyExample, dataset_num_shuffled_tfrecord_files=40)
        orders.append([int(example[0]) for example in dataset])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize("example_class", [None, ToyExample])
def test_damage_raises_data_loss_error(saved: str, example_class: Any) -> None:
    path = Path(tf_factory.get_tfrecord_filepaths(saved)[0])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        list(tf_factory.generate_dataset([str(path)], example_class))


def test_missing_file_fails_on_read_but_empty_list_works(tmp_path: Path) -> None:
    dataset = tf_factory.generate_dataset(str(tmp_path / "0.tfr"), ToyExample)
    with pytest.raises(tf.errors.NotFoundError):
        list(dataset)
    assert list(tf_factory.generate_dataset([], ToyExample)) == []


def test_overridden_parse_from_string_is_called(saved: str) -> None:
    class Labels(ToyExample):
        @classmethod
        def parse_from_string(cls, serialized_examples: Any) -> Any:
            return super().parse_from_string(serialized_examples)[0]

    paths = tf_factory.get_tfrecord_filepaths(saved)
    found = tf_factory.generate_dataset(paths, Labels, dataset_fetching_num_threads=2)
    assert sorted(int(label) for label in found) == sorted(
        int(example[0]) for example in tf_factory.generate_dataset(paths, ToyExample)
    )


@pytest.mark.parametrize("where", ["a store that TensorFlow does not read", "GZIP"])
def test_files_elsewhere_or_compressed_yield_same_examples(saved: str, where: str) -> None:
    plain = tf_factory.get_tfrecord_filepaths(saved)
    other = [f"memory://of-tfrecorder/{number}.tfrecord" for number in range(len(plain))]
    if where == "GZIP":
        other = [f"{path}.gz" for path in plain]
    for path, copy in zip(plain, other, strict=True):
        blocking.write_records(copy, blocking.read_records(path), compression="GZIP" if where == "GZIP" else "")
    read = [values(tf_factory.generate_dataset(paths, ToyExample)) for paths in (plain, other)]
    assert read[0] == read[1]
    assert len(read[0]) == 40


def test_fields_of_declared_class_are_read_exactly(tmp_path: Path) -> None:
    from asyncrec.example import DeclaredExample
    from asyncrec.example import tfrecordable as declared

    class Exact(DeclaredExample):
        @declared(dtype=DeclaredExample.Field.TYPE_DOUBLE)
        def value(self) -> float:
            return 0.1

    tf_factory.generate_and_save_tfrecords_files_for_examples_dict(
        str(tmp_path), {"train": [Exact()]}, examples_log_in_csv_file=False
    )
    paths = tf_factory.get_tfrecord_filepaths(str(tmp_path / "train"))
    for example_class in (None, Exact):
        assert values(tf_factory.generate_dataset(paths, example_class)) == [[0.1]]
