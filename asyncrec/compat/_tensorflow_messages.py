"""The messages of ``tf.train``, which can be combined with TensorFlow's own, in either direction.

asyncrec's messages have a package name of their own, because one process cannot register the same name twice. So
protobuf rejects either kind as a part of the other, and a script that gets some of its features from a library would
fail: with ``tf = asyncrec.compat.tensorflow``, ``tf.train.Features(feature=library.features())``.

Therefore ``tf.train.Features`` here accepts parts of both kinds. It returns a message of TensorFlow's if TensorFlow has
been imported, so that all of TensorFlow accepts it, and otherwise one of asyncrec's. `isinstance` accepts both kinds,
and their bytes are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from asyncrec.example.proto import example_pb2

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
    "loaded",
    "of_the_process",
]


def loaded(part: str) -> Any:
    """Return ``tensorflow.<part>`` if TensorFlow has been imported, else `None`."""
    return getattr(sys.modules.get("tensorflow"), part, None)


def of_the_process(message: Any) -> Any:
    """Convert a message to TensorFlow's kind if TensorFlow has been imported, otherwise to asyncrec's."""
    kind = getattr(loaded("train") or example_pb2, message.DESCRIPTOR.name)
    return message if isinstance(message, kind) else kind.FromString(message.SerializeToString())


def _part(value: Any) -> Any:
    """Return the value of a field with its messages converted."""
    if isinstance(value, Message):
        return of_the_process(value)
    if isinstance(value, Mapping):
        return {key: _part(each) for key, each in value.items()}
    return [_part(each) for each in value] if isinstance(value, list | tuple) else value


class _Kind(type):
    """The metaclass of the names below. They have no instances; a call returns a protobuf message."""

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
else:
    for _name in __all__[:9]:
        globals()[_name] = _Kind(_name, (), {"__doc__": getattr(example_pb2, _name).__doc__, "__module__": __name__})
