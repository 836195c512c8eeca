"""TensorFlow's names, without TensorFlow, run the documented examples and do not have the bugs of its writer."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Generator
from functools import partial
from importlib.machinery import ModuleSpec
from operator import attrgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import asyncrec
from asyncrec import (
    CorruptRecordError,
    ObjectExistsError,
    ObjectNotFoundError,
    blocking,
    encode_example,
)
from asyncrec.compat import tensorflow as tf
from asyncrec.errors import ArgumentError, SchemaError, TruncatedError, UnknownSchemeError
from asyncrec.testing.golden import RECORDS

# The session from the documentation, verbatim except for tabs.
SESSION = """
In[6]: def int64_feature(value):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    int64_feature(32)
Out[6]: int64_list {
            value:32
           }
In[11]: def bytes_feature(value):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    bytes_feature(b'32')
Out[11]: bytes_list{
            value:"32"
           }
In[16]: def float_list_feature(value):
            return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    float_list_feature([16,32])
Out[16]:float_list{
            value:16.0
            value:32.0
          }
In[20]: def bytes_list_feature(value):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    bytes_list_feature([b'32',b'16'])
Out[20]:bytes_list{
            value:"32"
            value:"16"
          }
In[24]: def int64_list_feature(value):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    int64_list_feature([16,32])
Out[24]:int64_list{
            value:16
            value:32
          }
"""
CELLS = re.findall(r"In\[\d+\]: (def .*?)\n    (\w.*?)\nOut\[\d+\]:(.*?\})\n", SESSION, re.DOTALL)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(tf, "found_tensorflow", lambda: None)


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that TensorFlow was installed and imported, with message classes under TensorFlow's names."""
    file = descriptor_pb2.FileDescriptorProto()
    asyncrec.example.Example.DESCRIPTOR.file.CopyToProto(file)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kinds = message_factory.GetMessageClassesForFiles([file.name], pool)
    module = ModuleType("tensorflow")
    module.__spec__ = ModuleSpec("tensorflow", None)
    vars(module)["train"] = SimpleNamespace(**{name.rpartition(".")[2]: kind for name, kind in kinds.items()})
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return module


# -- examples from the documentation ----------------------------------------------------------------------------------


def test_documented_session_has_five_cells() -> None:
    assert len(CELLS) == 5


@pytest.mark.parametrize(("definition", "call", "output"), CELLS, ids=lambda text: text.partition("(")[0][-20:])
def test_documented_session_cell_produces_shown_output(definition: str, call: str, output: str) -> None:
    """Our object with the same name produces the same output."""
    namespace: dict[str, Any] = {"tf": tf}
    exec(definition, namespace)
    shown = eval(call, namespace)
    # Newer versions of protobuf print whole floats without ".0".
    assert re.sub(r"\s|\.0\b", "", str(shown)) == re.sub(r"\s|\.0\b", "", output)
    assert eval(call, vars(tf)) == shown


def test_signatures_match_documentation() -> None:
    parameters = inspect.signature(tf.TFRecordWriter).parameters
    assert list(parameters)[:2] == ["path", "options"]
    assert parameters["options"].default is None
    assert list(inspect.signature(tf.TFRecordWriter.write).parameters) == ["self", "record"]


def test_documented_example_is_built_written_and_read() -> None:
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "Age": tf.int64_feature(29),
                "Movie": tf.bytes_list_feature([b"The Shawshank Redemption", b"Fight Club"]),
                "Movie Ratings": tf.float_list_feature([9.0, 9.7]),
            }
        )
    )
    with tf.python_io.TFRecordWriter("customer_1.tfrecord") as writer:
        writer.write(example.SerializeToString())
    (record,) = tf.compat.v1.io.tf_record_iterator("customer_1.tfrecord")
    assert tf.train.Example.FromString(record) == example


def test_sequence_example_is_built_from_context_and_feature_lists() -> None:
    steps = tf.train.FeatureList(feature=[tf.int64_feature(1), tf.int64_feature(2)])
    example = tf.train.SequenceExample(
        context=tf.train.Features(feature={"n": tf.int64_feature(2)}),
        feature_lists=tf.train.FeatureLists(feature_list={"steps": steps}),
    )
    assert example.feature_lists.feature_list["steps"].feature[1].int64_list.value == [2]


