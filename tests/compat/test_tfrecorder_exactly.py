"""Details that TFRecorder's users would notice: the threads that run its methods, its splits, its types and its files.

TFRecorder's own tests are in ``test_tfrecorder_suite.py``, its README's scripts in ``test_tfrecorder_scripts.py``.
"""

from __future__ import annotations

import csv
import logging
import random
import re
import sqlite3
import subprocess
import sys
import threading
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec import ObjectNotFoundError, blocking
from asyncrec.compat import tfrecorder as tf_factory
from asyncrec.compat.tfrecorder import Example, IgnoreExampleException, _reading, tfrecordable
from asyncrec.compat.tfrecorder.helpers import marshaller
from asyncrec.errors import SchemaError

write_dict = tf_factory.generate_and_save_tfrecords_files_for_examples_dict
write_splits = tf_factory.generate_and_save_train_eval_test_tfrecords_files


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (_reading, marshaller):
        monkeypatch.setattr(module, "found_tensorflow", lambda: None)


def kind_of(dtype: int = Example.Field.TYPE_INT32, **methods: Any) -> Any:
    """Return an example class with a single field, ``value``."""

    class Value(Example):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self._value = value

        @tfrecordable(dtype)
        def value(self) -> Any:
            return self._value

        @value.setter
        def value(self, value: Any) -> None:
            self._value = value

        @classmethod
        def from_csv_row(cls, row: list[str], **kwargs: Any) -> Any:
            return cls(int(row[0]))

        def to_csv_row(self) -> list[object]:
            return [self._value]

    for name, method in methods.items():
        setattr(Value, name, method)
    return Value


def listed(count: int, path: str = "list.csv") -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([[number] for number in range(count)])
    return path


def values(folder: str, kind: Any) -> list[Any]:
    return [value for (value,) in tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(folder), kind)]


# -- the arguments of an example's methods ----------------------------------------------------------------------------


def test_load_and_split_receive_only_accepted_arguments() -> None:
    given: list[Any] = []

    def load(self: Any, factor: int, **kwargs: Any) -> None:
        given.append((factor, kwargs))

    def split(self: Any, factor: int) -> list[Any]:
        given.append(factor)
        return [self]

    kind = kind_of(load=load, split=split)
    write_dict("save", {"train": [kind(1)]}, 5e5, factor=2)
    assert given == [(2, {"examples_tfrecord_file_max_size_in_bytes": 5e5}), 2]


# -- the threads in which an example's methods run --------------------------------------------------------------------


def test_methods_run_in_callers_thread_example_by_example() -> None:
    calls: list[tuple[str, int]] = []

    def noted(name: str, result: Any = None) -> Any:
        def method(self: Any, **kwargs: Any) -> Any:
            assert threading.current_thread() is threading.main_thread()
            calls.append((name, self._value))
            return [self] if name == "split" else [self._value] if name == "to_csv_row" else None

        return method

    names = ["load", "to_csv_row", "split", "release"]
    kind = kind_of(**{name: noted(name) for name in names})
    write_dict("save", {"a": [kind(number) for number in range(4)], "b": [kind(4)]})
    assert calls == [(name, number) for number in range(5) for name in names]


def test_methods_use_thread_bound_resources() -> None:
    database = sqlite3.connect(":memory:")
    local = threading.local()
    local.cursor = database.cursor()

    def load(self: Any, **kwargs: Any) -> None:
        (self.value,) = local.cursor.execute("select ? + 1", (self._value,)).fetchone()

    kind = kind_of(load=load)
    write_splits("save", kind, listed(5), 0.6)
    assert sorted(values("save/train", kind) + values("save/eval", kind)) == [1, 2, 3, 4, 5]
    database.close()


def test_concurrent_loading_uses_threads_and_keeps_order() -> None:
    together = threading.Barrier(4, timeout=10)

    def load(self: Any, **kwargs: Any) -> None:
        together.wait()

    kind = kind_of(load=load)
    write_dict("save", {"a": [kind(number) for number in range(12)]}, examples_concurrency=4)
    assert values("save/a", kind) == list(range(12))
    with pytest.raises(ValueError, match="examples_concurrency"):
        write_dict("save", {"a": [kind(1)]}, examples_concurrency=0)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_method_error_is_raised_unchanged_without_written_files(concurrency: int) -> None:
    def load(self: Any, **kwargs: Any) -> None:
        {0: 0, 1: 1}[self._value]

    kind = kind_of(load=load)
    with pytest.raises(KeyError) as caught:
        write_dict("save", {"a": [kind(number) for number in range(5)]}, examples_concurrency=concurrency)
    assert "'a', example 2, row [2]: Value.load" in caught.value.__notes__
    assert not list(Path("save").rglob("*.tfrecord"))


