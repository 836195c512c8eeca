"""TFRecorder's names in asyncrec run the class and script from its documentation, and do not have its bugs."""

from __future__ import annotations

import csv
import inspect
import os
import random
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncrec import ObjectNotFoundError
from asyncrec.compat import tfrecorder as tf_factory
from asyncrec.compat.tfrecorder import Example, IgnoreExampleException, _reading, tfrecordable
from asyncrec.compat.tfrecorder.helpers import marshaller
from asyncrec.errors import SchemaError

# The documented class, block by block, verbatim except for docstrings and imports.
IMPORTS = """
import numpy as np
import os

from asyncrec.compat.tfrecorder import tfrecordable
from asyncrec.compat.tfrecorder import Example
"""
INIT = """
class ToyExample(Example):

    def __init__(self, name, label):

        super(ToyExample, self).__init__()
        self.name = name
        self._label = label # this is an int, so we assign it when instantiating
        self._data = None # this is a float array, so we defer loading
"""
FIELDS = """
    # CAUTION: the attributes must be declared in the same order than expected when parsing in tf.Dataset
    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label

    @label.setter
    def label(self, val):
        self._label = val

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self._data

    @data.setter
    def data(self, val):
        self._data = val
"""
LOAD = """
    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        data = np.load(os.path.join(src_data_dirpath, '%s.npy' % self.name))

        if normalize:
            data /= np.max(data)

        self.data = data
"""
SPLIT = """
    def split(self, chunk_size_in_bins=5, **kwargs):
        src_data = self.src_data

        chunked_examples = []
        for i in range(0, src_data.shape[0], chunk_size_in_bins):
            chunked_example = ToyExample('%s_%d' % (self.name, self._label))
            chunked_example.src_data = src_data[i:i+chunk_size_in_bins]
            chunked_examples.append(chunked_example)

        return chunked_examples
"""
CSV = """
    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]
"""
# The documentation does not say where src_data comes from, and its call passes no label for a chunk.
LEFT_OUT = """
    src_data = property(lambda self: self._data, lambda self, data: setattr(self, '_data', data))
"""


def toy(source: str = INIT + FIELDS + LOAD + CSV) -> Any:
    namespace: dict[str, Any] = {}
    exec(IMPORTS + source, namespace)
    return namespace["ToyExample"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (_reading, marshaller):
        monkeypatch.setattr(module, "found_tensorflow", lambda: None)


@pytest.fixture
def rows() -> int:
    """Write arrays, and the CSV file that lists them; return their number."""
    os.mkdir("data")
    generator = np.random.default_rng(0)
    with open("list.csv", "w", newline="") as file:
        for number in range(20):
            np.save(f"data/e{number}.npy", generator.random(12, np.float32))
            csv.writer(file).writerow([f"e{number}", number])
    return 20


def generate(example_class: Any, **options: Any) -> dict[str, int]:
    """Make the call from the documentation."""
    return tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path="save",
        example_class=example_class,
        examples_list_filepath="list.csv",
        src_data_dirpath="data",
        normalize=True,
        chunk_size_in_bins=5,
        **options,
    )


def read(folder: str, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
    return list(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(dirpath=folder), *args, **options))


# -- examples from the documentation ----------------------------------------------------------------------------------


def test_documented_class_and_script_run(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(toy()) == {"train": 16, "eval": 4}

    tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(dirpath="save/train")

    dataset = tf_factory.generate_dataset(tfrecord_filepaths)

    for l in dataset:  # noqa: E741  # the document's name
        print(l)  # prints label and data

    assert len(capsys.readouterr().out.split("(")) > 16
    for label, data in read("save/eval"):
        original = np.load(f"data/e{label}.npy")
        np.testing.assert_array_equal(data, original / original.max())


def test_documented_split_runs_with_its_omitted_parts(rows: int) -> None:
    init = INIT.replace("name, label)", "name, label=0)")
    counts = generate(toy(init + FIELDS + LOAD + SPLIT + CSV + LEFT_OUT))
    assert counts == {"train": 16, "eval": 4}
    assert sorted(len(data) for _, data in read("save/train")) == [2] * 16 + [5] * 32


def test_parameters_match_documented_usage() -> None:
    parameters = inspect.signature(tf_factory.generate_and_save_train_eval_test_tfrecords_files).parameters
    assert list(parameters)[:3] == ["save_directory_path", "example_class", "examples_list_filepath"]
    assert set(Example.Field.__members__) >= {
        "TYPE_BOOL", "TYPE_INT32", "TYPE_INT64", "TYPE_FLOAT", "TYPE_DOUBLE", "TYPE_STRING", "TYPE_ARRAY_FLOAT32",
        "TYPE_ARRAY_INT32",
    }  # fmt: skip


def test_generate_dataset_yields_tuples_without_tensorflow(rows: int) -> None:
    generate(toy())
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths("save/eval"), toy())
    label, data = next(dataset)
    assert isinstance(label, int)
    assert (data.dtype, data.shape) == (np.float32, (12,))