# -- writing and reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        None,
        "GZIP",
        tf.TFRecordCompressionType.ZLIB,
        tf.TFRecordOptions("GZIP", compression_level=9, window_bits=31, output_buffer_size=1024, flush_mode=2),
        tf.TFRecordOptions(tf.TFRecordOptions("ZLIB", mem_level=8, compression_strategy=2, compression_method=8)),
        tf.TFRecordOptions(tf.TFRecordCompressionType.NONE, compression_level=9),
        SimpleNamespace(compression_type="GZIP", input_buffer_size=10, window_bits=None),  # TensorFlow's own attributes
    ],
    ids=["none", "name", "enum", "options", "options-of-options", "no-compression", "namespace"],
)
def test_records_round_trip_with_all_options(options: Any) -> None:
    with tf.io.TFRecordWriter("x", options) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(tf.io.tf_record_iterator("x")) == list(RECORDS)
    assert list(tf.io.tf_record_iterator("x", options)) == list(RECORDS)
    with blocking.open_reader("x") as reader:
        assert reader.compression == tf.TFRecordOptions.get_compression_type_string(options)


def test_writer_encodes_text_record_as_utf8() -> None:
    with tf.io.TFRecordWriter("x") as writer:
        writer.write("ü")
    assert list(tf.io.tf_record_iterator("x")) == ["ü".encode()]


def test_writer_rejects_invalid_compression_options_at_once() -> None:
    with pytest.raises(ValueError, match="LZ4"):
        tf.io.TFRecordWriter("x", "LZ4")
    with pytest.raises(ValueError, match="level"):
        tf.io.TFRecordWriter("x", tf.TFRecordOptions("GZIP", compression_level=11))


def test_closed_writer_rejects_records_and_closes_again() -> None:
    writer = tf.io.TFRecordWriter("x")
    writer.close()
    writer.close()
    with pytest.raises(anyio.ClosedResourceError):
        writer.write(b"1")
    assert list(tf.io.tf_record_iterator("x")) == []


def test_record_iterator_can_be_closed_early() -> None:
    blocking.write_records("x", [b"%d" % number for number in range(5000)])
    records = tf.io.tf_record_iterator("x")
    assert next(records) == b"0"
    assert isinstance(records, Generator)
    records.close()


@pytest.mark.parametrize(
    "options", [None, "GZIP", tf.TFRecordOptions("GZIP", compression_level=9)], ids=["none", "gzip", "9"]
)
def test_flushed_records_are_readable_before_close(options: Any) -> None:
    blocking.write_records("x", [b"old"])
    writer = tf.io.TFRecordWriter("x", options)
    for number in range(4):
        writer.write(b"%d" % number)
        writer.flush()
        writer.flush()
        found = tf.io.tf_record_iterator("x", on_corrupt="stop")  # the GZIP member is not complete yet
        assert list(found) == [b"%d" % each for each in range(number + 1)]
    writer.write(b"last")
    writer.close()
    assert list(tf.io.tf_record_iterator("x", options))[-1] == b"last"
    assert os.listdir() == ["x"]


def test_zlib_and_store_files_appear_only_on_close() -> None:
    for path, options in (("x", "ZLIB"), ("memory://compat-tensorflow/x", None)):
        writer = tf.io.TFRecordWriter(path, options)
        writer.write(b"1")
        writer.flush()
        with pytest.raises(FileNotFoundError):
            tf.io.tf_record_iterator(path)
        writer.close()
        assert list(tf.io.tf_record_iterator(path, options)) == [b"1"]


def test_flushed_records_survive_kill() -> None:
    program = """
import os
from asyncrec.compat import tensorflow as tf
writer = tf.io.TFRecordWriter("x")
writer.write(b"1")
writer.flush()
writer.write(b"2")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program])
    assert list(tf.io.tf_record_iterator("x")) == [b"1"]


def test_dropped_writer_publishes_records() -> None:
    writer = tf.io.TFRecordWriter("x")
    writer.write(b"1")
    del writer
    gc.collect()
    assert list(tf.io.tf_record_iterator("x")) == [b"1"]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "raise KeyError", "writer.itself = writer", "atexit.register(writer.close)"])
@pytest.mark.parametrize("flushed", ["", "writer.flush()"])
def test_unclosed_writer_is_closed_at_exit(end: str, flushed: str) -> None:
    program = f"""
