"""TensorFlow's names without TensorFlow: what the document shows runs, and the faults of its writer are gone."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from asyncrec import CorruptRecordError, ObjectExistsError, blocking, encode_example
from asyncrec.compat import tensorflow as tf
from asyncrec.testing.golden import RECORDS

# The document's session, as it stands there but for tabs.
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


# -- what the document shows ------------------------------------------------------------------------------------------


def test_the_documents_session_has_five_cells() -> None:
    assert len(CELLS) == 5


@pytest.mark.parametrize(("definition", "call", "output"), CELLS, ids=lambda text: text.partition("(")[0][-20:])
def test_a_cell_of_the_documents_session_gives_what_it_shows(definition: str, call: str, output: str) -> None:
    """Ours, of the same name, gives the same."""
    namespace: dict[str, Any] = {"tf": tf}
    exec(definition, namespace)
    shown = eval(call, namespace)
    # Newer versions of protobuf print whole floats without ".0".
    assert re.sub(r"\s|\.0\b", "", str(shown)) == re.sub(r"\s|\.0\b", "", output)
    assert eval(call, vars(tf)) == shown


def test_the_signatures_are_the_documents() -> None:
    parameters = inspect.signature(tf.TFRecordWriter).parameters
    assert list(parameters)[:2] == ["path", "options"]
    assert parameters["options"].default is None
    assert list(inspect.signature(tf.TFRecordWriter.write).parameters) == ["self", "record"]


def test_an_example_is_built_written_and_read_as_the_document_says() -> None:
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


def test_a_sequence_example_is_built_of_its_parts() -> None:
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
        SimpleNamespace(compression_type="GZIP", input_buffer_size=10, window_bits=None),  # TensorFlow's own look so
    ],
    ids=["none", "name", "enum", "options", "options-of-options", "no-compression", "namespace"],
)
def test_records_are_read_as_they_were_written_with_all_options(options: Any) -> None:
    with tf.io.TFRecordWriter("x", options) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(tf.io.tf_record_iterator("x")) == list(RECORDS)
    assert list(tf.io.tf_record_iterator("x", options)) == list(RECORDS)
    with blocking.open_reader("x") as reader:
        assert reader.compression == tf.TFRecordOptions.get_compression_type_string(options)


def test_text_is_a_record_as_in_tensorflow() -> None:
    with tf.io.TFRecordWriter("x") as writer:
        writer.write("ü")
    assert list(tf.io.tf_record_iterator("x")) == ["ü".encode()]


def test_what_is_no_compression_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="LZ4"):
        tf.io.TFRecordWriter("x", "LZ4")
    with pytest.raises(ValueError, match="level"):
        tf.io.TFRecordWriter("x", tf.TFRecordOptions("GZIP", compression_level=11))


def test_a_closed_writer_takes_nothing_and_may_be_closed_again() -> None:
    writer = tf.io.TFRecordWriter("x")
    writer.close()
    writer.close()
    with pytest.raises(anyio.ClosedResourceError):
        writer.write(b"1")
    assert list(tf.io.tf_record_iterator("x")) == []


def test_an_iterator_that_is_left_early_is_closed() -> None:
    blocking.write_records("x", [b"%d" % number for number in range(5000)])
    records = tf.io.tf_record_iterator("x")
    assert next(records) == b"0"
    assert isinstance(records, Generator)
    records.close()


# -- TensorFlow's faults ----------------------------------------------------------------------------------------------


def test_opening_takes_nothing_away() -> None:
    """TensorFlow's truncates the file as it is opened."""
    blocking.write_records("x", [b"old"])
    writer = tf.io.TFRecordWriter("x")
    writer.write(b"new")
    writer.flush()
    assert list(tf.io.tf_record_iterator("x")) == [b"old"]
    writer.close()
    assert list(tf.io.tf_record_iterator("x")) == [b"new"]


def test_an_exception_leaves_no_file_that_reads_as_a_good_one() -> None:
    """TensorFlow's leaves what was written by then."""
    with pytest.raises(KeyError):
        with tf.io.TFRecordWriter("x") as writer:
            for number in range(5000):
                writer.write(b"%d" % number)
            raise KeyError
    assert not Path("x").exists()


def test_damage_is_told_with_file_offset_and_record() -> None:
    """TensorFlow's DataLossError names no file."""
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


def test_what_stands_behind_damage_can_be_read() -> None:
    """TensorFlow gives up the rest of the file."""
    blocking.write_records("damaged", [b"%03d" % number for number in range(100)])
    data = bytearray(Path("damaged").read_bytes())
    data[50 * 19 + 13] ^= 1
    Path("damaged").write_bytes(data)
    records = list(tf.io.tf_record_iterator("damaged", on_corrupt="skip"))
    assert records == [b"%03d" % number for number in range(100) if number != 50]


def test_a_file_can_be_appended_to() -> None:
    """TensorFlow's can only begin anew."""
    for record in (b"1", b"2"):
        with tf.io.TFRecordWriter("x", mode="a") as writer:
            writer.write(record)
    assert list(tf.io.tf_record_iterator("x")) == [b"1", b"2"]
    with pytest.raises(ObjectExistsError):
        tf.io.TFRecordWriter("x", mode="x")


def test_a_writer_that_is_never_closed_says_that_nothing_was_written() -> None:
    with pytest.warns(RuntimeWarning, match="x: the writer was never closed"):
        tf.io.TFRecordWriter("x").write(b"1")
    program = "import asyncrec.compat.tensorflow as tf; writer = tf.io.TFRecordWriter('y'); writer.write(b'1')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "y: the writer was never closed" in done.stderr
    assert not Path("x").exists()
    assert not Path("y").exists()


def test_records_of_the_messages_are_those_of_encode_example() -> None:
    example = tf.train.Example(features=tf.train.Features(feature={"a": tf.int64_feature(1)}))
    assert example.SerializeToString() == encode_example({"a": 1})
