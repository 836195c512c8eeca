"""Convert values to features according to a schema's entries, or state why a value is rejected (see `_encoding`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from asyncrec.example._compound import Sparse
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._values import raw_of, unreadable
from asyncrec.example._varints import varint
from asyncrec.example._wire import BYTES, FLOAT, INT64, Raw

Convert: TypeAlias = Callable[[Any], Raw]

BUFFERS = (bytes, bytearray, memoryview)
# Types that are iterable but count as one value.
NO_LIST = (str, Mapping, *BUFFERS)
_TEXTS = ("bytes", "str")


class Unfit(Exception):
    """Raised when an entry rejects a value. The message is the reason."""


def is_list(value: Any) -> bool:
    """Return whether a value is a sequence of values: a list, a tuple, or an array of at least one dimension."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, SequenceOf) and not isinstance(value, NO_LIST)


def converter(entry: FixedLen | VarLen) -> Convert:
    """Return a function that converts a value of an entry to a kind and a payload, or raises Unfit or SchemaError."""
    if isinstance(entry, VarLen):
        return lambda value: _many(value, entry.dtype, None)
    if entry.raw:
        return lambda value: (BYTES, [_raw_bytes(_array(value, entry.dtype, entry.shape))])
    if entry.shape:
        return lambda value: _many(value, entry.dtype, entry.shape)
    return _single(_SCALARS[entry.dtype])


def _single(convert: Convert) -> Convert:
    """Return a converter that also accepts a value in a zero-dimensional array from NumPy, JAX or a similar library."""

    def convert_either(value: Any) -> Raw:
        try:
            return convert(value)
        except Unfit:
            held = _held(value)
            if held is None:
                raise
        try:
            return convert(held)
        except Unfit as error:
            raise Unfit(f"it contains {told(held)}" + (f"; {error}" if str(error) else "")) from None

    return convert_either


def _held(value: Any) -> Any:
    """Return the value in a zero-dimensional array, or `None` for other values or if NumPy cannot read the array."""
    if isinstance(value, np.generic | np.ma.MaskedArray) or getattr(value, "shape", None) != ():
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor on another device, or a traced tensor
        return None
    return float(array) if _is_small_float(array.dtype, "float32") else array[()]


def _bytes(value: Any) -> Raw:
    if type(value) is bytes:
        return BYTES, [value]
    if isinstance(value, str):
        return raw_of(str(value))
    if isinstance(value, BUFFERS):
        return BYTES, [bytes(value)]
    raise Unfit("pass bytes or a str")


def _str(value: Any) -> Raw:
    if isinstance(value, str):
        return raw_of(value if type(value) is str else str(value))
    raise Unfit("decode it first" if isinstance(value, BUFFERS) else "pass a str")


def _bool(value: Any) -> Raw:
    if isinstance(value, bool | np.bool_):
        return INT64, varint(bool(value))
    raise Unfit("pass True or False")


def _integer(dtype: str) -> Convert:
    least, most = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), (1 << 63) - 1)

    def convert(value: Any) -> Raw:
        if type(value) is not int:
            if not isinstance(value, int | np.integer):
                raise Unfit("pass an integer")
            value = int(value)
        if not least <= value <= most:
            raise Unfit(f"{dtype} must be from {least} to {most}")
        return INT64, varint(value & 0xFFFF_FFFF_FFFF_FFFF)

    return convert


def _number(dtype: str) -> Convert:
    largest = float(np.finfo(dtype).max)
    packed = Struct("<e" if dtype == "float16" else "<f")  # a float64 is stored in 32 bits, too
    exact = 1 << (11 if dtype == "float16" else 24)  # every integer up to this number can be stored unchanged

    def convert(value: Any) -> Raw:
        if type(value) is int and -exact <= value <= exact:
            value = float(value)
        elif type(value) is not float:
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
                raise Unfit("pass a number")
            try:
                number = float(value)
                if isinstance(value, int | np.integer):
                    (rounded,) = packed.unpack(packed.pack(number))
                    if rounded != int(value):
                        raise Unfit(f"it would be stored as {rounded!r}; pass a float to round it")
            except OverflowError:
                raise Unfit(f"the value is out of range for {'float16' if dtype == 'float16' else 'float32'}") from None
            value = number
        if dtype == "float16":
            if abs(value) > largest and abs(value) != np.inf:
                raise Unfit("the value is out of range for float16")
            value = float(np.float16(value))
        return raw_of(value)

    return convert