import atexit
from asyncrec.compat import tensorflow as tf
writer = tf.io.TFRecordWriter("x")
writer.write(b"1")
{flushed}
writer.write(b"2")
{end}
"""
    subprocess.run([sys.executable, "-c", program], check="raise" not in end)
    assert list(tf.io.tf_record_iterator("x")) == [b"1", b"2"]


def test_writer_and_iterator_accept_bytes_path() -> None:
    with tf.io.TFRecordWriter(b"x") as writer:
        writer.write(b"1")
    assert list(tf.io.tf_record_iterator(b"x")) == [b"1"]


@pytest.mark.parametrize("kind", ["ZLIB", "GZIP"])
@pytest.mark.parametrize("bits", [8, 9, 25, 31])
def test_window_sizes_equal_those_of_zlib(kind: str, bits: int) -> None:
    if kind == "ZLIB" and bits > 15:  # not valid for ZLIB
        with pytest.raises(ValueError, match="window_bits"):
            tf.io.TFRecordWriter("x", tf.TFRecordOptions(kind, window_bits=bits))
        return
    with tf.io.TFRecordWriter("x", tf.TFRecordOptions(kind, window_bits=bits)) as writer:
        writer.write(bytes(10_000))
    assert list(tf.io.tf_record_iterator("x", kind)) == [bytes(10_000)]


@pytest.mark.parametrize(
    ("given", "string"),
    [(None, ""), ("", ""), (0, ""), (1, "ZLIB"), (2, "GZIP"), (True, "ZLIB"), (2.0, "GZIP"), ("ZLIB", "ZLIB")],
)
def test_options_keep_given_compression_type(given: Any, string: str) -> None:
    options = tf.TFRecordOptions(given)
    assert options.compression_type is given
    assert tf.TFRecordOptions.get_compression_type_string(given) == string
    assert tf.TFRecordOptions.get_compression_type_string(tf.TFRecordOptions(options)) == string


@pytest.mark.parametrize("given", ["gzip", "LZ4", b"GZIP", 3])
def test_options_reject_unknown_compression(given: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid compression"):
        tf.TFRecordOptions(given)


# -- errors -----------------------------------------------------------------------------------------------------------


def closed() -> None:
    writer = tf.io.TFRecordWriter("x")
    writer.close()
    writer.flush()


def cut() -> None:
    blocking.write_records("x", [bytes(50)])
    os.truncate("x", 60)
    list(tf.io.tf_record_iterator("x"))


def flipped() -> None:
    blocking.write_records("x", [bytes(50)])
    data = bytearray(Path("x").read_bytes())
    data[30] ^= 1
    Path("x").write_bytes(data)
    list(tf.io.tf_record_iterator("x"))


def there() -> None:
    blocking.write_records("x", [])
    tf.io.TFRecordWriter("x", mode="x")


@pytest.mark.parametrize(
    ("does", "theirs", "ours"),
    [
        (closed, tf.errors.FailedPreconditionError, anyio.ClosedResourceError),
        (cut, tf.errors.DataLossError, TruncatedError),
        (flipped, tf.errors.DataLossError, CorruptRecordError),
        (there, tf.errors.AlreadyExistsError, ObjectExistsError),
        (lambda: tf.io.tf_record_iterator("none"), tf.errors.NotFoundError, FileNotFoundError),
        (lambda: tf.io.TFRecordWriter("folder").close(), tf.errors.FailedPreconditionError, OSError),
        (lambda: tf.io.TFRecordWriter("foo://x"), tf.errors.UnimplementedError, UnknownSchemeError),
    ],
)
def test_error_is_caught_under_tensorflow_and_own_name(does: Any, theirs: Any, ours: Any) -> None:
    os.mkdir("folder")
    with pytest.raises(theirs) as caught:
        does()
    error = caught.value
    assert isinstance(error, ours)
    assert isinstance(error, tf.errors.OpError)
    assert error.message == str(error) != ""
    assert (error.error_code, error.op, error.node_def) == (theirs.error_code, None, None)
    assert type(error).__name__ == theirs.__name__
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_error_is_instance_of_installed_tensorflow_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class RealOpError(Exception):
        def __init__(self, node_def: Any, op: Any, message: str, error_code: int) -> None: ...

        def __str__(self) -> str:
            raise AssertionError("it has nothing that this needs")

    class RealNotFoundError(RealOpError):
        pass

    errors = SimpleNamespace(NotFoundError=RealNotFoundError)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(errors=errors))  # type: ignore[arg-type]  # a stand-in
    with pytest.raises(RealNotFoundError, match="none") as caught:
        tf.io.tf_record_iterator("none")
    assert isinstance(caught.value, ObjectNotFoundError)


def test_foreign_errors_are_unchanged() -> None:
    with pytest.raises(KeyError) as caught:
        with tf.io.TFRecordWriter("x"):
            raise KeyError
    assert type(caught.value) is KeyError


# -- the helpers ------------------------------------------------------------------------------------------------------


class Whole:
    def __index__(self) -> int:
        return 7


class Real:
    """A number of unknown type, like a Fraction or a tensor."""

    def __float__(self) -> float:
        return 0.5


def test_helpers_accept_documented_values() -> None:
    """Values that our own helpers reject are passed to the message classes, as in the documentation."""
    assert tf.float_list_feature(None) == tf.train.Feature(float_list=tf.train.FloatList())
    assert tf.bytes_list_feature(None) == tf.train.Feature(bytes_list=tf.train.BytesList())
    assert tf.int64_list_feature(None) == tf.train.Feature(int64_list=tf.train.Int64List())
    assert tf.int64_feature(Whole()).int64_list.value == tf.int64_list_feature([Whole()]).int64_list.value == [7]
    assert tf.float_list_feature([Real(), 1]).float_list.value == [0.5, 1]
    assert tf.float_list_feature(np.array([0.1])) == tf.float_list_feature([0.1])


@pytest.mark.parametrize(
    ("helper", "value", "error"),
    [
        (tf.int64_feature, 1.5, TypeError),
        (tf.int64_feature, None, TypeError),
        (tf.int64_feature, 2**63, ValueError),
        (tf.bytes_feature, 3, TypeError),
        (tf.bytes_feature, None, TypeError),
        (tf.float_list_feature, ["a"], TypeError),
        (tf.bytes_list_feature, [1], TypeError),
        (tf.int64_list_feature, [1.5], TypeError),
        (tf.float_list_feature, [1e300], SchemaError),
        (tf.float_list_feature, [Real(), 1e300], SchemaError),
        (partial(tf.float_list_feature, narrow=False), np.array([0.1]), SchemaError),
    ],
)
def test_helpers_reject_documented_values_and_infinity(helper: Any, value: Any, error: Any) -> None:
    with pytest.raises(error):
        helper(value)


def test_text_and_bytes_convert_to_each_other() -> None:
    assert (tf.compat.as_bytes("ü"), tf.compat.as_bytes(bytearray(b"x"))) == ("ü".encode(), b"x")
    assert tf.compat.as_text("ü".encode()) == tf.compat.v1.compat.as_str("ü") == "ü"
    for func in (tf.as_bytes, tf.as_text):
        with pytest.raises(TypeError, match="Expected binary or unicode string, got 3"):
            func(3)  # type: ignore[arg-type]  # deliberately wrong


# -- TensorFlow's bugs ------------------------------------------------------------------------------------------------


def test_writer_keeps_existing_file_until_close() -> None:
    """TensorFlow's writer truncates the file when it opens it."""
    blocking.write_records("x", [b"old"])
    writer = tf.io.TFRecordWriter("x")
    writer.write(b"new")
    assert list(tf.io.tf_record_iterator("x")) == [b"old"]
    writer.close()
    assert list(tf.io.tf_record_iterator("x")) == [b"new"]


