"""`asyncrec.compat.tfsimilarity` has the documented defaults and tf.data's order, and a Keras model trains on it."""

from __future__ import annotations

import inspect
import json
import os
import resource
import socket
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
    """Deserialize as TensorFlow's users do; the function is traced, so it receives a tensor rather than bytes."""
    assert tf.is_tensor(record)
    features = {"image": tf.io.FixedLenFeature((4,), tf.float32), "label": tf.io.FixedLenFeature((), tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return example["image"], example["label"]


def label_of(record: bytes) -> int:
    return int(LABEL.decode(record)["label"])


def write_shards(folder: Path, lengths: list[int], compression: str = "") -> None:
    """Write shards so that shard i contains only examples of class i."""
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


# -- examples from the documentation ----------------------------------------------------------------------------------


def test_parameters_and_defaults_match_documentation() -> None:
    parameters = inspect.signature(TFRecordDatasetSampler).parameters.values()
    shown = {each.name: each.default for each in parameters if each.kind is not each.KEYWORD_ONLY}
    required = inspect.Parameter.empty
    assert shown == {
        "shard_path": required, "deserialization_fn": required, "example_per_class": 2, "batch_size": 32,
        "shards_per_cycle": None, "compression": None, "parallelism": tf.data.AUTOTUNE, "async_cycle": False,
        "prefetch_size": None, "shard_suffix": "*.tfrec", "num_repeat": -1,
    }  # fmt: skip


def test_sampler_is_endless_dataset_of_deserialized_batches(shards: str) -> None:
    dataset = TFRecordDatasetSampler(shards, deserialize)
    assert isinstance(dataset, tf.data.Dataset)
    image, label = dataset.element_spec
    assert (image.shape.as_list(), image.dtype, label.shape.as_list()) == ([None, 4], tf.float32, [None])
    assert [len(batch) for batch in labels(dataset, 30)] == [32] * 30  # endless: the 320 records make 10 batches


def test_sampler_reads_stores_and_extra_arguments_without_tf_data(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores are those that TensorFlow does not support, and the arguments are our own."""
    for path in Path(shards).iterdir():
        blocking.write_records(f"memory://of-similarity/shards/{path.name}", blocking.read_records(path))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("tf.data was asked to read")

    monkeypatch.setattr(tf.data, "TFRecordDataset", refuse)
    for path, options in (
        ("memory://of-similarity/shards", {}),
        (shards, {"seed": 1}),
        (shards, {"class_fn": label_of}),
    ):
        assert len(labels(TFRecordDatasetSampler(path, deserialize, batch_size=16, num_repeat=1, **options))) == 20


# -- a model ----------------------------------------------------------------------------------------------------------


def test_keras_model_trains_for_one_epoch(shards: str) -> None:
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


def test_examples_alternate_between_shards_in_class_blocks(shards: str) -> None:
    for batch in labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=1, seed=3)):
        pairs = [tuple(batch[at : at + 2]) for at in range(0, 32, 2)]
        assert all(one == other for one, other in pairs)
        assert Counter(batch) == dict.fromkeys(range(CLASSES), 4)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_files_must_match_compression_argument(tmp_path: Path, compression: str) -> None:
    write_shards(tmp_path, [10, 10], compression)
    dataset = TFRecordDatasetSampler(str(tmp_path), deserialize, compression=compression, num_repeat=2)
    assert sum(map(len, labels(dataset))) == 40
    with pytest.raises(tf.errors.DataLossError):
        labels(TFRecordDatasetSampler(str(tmp_path), deserialize, num_repeat=1))
    with pytest.raises(tf.errors.OpError, match="CorruptRecordError"):
        labels(TFRecordDatasetSampler(str(tmp_path), deserialize, num_repeat=1, seed=1))


def test_performance_options_do_not_change_records(shards: str) -> None:
    for options in ({"async_cycle": True}, {"parallelism": 2, "prefetch_size": 1}, {"shards_per_cycle": 3}):
        found = labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=1, **options))
        assert Counter(label for batch in found for label in batch) == dict.fromkeys(range(CLASSES), 40)


def test_shards_with_other_suffix_are_ignored(tmp_path: Path) -> None:
    write_shards(tmp_path, [10])
    (tmp_path / "shard-000.tfrec").rename(tmp_path / "shard-000.tfrecord")
    with pytest.raises(tf.errors.InvalidArgumentError, match="no shard matches"):
        TFRecordDatasetSampler(str(tmp_path), deserialize)
    found = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, shard_suffix="*.tfrecord", num_repeat=1))
    assert found == [[0] * 10]


def test_invalid_numbers_are_rejected_at_once(shards: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Batch size must be greater than zero"):
        TFRecordDatasetSampler(shards, deserialize, batch_size=0)
    with pytest.raises(ValueError, match="example_per_class"):
        TFRecordDatasetSampler(shards, deserialize, example_per_class=64, class_fn=label_of)


# -- TensorFlow Similarity's bugs -------------------------------------------------------------------------------------


def test_batch_classes_are_balanced_despite_mixed_shards(tmp_path: Path) -> None:
    """In TensorFlow Similarity, a batch has the classes that the shards happen to contain."""
    for shard in range(3):
        records = [asyncrec.encode_example({"image": [0.0] * 4, "label": n * 7 % CLASSES}) for n in range(400)]
        blocking.write_records(tmp_path / f"{shard}.tfrec", records)
    dataset = TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, class_fn=label_of, seed=0)
    for batch in labels(dataset, 50):
        assert sorted(Counter(batch).values()) == [2, 2, 2, 2]


def test_unequal_shards_leave_no_single_class_tail(tmp_path: Path) -> None:
    """In TensorFlow Similarity, the last batches contained only the class of the longest shard."""
    write_shards(tmp_path, [10, 10, 10, 200])
    plain = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, num_repeat=1))
    assert set(plain[-1]) == {3}
    balanced = labels(TFRecordDatasetSampler(str(tmp_path), deserialize, batch_size=8, num_repeat=1, class_fn=label_of))
    assert all(Counter(batch) == {0: 2, 1: 2, 2: 2, 3: 2} for batch in balanced)
    assert len(balanced) == 5


def test_shard_order_depends_on_seed(shards: str) -> None:
    """TensorFlow Similarity did not accept a seed."""
    found = [labels(TFRecordDatasetSampler(shards, deserialize, num_repeat=2, seed=seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_shards_beyond_open_file_limit_are_read(tmp_path: Path) -> None:
    """TensorFlow Similarity warns: "Can cause segv if too many shards". With a seed, our code reads the shards."""
    write_shards(tmp_path, [2] * 600)
    program = f"""
import resource, sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from test_compat_tfsimilarity import TFRecordDatasetSampler, deserialize, labels
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}))
found = labels(TFRecordDatasetSampler({str(tmp_path)!r}, deserialize, num_repeat=1, seed=0))
assert sorted(label for batch in found for label in batch) == sorted(list(range(600)) * 2)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# -- use as a tf.data.Dataset ------------------------------------------------------------------------------------------


