"""The five helpers of TensorFlow's tutorials, which accept and reject the same values.

They call asyncrec's own helpers, which accept text, and arrays without a loop. Other values are passed to the messages,
as in the tutorials' helpers. So `None` is an empty list, a tensor is its values, and an error is a `TypeError` where
TensorFlow raises one. A finite number that would become infinite is rejected; TensorFlow writes infinity. The Feature
is TensorFlow's own if TensorFlow has been imported; see `asyncrec.compat._tensorflow_messages`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec

from asyncrec.compat._tensorflow_messages import BytesList, Feature, FloatList, Int64List, of_the_process
from asyncrec.errors import SchemaError
from asyncrec.example import _features as own

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
    """Return a Feature of one bytes or str (as UTF-8)."""
    try:
        return own.bytes_feature(value)
    except (SchemaError, TypeError):
        return Feature(bytes_list=BytesList(value=[value]))


@_of_the_process
def float_list_feature(value: Any, *, narrow: bool = True) -> Feature:
    """Return a Feature of floats, rounded to float32. For ``narrow=False`` see `asyncrec.example.float_list_feature`.

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
    """Return a Feature of bytes or str (as UTF-8)."""
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