# -- the factory ------------------------------------------------------------------------------------------------------


def test_later_argument_names_are_accepted(rows: int) -> None:
    counts = tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        "save", examples_class=toy(), examples_filepath="list.csv", src_data_dirpath="data",
        examples_train_eval_test_ratio=[0.5], examples_tfrecord_file_max_size_in_bytes=1e6,
    )  # fmt: skip
    assert counts == {"train": 10, "eval": 10}
    with pytest.raises(TypeError, match="example_class"):
        tf_factory.generate_and_save_train_eval_test_tfrecords_files("save", toy())


def test_given_examples_are_split_and_written(rows: int) -> None:
    examples = toy().from_csv_file("list.csv")
    write = tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples
    assert write("save", examples, [0.7, 0.2, 0.1], src_data_dirpath="data") == {"train": 14, "eval": 4, "test": 2}
    labels = [label for folder in ("train", "eval", "test") for label, _ in read(f"save/{folder}")]
    assert labels == [int(example.name[1:]) for example in examples]  # as in TFRecorder, the list was shuffled in place
    assert labels != sorted(labels) == list(range(20))
    examples = toy().from_csv_file("list.csv")
    assert write("plain", examples, examples_shuffle=False, src_data_dirpath="data") == {"train": 16, "eval": 4}
    assert [label for label, _ in read("plain/eval")] == [16, 17, 18, 19]


def test_folds_and_example_files_are_written_by_name(rows: int) -> None:
    kind = toy()
    examples = kind.from_csv_file("list.csv")
    folds = {"fold_0": examples[:5], "fold_1": examples[5:]}
    counts = tf_factory.generate_and_save_tfrecords_files_for_examples_dict("folds", folds, src_data_dirpath="data")
    assert counts == {"fold_0": 5, "fold_1": 15}
    tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
        "three", kind, "list.csv", "list.csv", "list.csv", src_data_dirpath="data"
    )
    assert [len(read(f"three/{name}")) for name in ("train", "eval", "test")] == [20, 20, 20]
    tf_factory.generate_and_save_tfrecords_files_for_examples_file("one/all", kind, "list.csv", src_data_dirpath="data")
    assert [label for label, _ in read("one/all")] == list(range(20))


def test_workers_split_records_evenly_and_shuffling_keeps_all(rows: int) -> None:
    generate(toy())
    shares = [read("save/train", num_workers=3, worker_index=index) for index in range(3)]
    assert sorted(label for share in shares for label, _ in share) == sorted(label for label, _ in read("save/train"))
    assert [len(share) for share in shares] == [6, 5, 5]
    shuffled = read("save/train", dataset_num_shuffled_tfrecord_files=4)
    assert sorted(label for label, _ in shuffled) == sorted(label for label, _ in read("save/train"))
    with pytest.raises(ValueError, match="worker_index"):
        read("save/train", num_workers=3)


def test_folder_without_files_raises_not_found() -> None:
    with pytest.raises(ObjectNotFoundError, match="nothing"):
        tf_factory.get_tfrecord_filepaths("nothing")


def test_own_files_are_listed_in_numeric_order() -> None:
    for number in (10, 2, 0):
        Path(f"{number}.tfr").touch()
    assert [Path(path).name for path in tf_factory.get_tfrecord_filepaths(".")] == ["0.tfr", "2.tfr", "10.tfr"]


def test_round_trip_check_passes_for_split_example(rows: int) -> None:
    example = toy().from_csv_file("list.csv")[0]
    assert tf_factory.assert_example_serialize_deserialize_is_ok(example, src_data_dirpath="data")


