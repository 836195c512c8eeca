"""TensorFlow's record writer and its Examples, without TensorFlow: ``from asyncrec.compat import tensorflow as tf``.

The module has ``tf.io`` (also as ``tf.python_io``, ``tf.compat.v1.io`` and ``tf.compat.v1.python_io``) with
``TFRecordWriter``, ``TFRecordOptions``, ``TFRecordCompressionType`` and ``tf_record_iterator``; ``tf.train`` with
``Example``, ``SequenceExample``, ``Feature`` and their parts; ``tf.errors``; ``tf.compat.as_bytes`` and ``as_text``;
and the five feature helpers of TensorFlow's tutorials. All of these are also attributes of the module itself. All other
names (``tf.constant``, ``tf.data``, ``tf.io.gfile``) come from an installed TensorFlow, which is imported when such a
name is first used.

A file is published by a flush or by ``close``; until then, an existing file of that name is unchanged. As in
TensorFlow, an open writer is closed when it is garbage-collected or when Python exits. If its context exits with an
exception, unflushed data is not published.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from asyncrec.compat import _tensorflow_errors
from asyncrec.compat._tensorflow_features import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
    bytes_feature,
    bytes_list_feature,
    float_list_feature,
    int64_feature,
    int64_list_feature,
    loaded,
)
from asyncrec.compat._tensorflow_files import (
    TFRecordCompressionType,
    TFRecordOptions,
    TFRecordWriter,
    tf_record_iterator,
)
from asyncrec.compat._tensors import found_tensorflow
from asyncrec.errors import ArgumentTypeError

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
    """``tf.compat.as_bytes``: encode a str, or return bytes unchanged. Raise TypeError for other values."""
    if isinstance(text, str):
        return text.encode(encoding)
    if isinstance(text, bytes | bytearray):
        return bytes(text)
    raise ArgumentTypeError(f"Expected binary or unicode string, got {text!r}")


def as_text(text: str | bytes | bytearray, encoding: str = "utf-8") -> str:
    """``tf.compat.as_text``: decode bytes, or return a str unchanged. Raise TypeError for other values."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes | bytearray):
        return text.decode(encoding)
    raise ArgumentTypeError(f"Expected binary or unicode string, got {text!r}")


as_str = as_text


def _theirs(part: str, name: str) -> Any:
    """Return the object with this name from a submodule of an installed TensorFlow.

    Raises:
        AttributeError: TensorFlow is not installed or has no such name.
    """
    is_pythons = name.startswith("__") and name != "__version__"
    tensorflow = None if is_pythons else found_tensorflow()
    if tensorflow is None:
        raise AttributeError(
            f"tf.{part}{name} is not part of asyncrec.compat.tensorflow, which only reads and writes files and "
            "builds Examples. To use TensorFlow's own, install it (pip install tensorflow). To read files without "
            "TensorFlow, use asyncrec.open_dataset and asyncrec.Schema"
        )
    return operator.attrgetter(part + name)(tensorflow)


class _Names(SimpleNamespace):
    """A submodule of TensorFlow. Some names are defined here; the others come from an installed TensorFlow."""

    def __init__(self, part: str, **names: Any) -> None:
        super().__init__(_part=f"{part}.", **names)

    def __getattr__(self, name: str) -> Any:
        return _theirs(self._part, name)


if not TYPE_CHECKING:  # a type checker should report unknown names

    def __getattr__(name: str) -> Any:
        return _theirs("", name)


class _Errors(_Names):
    """``tf.errors``: TensorFlow's own errors if it has been imported, otherwise asyncrec's classes of the same names.

    Errors that this module raises are instances of both.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(loaded("errors") or _tensorflow_errors, name, None)
        return super().__getattr__(name) if found is None else found


_FILES = {
    each.__name__: each for each in (TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator)
}
_MESSAGES: dict[str, Any] = {
    each.__name__: each
    for each in (
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
}
_TEXTS = {"as_bytes": as_bytes, "as_str": as_text, "as_text": as_text}
errors = _Errors("errors")
io = _Names("io", **_FILES)
python_io = _Names("compat.v1.python_io", **_FILES)
train = _Names("train", **_MESSAGES)
compat = _Names(
    "compat",
    **_TEXTS,
    v1=_Names(
        "compat.v1",
        compat=_Names("compat.v1.compat", **_TEXTS),
        errors=errors,
        io=_Names("compat.v1.io", **_FILES),
        python_io=python_io,
        train=_Names("compat.v1.train", **_MESSAGES),
    ),
)
