"""The C code uses memory in proportion to its input, and lets other threads run during long work."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from time import thread_time
from typing import Any
from unittest import mock

import numpy as np
import pytest

from asyncrec import FixedLen, Schema, VarLen, encode_example, native
from asyncrec._native import native as module
from asyncrec.example import _columns

MANY = 1 << 20


@pytest.fixture
def unhurried() -> Iterator[None]:
    """Prevent threads from being forced to release the GIL."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def test_columns_begun_in_different_records_take_bounded_memory() -> None:
    names = [f"feature {number:03}" for number in range(200)]
    records = [encode_example({name: np.ones(5000, np.int64)}) for name in names]
    schema = Schema(dict.fromkeys(names, VarLen("int64")))
    tracemalloc.start()
    try:
        batch = schema.decode_batch(records)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(len(batch[name].values) for name in names) == 1_000_000
    assert peak < 40 * sum(map(len, records))  # each byte becomes an eight-byte number; the counts add to that


def test_record_with_many_features_is_decoded_in_linear_time() -> None:
    if not native.FUNCTIONS:
        return
    names = [f"feature {number:03}" for number in range(1000)]
    record = encode_example({name: np.ones(2000, np.int64) for name in names})
    schema = Schema(dict.fromkeys(names, VarLen("int64")))

    def seconds() -> float:
        began = thread_time()
        schema.decode_batch([record])
        return thread_time() - began

    in_c = min(seconds() for _ in range(3))
    with mock.patch.object(_columns, "native", None):
        assert in_c < 3 * seconds()


@pytest.mark.parametrize(
    "value",
    [np.arange(8 * MANY), np.zeros(8 * MANY, np.float64), np.zeros(32 * MANY, np.float32), [bytes(64 * MANY), b""]],
    ids=["integers", "float64", "float32", "bytes"],
)
@pytest.mark.usefixtures("unhurried")
def test_other_threads_run_while_large_example_is_encoded(value: Any) -> None:
    def runs_beside() -> bool:
        begun, ended = threading.Event(), []

        def encode() -> None:
            begun.set()
            encode_example({"a": value})
            ended.append(True)

        thread = threading.Thread(target=encode)
        thread.start()
        begun.wait()
        beside = not ended
        thread.join()
        return beside

    # On a busy machine, the waiting thread may be too late.
    assert any(runs_beside() for _ in range(30))


@pytest.mark.parametrize("raw", [(1, [b"", 3]), (1, [None]), ("", b""), (2**70, b"")])
def test_python_conversion_result_is_checked_before_use(raw: Any) -> None:
    if module is not None:
        with pytest.raises((TypeError, OverflowError)):
            module.encode_example({"a": object()}, True, np.ndarray, lambda value, narrow: raw)


class _Asked:
    """A number that records whether it was converted."""

    def __init__(self) -> None:
        self.asked = 0

    def __index__(self) -> int:
        self.asked += 1
        return 0


@pytest.mark.parametrize("name", ["cut_frames", "encode_frames", "encode_index", "fitting", "measure_frames"])
def test_rejected_argument_stops_argument_parsing(name: str) -> None:
    if module is None:
        return
    after = [_Asked() for _ in range(3)]
    too_large = 2**70
    arguments = {
        "cut_frames": (b"", too_large, after[0], True, []),
        "encode_frames": ([], too_large),
        "encode_index": (too_large, b"", after[0]),
        "fitting": ([], too_large, after[0], after[1]),
        "measure_frames": (b"", too_large, after[0], True),
    }[name]
    with pytest.raises(OverflowError):
        getattr(module, name)(*arguments)
    assert not any(each.asked for each in after)


def test_batch_columns_grow_beyond_short_first_record() -> None:
    schema = Schema({"a": VarLen("int64"), "b": VarLen("float32"), "c": FixedLen((), "int64")})
    lengths = [1, 0, 3000, 2, 50_000, 7, 100_000, 1]
    records = [encode_example({"a": np.arange(n), "b": np.ones(2 * n, np.float32), "c": n}) for n in lengths]
    batch = schema.decode_batch(records)
    assert batch["a"].values.tolist() == [value for n in lengths for value in range(n)]
    assert len(batch["b"].values) == 2 * sum(lengths)
    assert batch["c"].tolist() == lengths