def test_every_keyword_reaches_load_method(rows: int) -> None:
    kind, seen = toy(), []

    def load(self: Any, **kwargs: Any) -> None:
        seen.append(kwargs)
        self.data = np.zeros(1, np.float32)

    kind.load = load
    generate(kind, seed=1, encoding="x", progress=2, storage=3)
    assert seen[0].items() >= {"seed": 1, "encoding": "x", "progress": 2, "storage": 3}.items()


# -- TFRecorder's bugs ------------------------------------------------------------------------------------------------


def test_files_stay_within_maximal_size(rows: int) -> None:
    """TFRecorder did not limit the size of its files."""
    generate(toy(), examples_tfrecord_file_max_size_in_bytes=500)
    paths = tf_factory.get_tfrecord_filepaths("save/train")
    assert len(paths) > 2
    assert max(os.path.getsize(path) for path in paths) <= 500
    assert len(read("save/train")) == 16


def test_ratios_with_rounding_error_are_accepted(rows: int) -> None:
    """TFRecorder rejected .7, .2 and .1."""
    assert generate(toy(), examples_train_eval_test_ratio=[0.7, 0.2, 0.1]) == {"train": 14, "eval": 4, "test": 2}


def test_serialized_examples_are_not_kept_in_memory(rows: int) -> None:
    """TFRecorder kept the serialized form of each example, so memory use grew."""
    examples = toy().from_csv_file("list.csv")
    tf_factory.generate_and_save_tfrecords_files_for_examples_dict("save", {"all": examples}, src_data_dirpath="data")
    assert [vars(example)["_data"] for example in examples] == [None] * 20
    assert not any(isinstance(value, bytes) for example in examples for value in vars(example).values())


def test_subclass_fields_do_not_change_parent() -> None:
    """TFRecorder kept a single list for all classes."""

    class Parent(Example):
        @tfrecordable(dtype=Example.Field.TYPE_INT64)
        def a(self) -> int:
            return 1

    class Child(Parent):
        @tfrecordable(dtype=Example.Field.TYPE_INT64)
        def b(self) -> int:
            return 2

    assert Parent.get_tfrecordable_attribute_names() == ["a"]
    assert Child.get_tfrecordable_attribute_names() == ["a", "b"]


def test_array_of_undeclared_type_raises(rows: int) -> None:
    """TFRecorder stored the bytes of an int32 array as float32."""
    np.save("data/e3.npy", np.linspace(0.1, 0.3, 12))
    with pytest.raises(TypeError, match="declared as float32") as caught:
        generate(toy())
    assert isinstance(caught.value, SchemaError)
    assert "row ['e3', 3]: ToyExample.serialize_to_string" in "".join(caught.value.__notes__)
    assert not Path("save/train").exists() or not list(Path("save/train").glob("*.tfrecord"))


def test_second_write_replaces_csv_file(rows: int) -> None:
    """TFRecorder appended to the file."""
    for _ in range(2):
        generate(toy())
    lines = Path(tf_factory.get_examples_list_filepaths("save/train")).read_text().splitlines()
    assert len(lines) == 16
    assert len(read("save/train")) == 16


def test_shuffle_accepts_own_seed(rows: int) -> None:
    labels = []
    for seed in (0, 0, 1):
        generate(toy(), examples_shuffle_seed=seed)
        labels.append([label for label, _ in read("save/train")])
        random.seed(seed + 1)
    assert labels[0] == labels[1] != labels[2]


def test_ignored_example_is_counted_but_not_written(rows: int) -> None:
    kind = toy()

    def load(self: Any, src_data_dirpath: str = "", **kwargs: Any) -> None:
        if self.name == "e3":
            raise IgnoreExampleException("not this one")
        self.data = np.zeros(1, np.float32)

    kind.load = load
    assert sum(generate(kind).values()) == 20  # as in TFRecorder, the examples given are counted
    assert sorted(label for name in ("train", "eval") for label, _ in read(f"save/{name}")) == [
        number for number in range(20) if number != 3
    ]
    lines = [Path(f"save/{name}/examples.csv").read_text().splitlines() for name in ("train", "eval")]
    assert sum(map(len, lines)) == 19


def test_documented_class_blocks_compile() -> None:
    """Each block appears in the source as the documentation shows it, and is valid once it is inside a class."""
    for block in (FIELDS, LOAD, SPLIT, CSV):
        compile(textwrap.dedent(block), "document", "exec")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)
