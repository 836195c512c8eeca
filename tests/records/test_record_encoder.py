"""A writer with a schema accepts values by feature name, and rejects a misfit before it has any effect."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec import FixedLen, Schema, Sparse, VarLen, encode_example
from asyncrec.errors import ArgumentError, DecodeError, SchemaError
from asyncrec.example import Sequence, SparseArrays
from asyncrec.example._encoding import Encoder

pytestmark = pytest.mark.anyio

PAGE = Schema({"url": FixedLen((), "str"), "status": FixedLen((), "int64", default=0), "body": FixedLen((), "bytes")})


def page(number: int) -> dict[str, Any]:
    return {"url": f"http://a/{number}", "status": 200, "body": b"x" * number}


class Numbers:
    """An array type of a third-party library."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.nbytes = array.nbytes

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self._array


async def stored(path: Path) -> list[bytes]:
    async with asyncrec.open_reader(path) as reader:
        return [record async for record in reader]


async def test_writer_encodes_values_like_encode_example(tmp_path: Path) -> None:
    path = tmp_path / "pages.tfrecord"
    async with asyncrec.open_writer(path, schema=PAGE) as writer:
        await writer.write(page(1))
        await writer.write(OrderedDict(page(2)))
        await writer.write_many([page(3), encode_example(page(4)), page(5)])
        assert writer.schema == PAGE
    assert await stored(path) == [encode_example(page(number)) for number in range(1, 6)]


async def test_misfit_record_is_rejected_by_feature_without_effect(tmp_path: Path) -> None:
    path = tmp_path / "pages.tfrecord"
    async with asyncrec.open_writer(path, schema=PAGE) as writer:
        with pytest.raises(SchemaError, match=r"pages\.tfrecord: feature 'status': expected FixedLen"):
            await writer.write({**page(1), "status": "200"})
        with pytest.raises(
            SchemaError,
            match=r"pages\.tfrecord: feature 'body' is missing; expected FixedLen\(\(\), 'bytes'\), got the",
        ):
            await writer.write({"url": "http://a/"})
        assert writer.stats().records == 0
        await writer.write(page(1))
    assert await stored(path) == [encode_example(page(1))]


async def test_write_many_keeps_records_before_numbered_misfit(tmp_path: Path) -> None:
    path = tmp_path / "pages.tfrecord"
    rows = [page(number) for number in range(200)]
    rows[150] = {"url": 3}
    async with asyncrec.open_writer(path, schema=PAGE) as writer:
        with pytest.raises(SchemaError) as caught:
            await writer.write_many(rows)
        assert "record 150" in " ".join(caught.value.__notes__)
    assert await stored(path) == [encode_example(row) for row in rows[:150]]


async def test_mapping_without_schema_is_rejected_with_both_remedies(tmp_path: Path) -> None:
    async with asyncrec.open_writer(tmp_path / "a") as writer:
        with pytest.raises(TypeError, match=r"not dict; encode it with encode_example, or pass schema="):
            await writer.write(page(1))
        with pytest.raises(TypeError, match="schema="):
            await writer.write_many([page(1)])


@pytest.mark.parametrize(
    ("validate", "refused"), [("all", [0, 60, 150, 199, 950]), ("sample", [0, 60, 199]), ("none", [])]
)
async def test_encoded_records_are_validated_as_often_as_requested(
    tmp_path: Path, validate: Any, refused: list[int]
) -> None:
    wrong = encode_example({"other": 1})
    found = []
    async with asyncrec.open_writer(tmp_path / "a", schema=PAGE, validate=validate) as writer:
        for number in range(1000):
            if number not in (0, 60, 150, 199, 950):
                await writer.write(encode_example(page(1)))
                continue
            with suppress(SchemaError):
                await writer.write(wrong)
                continue
            found.append(number)
    assert found == refused


async def test_bytes_other_than_examples_are_rejected(tmp_path: Path) -> None:
    async with asyncrec.open_writer(tmp_path / "a", schema=PAGE) as writer:
        with pytest.raises(DecodeError):
            await writer.write(b"\xff no example")
        with pytest.raises(DecodeError):
            await writer.write_many([bytearray(b"\xff no example")])


