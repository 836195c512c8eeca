"""The five feature helpers of TensorFlow's tutorials, which accept and reject the same values.

They first call asyncrec's own helpers, which also accept text and convert arrays without a Python loop. A value that
these reject is passed to the protobuf message instead, as in the tutorials: `None` becomes an empty list, a tensor
becomes its values, and the error is a `TypeError` if TensorFlow raises one. A finite number that float32 would turn
into infinity is rejected, although TensorFlow writes infinity. If TensorFlow has been imported, the helpers return
TensorFlow's own Feature.

The ``tf.train`` messages of this module can be combined with TensorFlow's own, in either direction. Protobuf alone
would not allow that: asyncrec's messages have a package name of their own, because a process cannot register the same
name twice, and a message of one kind cannot contain a message of the other. A script with
``tf = asyncrec.compat.tensorflow`` would fail if a library that uses TensorFlow created its features, as in
``tf.train.Features(feature=library.features())``.

Therefore, this module's ``tf.train.Features`` accepts parts of both kinds. If TensorFlow has been imported, it returns
TensorFlow's own kind of message, which all of TensorFlow accepts; otherwise, it returns asyncrec's kind. `isinstance`
accepts both kinds, and both serialise to the same bytes.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

from google.protobuf.message import Message

from asyncrec.errors import SchemaError
from asyncrec.example import _features as own
from asyncrec.example.proto import example_pb2


def loaded(part: str) -> Any:
    """Return ``tensorflow.<part>`` if TensorFlow has been imported, or `None`."""
    return getattr(sys.modules.get("tensorflow"), part, None)


def of_the_process(message: Any) -> Any:
    """Convert a message to TensorFlow's kind if TensorFlow has been imported, otherwise to asyncrec's."""
    kind = getattr(loaded("train") or example_pb2, message.DESCRIPTOR.name)
    return message if isinstance(message, kind) else kind.FromString(message.SerializeToString())


def _part(value: Any) -> Any:
    """Convert all messages in a field's value with `of_the_process`."""
    if isinstance(value, Message):
        return of_the_process(value)
    if isinstance(value, Mapping):
        return {key: _part(each) for key, each in value.items()}
    return [_part(each) for each in value] if isinstance(value, list | tuple) else value


class _Kind(type):
    """The metaclass of the message classes below. These have no instances; calling one returns a protobuf message."""

    @property
    def _made(cls) -> Any:
        return getattr(loaded("train") or example_pb2, cls.__name__)

    def __call__(cls, **fields: Any) -> Any:
        if "value" in fields:  # a list of numbers or bytes
            return cls._made(**fields)
        return cls._made(**{name: _part(value) for name, value in fields.items()})

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._made, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (getattr(example_pb2, cls.__name__), cls._made))


if TYPE_CHECKING:
    from asyncrec.example.proto.example_pb2 import BytesList as BytesList
    from asyncrec.example.proto.example_pb2 import Example as Example
    from asyncrec.example.proto.example_pb2 import Feature as Feature
    from asyncrec.example.proto.example_pb2 import FeatureList as FeatureList
    from asyncrec.example.proto.example_pb2 import FeatureLists as FeatureLists
    from asyncrec.example.proto.example_pb2 import Features as Features
    from asyncrec.example.proto.example_pb2 import FloatList as FloatList
    from asyncrec.example.proto.example_pb2 import Int64List as Int64List
    from asyncrec.example.proto.example_pb2 import SequenceExample as SequenceExample
else:
    for _name in example_pb2.DESCRIPTOR.message_types_by_name:
        globals()[_name] = _Kind(_name, (), {"__doc__": getattr(example_pb2, _name).__doc__, "__module__": __name__})


P = ParamSpec("P")


def _of_the_process(helper: Callable[P, Feature]) -> Callable[P, Feature]:
    @functools.wraps(helper)
    def made(*args: P.args, **kwargs: P.kwargs) -> Feature:
        feature: Feature = of_the_process(helper(*args, **kwargs))
        return feature

    return made


@_of_the_process
def int64_feature(value: Any) -> Feature:
    """Return a Feature of one integer or bool."""
    try:
        return own.int64_feature(value)
    except (SchemaError, TypeError):
        return Feature(int64_list=Int64List(value=[value]))


@_of_the_process
def bytes_feature(value: Any) -> Feature:
    """Return a Feature of one bytes or str (encoded as UTF-8)."""
    try:
        return own.bytes_feature(value)
    except (SchemaError, TypeError):
        return Feature(bytes_list=BytesList(value=[value]))


@_of_the_process
def float_list_feature(value: Any, *, narrow: bool = True) -> Feature:
    """Return a Feature of floats, rounded to float32. For ``narrow``, see `asyncrec.example.float_list_feature`.

    Raises:
        SchemaError: a finite number is outside the range of float32.
    """
    try:
        return own.float_list_feature(value, narrow=narrow)
    except (SchemaError, TypeError) as refused:
        if not narrow:
            raise
        feature = Feature(float_list=FloatList(value=value))
        if any(map(math.isinf, feature.float_list.value)):
            raise refused from None
        return feature


@_of_the_process
def bytes_list_feature(value: Any) -> Feature:
    """Return a Feature of bytes or str (encoded as UTF-8)."""
    try:
        return own.bytes_list_feature(value)
    except (SchemaError, TypeError):
        return Feature(bytes_list=BytesList(value=value))


@_of_the_process
def int64_list_feature(value: Any) -> Feature:
    """Return a Feature of integers or bools."""
    try:
        return own.int64_list_feature(value)
    except (SchemaError, TypeError):
        return Feature(int64_list=Int64List(value=value))
