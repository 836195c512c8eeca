"""A number is stored unchanged, rounded as documented, or rejected; it never becomes a different number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, Sparse, VarLen
from asyncrec.errors import SchemaError
from asyncrec.example import Sequence, Tensor
from asyncrec.integrations.arrow import to_batch, to_records

SPARSE = pa.struct({"indices": pa.list_(pa.list_(pa.int64(), 1)), "values": pa.list_(pa.float64())})


def stored(column: Any, entry: Any, **options: Any) -> Any:
    schema = Schema({"x": entry})
    return to_batch(to_records(pa.table({"x": column}), schema, **options), schema).column("x").to_pylist()


def named(value: Any) -> str | None:
    return None if isinstance(value, pa.Array) else str(value)


def of_every_kind(number: float) -> list[Any]:
    """Return columns that hold the number, and entries that hold a float32."""
    return [
        (pa.array([number]), FixedLen((), "float32")),
        (pa.array([number]), FixedLen((), "float32", raw=True)),
        (pa.array([[number, 1.0]]), FixedLen((2,), "float32")),
        (pa.array([[number, 1.0]]), VarLen("float32")),
        (pa.array([[[number]]]), Sequence(VarLen("float32"))),
        (pa.array([[[number]]]), Sequence(FixedLen((1,), "float32"))),
        (pa.array([{"values": [number], "shape": [1]}]), Tensor("float32")),
        (pa.array([{"values": [number], "shape": [1]}]), Tensor("float32", raw=True)),
        (pa.array([{"indices": [[1]], "values": [number]}], SPARSE), Sparse("float32", (3,), ("i",), "v")),
    ]


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize(
    ("column", "entry"),
    [
        *of_every_kind(1e39),
        (pa.array([70000.0]), FixedLen((), "float16")),
        (pa.array([70000.0], pa.float32()), FixedLen((), "float16")),
        (pa.array([70000.0], pa.float32()), VarLen("float16")),
    ],
    ids=named,
)
def test_finite_number_never_becomes_infinite(column: Any, entry: Any, narrow: bool) -> None:
    with pytest.raises(SchemaError, match=r"column 'x': (1e\+39|70000\.0) .*float(32|16)"):
        stored(column, entry, narrow=narrow)


@pytest.mark.parametrize("entry", [FixedLen((), "float32"), FixedLen((), "float16"), FixedLen((), "float64")])
def test_infinite_number_and_nan_are_kept(entry: Any) -> None:
    for narrow in (True, False):
        values = stored(pa.array([np.inf, -np.inf, np.nan, -0.0]), entry, narrow=narrow)
        assert str(values) == "[inf, -inf, nan, -0.0]"


@pytest.mark.parametrize(("column", "entry"), of_every_kind(0.1), ids=named)
def test_rounding_is_rejected_without_narrow(column: Any, entry: Any) -> None:
    assert "0.10000000149011612" in str(stored(column, entry))
    with pytest.raises(SchemaError, match=r"column 'x': 0\.1 cannot be represented exactly as float32; "):
        stored(column, entry, narrow=False)


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64()])
def test_integer_that_float16_would_change_is_rejected(kind: Any) -> None:
    assert stored(pa.array([2048], kind), FixedLen((), "float16")) == [2048.0]
    for number in (2049, 70000):
        with pytest.raises(SchemaError, match=rf"column 'x': {number}\.0 .* float16"):
            stored(pa.array([1, number], kind), FixedLen((), "float16"))


def test_integer_that_float64_feature_would_change_is_rejected() -> None:
    for raw, largest in ((False, 1 << 24), (True, 1 << 53)):
        entry = FixedLen((), "float64", raw=raw)
        assert stored(pa.array([largest]), entry) == [largest]
        with pytest.raises(SchemaError, match=rf"column 'x': .*{largest + 1}"):
            stored(pa.array([1, largest + 1]), entry)


def test_raw_doubles_keep_all_bits() -> None:
    for narrow in (True, False):
        assert stored(pa.array([0.1, 1e300]), FixedLen((), "float64", raw=True), narrow=narrow) == [0.1, 1e300]
        tensor = [{"values": [0.1, 1e300], "shape": [2]}]
        assert stored(pa.array(tensor), Tensor("float64", raw=True), narrow=narrow) == tensor


@pytest.mark.parametrize(
    ("column", "entry"),
    [
        (pa.array([[1, 2], [1, None]], pa.list_(pa.float64(), 2)), FixedLen((2,), "float64", raw=True)),
        (pa.array([[1, 2], [1, None]], pa.list_(pa.int64(), 2)), FixedLen((2,), "int64", raw=True)),
        (
            pa.array([{"indices": [[number]], "values": [1.0]} for number in (1, None)], SPARSE),
            Sparse("float32", (3,), ("i",), "v"),
        ),
    ],
    ids=named,
)
def test_null_inside_stored_array_is_reported_by_row(column: Any, entry: Any) -> None:
    with pytest.raises(SchemaError, match="column 'x': row 1 contains a null inside its list"):
        stored(column, entry)
