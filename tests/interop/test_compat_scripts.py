"""Scripts for the original libraries run with only the import changed, and produce the same files and output.

The scripts are datum's own command and export, the reading code in its README, and TensorFlow Similarity's sampler as
used in its test and its documentation.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from asyncrec import blocking

# Test modules are imported by path, but helper modules are imported by name.
sys.path.insert(0, str(Path(__file__).parent))

from originals import datum_source, make_data, similarity_wheel

WRITER = ("from datum.writer.tfrecord_writer import", "from asyncrec.compat.datum import")


@pytest.fixture(scope="module")
def datum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = datum_source(tmp_path_factory.mktemp("datum"))
    make_data(source / "tests" / "dummy_data")
    texts = {n: {"text": f"text {n}", "label": {"polarity": n, "question": "why?"}} for n in range(5)}
    (source / "tests" / "dummy_data" / "text").mkdir()
    (source / "tests" / "dummy_data" / "text" / "test.json").write_text(json.dumps(texts))
    (source / "datum").rename(source / "its")  # so that the installed package is used
    return source


def run(script: Path, cwd: Path, *arguments: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def changed(script: Path, into: Path, *imports: tuple[str, str]) -> Path:
    text = script.read_text()
    for old, new in imports:
        assert text.count(old) == 1
        text = text.replace(old, new)
    into.write_text(text)
    return into


def contents(folder: Path) -> dict[str, Any]:
    """Return datum's output, parsed, because protobuf writes a map in any order."""
    found: dict[str, Any] = {}
    for path in sorted(each for each in folder.iterdir() if each.is_file()):
        if path.suffix == ".json":
            found[path.name] = json.loads(path.read_text())
        else:
            found[path.name] = [tf.train.Example.FromString(record) for record in blocking.read_records(path)]
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("config", "data"), [("image_clf", "clf"), ("image_det", "det/voc"), ("text_json", "text")])
def test_datum_command_runs_with_sample_configurations(datum: Path, tmp_path: Path, config: str, data: str) -> None:
    script = datum / "its" / "create_tfrecord.py"
    for name, each in (("old", script), ("new", changed(script, tmp_path / "create_tfrecord.py", WRITER))):
        run(
            each,
            datum,
            f"--input_path=tests/dummy_data/{data}",
            f"--output_path={tmp_path / name}",
            f"--config_path=configs/{config}_configs.py",
        )
    old, new = contents(tmp_path / "old"), contents(tmp_path / "new")
    mapping = "datum_to_type_and_shape_mapping.json"
    if config == "image_det":  # datum's table lacks the number of boxes, so datum cannot read it
        assert {name: row["type"] for name, row in new.pop(mapping).items()} == {
            name: row["type"] for name, row in old.pop(mapping).items()
        }
    assert new == old
    assert sum(isinstance(each, list) for each in new.values()) == (1 if config == "text_json" else 2)


EXPORT = """
import sys
from datum.configs import TFRWriteConfigs
from datum.export.export import export_to_tfrecord
from datum.problem import types

input_path = "tests/dummy_data/clf"
output_path = sys.argv[1]

write_configs = TFRWriteConfigs()
write_configs.splits = {
    "train": {
        "num_examples": 2
    },
    "val": {
        "num_examples": 2
    },
}
export_to_tfrecord(input_path, output_path, types.IMAGE_CLF, write_configs)
"""

LOAD = """
import sys
import tensorflow as tf
from datum.reader import load

dataset = load(sys.argv[1])
train_dataset = dataset.train_fn("train", shuffle=True)
for batch in train_dataset:
    print({name: value.shape for name, value in batch.items()})

# Read config can be changed by accesing the dataset_configs attribute
dataset_configs = dataset.dataset_configs
dataset_configs.batch_size_train = 1

def resize(example):
    example["image"] = tf.image.resize(example["image"], [8, 8])
    return example

dataset_configs.pre_batching_callback_train = resize
dataset_configs.post_batching_callback_train = lambda examples: {**examples, "label_test2": -examples["label_test2"]}
dataset.dataset_configs = dataset_configs
for batch in dataset.train_fn("train+val", False):
    print({name: value.numpy().tolist() for name, value in batch.items()})
"""