def test_async_methods_are_awaited() -> None:
    async def load(self: Any, **kwargs: Any) -> None:
        self.value = self._value * 10

    kind = kind_of(load=load)
    write_dict("save", {"a": [kind(1), kind(2)]})
    assert values("save/a", kind) == [10, 20]


# -- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "ratio", "counts"),
    [
        (0, 0.8, {"train": 0, "eval": 0}),
        (1, 0.8, {"train": 0, "eval": 1}),
        (2, 0.8, {"train": 1, "eval": 1}),
        (7, 0.8, {"train": 5, "eval": 2}),
        (13, [0.5, 0.3, 0.2], {"train": 6, "eval": 3, "test": 4}),
        (20, [1 / 3, 1 / 3, 1 / 3], {"train": 6, "eval": 6, "test": 8}),
        (20, 1.0, {"train": 20, "eval": 0}),
        (20, 0.0, {"train": 0, "eval": 20}),
        (20, [1, 0], {"train": 20, "eval": 0}),
        (20, 0.99, {"train": 19, "eval": 1}),
    ],
)
def test_splits_have_requested_sizes_and_may_be_empty(rows: int, ratio: Any, counts: dict[str, int]) -> None:
    kind = kind_of()
    assert write_splits("save", kind, listed(rows), ratio) == counts
    assert {name: len(values(f"save/{name}", kind)) for name in counts} == counts
    assert {name: len(Path(f"save/{name}/examples.csv").read_text().splitlines()) for name in counts} == counts


@pytest.mark.parametrize("ratio", [[0.5, 0.4], [0.6, 0.3, 0.2], [0.25] * 4, []])
def test_invalid_ratios_are_rejected(ratio: list[float]) -> None:
    with pytest.raises(ValueError, match="ratio"):
        tf_factory.split_examples_list(list(range(20)), ratio)


def test_random_seed_makes_its_shuffle_repeatable() -> None:
    kind = kind_of()
    found = []
    for _ in range(2):
        random.seed(3)
        write_splits("save", kind, listed(20))
        found.append(values("save/train", kind))
    expected = list(range(20))
    random.seed(3)
    random.shuffle(expected)
    assert found == [expected[:16]] * 2


def test_earlier_test_split_is_kept_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    kind = kind_of()
    write_splits("save", kind, listed(10), [0.5, 0.3, 0.2])
    before = values("save/test", kind)
    with caplog.at_level(logging.WARNING, "TFRecorder"):
        write_splits("save", kind, listed(10), 0.8)
    assert values("save/test", kind) == before
    assert [record.getMessage() for record in caplog.records] == [
        "save/test holds a split of an earlier partition that these ratios do not write. It was kept, so its examples "
        "may now be in two splits; delete it if you do not need it"
    ]


def test_folds_accept_mixed_classes_shared_examples_and_any_name() -> None:
    one, other = kind_of(), kind_of(Example.Field.TYPE_FLOAT)
    shared = one(7)
    folds = {"a": [one(1), shared], "b": [other(0.5), shared], "_c": [shared], "d[1]": [shared], "e": []}
    assert write_dict("save", folds) == {"a": 2, "b": 2, "_c": 1, "d[1]": 1, "e": 0}
    assert values("save/a", one) == [1, 7]
    assert values("save/_c", one) == values("save/d[1]", one) == [7]
    assert values("save/e", one) == []


def test_arrays_without_reload_remain_in_example() -> None:
    kind = kind_of(Example.Field.TYPE_ARRAY_FLOAT32)
    example = kind(np.ones(2, np.float32))
    write_dict("save", {"a": [example], "b": [example]}, examples_log_in_csv_file=False)
    assert [array.tolist() for array in values("save/b", kind)] == [[1.0, 1.0]]
    assert example.value is not None


def test_single_examples_file_fills_current_folder() -> None:
    kind = kind_of()
    tf_factory.generate_and_save_tfrecords_files_for_examples_file(".", kind, listed(4))
    assert values(".", kind) == [0, 1, 2, 3]


