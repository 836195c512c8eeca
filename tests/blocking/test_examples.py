"""A blocking writer with a schema accepts values, and its records are read back as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asyncrec import FixedLen, Schema, blocking, encode_example
from asyncrec.errors import SchemaError

PAGE = Schema({"url": FixedLen((), "str"), "body": FixedLen((), "bytes", default=b"")})


def page(number: int) -> dict[str, Any]:
    return {"url": f"http://a/{number}", "body": b"x" * number}


def test_writer_validates_examples_against_schema(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with blocking.open_writer(path, schema=PAGE) as writer:
        writer.write(page(0))
        writer.write(encode_example(page(1)))
        writer.write_many([page(2), page(3)])
        with pytest.raises(
            SchemaError, match=r"a: feature 'url' is missing; expected FixedLen\(\(\), 'str'\), got the features"
        ):
            writer.write({})
        with pytest.raises(SchemaError, match="validate='none'"):
            writer.write(encode_example({"a": 1}))
        assert writer.schema == PAGE
    with blocking.open_reader(path) as reader:
        assert list(reader.examples(PAGE)) == [page(number) for number in range(4)]


def test_write_examples_encodes_rows_like_encode_example(tmp_path: Path) -> None:
    rows = [page(number) for number in range(2000)]
    blocking.write_examples(tmp_path / "a", iter(rows), schema=PAGE)
    blocking.write_examples(tmp_path / "b", rows)
    records = [encode_example(row) for row in rows]
    assert list(blocking.read_records(tmp_path / "a")) == list(blocking.read_records(tmp_path / "b")) == records


@pytest.mark.parametrize("validate", ["sample", "all", "none"])
def test_sharded_writer_takes_keys_from_schema_feature(tmp_path: Path, validate: Any) -> None:
    path = tmp_path / "pages"
    with blocking.open_sharded_writer(path, schema=PAGE, key_feature="url", validate=validate) as writer:
        assert writer.write(page(0)) == 1
        assert writer.write({"body": b"x"}, key="http://a/1") == 2
        assert writer.write_many([page(2), encode_example(page(3))]) == 4
        with pytest.raises(
            SchemaError, match="feature 'url' is 'http://a/4', but key= is 'other'; the two must be equal"
        ):
            writer.write(page(4), key="other")
        assert writer.schema == PAGE
    with blocking.open_dataset(path) as dataset:
        assert list(dataset.examples()) == [page(number) for number in range(4)]
        assert list(dataset) == [encode_example(page(number)) for number in range(4)]
        assert [len(batch) for batch in dataset.batches()] == [4]
        assert dataset.find("http://a/3") == 3


def test_examples_iterator_names_undecodable_record_and_continues(tmp_path: Path) -> None:
    blocking.write_records(tmp_path / "a", [b"\xff", PAGE.encode(page(1))])
    with blocking.open_reader(tmp_path / "a") as reader:
        examples = reader.examples(PAGE)
        with pytest.raises(ValueError, match="record 0"):
            next(examples)
        assert list(examples) == [page(1)]
