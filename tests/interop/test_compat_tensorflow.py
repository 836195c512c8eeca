"""`asyncrec.compat.tensorflow` and TensorFlow in one process: the same names and bytes, and interchangeable files."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as real

import asyncrec
from asyncrec.compat import tensorflow as tf
from asyncrec.testing.golden import RECORDS

NAMES = {
    "io": ["TFRecordOptions", "TFRecordWriter"],
    "compat.v1.io": ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"],
    "compat.v1.python_io": ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"],
    "train": ["BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList", "Int64List",
              "SequenceExample"],
}  # fmt: skip


def at(module: Any, place: str) -> Any:
    for name in place.split("."):
        module = getattr(module, name)
    return module


@pytest.mark.parametrize("place", NAMES)
def test_names_exist_at_same_places_as_in_tensorflow(place: str) -> None:
    for name in NAMES[place]:
        assert hasattr(at(real, place), name)
        assert hasattr(at(tf, place), name)


@pytest.mark.parametrize(
    "options",
    [
        None,
        "GZIP",
        "ZLIB",
        real.io.TFRecordOptions("GZIP", compression_level=9, window_bits=31, output_buffer_size=100),
    ],
    ids=["none", "gzip", "zlib", "options"],
)
def test_files_are_interchangeable_with_tensorflow(tmp_path: Path, options: Any) -> None:
    """TensorFlow's own options are accepted."""
    for writer, name in ((tf, "ours"), (real, "theirs")):
        with writer.io.TFRecordWriter(str(tmp_path / name), options) as file:
            for record in RECORDS:
                file.write(record)
            file.flush()
    kind = tf.TFRecordOptions.get_compression_type_string(options)
    read = real.data.TFRecordDataset(str(tmp_path / "ours"), compression_type=kind)
    assert [record.numpy() for record in read] == list(RECORDS)
    assert list(tf.io.tf_record_iterator(tmp_path / "theirs", options)) == list(RECORDS)


def test_examples_are_interchangeable_with_tensorflow() -> None:
    def example(tf: Any) -> Any:
        feature = {
            "a": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, -2])),
            "b": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
            "c": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x", b""])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    assert real.train.Example.FromString(example(tf).SerializeToString()) == example(real)
    assert tf.train.Example.FromString(example(real).SerializeToString()) == example(tf)
    assert str(example(tf)) == str(example(real))


def test_features_are_interchangeable_between_message_classes() -> None:
    """TensorFlow is imported in this process, so our helpers make TensorFlow's own messages."""
    both = {"theirs": real.train.Feature(int64_list=real.train.Int64List(value=[1])), "ours": tf.int64_feature(2)}
    before = asyncrec.example.int64_feature(3)  # made as if TensorFlow had not been imported yet
    assert type(before) is not real.train.Feature
    examples = [
        tf.train.Example(features=real.train.Features(feature=both)),
        real.train.Example(features=tf.train.Features(feature={**both, "before": before})),
        tf.train.Example(features=tf.train.Features(feature=both)),
    ]
    for example in examples:
        assert type(example) is real.train.Example
        assert isinstance(example, tf.train.Example)
        values = {name: list(each.int64_list.value) for name, each in example.features.feature.items()}
        assert values == {"theirs": [1], "ours": [2]} | ({"before": [3]} if example is examples[1] else {})


def test_other_names_resolve_to_tensorflow() -> None:
    for place in ("data", "constant", "io.gfile", "io.serialize_tensor", "compat.v1.train.Saver", "train.Checkpoint",
                  "errors.OutOfRangeError", "__version__"):  # fmt: skip
        assert attrgetter(place)(tf) is attrgetter(place)(real)
