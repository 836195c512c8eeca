"""`asyncrec.compat.datum` and the datum package: each reads what the other wrote, and a model trains on either."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from datum.configs import DatasetConfigs as TheirConfigs
from datum.reader.loader import load as their_load
from datum.serializer.serializer import DatumSerializer
from datum.writer.tfrecord_writer import TFRecordWriter as TheirWriter

from asyncrec import blocking
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
    """A record read by either, padded or not; its number."""
    number = int(batch["n"][row])
    assert float(batch["f"][row]) == number / 2
    assert batch["s"][row].numpy() == f"text {number}".encode()
    assert batch["v"][row].numpy().tolist() == [number, number + 1, number + 2]
    matrix = batch["m"][row].numpy()
    assert matrix[: number % 3 + 1].tolist() == [[number] * 2] * (number % 3 + 1)
    assert not matrix[number % 3 + 1 :].any()
    return number


def test_datum_reads_what_we_wrote(tmp_path: Path) -> None:
    write_ours(tmp_path)
    configs = TheirConfigs()
    configs.batch_size_train = 1  # it stacks without padding
    dataset = their_load(str(tmp_path), configs).train_fn("train")
    assert sorted(check(batch, 0) for batch in dataset) == list(range(COUNT))
    half = their_load(str(tmp_path), configs).train_fn("train[:50%]")
    assert len(list(half)) == COUNT // 2


def test_we_read_what_datum_wrote(tmp_path: Path) -> None:
    write_theirs(tmp_path)
    dataset = load(str(tmp_path), DatasetConfigs(drop_remainder=False)).train_fn()
    assert sorted(check(batch, row) for batch in dataset for row in range(len(batch["n"]))) == list(range(COUNT))
    assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn("train[:-5%]")) == COUNT - 3


def test_both_write_the_same_records_in_the_same_order(tmp_path: Path) -> None:
    """Names, counts, the order of the keys' hashes and the features: only the manifest and the index are ours alone."""
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


def test_our_split_stands_beside_theirs_in_one_folder(tmp_path: Path) -> None:
    write_theirs(tmp_path, "val")
    write_ours(tmp_path, "train")
    for split in ("train", "val"):
        assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn(split)) == COUNT
    assert sum(len(batch["n"]) for batch in load(str(tmp_path)).test_fn("val[:10]+train[-10:]")) == 20
    configs = TheirConfigs()
    configs.batch_size_val = 1
    assert len(list(their_load(str(tmp_path), configs).val_fn())) == COUNT


@pytest.mark.parametrize("shuffle", [True, False])
def test_it_is_a_dataset_of_padded_batches_that_a_model_takes(tmp_path: Path, shuffle: bool) -> None:
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
