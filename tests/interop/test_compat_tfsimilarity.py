"""`asyncrec.compat.tfsimilarity`: the document's defaults, tf.data's order, and a Keras model that trains on it."""

from __future__ import annotations

import inspect
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import asyncrec
from asyncrec import blocking
from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler

CLASSES = 8
LABEL = asyncrec.Schema({"label": asyncrec.FixedLen((), "int64")}, allow_extra=True)


def deserialize(record: Any) -> Any:
    """As users of TensorFlow write it: traced, not run, so it sees a tensor and no bytes."""
    assert tf.is_tensor(record)
    features = {
        "image": tf.io.FixedLenFeature((4,), tf.float32),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return example["image"], example["label"]


def label_of(record: bytes) -> int:
    return int(LABEL.decode(record)["label"])


def write_shards(folder: Path, lengths: list[int], compression: str = "") -> None:
    """Shard i has examples of class i alone."""
    for label, length in enumerate(lengths):
        records = [
            asyncrec.encode_example({"image": [float(label), 1.0, 0.0, number / 100], "label": label})
            for number in range(length)
        ]
        blocking.write_records(folder / f"shard-{label:03d}.tfrec", records, compression=compression)


@pytest.fixture
def shards(tmp_path: Path) -> str:
    write_shards(tmp_path, [40] * CLASSES)
    return str(tmp_path)


def labels(dataset: Any, batches: int | None = None) -> list[list[int]]:
    taken = dataset if batches is None else dataset.take(batches)
    return [label.numpy().tolist() for _, label in taken]


# -- what the document shows ------------------------------------------------------------------------------------------


def test_the_parameters_and_their_defaults_are_the_documents() -> None:
    parameters = inspect.signature(TFRecordDatasetSampler).parameters.values()
    shown = {each.name: each.default for each in parameters if each.kind is not each.KEYWORD_ONLY}
    required = inspect.Parameter.empty
    assert shown == {
        "shard_path": required, "deserialization_fn": required, "example_per_class": 2, "batch_size": 32,
        "shards_per_cycle": None, "compression": None, "parallelism": tf.data.AUTOTUNE, "async_cycle": False,
        "prefetch_size": None, "shard_suffix": "*.tfrec", "num_repeat": -1,
    }  # fmt: skip


def test_it_is_a_dataset_of_what_the_function_gives(shards: str) -> None:
    dataset = TFRecordDatasetSampler(shards, deserialize)
    assert isinstance(dataset, tf.data.Dataset)
    image, label = dataset.element_spec
    assert (image.shape.as_list(), image.dtype, label.shape.as_list()) == ([None, 4], tf.float32, [None])
    assert [len(batch) for batch in labels(dataset, 30)] == [32] * 30  # for ever: 320 records are 10 batches


def test_tensorflow_reads_no_shard_itself(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("tf.data was asked to read")

    monkeypatch.setattr(tf.data, "TFRecordDataset", refuse)
    monkeypatch.setattr(tf.data.Dataset, "interleave", refuse)
    assert len(labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=1))) == 10


# -- a model ----------------------------------------------------------------------------------------------------------


def test_a_keras_model_trains_on_it_for_an_epoch(shards: str) -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    one_pass = TFRecordDatasetSampler(shards, deserialize, num_repeat=1, seed=1)
    seen = model.fit(one_pass, epochs=1, verbose=0)
    assert len(seen.history["loss"]) == 1
    for_ever = TFRecordDatasetSampler(shards, deserialize, class_fn=label_of, batch_size=16, seed=1)
    seen = model.fit(for_ever, steps_per_epoch=100, epochs=2, verbose=0)
    assert seen.history["loss"][-1] < seen.history["loss"][0]
    assert seen.history["accuracy"][-1] > 0.5


# -- its parameters ---------------------------------------------------------------------------------------------------


def test_examples_come_in_blocks_of_a_class_from_each_shard_in_turn(shards: str) -> None:
    for batch in labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=1, seed=3)):
        pairs = [tuple(batch[at : at + 2]) for at in range(0, 32, 2)]
        assert all(one == other for one, other in pairs)
        assert Counter(batch) == dict.fromkeys(range(CLASSES), 4)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compression_is_as_told(tmp_path: Path, compression: str) -> None:
    write_shards(tmp_path, [10, 10], compression)
    dataset = TFRecordDatasetSampler(str(tmp_path), deserialize, compression=compression, num_repeat=2)
    assert sum(map(len, labels(dataset))) == 40
    with pytest.raises(tf.errors.OpError, match="CorruptRecordError"):
        labels(TFRecordDatasetSampler(str(tmp_path), deserialize, num_repeat=1))


def test_other_options_change_no_record(shards: str) -> None:
    for options in ({"async_cycle": True}, {"parallelism": 2, "prefetch_size": 1}, {"shards_per_cycle": 3}):
        found = labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=1, **options))
        assert Counter(label for batch in found for label in batch) == dict.fromkeys(range(CLASSES), 40)


def test_shards_of_another_suffix_are_none_of_it(tmp_path: Path) -> None:
    write_shards(tmp_path, [10])
    (tmp_path / "shard-000.tfrec").rename(tmp_path / "shard-000.tfrecord")
    with pytest.raises(tf.errors.OpError, match="no shard matches"):
        labels(TFRecordDatasetSampler(str(tmp_path), deserialize, num_repeat=1))
    found = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, shard_suffix="*.tfrecord", num_repeat=1))
    assert found == [[0] * 10]


def test_numbers_that_cannot_be_are_told_at_once(shards: str) -> None:
    with pytest.raises(ValueError, match="example_per_class"):
        TFRecordDatasetSampler(shards, deserialize, example_per_class=64)


# -- its faults -------------------------------------------------------------------------------------------------------


def test_the_classes_of_a_batch_are_distinct_though_shards_mix_them(tmp_path: Path) -> None:
    """TensorFlow Similarity has a batch's classes be whatever the shards hold."""
    for shard in range(3):
        records = [asyncrec.encode_example({"image": [0.0] * 4, "label": n * 7 % CLASSES}) for n in range(400)]
        blocking.write_records(tmp_path / f"{shard}.tfrec", records)
    dataset = TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, class_fn=label_of, seed=0)
    for batch in labels(dataset, 50):
        assert sorted(Counter(batch).values()) == [2, 2, 2, 2]


def test_shards_of_unequal_length_leave_no_tail_of_a_single_class(tmp_path: Path) -> None:
    """There, the longest shard's class filled the last batches alone."""
    write_shards(tmp_path, [10, 10, 10, 200])
    plain = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, num_repeat=1))
    assert set(plain[-1]) == {3}
    balanced = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, num_repeat=1, class_fn=label_of))
    assert all(Counter(batch) == {0: 2, 1: 2, 2: 2, 3: 2} for batch in balanced)
    assert len(balanced) == 5


def test_the_order_of_the_shards_has_a_seed(shards: str) -> None:
    """There, it had none."""
    found = [labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=2, seed=seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_more_shards_than_files_may_be_open_are_no_crash(tmp_path: Path) -> None:
    """Its document warns: "Can cause segv if too many shards"."""
    write_shards(tmp_path, [2] * 600)
    program = f"""
import resource, sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from test_compat_tfsimilarity import TFRecordDatasetSampler, deserialize, labels
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}))
found = labels(TFRecordDatasetSampler({str(tmp_path)!r}, deserialize, num_repeat=1))
assert sorted(label for batch in found for label in batch) == sorted(list(range(600)) * 2)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