def numbered(folder: Path, shards: int = 8, each: int = 10) -> str:
    for shard in range(shards):
        records = [b"%d" % (shard * each + number) for number in range(each)]
        blocking.write_records(folder / f"{shard}.tfrec", records)
    return str(folder)


def to_number(record: Any) -> Any:
    return tf.strings.to_number(record, tf.int64)


def numbers(dataset: Any) -> list[int]:
    return [number for batch in dataset for number in batch.numpy().tolist()]


def test_upstream_test_passes(tmp_path: Path) -> None:
    """TensorFlow Similarity's only test of the sampler: 10,000 batches of pairs from 100 shards of 1,000 records."""
    for sid in range(100):
        examples = [asyncrec.encode_example({"sid": sid, "value": sid * 1000 + value}) for value in range(1000)]
        blocking.write_records(tmp_path / f"tfr_{sid}.tfrec", examples)
    features = {name: tf.io.FixedLenFeature([], tf.int64) for name in ("sid", "value")}

    def deserialization_fn(record: Any) -> Any:
        sample = tf.io.parse_single_example(record, features)
        return sample["sid"], sample["value"]

    sampler = TFRecordDatasetSampler(
        str(tmp_path), deserialization_fn=deserialization_fn, batch_size=10, example_per_class=2
    )
    (sids, values), *_ = sampler.skip(10_000).take(1)
    assert len(sids) == 10
    assert sids[::2].numpy().tolist() == sids[1::2].numpy().tolist()
    assert all(0 <= value - sid * 1000 < 1000 for sid, value in zip(sids.numpy(), values.numpy(), strict=True))


@pytest.mark.parametrize("options", [{}, {"async_cycle": True}, {"shards_per_cycle": 2}, {"seed": 3}])
def test_workers_share_records_without_overlap(tmp_path: Path, options: dict[str, Any]) -> None:
    """A strategy's default policy shards by file where tf.data reads, and by batch otherwise."""
    from tensorflow.python.data.experimental.ops import distribute

    path = numbered(tmp_path)
    shares = [
        numbers(
            distribute._AutoShardDataset(TFRecordDatasetSampler(path, to_number, num_repeat=1, **options), 2, worker)
        )
        for worker in range(2)
    ]
    assert sorted(shares[0] + shares[1]) == list(range(80))
    assert all(len(share) >= 16 for share in shares)


