"""The five helpers of TensorFlow's tutorials, which accept and refuse the same values.

They are asyncrec's own, which take arrays without a loop, and text. Other values are passed to the messages, as the
tutorials' helpers do. So `None` is an empty list, a tensor its values, and an error is a `TypeError` if TensorFlow's
is. A number that would become infinite is refused; TensorFlow writes the infinity. The Feature is TensorFlow's own if
TensorFlow is in the process; see `asyncrec.compat._tensorflow_messages`.
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
    """Make a Feature of one integer or bool."""
    try:
        return own.int64_feature(value)
    except (SchemaError, TypeError):
        return Feature(int64_list=Int64List(value=[value]))


@_of_the_process
def bytes_feature(value: Any) -> Feature:
    """Make a Feature of one bytes or str (as UTF-8)."""
    try:
        return own.bytes_feature(value)
    except (SchemaError, TypeError):
        return Feature(bytes_list=BytesList(value=[value]))


@_of_the_process
def float_list_feature(value: Any, *, narrow: bool = True) -> Feature:
    """Make a Feature of floats, each rounded to float32; ``narrow=False`` as in `asyncrec.example.float_list_feature`.

    Raises:
        SchemaError: a number is finite, and beyond float32.
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
    """Make a Feature of bytes or str (as UTF-8)."""
    try:
        return own.bytes_list_feature(value)
    except (SchemaError, TypeError):
        return Feature(bytes_list=BytesList(value=value))


@_of_the_process
def int64_list_feature(value: Any) -> Feature:
    """Make a Feature of integers or bools."""
    try:
        return own.int64_list_feature(value)
    except (SchemaError, TypeError):
        return Feature(int64_list=Int64List(value=value))
