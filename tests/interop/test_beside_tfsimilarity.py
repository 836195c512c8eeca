"""TensorFlow Similarity's sampler and ours, compared check by check; see `differences/tfsimilarity.toml`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from beside import Check, listed, named, outcome, same
from originals import similarity_wheel

from asyncrec import blocking
from asyncrec.compat import tfsimilarity as ours

CHECKS: dict[str, Check] = {}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    package = similarity_wheel(tmp_path_factory.mktemp("wheel"))
    spec = importlib.util.spec_from_file_location("sampler", package / "samplers" / "tfrecords_samplers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def sampler(*args: Any, seed: int | None = None, **kwargs: Any) -> Any:  # its sampler has no seed
        return module.TFRecordDatasetSampler(*args, **kwargs)

    return SimpleNamespace(TFRecordDatasetSampler=sampler)


def write(path: Path, names: list[str] | None = None) -> Path:
    for number, name in enumerate(names or [f"{shard}.tfrec" for shard in range(6)]):
        blocking.write_records(path / name, [b"%d" % (number * 10 + record) for record in range(5 + number)])
    return path


def numbers(dataset: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in dataset]


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(number for batch in batches for number in batch)


def drawn(**options: Any) -> Check:
    """Return a check of the batches of two iterations after setting TensorFlow's seed.

    An endless data set is iterated only once, because its second iteration depends on how much was drawn ahead.
    """

    def check(module: Any, path: Path) -> Any:
        write(path)
        tf.random.set_seed(11)
        dataset = module.TFRecordDatasetSampler(str(path), to_number, **{"num_repeat": 2, "batch_size": 4, **options})
        iterations = 1 if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY else 2
        return [numbers(dataset.take(40)) for _ in range(iterations)], int(dataset.cardinality()), dataset.element_spec

    return check


def to_number(record: Any) -> Any:
    return tf.strings.to_number(record, tf.int64)


for options in (
    {}, {"num_repeat": -1}, {"num_repeat": None}, {"num_repeat": 0}, {"num_repeat": -5}, {"prefetch_size": -1},
    {"prefetch_size": -2}, {"prefetch_size": 0}, {"prefetch_size": 3}, {"shards_per_cycle": 2}, {"shards_per_cycle": 0},
    {"shards_per_cycle": -1}, {"shards_per_cycle": -3}, {"shards_per_cycle": 40}, {"example_per_class": 0},
    {"example_per_class": 3}, {"example_per_class": 9}, {"batch_size": 0}, {"batch_size": -1}, {"batch_size": 1000},
    {"async_cycle": True}, {"async_cycle": True, "shards_per_cycle": 3}, {"parallelism": 1}, {"parallelism": 4},
    {"parallelism": None}, {"compression": ""}, {"compression": "GZIP"}, {"compression": "LZ4"},
    {"shard_suffix": "[12].tfrec"}, {"shard_suffix": "?.tfrec"}, {"shard_suffix": "*.nothing"},
):  # fmt: skip
    CHECKS[f"drawn with {options}"] = drawn(**options)


def check(name: str) -> Any:
    def add(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return add


for kind in ("", "a seed: "):
    extra = {"seed": 1} if kind else {}

    @check(f"{kind}damage")
    def damage(module: Any, path: Path, extra: dict[str, Any] = extra) -> Any:
        shard = write(path) / "1.tfrec"
        shard.write_bytes(shard.read_bytes()[:-3])
        return numbers(module.TFRecordDatasetSampler(str(path), to_number, num_repeat=1, **extra))

    @check(f"{kind}other folders")
    def other_folders(module: Any, path: Path, extra: dict[str, Any] = extra) -> Any:
        write(path, ["a.tfrec", "b/c.tfrec"])
        dataset = module.TFRecordDatasetSampler(str(path), to_number, num_repeat=1, shard_suffix="*/*.tfrec", **extra)
        return numbers(dataset)

    @check(f"{kind}hidden names")
    def hidden_names(module: Any, path: Path, extra: dict[str, Any] = extra) -> Any:
        write(path, ["a.tfrec", "_b.tfrec", ".c.tfrec"])
        return flat(numbers(module.TFRecordDatasetSampler(str(path), to_number, num_repeat=1, **extra)))

    @check(f"{kind}a checkpoint")
    def checkpoint(module: Any, path: Path, extra: dict[str, Any] = extra) -> Any:
        iterator = iter(module.TFRecordDatasetSampler(str(write(path)), to_number, batch_size=4, **extra))
        return bool(tf.train.Checkpoint(iterator=iterator).save(str(path / "checkpoint")))

    @check(f"{kind}no shards")
    def no_shards(module: Any, path: Path, extra: dict[str, Any] = extra) -> Any:
        return bool(module.TFRecordDatasetSampler(str(path), to_number)) and bool(extra)


@check("an unfinished file")
def unfinished(module: Any, path: Path) -> Any:
    (path / ".6.tfrec.01234567.partial").write_bytes((write(path) / "5.tfrec").read_bytes())
    return flat(numbers(module.TFRecordDatasetSampler(str(path), to_number, num_repeat=1, shard_suffix="*.tfrec*")))


@check("a store that TensorFlow does not read")
def another_store(module: Any, path: Path) -> Any:
    blocking.write_records("memory://beside/shards/0.tfrec", [b"1", b"2"])
    return numbers(module.TFRecordDatasetSampler("memory://beside/shards", to_number, num_repeat=1))


@check("an error of the function")
def an_error(module: Any, path: Path) -> Any:
    return module.TFRecordDatasetSampler(str(write(path)), lambda record: 1 // 0)


@check("in a function of TensorFlow's, serialised, saved")
def in_a_graph(module: Any, path: Path) -> Any:
    dataset = module.TFRecordDatasetSampler(str(write(path)), to_number, num_repeat=1)

    @tf.function
    def total() -> Any:
        return dataset.unbatch().reduce(tf.constant(0, tf.int64), lambda before, number: before + number)

    dataset.save(str(path / "saved"))
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, external_state_policy=2)
    return int(total()), sum(map(len, numbers(tf.data.Dataset.load(str(path / "saved"))))), bool(len(graph.numpy()))


@pytest.mark.parametrize("name", CHECKS)
def test_tfsimilarity_comparison_differs_only_as_listed(theirs: Any, name: str, tmp_path: Path) -> None:
    original = outcome(CHECKS[name], theirs, tmp_path / "theirs")
    mine = outcome(CHECKS[name], ours, tmp_path / "ours")
    assert same(original, mine) == (name not in named("tfsimilarity")), f"{original!r} there, {mine!r} here"


def test_listed_differences_name_existing_checks() -> None:
    assert named("tfsimilarity") <= CHECKS.keys()
    assert len(CHECKS) == listed("tfsimilarity")["compared"]
