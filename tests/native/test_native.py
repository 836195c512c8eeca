"""C and Python give the same results, all C functions are tested, and asyncrec works without a compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec import native

from .fuzz import SUBJECTS, fuzz

WITHOUT = """
import sys
sys.modules["asyncrec._native._c"] = None  # as where there was no compiler
import asyncrec
from asyncrec import blocking, native
assert (native.FUNCTIONS, native.CRC32C) == ((), "package"), native
schema = asyncrec.Schema({"a": asyncrec.FixedLen((), "int64"), "b": asyncrec.VarLen("float32")})
records = [asyncrec.encode_example({"a": n, "b": [0.5] * n}) for n in range(40)]
with blocking.open_sharded_writer(sys.argv[1] + "/set") as writer:
    for number, record in enumerate(records):
        writer.write(record, key=str(number))
with blocking.open_dataset(sys.argv[1] + "/set") as dataset:
    found = sorted(dataset.get_many(range(40)))
assert found == sorted(records)
assert sorted(schema.decode_batch(found)["a"].tolist()) == list(range(40))
"""


@pytest.mark.parametrize("name", SUBJECTS)
def test_c_and_python_results_are_equal(name: str) -> None:
    if native.FUNCTIONS:  # without a compiler, there is only Python
        fuzz(name, 300, seed=0)


def test_every_c_function_is_tested() -> None:
    assert set(SUBJECTS) >= set(native.FUNCTIONS)


def test_crc32c_reports_known_implementation() -> None:
    assert native.CRC32C in (("sse4.2", "armv8", "tables") if native.FUNCTIONS else ("package",))


def test_package_works_without_compiler(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], check=True, timeout=60)