def test_failed_body_leaves_no_file() -> None:
    """TensorFlow's writer keeps the records written before the error."""
    with pytest.raises(KeyError):
        with tf.io.TFRecordWriter("x") as writer:
            for number in range(5000):
                writer.write(b"%d" % number)
            raise KeyError
    assert not Path("x").exists()


def test_damage_error_names_file_offset_and_record() -> None:
    """TensorFlow's DataLossError does not name the file."""
    blocking.write_records("damaged", [b"%d" % number for number in range(100)])
    data = bytearray(Path("damaged").read_bytes())
    data[-5] ^= 1
    Path("damaged").write_bytes(data)
    records = []
    with pytest.raises(CorruptRecordError, match="damaged") as caught:
        for record in tf.io.tf_record_iterator("damaged"):
            records.append(record)
    assert records == [b"%d" % number for number in range(99)]
    assert (caught.value.record, caught.value.offset) == (99, len(data) - 18)


def test_reader_continues_after_damage_with_skip() -> None:
    """TensorFlow skips the rest of the file."""
    blocking.write_records("damaged", [b"%03d" % number for number in range(100)])
    data = bytearray(Path("damaged").read_bytes())
    data[50 * 19 + 13] ^= 1
    Path("damaged").write_bytes(data)
    records = list(tf.io.tf_record_iterator("damaged", on_corrupt="skip"))
    assert records == [b"%03d" % number for number in range(100) if number != 50]


def test_file_can_be_appended_to() -> None:
    """TensorFlow's writer cannot append."""
    for record in (b"1", b"2"):
        with tf.io.TFRecordWriter("x", mode="a") as writer:
            writer.write(record)
    assert list(tf.io.tf_record_iterator("x")) == [b"1", b"2"]
    with pytest.raises(ObjectExistsError):
        tf.io.TFRecordWriter("x", mode="x")


