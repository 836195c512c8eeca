"""datum's names in asyncrec have the same signatures, files and splits as in datum, without its bugs."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest
from fake_gcs import FakeGcs

from asyncrec import encode_example
from asyncrec._datasets.from_generator.publishing import shard_count
from asyncrec.compat import _datum_reading as datum_reading
from asyncrec.compat.datum import DatasetConfigs, TFRecordWriter, TFRReadConfigs, load
from asyncrec.errors import DatasetError, DuplicateKeyError, SchemaError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datum_reading, "found_tensorflow", lambda: None)


# Needed for train splits, too: as in datum, a short last batch is dropped by default.
ALL = DatasetConfigs(drop_remainder=False)


def numbers(split: str, count: int = 100, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(start, start + count):
        yield number, {"n": number, "f": number / 2, "s": f"text {number}", "v": [1] * (number % 3)}


def write(split: str = "train", generator: Any = numbers, path: str = "set", **options: Any) -> TFRecordWriter:
    writer = TFRecordWriter(generator, None, path, split, 100, **options)
    writer.create_records()
    return writer


def read(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["n"].tolist()]


# -- examples from the documentation ----------------------------------------------------------------------------------


def test_signatures_match_documentation() -> None:
    """Besides ``**gen_kwargs``, there is one more keyword, with a name that no generator uses."""
    parameters = inspect.signature(TFRecordWriter.__init__).parameters
    names = ["self", "generator", "serializer", "path", "split", "total_examples", "sparse_features"]
    assert [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD] == names
    assert parameters["sparse_features"].default is None
    assert parameters["gen_kwargs"].kind is inspect.Parameter.VAR_KEYWORD
    methods = {name: [] for name in ("cache_records", "create_records", "flush", "flush_records")}
    methods |= {"add_shape_fields": ["datum"], "save_shard_info": ["shard_info"]}
    for name, expected in methods.items():
        assert list(inspect.signature(getattr(TFRecordWriter, name)).parameters) == ["self", *expected]


def test_writer_methods_write_files_step_by_step() -> None:
    writer = TFRecordWriter(numbers, encode_example, "set", "train", 50, count=50)
    writer.cache_records()
    assert writer.current_examples == 50
    shard_info, size = writer.flush_records()
    assert shard_info == {"train": {"train-00000-of-00001.tfrecord": 50}}
    assert size > 50 * 20
    writer.save_shard_info({"elsewhere": {"elsewhere-00000-of-00001.tfrecord": 3}})
    assert json.loads(Path("set/shard_info.json").read_text()) == {
        "elsewhere": {"elsewhere-00000-of-00001.tfrecord": 3},
        "train": {"train-00000-of-00001.tfrecord": 50},
    }
    table = json.loads(Path("set/datum_to_type_and_shape_mapping.json").read_text())
    assert table["n"] == {"type": "int", "shape": [], "dense": True}
    assert (table["f"]["type"], table["s"]["type"], table["v"]["dense"]) == ("float", "string", False)


def test_create_records_equals_cache_records_then_flush() -> None:
    writer = TFRecordWriter(numbers, None, "set", "train", 100)
    writer.cache_records()
    writer.flush()
    write(path="other")
    name = "train-00000-of-00001.tfrecord"
    assert Path("set", name).read_bytes() == Path("other", name).read_bytes()


def test_add_shape_fields_changes_datum_in_place() -> None:
    writer = TFRecordWriter(numbers, None, "set", "train", 1, ["mask"])
    given = {"mask": np.zeros((2, 3)), "n": 1}
    assert writer.add_shape_fields(given) is given
    assert given["mask_shape"] == [2, 3]


@pytest.mark.parametrize("keyword", ["compression", "storage", "progress", "num_shards"])
def test_every_keyword_reaches_generator(keyword: str) -> None:
    seen = {}

    def generator(**kwargs: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        seen.update(kwargs)
        yield 1, {"n": 1}

    TFRecordWriter(generator, None, "set", "train", 1, **{keyword: "mine"}).create_records()
    assert seen == {keyword: "mine", "split": "train"}


# -- scripts that use more than the documented names -------------------------------------------------------------------


def test_attributes_match_datum() -> None:
    writer = TFRecordWriter(numbers, encode_example, "data/set", "train", 50, ["v"], count=50)
    assert (writer.generator, writer.serializer, writer.path) == (numbers, encode_example, "data/set/train")
    assert (writer.split, writer.total_examples, writer.sparse_features) == ("train", 50, ["v"])
    assert (writer.gen_kwargs, writer.current_examples) == ({"count": 50, "split": "train"}, 0)
    assert (writer.shuffler.size, writer.shuffler.bucket_lengths) == (0, [0])


def test_writer_calls_overridden_methods() -> None:
    called = []

    class Writer(TFRecordWriter):
        def cache_records(self) -> None:
            called.append("cache_records")
            super().cache_records()

        def add_shape_fields(self, datum: Any) -> Any:
            called.append("add_shape_fields")
            return super().add_shape_fields(datum)

        def flush_records(self) -> Any:
            called.append("flush_records")
            return super().flush_records()

        def save_shard_info(self, shard_info: Any) -> None:
            called.append("save_shard_info")
            super().save_shard_info(shard_info)

    Writer(lambda split: iter([(1, {"m": [[1, 2]]})]), None, "set", "train", 1, ["m"]).create_records()
    assert called == ["cache_records", "add_shape_fields", "flush_records", "save_shard_info"]


def test_subclass_may_override_cache_records() -> None:
    class Writer(TFRecordWriter):
        def cache_records(self) -> None:
            for key, datum in self.generator(**self.gen_kwargs):
                self.shuffler.add(key, self.serializer(datum))
                self.current_examples += 1

    writer = Writer(numbers, None, "set", "train", 100, count=100)
    writer.cache_records()
    assert (writer.current_examples, writer.shuffler.bucket_lengths) == (100, [100])
    writer.flush()
    write(path="other")
    name = "train-00000-of-00001.tfrecord"
    assert Path("set", name).read_bytes() == Path("other", name).read_bytes()
    assert len(read(load("set", ALL).train_fn())) == 100


def test_generator_runs_in_callers_thread_and_is_closed() -> None:
    """An sqlite connection can be used only in the thread that created it."""
    database = sqlite3.connect(":memory:")
    database.execute("create table rows (n)")
    database.executemany("insert into rows values (?)", [(1,), (2,), (2,)])
    closed = []

    def rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            for (n,) in database.execute("select n from rows"):
                yield n, {"n": n}
        finally:
            closed.append(split)

    with pytest.raises(AssertionError, match="two examples have the same key: number 1 has 2, number 2 has 2"):
        write(generator=rows)
    database.execute("delete from rows where rowid = 3")
    write(generator=rows)
    assert sorted(read(load("set", ALL).train_fn())) == [1, 2]
    assert closed == ["train", "train"]


def test_datum_assertion_errors_remain_assertion_errors() -> None:
    write()
    for instruction in ("train[5%]", "train[:10", "train[:200]", "train[0:0]"):
        with pytest.raises(AssertionError):
            load("set").val_fn(instruction)
    with pytest.raises(AssertionError, match="call cache_records first"):
        TFRecordWriter(numbers, None, "set", "val", 1).flush()
    with pytest.raises(AssertionError, match="the serializer returned a str, not bytes"):
        TFRecordWriter(numbers, lambda datum: "text", "set", "val", 1).create_records()  # type: ignore[arg-type,return-value]
    with pytest.raises(DuplicateKeyError) as raised:
        write(generator=lambda split: iter([(1, {"a": 1}), ("1", {"a": 1})]))
    assert isinstance(raised.value, AssertionError)


def test_flush_records_returns_counts_of_all_splits() -> None:
    write("val", count=20)
    writer = TFRecordWriter(numbers, None, "set", "train", 100)
    writer.cache_records()
    shard_info, _ = writer.flush_records()
    train, val = "train-00000-of-00001.tfrecord", "val-00000-of-00001.tfrecord"
    assert shard_info == {"train": {train: 100}, "val": {val: 20}}


def test_mixed_integer_and_float_list_becomes_float() -> None:
    write("val", lambda split: iter([(1, {"v": [1, 2.5]})]))
    (batch,) = load("set").val_fn()
    assert batch["v"].tolist() == [[1.0, 2.5]]


def test_mapping_describes_image_pixels_for_any_serializer() -> None:
    Path("image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + pack(">I4sIIBBBBB", 13, b"IHDR", 5, 4, 8, 2, 0, 0, 0))

    def images(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {"image": "image.png", "n": 1}

    for folder, serializer in (("ours", None), ("own", lambda datum: encode_example({**datum, "image": b"bytes"}))):
        TFRecordWriter(images, serializer, folder, "train", 1).create_records()
        table = json.loads(Path(folder, "datum_to_type_and_shape_mapping.json").read_text())
        assert table["image"] == {"type": "string", "shape": [4, 5, 3], "dense": True}


def test_writer_options_keyword_reaches_generator() -> None:
    seen = {}

    def generator(**kwargs: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        seen.update(kwargs)
        yield 1, {"n": 1}

    TFRecordWriter(generator, None, "set", "train", 1, writer_options="fast").create_records()  # type: ignore[arg-type]
    assert seen == {"writer_options": "fast", "split": "train"}


# -- configurations ----------------------------------------------------------------------------------------------------


def test_all_datum_configurations_exist_with_their_defaults() -> None:
    configs = DatasetConfigs()
    plain = {
        "full_dataset": False, "cache": False, "cache_filename": "", "shuffle_files": True, "num_parallel_calls": 1,
        "deterministic": False, "deterministic_val": False, "deterministic_test": False, "use_tf_padding": False,
        "use_datum_padding": False, "echoing": None, "bucket_fn": None, "pre_batching_callback_train": None,
        "post_batching_callback_val": None,
    }  # fmt: skip
    assert {name: getattr(configs, name) for name in plain} == plain
    assert (configs.bucket_op.bucket_boundaries, configs.bucket_op.bucket_batch_sizes) == ([0], [32, 32])
    read_config = configs.read_config
    assert (read_config.seed, read_config.interleave_cycle_length, read_config.interleave_block_length) == (
        6052020,
        -1,
        1,
    )
    with pytest.raises(TypeError, match="echoing must be of type int, not NoneType"):
        configs.echoing = None


def test_configurations_are_merged_unless_they_contradict_each_other() -> None:
    one, other = DatasetConfigs(batch_size_train=3), DatasetConfigs(echoing=2)
    other.read_config.seed = 5
    merged = one.merge(other)
    assert (merged.batch_size_train, merged.echoing, merged.read_config.seed) == (3, 2, 5)
    assert merged == DatasetConfigs(batch_size_train=3, echoing=2, read_config=TFRReadConfigs(seed=5))
    assert merged != one
    with pytest.raises(ValueError, match="the option echoing is 2 in one of the configs and 3 in the other"):
        other.merge(DatasetConfigs(echoing=3))


def test_padded_shapes_and_configs_are_dataset_properties() -> None:
    write()
    dataset = load("set")
    assert dataset.padded_shapes == {"n": [], "f": [], "s": [], "v": [None]}
    dataset.dataset_configs = DatasetConfigs(batch_size_val=7)
    assert [len(batch["n"]) for batch in dataset.val_fn("train[:14]")] == [7, 7]
    with pytest.raises(ValueError, match="missing is not a folder"):
        load("missing")


# -- reading ----------------------------------------------------------------------------------------------------------


def test_batches_are_padded_with_datum_types() -> None:
    def generator(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(3):
            yield (
                number,
                {"flag": True, "v": [1.5] * number, "t": ["é"] * number, "m": np.ones((number + 1, 2), np.int32)},
            )

    write("val", generator, sparse_features=["m"])
    (batch,) = load("set").val_fn()
    by_length = np.argsort((batch["v"] != 0).sum(1))
    assert (batch["flag"].dtype, batch["flag"].tolist()) == (np.int64, [1, 1, 1])
    assert (batch["v"].dtype, batch["v"][by_length].tolist()) == (np.float32, [[0, 0], [1.5, 0], [1.5, 1.5]])
    assert batch["t"][by_length].tolist() == [[b"", b""], ["é".encode(), b""], ["é".encode()] * 2]
    assert (batch["m"].dtype, batch["m"].shape, batch["m"].sum()) == (np.int64, (3, 3, 2), 12)
    assert batch["m_shape"].tolist() == [[size, 2] for size in np.count_nonzero(batch["m"].any(2), 1)]


def test_shuffling_with_fixed_seed_affects_train_split_only() -> None:
    for split in ("train", "val", "test"):
        write(split)
    dataset = load("set", ALL)
    stored = read(dataset.train_fn(shuffle=False))
    shuffled = read(dataset.train_fn())
    assert sorted(shuffled) == sorted(stored) == list(range(100))
    assert shuffled == read(dataset.train_fn()) != stored
    assert read(dataset.val_fn()) == read(dataset.val_fn("val"))
    assert sorted(read(dataset.test_fn())) == list(range(100))


def test_split_slices_and_sums_are_read() -> None:
    write("train")
    write("test", start=1000)
    dataset = load("set")
    train, test = read(dataset.val_fn("train")), read(dataset.test_fn())
    assert read(dataset.test_fn("test[:-5%]+train[40%:60%]")) == test[:-5] + train[40:60]
    assert read(dataset.val_fn("train[:10]")) == train[:10]


def test_repeats_and_batch_sizes_follow_configuration() -> None:
    write()
    configs = DatasetConfigs(batch_size_train=30, reshuffle_each_iteration=True)
    batches = load("set", configs).train_fn(repeat=2)
    sizes = [len(batch["n"]) for batch in batches]
    assert sizes == [30, 30, 30] * 2
    assert [len(batch["n"]) for batch in load("set").train_fn()] == [32, 32, 32]
    endless = iter(load("set", ALL).train_fn(repeat=-1))
    assert len([next(endless) for _ in range(20)]) == 20
    with pytest.raises(AttributeError, match="batch_sise"):
        configs.batch_sise_train = 3
    with pytest.raises(TypeError, match="buffer_size must be of type int, not str"):
        configs.buffer_size = "100"  # type: ignore[assignment]  # deliberately wrong


def test_missing_split_range_or_features_raise_at_once() -> None:
    write()
    with pytest.raises(ValueError, match="train"):
        load("set").val_fn()
    with pytest.raises(ValueError, match=r"train\[5:5\]"):
        load("set", ALL).train_fn("train[5:5]")
    TFRecordWriter(lambda split: [(1, {"a": 1})], lambda datum: b"no Example", "set", "raw", 1).create_records()
    with pytest.raises(DatasetError, match="no feature types"):
        load("set", ALL).train_fn("raw")


# -- datum's bugs -----------------------------------------------------------------------------------------------------


def test_rewritten_split_updates_counts() -> None:
    """datum kept the counts from the first write."""
    write(count=100)
    write(count=30)
    (shard,) = Path("set").glob("train-*.tfrecord")
    assert shard.name != "train-00000-of-00001.tfrecord", "nothing is written over"
    assert json.loads(Path("set/shard_info.json").read_text())["train"] == {shard.name: 30}
    assert len(read(load("set", ALL).train_fn())) == 30


def test_counts_of_other_splits_are_kept_in_store(gcs: FakeGcs) -> None:
    """datum dropped them for gs:// paths."""
    write("train", path="gs://bucket/set")
    write("val", path="gs://bucket/set", count=20)
    assert sorted(json.loads(gcs.objects["bucket", "set/shard_info.json"].data)) == ["train", "val"]
    assert len(read(load("gs://bucket/set").val_fn())) == 20


