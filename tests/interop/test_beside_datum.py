"""datum and our version, compared check by check; differences/datum.toml lists the differences.

test_compat_datum.py tests that the results are the same.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from beside import Check, listed, named, outcome, same
from datum.configs import DatasetConfigs
from datum.reader import load
from datum.serializer.serializer import serialize_datum
from datum.utils import shard_utils
from datum.writer.tfrecord_writer import TFRecordWriter

from asyncrec import blocking
from asyncrec._datasets.from_generator import publishing as sizing
from asyncrec._shards.writing import ordered_writer
from asyncrec.compat import datum as ours

theirs = SimpleNamespace(
    TFRecordWriter=TFRecordWriter,
    DatasetConfigs=DatasetConfigs,
    load=load,
    shard_count=shard_utils._get_number_shards,
    boundaries=shard_utils._get_shard_boundaries,
)
mine = SimpleNamespace(
    TFRecordWriter=ours.TFRecordWriter,
    DatasetConfigs=ours.DatasetConfigs,
    load=ours.load,
    shard_count=sizing.shard_count,
    boundaries=lambda records, shards: ordered_writer.shard_boundaries(records, shards)[1:],
)
CHECKS: dict[str, Check] = {}


def check(name: str) -> Any:
    def add(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return add


def write(
    module: Any, path: Path, examples: Any, split: str = "train", serializer: Any = serialize_datum, **k: Any
) -> Any:
    writer = module.TFRecordWriter(lambda split: iter(list(enumerate(examples))), serializer, str(path), split, 1, **k)
    writer.create_records()
    return writer


def mapping(path: Path) -> Any:
    return json.loads((path / "datum_to_type_and_shape_mapping.json").read_text())


def made(name: str, *examples: dict[str, Any], **options: Any) -> None:
    """Register a check of the mapping and the records that a writer writes."""

    def function(module: Any, path: Path) -> Any:
        write(module, path, examples, **options)
        records = blocking.read_records(path / "train-00000-of-00001.tfrecord")
        return mapping(path), [record if record == b"x" else tf.train.Example.FromString(record) for record in records]

    CHECKS[name] = function


def read(name: str, *examples: dict[str, Any], sparse: list[str] | None = None, **configured: Any) -> None:
    """Register a check of the reader's results for the writer's output."""

    def function(module: Any, path: Path) -> Any:
        write(module, path, examples, "val", sparse_features=sparse)
        configs = module.DatasetConfigs()
        for key, value in configured.items():
            setattr(configs, key, value)
        batches = list(module.load(str(path), configs).val_fn())
        return [{key: value.numpy().tolist() for key, value in batch.items()} for batch in batches]

    CHECKS[name] = function


def part(name: str, text: str) -> None:
    def function(module: Any, path: Path) -> Any:
        write(module, path, [{"n": n} for n in range(50)])
        return [batch["n"].numpy().tolist() for batch in module.load(str(path)).val_fn(text)]

    CHECKS[name] = function


made("numbers and text", {"i": 1, "b": True, "f": 0.5, "s": "text", "r": b"raw", "v": [1, 2], "m": [[1.5], [2.5]]})
made("arrays of several sizes", {"m": [[1, 2]]}, {"m": [[1, 2], [3, 4]]}, sparse_features=["m"])
made("lengths that differ", {"v": [1, 2, 3]}, {"v": [1]})
made("a feature that an example lacks", {"a": 1, "b": 2}, {"a": 1})
made("types that differ", {"a": 1}, {"a": 0.5})
made("no examples")
made("text like an image's name", {"name": "missing.png"})
made("records that are not Examples", {"n": 1}, serializer=lambda datum: b"x")
made("a serializer that gives text", {"n": 1}, serializer=lambda datum: "x")
read("a list of texts", {"words": ["a", "b"]})
read("text of two axes", {"words": [["a", "b"], ["c", "d"]]})
read("sizes that differ in a batch", {"v": [1]}, {"v": [1, 2]}, sparse=["v"])
read("sizes that differ, padded", {"v": [1]}, {"v": [1, 2]}, sparse=["v"], use_datum_padding=True)
read("TensorFlow's padding", {"v": [1]}, {"v": [1, 2]}, sparse=["v"], use_tf_padding=True)
read("arrays one by one", {"m": [[1, 2]]}, {"m": [[1, 2], [3, 4]]}, sparse=["m"], batch_size_val=1)
read("a cache", {"n": 1}, cache=True)
read("batches by length", {"v": [1]}, {"v": [1, 2]}, sparse=["v"], bucket_fn=lambda example: tf.size(example["v"]))
read("an unknown configuration", {"n": 1}, nothing=1)
read("a configuration of another type", {"n": 1}, buffer_size="1")
for text in ("train[:50%]", "train[10:-10]", "train[-5:]+train[:5]", "train[5%]", "train[:10", "train[:99]", "nothing",
             "train[0:0]", "train[33%:66%]"):  # fmt: skip
    part(f"the part {text}", text)
part("blanks in a part", " train[:5] + train[9:] ")
part("a part that ends before it begins", "train[20:10]")
for name, split in (("a blank", "x y"), ("beyond ASCII", "é")):

    @check(f"a split's name {'with ' if name == 'a blank' else ''}{name}")
    def split_name(module: Any, path: Path, split: str = split) -> Any:
        return bool(write(module, path, [{"n": 1}], split))


@check("a split without a name")
def no_name(module: Any, path: Path) -> Any:
    return bool(write(module, path, [{"n": 1}], ""))


@check("a split written again")
def again(module: Any, path: Path) -> Any:
    for count in (2, 3):
        write(module, path, [{"n": n} for n in range(count)])
    return json.loads((path / "shard_info.json").read_text())


@check("create_records twice")
def twice(module: Any, path: Path) -> Any:
    return write(module, path, [{"n": 1}]).create_records()


@check("a missing folder")
def missing_folder(module: Any, path: Path) -> Any:
    return bool(write(module, path / "deeper", [{"n": 1}]))


@check("the folder")
def folder(module: Any, path: Path) -> Any:
    write(module, path / "", [{"n": 1}])
    return sorted(os.listdir(path))


@check("a folder to load that is none")
def load_nothing(module: Any, path: Path) -> Any:
    return module.load(str(path / "nothing"))


@check("keywords of configurations")
def keywords(module: Any, path: Path) -> Any:
    return module.DatasetConfigs(batch_size_val=3).batch_size_val


@check("a key that comes twice")
def duplicate(module: Any, path: Path) -> Any:
    examples = [("a", {"n": 1}), ("a", {"n": 2})]
    module.TFRecordWriter(lambda split: iter(examples), serialize_datum, str(path), "train", 2).create_records()


@check("flush before cache_records")
def flush_first(module: Any, path: Path) -> Any:
    module.TFRecordWriter(lambda split: iter([]), serialize_datum, str(path), "train", 2).flush()


@check("the generator's thread")
def thread(module: Any, path: Path) -> Any:
    database = sqlite3.connect(":memory:")

    def rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for (n,) in database.execute("select 1"):
            yield n, {"main": threading.current_thread() is threading.main_thread()}

    module.TFRecordWriter(rows, serialize_datum, str(path), "train", 1).create_records()
    return [batch["main"].numpy().tolist() for batch in module.load(str(path)).val_fn("train")]


@check("what flush_records returns")
def returned(module: Any, path: Path) -> Any:
    write(module, path, [{"n": 1}], "val")
    writer = module.TFRecordWriter(lambda split: iter([(1, {"n": 1})]), serialize_datum, str(path), "train", 1)
    writer.cache_records()
    return writer.flush_records()


@check("what stands in the generator's dict")
def shapes(module: Any, path: Path) -> Any:
    datum = {"m": np.zeros((2, 3))}
    write(module, path, [datum], sparse_features=["m"])
    return sorted(datum), datum["m_shape"]


@check("few large examples")
def large(module: Any, path: Path) -> Any:
    return [module.shard_count(size << 20, 3) for size in (1 << 10, 2 << 10, 3 << 10, 5 << 10)]


@check("boundaries of shards")
def boundaries(module: Any, path: Path) -> Any:
    return [
        module.boundaries(records, shards) for shards in (2, 8, 512, 3072) for records in range(shards, shards + 99)
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_datum_comparison_differs_only_as_listed(name: str, tmp_path: Path) -> None:
    original, here = outcome(CHECKS[name], theirs, tmp_path / "theirs"), outcome(CHECKS[name], mine, tmp_path / "ours")
    assert same(original, here) == (name not in named("datum")), f"{original!r} there, {here!r} here"


def test_listed_differences_name_existing_checks() -> None:
    assert named("datum") <= CHECKS.keys()
    assert len(CHECKS) == listed("datum")["compared"]
