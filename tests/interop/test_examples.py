"""Our Examples and TensorFlow's have the same bytes: 10,000 random ones in both directions, and batches.

`make interop` runs this in an environment with TensorFlow.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from asyncrec.example._codec import decode_example, decode_sequence_example, encode_example, encode_sequence_example
from asyncrec.example._schema import FixedLen, Schema, Sequence, Sparse, VarLen
from asyncrec.example.proto.example_pb2 import Example

COUNT = 10_000


def random_value(rng: np.random.Generator) -> Any:
    """Return a random scalar, list or array of any kind: maybe empty, negative, large, or not contiguous in memory."""
    size = int(rng.integers(0, 12))
    return [
        lambda: int(rng.integers(-(2**63), 2**63 - 1)),
        lambda: rng.integers(-(2**62), 2**62, size).tolist(),
        lambda: rng.integers(0, 200, (size, 2)).astype(rng.choice(["i1", "<i4", ">i8", "u2"])).T,
        lambda: float(np.float32(rng.standard_normal())),
        lambda: rng.standard_normal(size).astype(np.float32).tolist(),
        lambda: rng.standard_normal((size, 3)).astype(rng.choice(["<f4", ">f4", "<f2"]))[::2],
        lambda: rng.bytes(size * 20),
        lambda: [rng.bytes(int(rng.integers(0, 9))) for _ in range(size)],
        lambda: "é" * size,
        lambda: bool(rng.integers(2)),
    ][int(rng.integers(10))]()


def plain(value: Any) -> list[Any]:
    """Convert a value to the list that a Feature contains."""
    if isinstance(value, np.ndarray):
        return list(value.astype(np.float32).ravel().tolist() if value.dtype.kind == "f" else value.ravel().tolist())
    values = value if isinstance(value, list) else [value]
    return [item.encode() if isinstance(item, str) else item for item in values]


def theirs(feature: tf.train.Feature) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else list(value.tolist())


def test_examples_round_trip_with_tensorflow_both_ways() -> None:
    rng = np.random.default_rng(0)
    for _ in range(COUNT):
        names = {"".join(rng.choice(list("abé𐀀"), int(rng.integers(0, 4)))) for _ in range(int(rng.integers(0, 6)))}
        values = {name: random_value(rng) for name in names}
        expected = {name: plain(value) for name, value in values.items()}
        data = encode_example(values)
        message = tf.train.Example.FromString(data)
        assert {name: theirs(feature) for name, feature in message.features.feature.items()} == expected
        again = message.SerializeToString()
        assert {name: listed(value) for name, value in decode_example(again).items()} == expected
        assert decode_example(encode_example(message)).keys() == expected.keys()
        assert len(data) == message.ByteSize()


def test_sequence_examples_round_trip_with_tensorflow() -> None:
    rng = np.random.default_rng(1)
    for _ in range(COUNT // 5):
        context = {"id": random_value(rng)}
        lists = {
            "frames": rng.standard_normal((int(rng.integers(0, 5)), 3)).astype(np.float32),
            "ids": [rng.integers(0, 99, int(rng.integers(1, 4))) for _ in range(int(rng.integers(0, 5)))],
        }
        data = encode_sequence_example(context, lists)
        message = tf.train.SequenceExample.FromString(data)
        expected = {name: [plain(step) for step in steps] for name, steps in lists.items()}
        assert theirs(message.context.feature["id"]) == plain(context["id"])
        assert {
            name: [theirs(step) for step in steps.feature] for name, steps in message.feature_lists.feature_list.items()
        } == expected
        _, found = decode_sequence_example(message.SerializeToString())
        assert {name: [listed(step) for step in steps] for name, steps in found.items()} == expected


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_small_model_floats_are_encoded_as_floats(dtype: Any) -> None:
    """TensorFlow installs ml_dtypes; our code recognizes its types by their names."""
    array = np.array([[0.5, -1.5], [2, 0]]).astype(dtype)
    assert decode_example(encode_example({"x": array}))["x"].tolist() == [0.5, -1.5, 2, 0]
    assert decode_example(encode_example({"x": array[0, 1]}))["x"].tolist() == [-1.5]


def test_message_classes_coexist_with_tensorflow() -> None:
    assert Example.DESCRIPTOR.full_name != tf.train.Example.DESCRIPTOR.full_name
    data = encode_example({"a": 1})
    assert Example.FromString(data).SerializeToString() == tf.train.Example.FromString(data).SerializeToString()


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("writer", ["ours", "tensorflow"])
def test_batch_equals_result_of_parse_example(count: int, writer: str) -> None:
    rng = np.random.default_rng(2)
    records = [
        encode_example(
            {
                "label": int(rng.integers(-5, 5)),
                "emb": rng.standard_normal(16).astype(np.float32),
                "url": "u" * int(rng.integers(0, 200)),
                "tags": ["t" * int(rng.integers(0, 5)) for _ in range(int(rng.integers(0, 3)))],
                "at": [2, 0],
                "value": [0.5, 1.5],
            }
            | ({"once": 7} if i % 3 == 0 else {})
        )
        for i in range(count)
    ]
    if writer == "tensorflow":  # the order of its maps is unspecified
        records = [tf.train.Example.FromString(record).SerializeToString() for record in records]
    ours = Schema(
        {
            "label": FixedLen((), "int64"),
            "emb": FixedLen((4, 4), "float32"),
            "url": FixedLen((), "bytes"),
            "tags": VarLen("bytes"),
            "once": FixedLen((), "int64", default=-1),
            "sparse": Sparse("float32", (3,), "at", "value"),
        }
    ).decode_batch(records)
    parsed = tf.io.parse_example(
        records,
        {
            "label": tf.io.FixedLenFeature((), tf.int64),
            "emb": tf.io.FixedLenFeature((4, 4), tf.float32),
            "url": tf.io.FixedLenFeature((), tf.string),
            "tags": tf.io.RaggedFeature(tf.string),
            "once": tf.io.FixedLenFeature((), tf.int64, default_value=-1),
            "sparse": tf.io.SparseFeature("at", "value", tf.float32, 3),
        },
    )
    for name in ("label", "emb", "url", "once"):
        assert np.array_equal(ours[name], parsed[name].numpy())
    assert ours["tags"].values.tolist() == parsed["tags"].values.numpy().tolist()
    assert ours["tags"].row_splits.tolist() == parsed["tags"].row_splits.numpy().tolist()
    assert np.array_equal(ours["sparse"].indices, parsed["sparse"].indices.numpy())
    assert np.array_equal(ours["sparse"].values, parsed["sparse"].values.numpy())
    assert tuple(parsed["sparse"].dense_shape.numpy()) == ours["sparse"].dense_shape


def test_feature_lists_decode_as_by_parse_sequence_example() -> None:
    frames = np.arange(6, dtype=np.float32).reshape(3, 2)
    record = encode_sequence_example({"id": 1}, {"frames": frames, "words": [["a", "b"], [], ["c"]]})
    context, lists = tf.io.parse_single_sequence_example(
        record,
        {"id": tf.io.FixedLenFeature((), tf.int64)},
        {"frames": tf.io.FixedLenSequenceFeature((2,), tf.float32), "words": tf.io.RaggedFeature(tf.string)},
    )
    ours = Schema(
        {"id": FixedLen((), "int64"), "frames": Sequence(FixedLen((2,), "float32")), "words": Sequence(VarLen("bytes"))}
    ).decode(record)
    assert ours["id"] == context["id"].numpy()
    assert np.array_equal(ours["frames"], lists["frames"].numpy())
    assert ours["words"].values.tolist() == lists["words"].values.numpy().tolist()
    assert ours["words"].row_splits.tolist() == lists["words"].row_splits.numpy().tolist()
