"""Schema entries are checked when they are created, and two entries merge into one that can decode both."""

from __future__ import annotations

import pytest

from asyncrec.errors import SchemaError
from asyncrec.example._compound import Sequence, Sparse
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor, VarLen


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (FixedLen((), "int64"), FixedLen((), "int64"), FixedLen((), "int64")),
        (FixedLen((), "int8"), FixedLen((), "int32"), FixedLen((), "int32")),
        (FixedLen((), "uint8"), FixedLen((), "int8"), FixedLen((), "int16")),
        (FixedLen((), "int64"), FixedLen((), "uint64"), None),
        (FixedLen((), "bool"), FixedLen((), "int64"), None),
        (FixedLen((), "float32"), FixedLen((), "float64"), FixedLen((), "float64")),
        (FixedLen((), "str"), FixedLen((), "bytes"), FixedLen((), "bytes")),
        (FixedLen((), "bytes"), FixedLen((), "int64"), None),
        (FixedLen((), "int8"), FixedLen((), "int32", default=300), FixedLen((), "int32", default=300)),
        (FixedLen((), "bytes"), FixedLen((), "str", default="a"), None),
        (FixedLen((2,), "int64"), FixedLen((3,), "int32"), VarLen("int64")),
        (FixedLen((), "int64"), FixedLen((3,), "int64"), VarLen("int64")),
        (FixedLen((2, 2), "int64"), FixedLen((2, 3), "int64"), None),
        (FixedLen((2,), "int64"), VarLen("int64"), VarLen("int64")),
        (FixedLen((2, 2), "int64"), VarLen("int64"), None),
        (FixedLen((), "int64", default=1), FixedLen((), "int64"), FixedLen((), "int64", default=1)),
        (FixedLen((), "int64", default=1), FixedLen((), "int32", default=1), FixedLen((), "int64", default=1)),
        (FixedLen((), "int64", default=1), FixedLen((), "int64", default=2), None),
        (FixedLen((), "int64", default=1), FixedLen((2,), "int64"), None),
        (FixedLen((), "int64", default=1), VarLen("int64"), None),
        (
            FixedLen((), "float32", default=float("nan")),
            FixedLen((), "float32", default=float("nan")),
            FixedLen((), "float32", default=float("nan")),
        ),
        (FixedLen((2,), "float64", raw=True), FixedLen((2,), "float64"), None),
        (FixedLen((2,), "float64", raw=True), FixedLen((3,), "float64", raw=True), None),
        (VarLen("float32"), Tensor("float32"), None),
        (Tensor("int32"), Tensor("int64"), Tensor("int64")),
        (Tensor("int32", raw=True), Tensor("int32"), None),
        (Sparse("int32", (3,), "i", "v"), Sparse("int64", (3,), "i", "v"), Sparse("int64", (3,), "i", "v")),
        (Sparse("int32", (3,), "i", "v"), Sparse("int32", (4,), "i", "v"), None),
        (Sequence(FixedLen((2,), "int64")), Sequence(FixedLen((3,), "int64")), Sequence(VarLen("int64"))),
        (Sequence(FixedLen((2,), "int64")), Sequence(FixedLen((), "float32")), None),
        (Sequence(VarLen("int64")), VarLen("int64"), None),
    ],
)
def test_entries_merge_to_common_reader_or_not_at_all(one: Entry, other: Entry, expected: Entry | None) -> None:
    for merged in (one.merged(other), other.merged(one)):
        assert (merged and merged.to_json()) == (expected and expected.to_json())


def test_raw_entries_of_different_types_do_not_merge() -> None:
    """For raw entries, the type is the format: the bytes of an int32 are not those of an int64."""
    assert FixedLen((), "int32", raw=True).merged(FixedLen((), "int64", raw=True)) is None
    assert Tensor("int32", raw=True).merged(Tensor("int64", raw=True)) is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (FixedLen((), "int64"), VarLen("int64")),
        (FixedLen((3,), "int64"), VarLen("int64")),
        (FixedLen((3, 3), "int64"), None),
        (FixedLen((3, 3), "int64", default=0), FixedLen((3, 3), "int64", default=0)),
        (FixedLen((), "float64", raw=True), None),
        (VarLen("str"), VarLen("str")),
        (Tensor("int64"), None),
        (Sparse("int64", (3,), "i", "v"), Sparse("int64", (3,), "i", "v")),
        (Sequence(FixedLen((), "int64")), Sequence(VarLen("int64"))),
        (Sequence(FixedLen((2, 2), "int64")), None),
    ],
)
def test_entry_for_absent_feature_adds_no_values(entry: Entry, expected: Entry | None) -> None:
    assert entry.where_absent() == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLen((), "int65"), "'int65' is not a valid dtype; the dtypes are bool, int8"),
        (
            lambda: VarLen("complex64"),
            "'complex64' is not a valid dtype; the dtypes are bool, int8, int16, int32, int64,",
        ),
        (lambda: VarLen(3), "3 is not a valid dtype; the dtypes are bool, int8, int16, int32, int64, uint8,"),
        (lambda: FixedLen((-1,), "int64"), r"the shape \(-1,\) has a negative size"),
        (lambda: FixedLen((2,), "int64", default=[1, 2, 3]), "does not have the shape"),
        (lambda: FixedLen((), "int64", default=1.5), "the default 1.5 is not a valid int64"),
        (lambda: FixedLen((), "int8", default=300), "the default 300 is not a valid int8"),
        (lambda: FixedLen((), "bool", default=1), "the default 1 is not a valid bool"),
        (lambda: FixedLen((), "float32", default="x"), "the default 'x' is not a valid float32"),
        (lambda: FixedLen((), "float32", default=16777217), "the default 16777217 is not a valid float32"),
        (lambda: FixedLen((2,), "float32", default=[1e300, 0]), r"the default \[1e\+300, 0\] is not a valid float32"),
        (lambda: FixedLen((), "bytes", default="x"), "the default 'x' is not a valid bytes"),
        (lambda: FixedLen((), "bytes", raw=True), "bytes values are already bytes; use raw=True only for numbers"),
        (lambda: Tensor("str", raw=True), "str values are already bytes; use raw=True only for numbers"),
        (lambda: Sparse("int64", (3, 3), "i", "v"), "one index feature per axis"),
        (lambda: Sparse("int64", (), (), "v"), "one index feature per axis"),
        (lambda: Sequence(FixedLen((), "int64", default=1)), "without a default"),
        (lambda: Sequence(Tensor("int64")), "a VarLen, or a FixedLen without a default"),
    ],
)
def test_invalid_entry_is_rejected_on_construction(make: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()  # type: ignore[operator]  # a lambda


def test_equal_entries_have_equal_hashes() -> None:
    assert hash(FixedLen((2,), "int64", default=[1, 2])) == hash(FixedLen((2,), "int64", default=[1, 2]))
    assert len({VarLen("int64"), VarLen("int64"), Tensor("int64")}) == 2
