"""The sampler's parameters. The tests of sampling and of fixed bugs need TensorFlow, so they are in tests/interop."""

from __future__ import annotations

import inspect

import pytest

from asyncrec.compat import tfsimilarity
from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler


def test_parameters_and_defaults_match_documentation() -> None:
    parameters = inspect.signature(TFRecordDatasetSampler).parameters.values()
    required = inspect.Parameter.empty
    assert {each.name: each.default for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD} == {
        "shard_path": required,
        "deserialization_fn": required,
        "example_per_class": 2,
        "batch_size": 32,
        "shards_per_cycle": None,
        "compression": None,
        "parallelism": -1,
        "async_cycle": False,
        "prefetch_size": None,
        "shard_suffix": "*.tfrec",
        "num_repeat": -1,
    }


def test_sampler_without_tensorflow_names_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfsimilarity, "found_tensorflow", lambda: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install tensorflow, or use asyncrec\.InterleaveSampler"):
        TFRecordDatasetSampler("shards", bytes)
