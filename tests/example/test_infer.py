"""An inferred schema can decode all records, and merging the schemas of parts gives the schema of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._codec import encode_example, encode_sequence_example
from asyncrec.example._schema import FixedLen, Schema, Sequence, VarLen


def test_infer_considers_every_record() -> None:
    records = [
        encode_example({"label": 1, "emb": [0.5, 1.5], "url": "u", "tags": ["a", "b"], "once": 1, "never": []}),
        encode_example({"label": 2, "emb": [0.5, 2.5], "url": "v", "tags": []}),
        encode_example({"label": 3, "emb": [0.5, 3.5], "url": "w", "tags": ["a"]}),
    ]
    schema = Schema.infer(records)
    assert list(schema.features.items()) == [
        ("emb", FixedLen((2,), "float32")),
        ("label", FixedLen((), "int64")),
        ("once", VarLen("int64")),
        ("tags", VarLen("bytes")),
        ("url", FixedLen((), "bytes")),
    ]
    assert schema.decode_batch(records)["once"].row_splits.tolist() == [0, 1, 1, 1]


def test_infer_reads_sequence_examples() -> None:
    records = [
        encode_sequence_example({"id": 1}, {"frames": [[0.5, 1.5]], "words": [["a"], ["b", "c"]], "some": [1]}),
        encode_sequence_example({"id": 2}, {"frames": [[0.5, 1.5]] * 3, "words": [[]]}),
    ]
    schema = Schema.infer(records)
    assert schema.features == {
        "frames": Sequence(FixedLen((2,), "float32")),
        "id": FixedLen((), "int64"),
        "some": Sequence(VarLen("int64")),
        "words": Sequence(VarLen("bytes")),
    }
    assert schema.decode_batch(records)["some"].row_splits.tolist() == [0, 1, 1]


def test_infer_rejects_contradictory_records() -> None:
    with pytest.raises(SchemaError, match="feature 'a': its values are int64 in record 0 and float in record 2"):
        Schema.infer([encode_example({"a": value}) for value in (1, [], 1.5)])
    with pytest.raises(SchemaError, match="cannot be inferred from no records"):
        Schema.infer([])
    with pytest.raises(SchemaError, match="feature 'a' is both in the context and a feature list"):
        Schema.infer([encode_sequence_example({"a": 1}, {"a": [1]})])
    with pytest.raises(DecodeError, match="record 1 of the batch: offset"):
        Schema.infer([encode_example({"a": 1}), b"\xff"])
    good = encode_example({"a": 77})
    with pytest.raises(DecodeError, match="record 1 of the batch: feature 'a': the last int64 value"):
        Schema.infer([good, good.replace(b"\x4d", b"\xcd")])


ROWS = st.dictionaries(
    st.sampled_from("ab"),
    st.one_of(st.lists(st.integers(0, 9), max_size=3), st.just(np.zeros(2, np.float32)), st.just(np.zeros(0, int))),
)


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(ROWS, min_size=1, max_size=4))
def test_merged_schemas_equal_schema_of_all_records(one: list[Any], other: list[Any]) -> None:
    first, second = [encode_example(row) for row in one], [encode_example(row) for row in other]
    try:
        together = Schema.infer(first + second)
    except SchemaError:
        with pytest.raises(SchemaError):  # a part contradicts itself, or the parts contradict each other
            Schema.infer(first).merge(Schema.infer(second))
        return
    merged = Schema.infer(first).merge(Schema.infer(second))
    assert merged.features == together.features
    merged.decode_batch(first + second)
