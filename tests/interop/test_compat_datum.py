"""`asyncrec.compat.datum` and datum read each other's files, and a model can be trained on either."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from datum import configs as theirs
from datum.configs import DatasetConfigs as TheirConfigs
from datum.reader.loader import load as their_load
from datum.serializer.serializer import DatumSerializer
from datum.utils import shard_utils
from datum.writer.tfrecord_writer import TFRecordWriter as TheirWriter
from PIL import Image

from asyncrec import blocking, decode_example
from asyncrec._datasets.from_generator.examples import image_shape
from asyncrec.compat.datum import DatasetConfigs, TFRecordWriter, load

COUNT = 60


def generator(split: str, count: int = COUNT) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(count):
        yield (
            number,
            {
                "n": number,
                "f": number / 2,
                "s": f"text {number}",
                "v": [number, number + 1, number + 2],
                "m": [[float(number)] * 2] * (number % 3 + 1),
            },
        )


def write_theirs(folder: Path, split: str = "train", **kwargs: Any) -> None:
    folder.mkdir(exist_ok=True)
    TheirWriter(generator, DatumSerializer("text"), f"{folder}/", split, COUNT, ["m"], **kwargs).create_records()


def write_ours(folder: Path, split: str = "train", **kwargs: Any) -> None:
    TFRecordWriter(generator, None, str(folder), split, COUNT, ["m"], **kwargs).create_records()


def check(batch: dict[str, Any], row: int) -> int:
    """Check a record read by either library, padded or not; return its number."""
    number = int(batch["n"][row])
    assert float(batch["f"][row]) == number / 2
    assert batch["s"][row].numpy() == f"text {number}".encode()
    assert batch["v"][row].numpy().tolist() == [number, number + 1, number + 2]
    matrix = batch["m"][row].numpy()
    assert matrix[: number % 3 + 1].tolist() == [[number] * 2] * (number % 3 + 1)
    assert not matrix[number % 3 + 1 :].any()
    return number


def test_datum_reads_asyncrec_files(tmp_path: Path) -> None:
    write_ours(tmp_path)
    configs = TheirConfigs()
    configs.batch_size_train = 1  # datum stacks the train batches without padding
    dataset = their_load(str(tmp_path), configs).train_fn("train")
    assert sorted(check(batch, 0) for batch in dataset) == list(range(COUNT))
    half = their_load(str(tmp_path), configs).train_fn("train[:50%]")
    assert len(list(half)) == COUNT // 2


def test_asyncrec_reads_datum_files(tmp_path: Path) -> None:
    write_theirs(tmp_path)
    dataset = load(str(tmp_path), DatasetConfigs(drop_remainder=False)).train_fn()
    assert sorted(check(batch, row) for batch in dataset for row in range(len(batch["n"]))) == list(range(COUNT))
    assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn("train[:-5%]")) == COUNT - 3


def test_both_writers_produce_same_records_in_same_order(tmp_path: Path) -> None:
    """Names, counts, the order by key hash and the features are the same; only the manifest and the index are ours."""
    write_theirs(tmp_path / "theirs")
    write_ours(tmp_path / "ours")
    name = "train-00000-of-00001.tfrecord"
    theirs = blocking.read_records(tmp_path / "theirs" / name)
    ours = blocking.read_records(tmp_path / "ours" / name)
    parse = tf.train.Example.FromString
    assert [parse(record) for record in ours] == [parse(record) for record in theirs]
    for file in ("shard_info.json", "datum_to_type_and_shape_mapping.json"):
        mine, other = (json.loads((tmp_path / each / file).read_text()) for each in ("ours", "theirs"))
        if file == "shard_info.json":
            assert mine == other
        else:
            assert {key: value["type"] for key, value in mine.items()} == {
                key: value["type"] for key, value in other.items()
            }


def test_asyncrec_and_datum_splits_share_folder(tmp_path: Path) -> None:
    write_theirs(tmp_path, "val")
    write_ours(tmp_path, "train")
    for split in ("train", "val"):
        assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn(split)) == COUNT
    assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn("val[:10]+train[-10:]")) == 20
    configs = TheirConfigs()
    configs.batch_size_val = 1
    assert len(list(their_load(str(tmp_path), configs).val_fn())) == COUNT


@pytest.mark.parametrize("shuffle", [True, False])
def test_padded_batches_train_a_model(tmp_path: Path, shuffle: bool) -> None:
    write_ours(tmp_path)
    configs = DatasetConfigs(batch_size_train=16, drop_remainder=False)
    dataset = load(tmp_path, configs).train_fn(repeat=2, shuffle=shuffle)
    assert isinstance(dataset, tf.data.Dataset)
    spec = dataset.element_spec
    assert (spec["n"].dtype, spec["f"].dtype, spec["s"].dtype) == (tf.int64, tf.float32, tf.string)
    assert spec["v"].shape.as_list() == [None, 3]
    assert spec["m"].shape.as_list() == [None, None, None]
    numbers = [check(batch, row) for batch in dataset for row in range(len(batch["n"]))]
    assert sorted(numbers) == sorted(list(range(COUNT)) * 2)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    pairs = dataset.map(lambda batch: (tf.cast(batch["v"], tf.float32), batch["f"]))
    assert np.isfinite(model.fit(pairs, epochs=1, verbose=0).history["loss"][0])


# -- the same results --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["datum", "ours"])
def pictures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write images, numbers and arrays of several sizes to several shards, with either library."""
    folder = tmp_path_factory.mktemp("pictures")
    files = []
    for name in ("0.jpg", "1.png"):
        files.append(str(folder / name))
        Image.effect_noise((12, 10), 50).convert("RGB").save(files[-1])

    def examples(split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(100 if split == "train" else 21):
            yield (
                f"{split} {number}",
                {
                    "image": files[number % 2],
                    "n": number,
                    "boxes": np.full((number % 3 + 1, 2), number, np.float32).tolist(),
                    "tags": [number] * (number % 4 + 1),
                    "text": f"number {number}",
                },
            )

    path = str(folder / "set")
    Path(path).mkdir()
    patch = pytest.MonkeyPatch()
    patch.setattr(shard_utils, "MIN_SHARD_SIZE", 10_000)
    patch.setattr("asyncrec._datasets.from_generator.publishing.MIN_SHARD_BYTES", 10_000)
    writer = {"datum": TheirWriter, "ours": TFRecordWriter}[request.param]
    for split in ("train", "val"):
        writer(examples, _serialize, path, split, 100, ["boxes", "tags"]).create_records()
    patch.undo()
    assert len(json.loads(Path(path, "shard_info.json").read_text())["train"]) >= 4
    return path


def _serialize(datum: dict[str, Any]) -> bytes:
    """Serialize as datum does for images; it does not accept arrays."""
    from datum.serializer.serializer import serialize_datum

    values = {name: Path(value).read_bytes() if name == "image" else value for name, value in datum.items()}
    return serialize_datum(values)


def _small(example: dict[str, Any]) -> dict[str, Any]:
    return {"image": tf.image.resize(example["image"], [4, 4]), "n": example["n"] * 2}


def _negative(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "n": -batch["n"]}


CONFIGS: dict[str, dict[str, Any]] = {
    "as they are": {"use_datum_padding": True},
    "another seed": {"use_datum_padding": True, "seed": 7, "buffer_size": 13},
    "one by one": {"batch_size_train": 1, "batch_size_val": 1, "batch_size_test": 1},
    "short batches": {"use_datum_padding": True, "drop_remainder": False, "batch_size_train": 9},
    "whole batches": {"use_datum_padding": True, "drop_remainder_val": True, "batch_size_val": 9},
    "echoing": {"use_datum_padding": True, "echoing": 2},
    "before batches": {
        "pre_batching_callback_train": _small,
        "pre_batching_callback_val": _small,
        "pre_batching_callback_test": _small,
    },
    "after batches": {
        "use_datum_padding": True,
        "post_batching_callback_train": _negative,
        "post_batching_callback_val": _negative,
    },
    "files in order": {"use_datum_padding": True, "shuffle_files": False},
    "another order": {"use_datum_padding": True, "reshuffle_each_iteration": True},
    "parallel": {
        "num_parallel_calls": 3,
        "deterministic": True,
        "deterministic_val": True,  # otherwise the order is random, in datum as well
        "deterministic_test": True,
        "batch_size_train": 1,
        "batch_size_val": 1,
        "batch_size_test": 1,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_datasets_of_equal_configuration_match_datum(pictures: str, name: str) -> None:
    """Values, order, shapes, types and cardinality are compared; also repeated, shuffled, and for parts of splits."""
    found = []
    for load_it, configs in ((their_load, TheirConfigs()), (load, DatasetConfigs())):
        for key, value in CONFIGS[name].items():
            setattr(configs, key, value)
        dataset = load_it(pictures, configs)
        found.append(
            [
                dataset.train_fn(),
                dataset.train_fn("train[:50%]+val[5:]", repeat=2, shuffle=False),
                dataset.val_fn(),
                dataset.test_fn("train[-30:]", shuffle=True),
            ]
        )
    for expected, ours in zip(*found, strict=True):
        assert ours.element_spec == expected.element_spec
        assert ours.cardinality() == expected.cardinality()
        for _ in range(2):
            assert _values(ours) == _values(expected)


def test_read_configuration_matches_datum(pictures: str) -> None:
    found = []
    for load_it, configs in ((their_load, TheirConfigs()), (load, DatasetConfigs())):
        configs.batch_size_train = 1
        configs.read_config.experimental_interleave_sort_fn = lambda files: files[::-1]
        configs.read_config.interleave_cycle_length = 2
        configs.read_config.interleave_block_length = 3
        configs.read_config.shuffle_reshuffle_each_iteration = False
        found.append(_values(load_it(pictures, configs).train_fn("train[10:90]", shuffle=False)))
    assert found[0] == found[1]


def test_length_buckets_and_whole_set_batches_match_datum(pictures: str) -> None:
    for load_it, configs in ((their_load, TheirConfigs()), (load, DatasetConfigs())):
        configs.batch_size_val = 21
        configs.use_datum_padding = True
        configs.full_dataset = True
        whole = load_it(pictures, configs).val_fn()
        assert sorted(whole["n"].numpy().tolist()) == list(range(21))
    configs = DatasetConfigs(bucket_fn=lambda example: tf.size(example["tags"]), drop_remainder=False)
    configs.bucket_op.bucket_boundaries = [3]
    configs.bucket_op.bucket_batch_sizes = [4, 2]
    sizes = [(len(batch["n"]), batch["tags"].shape[1]) for batch in load(pictures, configs).train_fn()]
    assert sum(number for number, _ in sizes) == 100
    assert {(4, 2), (2, 4)} <= {*sizes}


def test_both_libraries_accept_each_others_configurations(pictures: str) -> None:
    configs = theirs.DatasetConfigs()
    configs.use_datum_padding = True
    ours = DatasetConfigs(use_datum_padding=True)
    assert _values(load(pictures, configs).train_fn()) == _values(their_load(pictures, ours).train_fn())


@pytest.mark.parametrize("mode", ["L", "P", "RGBA"])
def test_images_of_other_modes_decode_equally(tmp_path: Path, mode: str) -> None:
    Image.linear_gradient("L").convert(mode).save(tmp_path / "image.png")

    def images(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {"image": str(tmp_path / "image.png"), "n": 1}

    for name, writer, serializer in (("datum", TheirWriter, DatumSerializer("image")), ("ours", TFRecordWriter, None)):
        path = tmp_path / name
        path.mkdir()
        writer(images, serializer, str(path), "val", 1).create_records()
        values = [_values(load_it(str(path)).val_fn()) for load_it in (their_load, load)]
        assert values[0] == values[1]
        assert np.shape(values[0][0]["image"][1]) == (1, 256, 256, 1 if mode in "LP" else 3)


def test_tensorflow_padding_equals_datum_padding(pictures: str) -> None:
    """datum fails with current TensorFlow, which does not accept specs as shapes."""
    assert _values(load(pictures, DatasetConfigs(use_tf_padding=True)).val_fn()) == _values(
        load(pictures, DatasetConfigs(use_datum_padding=True)).val_fn()
    )


def test_dataset_uses_configured_cache_file(pictures: str, tmp_path: Path) -> None:
    """datum fails, because it calls a method that its configurations do not have."""
    configs = DatasetConfigs(cache=True, cache_filename=str(tmp_path / "cache"), use_datum_padding=True)
    dataset = load(pictures, configs).val_fn()
    assert _values(dataset) == _values(dataset)
    assert list(tmp_path.glob("cache*"))


def test_image_shapes_of_every_mode_match_pillow() -> None:
    for mode, kind in [*((mode, "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")), ("CMYK", "JPEG")]:
        for progressive in (False, True):
            file = io.BytesIO()
            Image.new(mode, (7, 5)).save(file, kind, progressive=progressive)
            file.seek(0)
            assert image_shape(file) == list(np.asarray(Image.open(io.BytesIO(file.getvalue()))).shape), mode


def test_shard_boundaries_and_counts_match_datum() -> None:
    from asyncrec._datasets.from_generator.publishing import shard_count
    from asyncrec._shards.writing.ordered_writer import shard_boundaries

    draw = random.Random(1)
    for _ in range(2000):
        shards = draw.choice([1, 2, 4, 8, 64, 512, 1024, 2048, 3072, 5120])
        records = shards + draw.randrange(10 ** draw.randint(1, 9))
        assert shard_boundaries(records, shards)[1:] == shard_utils._get_shard_boundaries(records, shards)
    # Above this size, datum exceeds its own maximum or never returns, because it rounds down the minimum number of
    # shards.
    for _ in range(2000):
        size, records = draw.randrange(1 << 30), draw.randrange(1, 10**7)
        assert shard_count(size, records) == shard_utils._get_number_shards(size, records)


def test_shards_unreadable_by_tensorflow_are_read(tmp_path: Path) -> None:
    """This also covers compressed shards, which datum cannot read."""
    for path, options in (("memory://of-datum/set", {}), (str(tmp_path), {"compression": "GZIP", "num_shards": 3})):
        TFRecordWriter(generator, None, path, "train", COUNT, ["m"], writer_options=options).create_records()
        configs = DatasetConfigs(drop_remainder=False)
        dataset = load(path, configs).train_fn(repeat=2)
        assert dataset.cardinality() == 4
        numbers = [check(batch, row) for batch in dataset for row in range(len(batch["n"]))]
        assert sorted(numbers) == sorted([*range(COUNT)] * 2)


@pytest.mark.parametrize("instruction", ["train", "train[10%:90%]", "train[-5:]+train[:7]"])
def test_store_interleaves_shards_in_same_order_as_disk(tmp_path: Path, instruction: str) -> None:
    orders = []
    for path in ("memory://of-datum/order", str(tmp_path)):
        options = {"num_shards": 4, "temporary_folder": str(tmp_path)}
        TFRecordWriter(generator, None, path, "train", COUNT, ["m"], writer_options=options).create_records()
        configs = DatasetConfigs(batch_size_train=1, drop_remainder=False)
        configs.read_config.interleave_cycle_length = 3
        dataset = load(path, configs).train_fn(instruction, shuffle=False, repeat=2)
        orders.append([int(batch["n"][0]) for batch in dataset])
    assert orders[0] == orders[1]
    if instruction == "train":
        stored = [
            record for shard in blocking.list_shards(tmp_path / "train") for record in blocking.read_records(shard)
        ]
        assert orders[0][: COUNT // 4] != [int(decode_example(record)["n"][0]) for record in stored[: COUNT // 4]]


def test_two_dimensional_text_decodes_as_text(tmp_path: Path) -> None:
    """datum decoded it as an image."""
    words = [["a", "b"], ["c", "d"]]
    TFRecordWriter(
        lambda split: iter([(1, {"words": words, "tags": ["x", "y"]})]), None, str(tmp_path), "val", 1
    ).create_records()
    (batch,) = load(tmp_path).val_fn()
    assert batch["words"].numpy().tolist() == [[[b"a", b"b"], [b"c", b"d"]]]
    assert batch["tags"].numpy().tolist() == [[b"x", b"y"]]


def _values(dataset: Any) -> list[dict[str, Any]]:
    return [{name: (str(value.dtype), value.numpy().tolist()) for name, value in batch.items()} for batch in dataset]
