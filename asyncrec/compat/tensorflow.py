"""TensorFlow's record writer and its Examples, without TensorFlow: ``from asyncrec.compat import tensorflow as tf``.

What is here: ``tf.io`` (also as ``tf.python_io``, ``tf.compat.v1.io`` and ``tf.compat.v1.python_io``) with
``TFRecordWriter``, ``TFRecordOptions``, ``TFRecordCompressionType`` and ``tf_record_iterator``; ``tf.train`` with
``Example``, ``SequenceExample``, ``Feature`` and their parts; ``tf.errors``; ``tf.compat.as_bytes`` and ``as_text``;
and the five feature helpers of its tutorials. Each is also a name of this module. The messages are under a package name
of their own, so that both live in one process.

A file appears when it is flushed or closed, and what was there stays until then. A writer that nobody closes is closed
when it is dropped, or Python ends, as TensorFlow's is. Left on an exception, what was not flushed does not appear.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from asyncrec.compat import _tensorflow_errors as errors
from asyncrec.compat._tensorflow_features import (
    bytes_feature,
    bytes_list_feature,
    float_list_feature,
    int64_feature,
    int64_list_feature,
)
from asyncrec.compat._tensorflow_files import (
    TFRecordCompressionType,
    TFRecordOptions,
    TFRecordWriter,
    tf_record_iterator,
)
from asyncrec.errors import ArgumentTypeError
from asyncrec.example.proto.example_pb2 import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "as_bytes",
    "as_str",
    "as_text",
    "bytes_feature",
    "bytes_list_feature",
    "compat",
    "errors",
    "float_list_feature",
    "int64_feature",
    "int64_list_feature",
    "io",
    "python_io",
    "tf_record_iterator",
    "train",
]


def as_bytes(text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """``tf.compat.as_bytes``: a str encoded, bytes as they are. Raises TypeError for anything else."""
    if isinstance(text, str):
        return text.encode(encoding)
    if isinstance(text, bytes | bytearray):
        return bytes(text)
    raise ArgumentTypeError(f"Expected binary or unicode string, got {text!r}")


def as_text(text: str | bytes | bytearray, encoding: str = "utf-8") -> str:
    """``tf.compat.as_text``: bytes decoded, a str as it is. Raises TypeError for anything else."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes | bytearray):
        return text.decode(encoding)
    raise ArgumentTypeError(f"Expected binary or unicode string, got {text!r}")


as_str = as_text


class _Names(SimpleNamespace):
    """A part of TensorFlow, with what is here of it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_absent(name))


if not TYPE_CHECKING:  # where a name that is missing is to stay an error

    def __getattr__(name: str) -> Any:
        raise AttributeError(_absent(name))


def _absent(name: str) -> str:
    return (
        f"{name!r} is none of the names of TensorFlow that asyncrec.compat.tensorflow has: it writes and iterates over "
        "files, and makes Examples. To read them otherwise there are asyncrec.open_dataset and asyncrec.Schema; "
        "asyncrec.integrations.tensorflow gives a tf.data.Dataset"
    )


io = _Names(
    TFRecordCompressionType=TFRecordCompressionType,
    TFRecordOptions=TFRecordOptions,
    TFRecordWriter=TFRecordWriter,
    tf_record_iterator=tf_record_iterator,
)
python_io = io
train = _Names(
    BytesList=BytesList,
    Example=Example,
    Feature=Feature,
    FeatureList=FeatureList,
    FeatureLists=FeatureLists,
    Features=Features,
    FloatList=FloatList,
    Int64List=Int64List,
    SequenceExample=SequenceExample,
)
_texts = {"as_bytes": as_bytes, "as_str": as_text, "as_text": as_text}
compat = _Names(**_texts, v1=_Names(compat=_Names(**_texts), errors=errors, io=io, python_io=io, train=train))