@pytest.mark.parametrize(("size", "records", "shards"), [(2 << 40, 1500, 1500), (600 << 30, 1000, 601)])
def test_shard_count_grows_with_size_up_to_record_count(size: int, records: int, shards: int) -> None:
    """A shard has up to 1 GiB or one record. datum never finished the first case, and wrote one file for the second."""
    assert shard_count(size, records) == shards


def test_schema_covers_all_examples_and_splits() -> None:
    """datum's schema was that of the last example of the last split."""

    def first(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {"a": 1, "early": 1.0}
        yield 2, {"a": 1}

    write("train", first)
    write("val", lambda split: iter([(1, {"b": "x"})]))
    table = json.loads(Path("set/datum_to_type_and_shape_mapping.json").read_text())
    assert {name: each["type"] for name, each in table.items()} == {"a": "int", "early": "float", "b": "string"}
    with pytest.raises(SchemaError, match="'a' is int64 in example 0 and bytes in example 1"):
        write("bad", lambda split: iter([(1, {"a": 1}), (2, {"a": "text"})]))


def test_generator_without_examples_raises_dataset_error() -> None:
    """datum raised a NameError."""
    with pytest.raises(DatasetError, match="no example"):
        write(count=0)


def test_two_dimensional_text_decodes_as_text() -> None:
    """datum decoded it as a JPEG."""
    write("val", lambda split: iter([(1, {"words": [["a", "b"], ["c", "d"]]})]))
    (batch,) = load("set").val_fn()
    assert batch["words"].tolist() == [[[b"a", b"b"], [b"c", b"d"]]]


def test_writer_leaves_no_files_beside_folder(tmp_path: Path) -> None:
    """datum kept its buckets in the parent folder, with up to a thousand files open."""
    os.mkdir("spill")
    files = []

    def generator(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(3000):
            yield number, {"n": number, "filling": bytes(1000)}
        files.extend(os.listdir("/proc/self/fd"))

    write(generator=generator, writer_options={"memory_limit": 1 << 20, "temporary_folder": "spill"})
    assert len(files) < 200
    assert sorted(os.listdir()) == ["set", "spill"]
    assert os.listdir("spill") == []


def test_duplicate_key_raises_while_examples_are_generated() -> None:
    """datum noticed only after all examples had been generated."""
    made = []

    def generator(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in (1, 2, 1, *range(10, 5000)):
            made.append(number)
            yield number, {"n": number}

    with pytest.raises(DuplicateKeyError):
        write(generator=generator)
    assert made == [1, 2, 1]
    assert not list(Path("set").glob("*.tfrecord"))


def test_shards_can_be_compressed() -> None:
    """datum could not compress."""
    write(writer_options={"compression": "GZIP"})
    assert Path("set/train-00000-of-00001.tfrecord").read_bytes()[:2] == b"\x1f\x8b"
    assert len(read(load("set", ALL).train_fn())) == 100


def test_failed_write_keeps_previous_split() -> None:
    """datum overwrote its files one by one."""
    write()

    def generator(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {"n": 1}
        raise KeyError("from the generator")

    with pytest.raises(KeyError):
        write(generator=generator)
    assert len(read(load("set", ALL).train_fn())) == 100