@pytest.mark.parametrize("where", ["load", "split", "from_csv_row"])
def test_write_succeeds_with_all_examples_ignored(where: str) -> None:
    def ignore(*args: Any, **kwargs: Any) -> None:
        raise IgnoreExampleException("no")

    kind = kind_of(**{where: staticmethod(ignore) if where == "from_csv_row" else ignore})
    write_splits("save", kind, listed(5))
    assert values("save/train", kind) == []


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "given", "read"),
    [
        (Example.Field.TYPE_BOOL, 0, False),
        (Example.Field.TYPE_BOOL, 1, True),
        (Example.Field.TYPE_BOOL, 2, True),
        (Example.Field.TYPE_BOOL, np.True_, True),
        (Example.Field.TYPE_INT32, True, 1),
        (Example.Field.TYPE_DOUBLE, 0.1, float(np.float32(0.1))),
        (Example.Field.TYPE_FLOAT, 3, 3.0),
        (Example.Field.TYPE_STRING, "é", "é"),
        (Example.Field.TYPE_STRING, np.str_("x"), "x"),
    ],
)
def test_value_reads_back_as_in_tfrecorder(dtype: int, given: Any, read: Any) -> None:
    kind = kind_of(dtype)
    write_dict("save", {"a": [kind(given)]})
    assert values("save/a", kind) == [read]
    if given == read or dtype != Example.Field.TYPE_BOOL:  # 2 is written and read as True, and the checker reports it
        assert tf_factory.assert_example_serialize_deserialize_is_ok(kind(given))


def test_int32_array_declared_float32_is_stored_by_value() -> None:
    kind = kind_of(Example.Field.TYPE_ARRAY_FLOAT32)
    write_dict("save", {"a": [kind(np.ones((2, 3), np.int32))]})
    assert [array.tolist() for array in values("save/a", kind)] == [[1.0] * 6]
    (record,) = blocking.read_records(tf_factory.get_tfrecord_filepaths("save/a")[0])
    assert sorted(asyncrec.decode_example(record)) == ["value", "value_shape"]


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        (Example.Field.TYPE_BOOL, "x"),
        (Example.Field.TYPE_INT32, 1.5),
        (Example.Field.TYPE_INT32, 1 << 31),
        (Example.Field.TYPE_FLOAT, 1e300),
        (Example.Field.TYPE_STRING, b"bytes"),
        (Example.Field.TYPE_ARRAY_FLOAT32, np.array([0.1])),
        (Example.Field.TYPE_ARRAY_INT32, np.array([1.5], np.float32)),
        (Example.Field.TYPE_ARRAY_INT32, None),
    ],
)
def test_lossy_value_raises_type_error(dtype: int, given: Any) -> None:
    with pytest.raises(TypeError) as caught:
        kind_of(dtype)(given).serialize_to_string()
    assert isinstance(caught.value, SchemaError)


def test_double_is_stored_rounded_and_exact_records_rejected() -> None:
    kind = kind_of(Example.Field.TYPE_DOUBLE)
    record = kind(0.1).serialize_to_string()
    assert asyncrec.decode_example(record)["value"].tolist() == [np.float32(0.1)]

    class Exact(asyncrec.example.DeclaredExample):
        @asyncrec.example.tfrecordable(dtype=asyncrec.example.DeclaredExample.Field.TYPE_DOUBLE)
        def value(self) -> float:
            return 0.1

    with pytest.raises(SchemaError, match="feature 'value': its values are bytes"):
        kind.decode(Exact().encode())


@pytest.mark.parametrize(
    ("dtype", "read"),
    [
        (Example.Field.TYPE_BOOL, False),
        (Example.Field.TYPE_INT64, 0),
        (Example.Field.TYPE_FLOAT, 0.0),
        (Example.Field.TYPE_STRING, ""),
        (Example.Field.TYPE_ARRAY_INT32, []),
    ],
)
def test_missing_field_reads_as_zero_or_empty(dtype: int, read: Any) -> None:
    (value,) = kind_of(dtype).decode(asyncrec.encode_example({"other": 1}))
    assert (value.tolist() if isinstance(value, np.ndarray) else value) == read


def test_marshaller_reports_types_and_size() -> None:
    """The arguments are those of TFRecorder's ``test_marshaller``; a double is treated as a float."""

    class Two(Example):
        @tfrecordable(Example.Field.TYPE_DOUBLE)
        def a(self) -> float:
            return 1.0

        @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
        def b(self) -> Any:
            return np.ones((2, 2), np.int32)

    assert Two.get_tfrecordable_ordered_dict() == {"a": Example.Field.TYPE_FLOAT, "b": Example.Field.TYPE_ARRAY_INT32}
    assert Two().get_byte_size() == len(Two().serialize_to_string()) > 0
    a, b = Two.parse_from_string(Two().serialize_to_string())
    assert (a, b.tolist()) == (1.0, [1, 1, 1, 1])


def test_checker_raises_assertion_error() -> None:
    kind = kind_of()
    kind.decode = classmethod(lambda cls, record: (5,))
    with pytest.raises(AssertionError, match=r"Attribute value .*\(4 vs\. 5\)"):
        tf_factory.assert_example_serialize_deserialize_is_ok([kind(4)])


# -- files ------------------------------------------------------------------------------------------------------------