def test_serialized_message_matches_encode_example() -> None:
    example = tf.train.Example(features=tf.train.Features(feature={"a": tf.int64_feature(1)}))
    assert example.SerializeToString() == encode_example({"a": 1})


def test_rejected_argument_raises_argument_error_not_op_error() -> None:
    with tf.io.TFRecordWriter("x") as writer, pytest.raises(TypeError, match="a record must be bytes") as caught:
        writer.write(7)  # type: ignore[arg-type]  # the mistake
    assert isinstance(caught.value, ArgumentError)
    assert not isinstance(caught.value, tf.errors.OpError)


@pytest.mark.parametrize(
    "missing",
    [
        "data",
        "constant",
        "io.parse_single_example",
        "io.gfile",
        "errors.no",
        "compat.v1.train.Checkpoint",
        "__version__",
    ],
)
def test_tensorflow_name_explains_missing_installation(missing: str, no_tensorflow: None) -> None:
    with pytest.raises(
        AttributeError, match=rf"tf\.{missing} .* \(pip install tensorflow\)\. .* asyncrec\.open_dataset"
    ):
        attrgetter(missing)(tf)


def test_other_names_resolve_to_installed_tensorflow(theirs: Any) -> None:
    theirs.data, theirs.constant, theirs.__version__ = object(), len, "2.99"
    theirs.io = SimpleNamespace(gfile=object(), TFRecordWriter=None)
    theirs.compat = SimpleNamespace(v1=SimpleNamespace(train=SimpleNamespace(Saver=object())))
    for name in ("data", "constant", "__version__", "io.gfile", "compat.v1.train.Saver"):
        assert attrgetter(name)(tf) is attrgetter(name)(theirs)
    assert tf.io.TFRecordWriter is tf.TFRecordWriter
    with pytest.raises(AttributeError, match="nothing"):
        tf.io.nothing  # noqa: B018


def test_module_introspection_does_not_import_tensorflow() -> None:
    program = """
import inspect, sys
from asyncrec.compat import tensorflow as tf
inspect.unwrap(tf), inspect.getmembers(tf), hasattr(tf, "__path__"), hasattr(tf.io, "__wrapped__"), tf.errors.OpError
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# -- TensorFlow's own messages ----------------------------------------------------------------------------------------


def test_messages_are_own_classes_before_tensorflow_import() -> None:
    assert type(tf.train.Example()) is asyncrec.example.Example
    assert isinstance(asyncrec.example.Example(), tf.train.Example)
    assert not isinstance(tf.train.Features(), tf.train.Example)


def test_mixed_parts_make_a_tensorflow_message(theirs: Any) -> None:
    """A library's helper and the script create messages of different classes, before and after importing TensorFlow."""
    own = asyncrec.example.Features(feature={"a": asyncrec.example.int64_feature(1)})
    feature = {
        "ours": own.feature["a"],
        "theirs": theirs.train.Feature(int64_list=theirs.train.Int64List(value=[2])),
        "helper": tf.int64_feature(3),
        "called": tf.train.Feature(int64_list=tf.train.Int64List(value=[4])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    assert type(example) is theirs.train.Example
    assert isinstance(example, tf.train.Example)
    assert isinstance(own, tf.train.Features)
    values = {name: each.int64_list.value[0] for name, each in example.features.feature.items()}
    assert values == {"ours": 1, "theirs": 2, "helper": 3, "called": 4}
    assert theirs.train.Features(feature={"a": feature["helper"], "b": feature["called"]}).feature["b"]
    steps = tf.train.FeatureList(feature=[feature["ours"], feature["theirs"]])
    lists = tf.train.FeatureLists(feature_list={"steps": steps})
    sequence = tf.train.SequenceExample(context=own, feature_lists=lists)
    assert sequence.feature_lists.feature_list["steps"].feature[1].int64_list.value == [2]
    assert tf.train.Example.FromString(example.SerializeToString()) == example


def test_tf_errors_expose_classes_of_installed_tensorflow(theirs: Any) -> None:
    class NotFoundError(Exception):
        pass

    theirs.errors = SimpleNamespace(NotFoundError=NotFoundError)
    with pytest.raises(NotFoundError):
        next(tf.io.tf_record_iterator("nothing"))
    assert tf.errors.NotFoundError is NotFoundError
    with pytest.raises(tf.errors.NotFoundError):
        raise NotFoundError
