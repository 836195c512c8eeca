"""Records written by TensorFlow decode to the values in their manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncrec.example._codec import decode_example, decode_sequence_example, encode_example, encode_sequence_example
from asyncrec.example._schema import FixedLen, Schema, VarLen

pytestmark = pytest.mark.usefixtures("implementation")


def payloads(path: Path) -> Iterator[bytes]:
    """Yield the records of an undamaged, uncompressed file."""
    data, pos = path.read_bytes(), 0
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + 8], "little")
        yield data[pos + 12 : pos + 12 + size]
        pos += size + 16


def rows_of(vectors: Path, name: str) -> list[Any]:
    rows: list[Any] = json.loads((vectors / "manifest.json").read_text("utf-8"))["files"][name]["rows"]
    return rows


def plain(values: Any) -> list[Any]:
    """Convert values to the manifest's form, with bytes in hex."""
    return [value.hex() for value in values] if isinstance(values, list) else values.tolist()


def test_tensorflow_examples_decode_as_listed_in_manifest(vectors: Path) -> None:
    rows = rows_of(vectors, "examples.tfrecord")
    records = list(payloads(vectors / "examples.tfrecord"))
    assert [{name: plain(values) for name, values in decode_example(record).items()} for record in records] == rows
    for record in records:
        assert decode_example(encode_example(decode_example(record))).keys() == decode_example(record).keys()


def test_tensorflow_sequence_examples_decode_as_listed_in_manifest(vectors: Path) -> None:
    rows = rows_of(vectors, "sequence_examples.tfrecord")
    for row, record in zip(rows, payloads(vectors / "sequence_examples.tfrecord"), strict=True):
        context, lists = decode_sequence_example(record)
        assert {name: plain(values) for name, values in context.items()} == row["context"]
        assert {name: [plain(step) for step in steps] for name, steps in lists.items()} == row["feature_lists"]
        again = encode_sequence_example(context, lists)
        assert [len(part) for part in decode_sequence_example(again)] == [len(context), len(lists)]


def test_inferred_schema_reads_tensorflow_examples_as_batch(vectors: Path) -> None:
    rows = rows_of(vectors, "examples.tfrecord")
    records = list(payloads(vectors / "examples.tfrecord"))
    schema = Schema.infer(records)
    assert schema.features == {
        "emb": FixedLen((16,), "float32"),
        "label": FixedLen((), "int64"),
        "tags": VarLen("bytes"),
        "tokens": VarLen("int64"),
        "url": FixedLen((), "bytes"),
    }
    batch = schema.decode_batch(records)
    assert batch["emb"].tolist() == [row["emb"] for row in rows]
    assert batch["label"].tolist() == [row["label"][0] for row in rows]
    assert [value.hex() for value in batch["url"]] == [row["url"][0] for row in rows]
    for name in ("tokens", "tags"):
        values, splits = batch[name]
        found = [plain(list(row) if name == "tags" else row) for row in np.split(values, splits[1:-1])]
        assert found == [row.get(name, []) for row in rows]


def test_inferred_schema_reads_tensorflow_sequence_examples_as_batch(vectors: Path) -> None:
    rows = rows_of(vectors, "sequence_examples.tfrecord")
    records = list(payloads(vectors / "sequence_examples.tfrecord"))
    batch = Schema.infer(records).decode_batch(records)
    assert batch["id"].tolist() == [row["context"]["id"][0] for row in rows]
    frames, splits = batch["frames"]
    assert [steps.tolist() for steps in np.split(frames, splits[1:-1])] == [
        row["feature_lists"].get("frames", []) for row in rows
    ]
    (values, step_splits), row_splits = batch["ids"]
    steps = [step.tolist() for step in np.split(values, step_splits[1:-1])]
    assert [steps[row_splits[i] : row_splits[i + 1]] for i in range(len(rows))] == [
        row["feature_lists"].get("ids", []) for row in rows
    ]