def test_config_file_records_arguments() -> None:
    kind = kind_of(from_csv_row=classmethod(lambda cls, row, **kwargs: cls(int(row[0]))))
    write_splits(
        "save", kind, listed(10), [0.5, 0.3, 0.2], sizes=[1, 2], src_dirpath="data", examples_note="100%", other=None
    )
    config = ConfigParser()
    config.read("save/tfrecord_files_config.txt")
    assert dict(config["examples"]) == {
        "sizes": "[1, 2]",
        "src_dirpath": str(Path("data").resolve()),
        "note": "100%",
        "other": "None",
        "class_name": "Value",
        "list_filepath": str(Path("list.csv").resolve()),
        "train_eval_test_ratio": "[0.5, 0.3, 0.2]",
        "tfrecord_file_max_size_in_mb": "1.00e+00",
        "log_in_csv_file": "True",
        "train_count": "5",
        "eval_count": "3",
        "test_count": "2",
    }


def test_to_csv_row_is_optional_without_csv_file() -> None:
    kind = kind_of()
    del kind.to_csv_row
    write_dict("save", {"a": [kind(1)]}, examples_log_in_csv_file=False)
    assert not Path("save/a/examples.csv").exists()
    assert values("save/a", kind) == [1]


def test_csv_lists_example_without_chunks() -> None:
    kind = kind_of(split=lambda self, **kwargs: [] if self._value == 1 else [self])
    write_dict("save", {"a": [kind(number) for number in range(3)]})
    assert Path("save/a/examples.csv").read_text().split() == ["0", "1", "2"]
    assert values("save/a", kind) == [0, 2]


@pytest.mark.parametrize("folder", ["", "memory://lists/", "file://{}/"])
def test_example_lists_are_read_from_any_store(folder: str, tmp_path: Path) -> None:
    folder, kind = folder.format(tmp_path), kind_of()
    for numbers in ([0, 1], [2]):  # as in TFRecorder, the second call adds to the first
        Example.to_csv_file(f"{folder}all.csv", [kind(number) for number in numbers])
    assert [example.value for example in Example.from_csv_file.__func__(kind, f"{folder}all.csv")] == [0, 1, 2]
    three = [f"{folder}all.csv"] * 3
    tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files(f"{folder}save", kind, *three)
    assert values(f"{folder}save/test", kind) == [0, 1, 2]
    tf_factory.generate_and_save_tfrecords_files_for_examples_file(f"{folder}one", kind, three[0])
    assert values(f"{folder}one", kind) == [0, 1, 2]
    write_splits(f"{folder}two", kind, three[0])
    with blocking.open_storage(f"{folder}two" if folder else "two") as store:
        assert b"class_name = Value" in store.get("tfrecord_files_config.txt")


def test_error_of_row_names_its_line() -> None:
    Path("list.csv").write_text("1\n\nx\n")
    with pytest.raises(ValueError, match="invalid literal") as caught:
        kind_of().from_csv_file("list.csv")
    assert caught.value.__notes__ == ["list.csv, line 3: Value.from_csv_row"]


@pytest.mark.parametrize("call", [tf_factory.get_tfrecord_filepaths, tf_factory.get_examples_list_filepaths])
def test_missing_folder_raises_value_error_and_empty_is_accepted(call: Any) -> None:
    with pytest.raises(ValueError, match="There is no directory at nowhere") as caught:
        call("nowhere")
    assert isinstance(caught.value, ObjectNotFoundError)
    Path("empty").mkdir()
    assert call("empty") == ([] if call is tf_factory.get_tfrecord_filepaths else "empty/examples.csv")


# -- progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configured", ["", "logging.basicConfig(level=logging.INFO, format='%(name)s:%(message)s')"])
def test_progress_goes_to_stdout_unless_logging_is_configured(configured: str) -> None:
    program = f"""
import logging
from asyncrec.compat.tfrecorder import Example, generate_and_save_tfrecords_files_for_examples_dict, tfrecordable

{configured}

class Number(Example):
    def __init__(self, number):
        self.number_ = number

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def number(self):
        return self.number_

    def to_csv_row(self):
        return [self.number_]

for _ in range(2):
    generate_and_save_tfrecords_files_for_examples_dict("save", {{"train": [Number(n) for n in range(25)]}})
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    lines = [
        "Saving train tfrecords files for 25 examples...",
        "   Metadata of the examples will be saved in a csv file.",
        "   Processed 10 / 25 examples (eta: 0:00:00)...",
        "   Processed 20 / 25 examples (eta: 0:00:00)...",
        "   Processed 25 / 25 examples.",
    ] * 2
    if configured:
        assert done.stdout == ""
        told = [line for line in done.stderr.splitlines() if line.startswith("TFRecorder:")]
        lines = [f"TFRecorder:{line}" for line in lines]
    else:
        assert done.stderr == ""
        told = done.stdout.splitlines()
    assert [re.sub(r"0:00:\d\d", "0:00:00", line) for line in told] == lines
