"""An error about a value that a schema entry does not accept says what was given and what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncrec import FixedLen, Schema, VarLen, encode_example
from asyncrec.errors import SchemaError
from asyncrec.example import Sequence, Tensor


class Unreadable:
    """Imitates PyTorch's tensors of bfloat16, a type that NumPy lacks."""

    shape = (3,)
    dtype = "torch.bfloat16"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


@pytest.mark.parametrize("entry", [FixedLen((3,), "float32"), VarLen("float32"), FixedLen((3,), "str")])
def test_tensor_unreadable_by_numpy_is_rejected(entry: Any) -> None:
    """The error names its type and says what to do."""
    with pytest.raises(SchemaError, match=r"^feature 'a': expected .*, got Unreadable of torch\.bfloat16; ") as raised:
        Schema({"a": entry}).encode({"a": Unreadable()})
    if entry.dtype == "float32":
        said = "; NumPy cannot read it (Got unsupported ScalarType BFloat16): convert it to a NumPy array first"
        assert str(raised.value).endswith(said)
    with pytest.raises(SchemaError, match=r"^feature 'a': .*ScalarType BFloat16.*convert it to a NumPy array first"):
        encode_example({"a": Unreadable()})


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        (FixedLen((), "int64"), "7", "expected FixedLen((), 'int64'), got str '7'; pass an integer"),
        (FixedLen((), "float32"), "0.5", "expected FixedLen((), 'float32'), got str '0.5'; pass a number"),
        (FixedLen((), "bool"), "yes", "expected FixedLen((), 'bool'), got str 'yes'; pass True or False"),
        (FixedLen((), "str"), 7, "expected FixedLen((), 'str'), got int 7; pass a str"),
        (FixedLen((), "bytes"), 7, "expected FixedLen((), 'bytes'), got int 7; pass bytes or a str"),
        (FixedLen((1,), "int64"), ["7"], "its values have the type text; convert them to int64 first"),
        (FixedLen((1,), "int64"), [0.5], "its values have the type float64; convert them to int64 first"),
    ],
)
def test_wrong_type_error_advises_expected_value(entry: Any, value: Any, said: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema({"a": entry}).encode({"a": value})
    assert str(raised.value).startswith("feature 'a': expected ")
    assert str(raised.value).endswith(said)


@pytest.mark.parametrize(
    ("entry", "largest", "value"),
    [
        (FixedLen((), "float32"), 1 << 24, int),
        (FixedLen((), "float32"), 1 << 24, np.int64),
        (FixedLen((), "float32"), 1 << 24, np.array),
        (FixedLen((), "float16"), 1 << 11, int),
        (FixedLen((), "float64"), 1 << 24, int),
        (FixedLen((), "float64", raw=True), 1 << 53, int),
        (FixedLen((1,), "float32"), 1 << 24, lambda number: [number]),
        (VarLen("float32"), 1 << 63, lambda number: np.array([number], np.uint64)),
        (VarLen("float64"), 1 << 24, lambda number: [number]),
        (Tensor("float64", raw=True), 1 << 53, lambda number: [[number]]),
        (Sequence(FixedLen((), "float32")), 1 << 24, lambda number: [number]),
    ],
)
def test_integer_that_float_feature_would_change_is_rejected(entry: Any, largest: int, value: Any) -> None:
    schema = Schema({"a": entry})
    for number in (largest, 4 * largest if largest < 1 << 63 else largest):
        read = schema.decode(schema.encode({"a": value(number)}))["a"]
        assert np.ravel(getattr(read, "values", read)).tolist() == [number]
    with pytest.raises(SchemaError, match=rf"^feature 'a'.*: expected .*{largest + 1}"):
        schema.encode({"a": value(largest + 1)})