_SCALARS: dict[str, Convert] = {
    "bytes": _bytes,
    "str": _str,
    "bool": _bool,
    **{name: _integer(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{name: _number(name) for name in ("float16", "float32", "float64")},
}


def _many(value: Any, dtype: str, shape: tuple[int, ...] | None) -> Raw:
    """Convert values of the given shape. With ``shape=None``, they must be one-dimensional, of any length."""
    if dtype in _TEXTS:
        flat = _flat_texts(value, shape)
        convert = _SCALARS[dtype]
        texts: list[bytes] = []
        for each in flat:
            try:
                _, payload = convert(each)
            except Unfit as error:
                raise Unfit(f"one of its values is {told(each)}" + (f"; {error}" if str(error) else "")) from None
            assert isinstance(payload, list), "text becomes a list"
            texts += payload
        return BYTES, texts
    array = _array(value, "float32" if dtype == "float64" else dtype, shape)  # as an Example stores it
    if not array.size:
        return (INT64 if array.dtype.kind in "iub" else FLOAT), b""
    return raw_of(array)


def _flat_texts(value: Any, shape: tuple[int, ...] | None) -> list[Any]:
    if not is_list(value):
        raise Unfit("pass a list, a tuple or an array")
    wanted = shape if shape is not None else (len(value),)
    array = np.empty(0, object)
    if isinstance(value, np.ndarray):
        array = value.astype(object)
    elif len(wanted) == 1:
        if len(value) != wanted[0]:
            raise Unfit(f"it has {len(value)} values")
        return list(value)
    else:
        array = _objects(value)
    if array.shape != wanted:
        raise Unfit(f"it has the shape {array.shape}")
    flat: list[Any] = array.reshape(-1).tolist()
    return flat


def _objects(value: Any) -> Any:
    try:
        return np.array(value, object)
    except ValueError:
        raise Unfit("its rows have different lengths") from None


def _array(value: Any, dtype: str, shape: SequenceOf[int] | None, *, any_shape: bool = False) -> Any:
    """Return the values as an array of the given type and shape.

    With ``shape=None``, the array must be one-dimensional. With ``any_shape``, it may have any shape.
    """
    if isinstance(value, NO_LIST) or value is None:
        raise Unfit("pass a list, a tuple or an array")
    if isinstance(value, np.ma.MaskedArray):
        raise Unfit("fill the masked values first")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise Unfit(
            "its rows have different lengths, or it contains something that is not a number"
            if is_list(value)
            else unreadable(error)
        ) from None
    if any_shape:
        pass
    elif shape is None:
        if array.ndim != 1:
            raise Unfit(f"it has {array.ndim} dimensions instead of one")
    elif array.shape != tuple(shape):
        raise Unfit(f"it has the shape {array.shape}")
    kinds = {"bool": "b", "float16": "iuf", "float32": "iuf", "float64": "iuf"}.get(dtype, "iub")
    if array.size and array.dtype.kind not in kinds and not _is_small_float(array.dtype, dtype):
        raise Unfit(f"its values have the type {_named(array.dtype)}; convert them to {dtype} first")
    if array.dtype.name == dtype:
        return array
    with np.errstate(all="ignore"):  # the comparison below finds values that do not fit
        made = array.astype(dtype)
        if np.dtype(dtype).kind in "iub":
            wrong = made.astype(array.dtype) != array if array.dtype.kind != "b" else np.zeros(array.shape, bool)
            if array.dtype.kind in "iu" and np.dtype(dtype).kind in "iu":
                wrong = wrong | ((made < 0) != (array < 0))
        elif array.dtype.kind in "iu":  # an integer must not be rounded
            beyond = 2.0 ** (8 * array.itemsize - (array.dtype.kind == "i"))  # cannot be converted back
            wrong = (made.astype(array.dtype) != array) | (made >= beyond) | (made < -beyond)
        else:
            wrong = np.isinf(made) & ~np.isinf(array.astype(np.float64))
    if wrong.any():
        raise Unfit(f"{array[wrong].reshape(-1)[0].item()!r} is not a valid {dtype}")
    return made


def _is_small_float(given: Any, dtype: str) -> bool:
    return dtype.startswith("float") and given.name.startswith(("bfloat16", "float8"))


def _named(dtype: Any) -> str:
    """Return the name of a type for error messages. NumPy calls one-character text str32, which would be misleading."""
    name: str = {"U": "text", "T": "text", "S": "bytes"}.get(dtype.kind, dtype.name)
    return name


def _raw_bytes(array: Any) -> bytes:
    data: bytes = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return data


def tensor(name: str, entry: Tensor, value: Any) -> dict[str, Raw]:
    if entry.dtype in _TEXTS:
        array = value if isinstance(value, np.ndarray) else _objects(value)
        raw = _many(array.reshape(-1), entry.dtype, None)
    else:
        array = _array(value, entry.dtype, None, any_shape=True)
        raw = (BYTES, [_raw_bytes(array)]) if entry.raw else _many(array.reshape(-1), entry.dtype, None)
    return {name: raw, f"{name}_shape": _many(np.array(array.shape, np.int64), "int64", None)}


def sparse(entry: Sparse, value: Any) -> dict[str, Raw]:
    indices, values, shape = (getattr(value, name, None) for name in ("indices", "values", "dense_shape"))
    if indices is None or values is None or shape is None:
        raise Unfit("pass SparseArrays(indices, values, dense_shape)")
    if not is_list(values) or not is_list(shape):
        raise Unfit("its values and its dense_shape must be lists, tuples or arrays")
    places = _array(indices, "int64", None, any_shape=True)
    if tuple(shape) != entry.shape:
        raise Unfit(f"it has the shape {tuple(shape)}")
    if places.shape != (len(values), len(entry.shape)):
        raise Unfit(f"for its {len(values)} values, the indices must have the shape {(len(values), len(entry.shape))}")
    if places.size and ((places < 0) | (places >= np.array(entry.shape))).any():
        raise Unfit("an index is outside the shape")
    found = {entry.values: _many(values, entry.dtype, None)}
    for axis, feature in enumerate(entry.indices):
        found[feature] = _many(np.ascontiguousarray(places[:, axis]), "int64", None)
    return found


def default_of(entry: Any) -> Any:
    if entry.dtype in _TEXTS:
        return entry.default
    return np.array(entry.default, entry.dtype) if entry.shape or entry.raw else entry.default


def told(value: Any) -> str:
    """Describe a value for error messages, by its type and, if it is short, the value itself."""
    name = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {_named(value.dtype)} with the shape {value.shape}"
    if isinstance(value, bool | int | float | str | np.generic):
        text = repr(value)
        return f"{name} {text}" if len(text) <= 80 else f"{name} {text[:80]}..."
    if isinstance(value, BUFFERS):
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        return f"{name} of {size:,} bytes"
    if isinstance(value, list | tuple | Mapping):
        return f"{name} of {len(value):,} values"
    dtype = getattr(value, "dtype", None)  # present on a tensor or a table's column
    return name if dtype is None else f"{name} of {dtype}"
