"""Random mappings to encode: mostly values that a feature can have, of all types, and some invalid ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from random import Random
from typing import Any

import numpy as np

__all__ = ["some_features"]

_NAMES = ("a", "b", "name", "ab", "é", "\U0001f600", "", "x" * 200)
_INTEGERS = (0, 1, -1, 127, 128, 300, 2**14, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 1.5, 0.1, -1e30, 1e-46, math.inf, -math.inf, math.nan, 3.4028234663852886e38, 3.40282347e38)
_DTYPES = ("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "g", ">i", ">f", ">d", "O", "S3", "U3")
_DTYPES += ("c8", "M8[s]", "V4")


class _Color(IntEnum):
    RED = 300


class _Text(str):
    pass


class _Array(np.ndarray[Any, Any]):
    pass


def some_features(random: Random) -> dict[Any, Any]:
    count = random.choice((0, 1, 2, 3, 5, 5, 17, 30))
    features: dict[Any, Any] = {}
    for number in range(count):
        name = random.choice(_NAMES) if count < 10 else f"{random.choice(_NAMES)}{number}"
        features[name] = _value(random)
    if random.random() < 0.02:
        features[random.choice((5, None, "\ud800", b"name", _Text("sub")))] = 1
    return features


def _value(random: Random) -> Any:
    drawn = random.random()
    if drawn < 0.4:
        return _one(random)
    if drawn < 0.7:
        make, count = random.choice(_MAKERS), random.choice((0, 1, 2, 9, 60))
        values = [make(random) for _ in range(count)]
        if random.random() < 0.05:
            values.insert(random.randrange(count + 1), _one(random))
        return tuple(values) if random.random() < 0.2 else values
    if drawn < 0.97:
        return _array(random)
    return random.choice((None, {"a": 1}, [[1]], object(), 1j, [None], 2**64, -(2**63) - 1, 1e39, -1e300, "\udc80"))


def _one(random: Random) -> Any:
    return random.choice(_MAKERS)(random)


def _integer(random: Random) -> int:
    return random.choice((random.choice(_INTEGERS), random.randrange(-200, 200), random.getrandbits(63)))


def _float(random: Random) -> float:
    return random.choice(_FLOATS) if random.random() < 0.3 else random.uniform(-1000, 1000)


def _text(random: Random) -> str:
    return "".join(random.choice("ab é\U0001f600") for _ in range(random.choice((0, 1, 5, 200))))


def _numpy_scalar(random: Random) -> Any:
    kinds: tuple[Callable[[Any], Any], ...] = (np.int64, np.uint8, np.float32, np.float64, np.bool_, np.str_, np.bytes_)
    return random.choice(kinds)(random.randrange(2))


_MAKERS: tuple[Callable[[Random], Any], ...] = (
    _integer,
    _float,
    _float,
    _text,
    lambda random: random.randbytes(random.choice((0, 1, 5, 130, 20_000))),
    lambda random: random.random() < 0.5,
    _numpy_scalar,
    lambda random: random.choice((_Color.RED, _Text("text"), bytearray(b"array"), memoryview(b"view"))),
)


def _array(random: Random) -> Any:
    dtype = random.choice(_DTYPES)
    shape = random.choice(((), (0,), (1,), (7,), (3, 4), (2, 0, 2), (100,)))
    size = 4 * math.prod(shape)
    if dtype == "O":
        array = np.empty(size, object)
        make = random.choice(_MAKERS)
        array[:] = [make(random) for _ in range(size)]
    else:
        raw = random.randbytes(size * np.dtype(dtype).itemsize) if random.random() < 0.6 else bytes(size * 64)
        array = np.frombuffer(bytearray(b"x" + raw), dtype, size, random.random() < 0.5)  # one byte off: unaligned
        if np.dtype(dtype).kind == "U":
            array = np.array(["", "é", "abc", "b"], dtype).repeat(max(1, size))[:size]
        elif np.dtype(dtype).kind == "b":
            array = array & True
    array = array[: size // 4].reshape(shape) if random.random() < 0.6 else array[:: random.choice((1, 2, -1))]
    if random.random() < 0.1:
        return array.view(_Array)
    if random.random() < 0.05 and dtype != "O":
        return np.ma.masked_array(array)
    return array
