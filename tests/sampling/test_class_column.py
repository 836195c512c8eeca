"""The stored column of classes is read back unchanged; anything else stored under its name is rejected unread."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec._sampling.balanced_sampler.class_column import ClassColumn, _encode, _parse, class_column
from asyncrec.errors import SchemaError
from asyncrec.storage._memory import MemoryStorage

RECORDS = 20


def column(*labels: Any) -> ClassColumn:
    return ClassColumn(np.arange(RECORDS, dtype=np.int32) % len(labels), labels)


@pytest.mark.parametrize("labels", [(0, 1, 2), (-(2**63), 2**63 - 1), (0.5, 1.5), (b"", b"\xff", b"a")])
def test_class_column_round_trips(labels: tuple[Any, ...]) -> None:
    found = _parse(_encode(column(*labels)), RECORDS)
    assert found.labels == labels
    assert found.codes.tolist() == column(*labels).codes.tolist()


def test_empty_class_column_round_trips() -> None:
    assert _parse(_encode(ClassColumn(np.empty(0, np.int32), ())), 0).labels == ()


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, (1, 0))
    return file.getvalue()


def archive(compression: int = zipfile.ZIP_STORED, **members: bytes | list[bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, content in members.items():
            with made.open(f"{name}.npy", "w", force_zip64=True) as member:
                for piece in [content] if isinstance(content, bytes) else content:
                    member.write(piece)
    return file.getvalue()


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": shape})
    return file.getvalue()


CODES = npy(np.zeros(RECORDS, np.int32))
LABELS = npy(np.frombuffer(b'{"bytes":false,"labels":[0]}', np.uint8))
ZEROS = [bytes(1 << 20)] * 100
TWO = npy(np.arange(RECORDS, dtype=np.int32) % 2)


def labels(text: bytes) -> bytes:
    return archive(codes=CODES, labels=npy(np.frombuffer(text, np.uint8)))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "many codes": lambda: archive(codes=[header((25 << 20,)), *ZEROS], labels=LABELS),
    "a shape of more than there is": lambda: archive(codes=header((1 << 60,)), labels=LABELS),
    "a shape of few, and much more": lambda: archive(codes=[CODES, *ZEROS], labels=LABELS),
    "many labels": lambda: archive(codes=CODES, labels=[npy(np.zeros(100 << 20, np.uint8))[:128], *ZEROS]),
    "a long header": lambda: archive(codes=b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little"), labels=LABELS),
    "two axes": lambda: archive(codes=npy(np.zeros((RECORDS, 1), np.int32)), labels=LABELS),
    "objects": lambda: archive(codes=npy(np.array([None] * RECORDS)), labels=LABELS),
    "another type": lambda: archive(codes=npy(np.zeros(RECORDS, np.int64)), labels=LABELS),
    "too few": lambda: archive(codes=npy(np.zeros(RECORDS - 1, np.int32)), labels=LABELS),
    "many members": lambda: archive(codes=CODES, labels=LABELS, **{f"x{n}": b"" for n in range(5000)}),
    "no members": archive,
    "a code beyond its labels": lambda: archive(codes=npy(np.full(RECORDS, 2**31 - 1, np.int32)), labels=LABELS),
    "a negative code": lambda: archive(codes=npy(np.full(RECORDS, -1, np.int32)), labels=LABELS),
    "a label of no record": lambda: labels(b'{"bytes":false,"labels":[0,1]}'),
    "labels that deflate well": lambda: archive(
        zipfile.ZIP_DEFLATED,
        codes=CODES,
        labels=npy(np.frombuffer(b'{"bytes":false,"labels":[%s0]}' % (b"0.5," * (2 << 20)), np.uint8)),
    ),
    "a label twice": lambda: archive(
        codes=TWO, labels=npy(np.frombuffer(b'{"bytes":false,"labels":[1,1.0]}', np.uint8))
    ),
    "a label that is not a number": lambda: labels(b'{"bytes":false,"labels":[NaN]}'),
    "labels that nothing is keyed by": lambda: labels(b'{"bytes":false,"labels":[[0]]}'),
    "labels that are nested": lambda: labels(b"[" * 100_000),
    "labels that are no list": lambda: labels(b'{"bytes":false,"labels":5}'),
    "labels that are no object": lambda: labels(b"[]"),
    "no JSON": lambda: labels(b"\xff"),
    "nothing": lambda: b"",
    "cut short": lambda: _encode(column(0, 1))[:-30],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_malformed_column_is_rejected_in_bounded_memory(what: str) -> None:
    content = HOSTILE[what]()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"."):
            _parse(content, RECORDS)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_damaged_column_is_rejected_or_classifies_every_record(at: int, damage: bytes) -> None:
    content = bytearray(_encode(column(b"a", b"b", b"c")))
    at %= len(content)
    content[at : at + len(damage)] = damage
    try:
        found = _parse(bytes(content), RECORDS)
    except ValueError:
        return
    assert len(found.codes) == RECORDS
    assert 0 <= found.codes.min() <= found.codes.max() < len(found.labels)


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["feature", "function"])
async def test_nan_class_is_rejected_with_record(by: str) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for number in range(RECORDS):
            await writer.write(asyncrec.encode_example({"label": float("nan") if number in (7, 9) else 1.5}))
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        ways: dict[str, Any] = {"feature": "label", "class_fn": None}
        if by == "function":
            ways = {"feature": None, "class_fn": lambda record: float(asyncrec.decode_example(record)["label"][0])}
        with pytest.raises(SchemaError, match=r"record 7: the record's class is nan, which is not equal to itself"):
            await class_column(dataset, **ways)


async def stored(storage: MemoryStorage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for number in range(RECORDS):
            await writer.write(asyncrec.encode_example({"label": number % 4}))


@pytest.mark.anyio
async def test_oversized_column_object_is_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await class_column(dataset, feature="label", class_fn=None)
        (kept,) = [info.key async for info in storage.list_objects("_classes/")]
        await storage.put(kept, bytes(17 << 20))
        found = await class_column(dataset, feature="label", class_fn=None)
        assert found.labels == (0, 1, 2, 3)
        assert "it will be written again" in caplog.text
        assert (await storage.head(kept)).size < 10_000


@pytest.mark.anyio
async def test_oversized_column_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec._sampling.balanced_sampler.class_column._most_bytes", lambda records: 10)
    storage = MemoryStorage()
    await stored(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len((await class_column(dataset, feature="label", class_fn=None)).codes) == RECORDS
    assert [info async for info in storage.list_objects("_classes/")] == []