async def test_large_records_are_encoded_and_validated_in_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    encode, decode = Encoder.encode, Schema.decode

    def encoding(self: Encoder, values: Any) -> bytes:
        threads.append(get_ident())
        return encode(self, values)

    def decoding(self: Schema, record: Any) -> dict[str, Any]:
        threads.append(get_ident())
        return decode(self, record)

    monkeypatch.setattr(Encoder, "encode", encoding)
    monkeypatch.setattr(Schema, "decode", decoding)
    schema = Schema(
        {
            "many": VarLen("int64"),
            "array": VarLen("float32"),
            "body": FixedLen((), "bytes", default=b""),
            "rows": FixedLen((10, 100, 40), "float32", default=0.0),
            "steps": Sequence(VarLen("int64")),
            "sparse": Sparse("int64", (1_000_000,), ("at",), "values"),
        }
    )
    async with asyncrec.open_writer(tmp_path / "a", schema=schema) as writer:
        await writer.write({"many": [1, 2], "steps": [[1, 2], [3]], "rows": np.zeros((10, 100, 40), np.float32)})
        assert threads == [get_ident()]
        numbers = np.arange(100_000)
        large: list[Any] = [
            {"many": list(range(100_000))},
            {"array": np.zeros(1 << 18, np.float32)},
            {"body": b"x" * (1 << 20)},
            {"body": bytearray(1 << 20)},
            {"body": memoryview(bytes(1 << 20))},
            {"rows": [[[0.5] * 40] * 100] * 10},
            {"steps": [numbers[:10], numbers]},
            {"steps": [[1, 2], *[list(range(1000))] * 20]},
            {"sparse": SparseArrays(numbers.reshape(-1, 1), numbers, (1_000_000,))},
            {"many": Numbers(numbers)},
            encode_example({"body": b"x" * (1 << 20)}),
            encode_example({"many": [1] * 70_000}),
        ]
        for record in large:
            threads.clear()
            await writer.write(record)
            assert get_ident() not in threads
            assert len(threads) == 1


@pytest.mark.parametrize("schema", [PAGE.to_json(), PAGE.features, PAGE], ids=["json", "entries", "schema"])
async def test_schema_is_accepted_as_object_json_or_entries(tmp_path: Path, schema: Any) -> None:
    async with asyncrec.open_writer(tmp_path / "a", schema=schema) as writer:
        assert writer.schema == PAGE


@pytest.mark.parametrize("options", [{"schema": {"a": "int64"}}, {"validate": "some"}])
async def test_invalid_schema_and_validate_options_are_rejected(tmp_path: Path, options: Any) -> None:
    with pytest.raises((ArgumentError, SchemaError)):
        async with asyncrec.open_writer(tmp_path / "a", **options):
            pass


async def test_write_examples_accepts_rows_with_or_without_schema(tmp_path: Path) -> None:
    rows = [page(number) for number in range(300)]
    await asyncrec.write_examples(tmp_path / "a", rows, schema=PAGE)
    info = await asyncrec.write_examples(tmp_path / "b", iter(rows), compression="GZIP")
    assert info.size == (tmp_path / "b").stat().st_size
    assert await stored(tmp_path / "a") == await stored(tmp_path / "b") == [encode_example(row) for row in rows]
    with pytest.raises(SchemaError):
        await asyncrec.write_examples(tmp_path / "c", [{"url": 1}], schema=PAGE)
    assert not (tmp_path / "c").exists()
    with pytest.raises(TypeError, match="needs a list of records"):
        await asyncrec.write_examples(tmp_path / "c", page(1))  # type: ignore[arg-type]


async def test_reader_decodes_examples_with_or_without_schema(tmp_path: Path) -> None:
    path = tmp_path / "a"
    await asyncrec.write_examples(path, [page(1), {"url": "u", "body": b""}], schema=PAGE)
    async with asyncrec.open_reader(path) as reader:
        found = [example async for example in reader.examples(PAGE)]
    assert found == [page(1), {"url": "u", "status": 0, "body": b""}]
    async with asyncrec.open_reader(path) as reader:
        plain = [example async for example in reader.examples()]
    assert plain[0]["url"] == [b"http://a/1"]


async def test_undecodable_example_is_named_and_reading_continues(tmp_path: Path) -> None:
    path = tmp_path / "a"
    await asyncrec.write_records(
        path, [encode_example(page(0)), b"\xff", encode_example({"a": 1}), PAGE.encode(page(3))]
    )
    async with asyncrec.open_reader(path) as reader:
        examples = reader.examples(PAGE)
        assert await anext(examples) == page(0)
        with pytest.raises(
            DecodeError, match=r"a: record 1 \(counted from where reading began\): offset 0: a number is truncated"
        ):
            await anext(examples)
        with pytest.raises(SchemaError, match="record 2"):
            await anext(examples)
        assert await anext(examples) == page(3)
        with pytest.raises(StopAsyncIteration):
            await anext(examples)


async def test_cancelled_call_never_loses_example(tmp_path: Path) -> None:
    import anyio

    path = tmp_path / "a"
    row = page(2 << 20)
    await asyncrec.write_examples(path, [row, page(1)], schema=PAGE)
    async with asyncrec.open_reader(path) as reader:
        examples = reader.examples(PAGE)
        got = []
        for _ in range(20):
            with anyio.CancelScope() as scope:
                scope.cancel()
                got.append(await anext(examples))
        assert got in ([], [row], [row, page(1)])
        got += [example async for example in examples]
    assert got == [row, page(1)]