@pytest.mark.timeout(300)
def test_readme_export_is_readable_by_both_libraries(datum: Path, tmp_path: Path) -> None:
    """The export imports its writer in datum's own script; each library's own code reads what either wrote."""
    export, load = tmp_path / "export.py", tmp_path / "load.py"
    export.write_text(EXPORT)
    load.write_text(LOAD)
    run(export, datum, str(tmp_path / "old"))
    ours = changed(datum / "its" / "export" / "export.py", tmp_path / "their_export.py", WRITER)
    script = changed(export, tmp_path / "new_export.py", ("from datum.export.export", f"from {ours.stem}"))
    run(script, datum, str(tmp_path / "new"))
    assert contents(tmp_path / "new") == contents(tmp_path / "old")
    script = changed(load, tmp_path / "new_load.py", ("from datum.reader import", "from asyncrec.compat.datum import"))
    printed = run(load, datum, str(tmp_path / "old"))
    assert printed.count("\n") == 2
    assert run(script, datum, str(tmp_path / "new")) == printed
    assert run(script, datum, str(tmp_path / "old")) == printed
    assert run(load, datum, str(tmp_path / "new")) == printed


SAMPLE = """
import os, sys
import tensorflow as tf
from tensorflow_similarity.samplers import TFRecordDatasetSampler

def to_tfrecord(sid, value):
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[each]))
        for name, each in (("sid", sid), ("value", value))
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

def deserialization_fn(serialized_example):
    fd = {
        "sid": tf.io.FixedLenFeature([], dtype=tf.int64),
        "value": tf.io.FixedLenFeature([], dtype=tf.int64),
    }
    sample = tf.io.parse_single_example(serialized_example, fd)
    return (sample["sid"], sample["value"])

os.makedirs(sys.argv[1])
for sid in range(20):
    with tf.io.TFRecordWriter(os.path.join(sys.argv[1], f"tfr_{sid}.tfrec")) as w:
        for value in range(30 + sid):
            w.write(to_tfrecord(sid, sid * 1000 + value))

for options in (
    dict(batch_size=10, example_per_class=2),
    dict(shards_per_cycle=5, num_repeat=2, batch_size=7),
    dict(example_per_class=4, async_cycle=True, prefetch_size=3, parallelism=2),
    dict(shard_suffix="*1*.tfrec", num_repeat=3),
):
    tf.random.set_seed(1234)
    sampler = TFRecordDatasetSampler(sys.argv[1], deserialization_fn=deserialization_fn, **options)
    print(sampler.element_spec, int(sampler.cardinality()))
    for sids, values in sampler.take(120):
        print(sids.numpy().tolist(), values.numpy().tolist())

tf.keras.utils.set_random_seed(3)
model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
sampler = TFRecordDatasetSampler(sys.argv[1], deserialization_fn, batch_size=16)
pairs = sampler.map(lambda sid, value: (tf.cast(sid, tf.float32)[:, None] / 20, tf.cast(sid, tf.float32) / 20))
print([f"{loss:.5f}" for loss in model.fit(pairs, steps_per_epoch=20, epochs=2, verbose=0).history["loss"]])
"""


@pytest.mark.timeout(300)
def test_tensorflow_similarity_sampler_draws_same_batches(tmp_path: Path) -> None:
    package = similarity_wheel(tmp_path / "wheel")
    spec = importlib.util.spec_from_file_location("sampler", package / "samplers" / "tfrecords_samplers.py")
    assert spec is not None
    assert spec.origin is not None
    # Only the module is used, because its package imports more than the sampler needs.
    (tmp_path / "tensorflow_similarity").mkdir()
    (tmp_path / "tensorflow_similarity" / "__init__.py").touch()
    (tmp_path / "tensorflow_similarity" / "samplers.py").write_text(Path(spec.origin).read_text())
    old = tmp_path / "sample.py"
    old.write_text(SAMPLE)
    new = changed(
        old, tmp_path / "new.py", ("from tensorflow_similarity.samplers", "from asyncrec.compat.tfsimilarity")
    )
    printed = run(old, tmp_path, str(tmp_path / "a"))
    assert len(printed.splitlines()) > 200
    assert run(new, tmp_path, str(tmp_path / "b")) == printed
