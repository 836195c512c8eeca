"""A ``tf.data.Dataset`` of a data set has the schema's element spec, and yields every record once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import asyncrec
from asyncrec import blocking
from asyncrec.integrations.tensorflow import shuffled

COUNT = 300
SCHEMA = asyncrec.Schema(
    {
        "number": asyncrec.FixedLen((), "int64"),
        "vector": asyncrec.FixedLen((3,), "float32"),
        "name": asyncrec.FixedLen((), "bytes"),
        "tags": asyncrec.VarLen("bytes"),
    }
)


def example(number: int) -> bytes:
    return asyncrec.encode_example(
        {
            "number": number,
            "vector": np.full(3, number, np.float32),
            "name": b"%d" % number,
            "tags": [b"tag"] * (number % 3),
        }
    )


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    with blocking.open_sharded_writer(tmp_path / "numbers", max_shard_records=100, schema=SCHEMA) as writer:
        writer.write_many(map(example, range(COUNT)))
    return str(tmp_path / "numbers")


def test_records_are_batched_once_with_schema_types(numbers: str) -> None:
    dataset = shuffled(numbers, batch_size=64, seed=1)
    spec = dataset.element_spec
    assert (spec["number"].dtype, spec["vector"].shape.as_list()) == (tf.int64, [None, 3])
    assert isinstance(spec["tags"], tf.RaggedTensorSpec)
    seen = []
    for batch in dataset:
        number = batch["number"].numpy()
        seen += number.tolist()
        assert (batch["vector"].numpy() == number[:, None]).all()
        assert batch["name"].numpy().tolist() == [b"%d" % each for each in number]
        assert batch["tags"].row_lengths().numpy().tolist() == [each % 3 for each in number]
    assert sorted(seen) == list(range(COUNT))


def test_iterations_restart_after_early_exit(numbers: str) -> None:
    dataset = shuffled(numbers, batch_size=10, seed=1)
    first = [batch["number"].numpy().tolist() for batch in dataset.take(3)]
    assert first == [batch["number"].numpy().tolist() for batch in dataset.take(3)]


def test_newest_version_of_each_key_is_returned_once(tmp_path: Path) -> None:
    schema = asyncrec.Schema({"number": asyncrec.FixedLen((), "int64"), "date": asyncrec.FixedLen((), "int64")})
    for numbers in (range(100), range(100, 150)):
        with blocking.open_sharded_writer(
            tmp_path / "pages", schema=schema, max_shard_records=30, on_duplicate="write"
        ) as writer:
            for number in numbers:  # for every other page, the second version is the older one
                date = 1 if number < 100 else 2 * (number % 2)
                writer.write({"number": number, "date": date}, key=f"{number % 100}")
    dataset = shuffled(str(tmp_path / "pages"), batch_size=7, seed=1, newest="date")
    for _ in range(2):
        seen = [number for batch in dataset for number in batch["number"].numpy().tolist()]
        assert sorted(seen) == [*range(0, 50, 2), *range(50, 100), *range(101, 150, 2)]


def test_missing_schema_error_names_argument(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "plain") as writer:
        writer.write(b"1")
    with pytest.raises(asyncrec.errors.SchemaError, match="pass schema="):
        shuffled(str(tmp_path / "plain"), batch_size=1)
    with pytest.raises(asyncrec.errors.SchemaError, match="Tensor"):
        shuffled(
            str(tmp_path / "plain"), batch_size=1, schema=asyncrec.Schema({"x": asyncrec.example.Tensor("float32")})
        )