WORKER = """
import json, os, sys
import tensorflow as tf
from asyncrec import blocking
from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler

path, store = sys.argv[1:]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
if store == "memory":
    for name in os.listdir(path):
        blocking.write_records(f"memory://of-workers/shards/{name}", blocking.read_records(os.path.join(path, name)))
    path = "memory://of-workers/shards"
to_number = lambda record: tf.strings.to_number(record, tf.int64)
dataset = TFRecordDatasetSampler(path, to_number, batch_size=4, num_repeat=1)
found = []
for batch in strategy.experimental_distribute_dataset(dataset):
    found += [int(n) for part in strategy.experimental_local_results(batch) for n in part.numpy()]
print(json.dumps(found))
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["local", "memory"])
def test_two_processes_get_every_record_once(tmp_path: Path, store: str) -> None:
    """Uses MultiWorkerMirroredStrategy, also with a store that TensorFlow does not support and without a seed."""
    path = numbered(tmp_path)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    workers = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", WORKER, path, store]
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    shares = [json.loads(worker.communicate(timeout=200)[0].splitlines()[-1]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(shares[0] + shares[1]) == list(range(80))


@pytest.mark.parametrize("set_seed", [tf.random.set_seed, keras.utils.set_random_seed])
@pytest.mark.parametrize("memory", [False, True])
def test_global_tensorflow_seed_determines_order(tmp_path: Path, set_seed: Any, memory: bool) -> None:
    path = numbered(tmp_path)
    if memory:
        path = "memory://of-seeds/shards"
        for file in tmp_path.iterdir():
            blocking.write_records(f"{path}/{file.name}", blocking.read_records(file))
    found = []
    for seed in (7, 7, 8):
        set_seed(seed)
        dataset = TFRecordDatasetSampler(path, to_number, num_repeat=2)
        found.append((numbers(dataset), numbers(dataset)))
    assert found[0] == found[1] != found[2]
    assert found[0][0] != found[0][1]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"num_repeat": 0}, []),
        ({"num_repeat": 1, "prefetch_size": -1}, [32, 32, 16]),
        ({"num_repeat": 1, "prefetch_size": 0}, [32, 32, 16]),
        ({"num_repeat": 1, "shards_per_cycle": 0}, [32, 32, 16]),
        ({"num_repeat": 1, "example_per_class": 64}, [32, 32, 16]),
        ({"num_repeat": 1, "example_per_class": 8, "batch_size": 3}, [3] * 26 + [2]),
    ],
)
@pytest.mark.parametrize("seed", [None, 1])
def test_unusual_numbers_have_documented_meaning(
    tmp_path: Path, options: dict[str, Any], batches: list[int], seed: int | None
) -> None:
    """This holds whether tf.data or our own code reads."""
    dataset = TFRecordDatasetSampler(numbered(tmp_path), to_number, seed=seed, **options)
    found = [batch.numpy().tolist() for batch in dataset]
    assert [len(batch) for batch in found] == batches
    per_class = options.get("example_per_class", 2)
    order = [number // 10 for batch in found for number in batch][:per_class]
    assert len({*order[:10]}) <= 1


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("num_repeat", [-1, None])
def test_endless_sampler_reports_infinite_cardinality(tmp_path: Path, num_repeat: int | None, seed: int | None) -> None:
    """Keras requires steps_per_epoch, because without it, the epoch would never end."""
    dataset = TFRecordDatasetSampler(numbered(tmp_path), to_number, num_repeat=num_repeat, seed=seed)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert len(numbers(dataset.take(6))) == 192


def test_iterator_continues_from_checkpoint(tmp_path: Path) -> None:
    tf.random.set_seed(5)
    iterator = iter(TFRecordDatasetSampler(numbered(tmp_path / "shards"), to_number, batch_size=4))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    for _ in range(7):
        next(iterator)
    saved = checkpoint.save(str(tmp_path / "checkpoint"))
    expected = [next(iterator).numpy().tolist() for _ in range(20)]
    checkpoint.restore(saved)
    assert [next(iterator).numpy().tolist() for _ in range(20)] == expected


def test_damage_raises_data_loss_error(tmp_path: Path) -> None:
    path = numbered(tmp_path)
    shard = tmp_path / "3.tfrec"
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    for content in (data, data[:30]):
        shard.write_bytes(content)
        with pytest.raises(tf.errors.DataLossError):
            numbers(TFRecordDatasetSampler(path, to_number, num_repeat=1))


def test_patterns_match_like_tensorflow_globs(tmp_path: Path) -> None:
    for name in ("a.tfrec", "b.tfrec", "_u.tfrec", ".h.tfrec", "sub/f.tfrec"):
        blocking.write_records(tmp_path / name, [name.encode()])
    (tmp_path / ".a.tfrec.0123abcd.partial").write_bytes(b"of a writer that has not finished")

    def found(path: Path | str, pattern: str) -> list[str]:
        dataset = TFRecordDatasetSampler(path, lambda record: record, shard_suffix=pattern, num_repeat=1)
        return sorted(name.decode() for batch in dataset for name in batch.numpy())

    assert found(tmp_path, "*.tfrec") == [".h.tfrec", "_u.tfrec", "a.tfrec", "b.tfrec"]
    assert found(tmp_path, "*.tfrec*") == [".h.tfrec", "_u.tfrec", "a.tfrec", "b.tfrec"]
    assert found(tmp_path, "[ab].tfrec") == ["a.tfrec", "b.tfrec"]
    assert found(tmp_path, "*/*.tfrec") == ["sub/f.tfrec"]
    assert found(f"{tmp_path}/s*", "*.tfrec") == ["sub/f.tfrec"]
