"""The default size of a split's shards."""

from __future__ import annotations

from inspect import signature

import pytest

from asyncrec._datasets.from_csv.write import write_folds, write_splits_from_csv


@pytest.mark.parametrize("function", [write_splits_from_csv, write_folds])
def test_max_shard_bytes_defaults_to_one_megabyte(function: object) -> None:
    assert signature(function).parameters["max_shard_bytes"].default == 1_000_000  # type: ignore[arg-type]
